"""Classes 3 and 8 of four image sets, as bytes (images, channels, rows, columns), labels -1 and 1.

CIFAR-100 has another split into training and test images than the original, whose order is lost in the file used here:
the 600 images of a class are sorted by the SHA-256 of their bytes, and the first 500 are for training. The mirror's
files are split in the same way, so that both sources give the same images.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.data_files import download, read

MNIST_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MIRROR = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR_MIRROR = "https://www.cs.toronto.edu/~kriz/"
CLASSES = (3, 8)
RECORD = 1 + 3 * 32 * 32


class Images(NamedTuple):
    """Training and test images with labels: class 3 is -1, class 8 is 1."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def mnist() -> Images:
    """MNIST, digits 3 and 8: 11,982 and 1,984 images of 28 by 28."""
    return _idx_images("mnist", MNIST_MIRROR)


def fashion() -> Images:
    """Fashion-MNIST, dresses and bags: 12,000 and 2,000 images of 28 by 28."""
    return _idx_images("fashion_mnist", FASHION_MIRROR)


def cifar10() -> Images:
    """CIFAR-10, cats and ships: 10,000 and 2,000 images of 3 by 32 by 32."""
    return _record_images("cifar10_cat_ship", _cifar10_records)


def cifar100() -> Images:
    """CIFAR-100, bears and bicycles: 1,000 and 200 images of 3 by 32 by 32, split by hash."""
    return _record_images("cifar100_bear_bicycle", _cifar100_records)


IMAGES = {"fashion": fashion, "cifar100": cifar100, "cifar10": cifar10, "mnist": mnist}


def _idx_images(folder: str, mirror: str) -> Images:
    def array(name: str) -> NDArray[np.uint8]:
        return idx(read(f"{folder}/{name}", lambda: gzip.decompress(download(mirror + name))))

    def images(part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        pixels, labels = array(f"{part}-images-idx3-ubyte.gz"), array(f"{part}-labels-idx1-ubyte.gz")
        kept = np.isin(labels, CLASSES)
        return pixels[kept][:, None], _signs(labels[kept])

    return Images(*images("train"), *images("t10k"))


def idx(content: bytes) -> NDArray[np.uint8]:
    """The array in a file of the idx format: two zero bytes, type 8 (bytes), dimensions, sizes, values."""
    if content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of bytes")
    sizes = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(sizes)


def _record_images(folder: str, mirror: Callable[[str], bytes]) -> Images:
    def images(part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        content = read(f"{folder}/{part}_classes_3_8.bin.gz", lambda: mirror(part))
        records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        return records[:, 1:].reshape(-1, 3, 32, 32), _signs(records[:, 0])

    return Images(*images("train"), *images("test"))


def _cifar10_records(part: str) -> bytes:
    """Records of both classes in the order of the original binary batches."""
    names = ["test_batch"] if part == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    batches = _members("cifar-10-binary.tar.gz", [f"cifar-10-batches-bin/{name}.bin" for name in names])
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(-1, RECORD)
    return records[np.isin(records[:, 0], CLASSES)].tobytes()


def _cifar100_records(part: str) -> bytes:
    """Records of both classes with their fine label alone, split by hash."""
    batches = _members("cifar-100-binary.tar.gz", ["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"])
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(-1, RECORD + 1)[:, 1:]
    return split_by_hash(records, part)


def split_by_hash(records: NDArray[np.uint8], part: str) -> bytes:
    """Five sixths of each class for training, the rest for testing, in the order of the images' hashes."""
    chosen = []
    for label in CLASSES:
        images = sorted(
            (record.tobytes() for record in records[records[:, 0] == label]),
            key=lambda record: hashlib.sha256(record[1:]).digest(),
        )
        cut = len(images) * 5 // 6
        chosen += images[:cut] if part == "train" else images[cut:]
    return b"".join(chosen)


def _members(archive: str, names: list[str]) -> list[bytes]:
    with tarfile.open(fileobj=io.BytesIO(download(CIFAR_MIRROR + archive))) as tar:
        files = [tar.extractfile(name) for name in names]
        return [file.read() for file in files if file is not None]


def _signs(labels: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.where(labels == CLASSES[1], 1, -1)
