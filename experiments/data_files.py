"""Where data sets come from: the folder named by ``GAUSSMIX_DATA``, or else public mirrors. Nothing enters unchecked.

What a mirror gives is turned into the same bytes as the folder's file, checked against the same sum and kept in
``GAUSSMIX_CACHE`` (``~/.cache/gaussmix`` by default).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).parent / "cache"  # of trials and features
RESULTS = Path(__file__).parent / "results"

CHECKSUMS = {  # SHA-256 of the unpacked contents: another compression of the same file is the same file
    "boston/housing.txt": "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
    "cps1988/cps1988.csv": "ef5ee9cbf3674f9cf242549517cf7801bffc5e98c1006055c9fdefebaf386251",
    "cps2024/cps2024.csv": "137e08edae5ac1abebdd80a4a02f65e169b16ff797640f56fe43390cbe747610",
    "diamonds/diamonds.csv": "974c2ce1c1ce245508bd357ca11a7fba2b37813ecf0f1158808a9249ebff67a1",
    "health_insurance/health_insurance.csv": "a87562a8482c2366a91f02c9f2a87e75b711abd1182681ed812f4343a0151983",
    "nlswork/nlswork.csv": "cb1c743d76b2e24395be9641d368634a965070dfc803a0f5ae40204ed6422854",
    "fertility/fertility.csv": "d037045571bd7e96c31a2f96fd6e854fcace0c1e67a18c9ea3316c84fc0c86d9",
    "wine_red/winequality-red.csv": "d6a0d9bd24806944818795f22500c46cb6424cbff517aacda36595d3ed9b2daa",
    "bike/bike_train.csv": "0cf70c35eeb6405a40cc9e124854e2da901fa88fe7374a75d141e7401bf4c857",
    "communities/communities.data": "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
    "communities/communities.names": "ccfda7f66735f4e376dc5eacc40a2537da683951e7528ba5c3d0194a7e952f8d",
    "tecator/505_tecator.tsv.gz": "0699b1bc8c53bd4e11b7ea7e6db80250186fef1bd68530462158658308d8823d",
    "mnist/train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "mnist/train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "mnist/t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "mnist/t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "fashion_mnist/train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "fashion_mnist/train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "fashion_mnist/t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "fashion_mnist/t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "cifar10_cat_ship/train_classes_3_8.bin.gz": "4d5e964905a0b8158475543297502c41835f82e69748ff64a2e66c8127d11398",
    "cifar10_cat_ship/test_classes_3_8.bin.gz": "ecfcedf014eb77e964c98a0812094d8156eeced1c6f696c389646eec132c6bfb",
    "cifar100_bear_bicycle/train_classes_3_8.bin.gz": (
        "6d916bdf355e229b0c623df37507dc9fb8b5d4fa0458c5ffd4fb59aa300dd941"
    ),
    "cifar100_bear_bicycle/test_classes_3_8.bin.gz": "dedba9e1ee178a85b07e833a7028f810838d479db729b583c8dbc517965074f5",
}


def data_folder() -> Path | None:
    """The folder of data sets, if there is one."""
    folder = os.environ.get("GAUSSMIX_DATA")
    if folder and not Path(folder).is_dir():
        raise FileNotFoundError(f"GAUSSMIX_DATA is {folder!r}, which is not a folder.")
    return Path(folder) if folder else None


def read(name: str, mirror: Callable[[], bytes] | None = None) -> bytes:
    """The unpacked, checked contents of a data file; ``mirror`` makes them where there is no data folder."""
    folder = data_folder()
    if folder is None and mirror is None:
        raise FileNotFoundError(f"Set GAUSSMIX_DATA to the folder that holds {name}.")
    if folder is not None:
        content = (folder / name).read_bytes()
        return _checked(name, gzip.decompress(content) if name.endswith(".gz") else content)
    cached = _downloads() / name
    if cached.exists():
        return _checked(name, gzip.decompress(cached.read_bytes()))
    assert mirror is not None
    content = _checked(name, mirror())
    _keep(cached, gzip.compress(content))
    return content


def download(url: str) -> bytes:
    """A file from a mirror, kept in the cache: archives serve several files."""
    kept = _downloads() / "archives" / hashlib.sha256(url.encode()).hexdigest()
    if not kept.exists():
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                content = answer.read()
        except OSError as error:
            raise OSError(f"{url} cannot be fetched ({error}): set GAUSSMIX_DATA to a folder of data sets.") from error
        _keep(kept, content)
    return kept.read_bytes()


def _keep(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.rename(path)


def _downloads() -> Path:
    return Path(os.environ.get("GAUSSMIX_CACHE", Path.home() / ".cache" / "gaussmix"))


def _checked(name: str, content: bytes) -> bytes:
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise ValueError(f"{name} is not the file that the experiments were made with: its checksum differs.")
    return content
