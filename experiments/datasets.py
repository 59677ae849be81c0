"""The tables of the paper's experiments: one small loader each, from the folder named by ``GAUSSMIX_DATA``.

Files are checked against the sums below. Preprocessing is that of the paper's published code, which looks at the data
(scaling, imputation by the mean): it belongs to the protocol of its experiments and is **not private**.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Table = tuple[NDArray[np.float64], NDArray[np.float64]]

CHECKSUMS = {
    "boston/housing.txt": "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
    "wine_red/winequality-red.csv": "d6a0d9bd24806944818795f22500c46cb6424cbff517aacda36595d3ed9b2daa",
    "bike/bike_train.csv": "0cf70c35eeb6405a40cc9e124854e2da901fa88fe7374a75d141e7401bf4c857",
    "communities/communities.data": "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
    "communities/communities.names": "ccfda7f66735f4e376dc5eacc40a2537da683951e7528ba5c3d0194a7e952f8d",
    "tecator/505_tecator.tsv.gz": "6c40a711d70e09105adfc30cb1765b6544e0dd25c555941af78d8df63392d6d1",
}


def data_folder() -> Path | None:
    """The folder of data sets, if there is one."""
    folder = os.environ.get("GAUSSMIX_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def read(name: str) -> bytes:
    """The bytes of a file, checked."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError("Set GAUSSMIX_DATA to the folder that holds the data sets.")
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise ValueError(f"{name} is not the file that the experiments were made with: its checksum differs.")
    return content


def boston(rng: np.random.Generator) -> Table:
    """Boston housing: 506 rows, 13 features."""
    table = np.loadtxt(io.BytesIO(read("boston/housing.txt")))
    return table[:, :-1], table[:, -1]


def wine(rng: np.random.Generator) -> Table:
    """Red wine quality without duplicates: 1,359 rows, 11 features."""
    table = pd.read_csv(io.BytesIO(read("wine_red/winequality-red.csv"))).drop_duplicates()
    return table.drop(columns="quality").to_numpy(float), table["quality"].to_numpy(float)


def bike(rng: np.random.Generator) -> Table:
    """Bike sharing: 10,886 rows; weather, one-hot season and weather class, hour, weekday, month, year."""
    table = pd.read_csv(io.BytesIO(read("bike/bike_train.csv")), parse_dates=["datetime"])
    time = table["datetime"].dt
    features = [table[name] for name in ("holiday", "workingday", "temp", "atemp", "humidity", "windspeed")]
    features += [table["season"] == level for level in (1, 2, 3, 4)]
    features += [table["weather"] == level for level in (1, 2, 3, 4)]
    features += [time.hour, time.day_of_week, time.month, time.year - 2011]
    return np.column_stack([np.asarray(f, float) for f in features]), table["count"].to_numpy(float)


def communities(rng: np.random.Generator) -> Table:
    """Communities and Crime as the published code prepares it: 822 rows, 99 standardised features."""
    names = [
        line.split()[1]
        for line in read("communities/communities.names").decode(errors="replace").splitlines()
        if line.startswith("@attribute")
    ]
    table = pd.read_csv(io.BytesIO(read("communities/communities.data")), names=names, na_values="?")
    table = table.drop(columns=["state", "county", "community", "communityname", "fold"])
    table["OtherPerCap"] = table["OtherPerCap"].fillna(table["OtherPerCap"].mean())
    table = table.dropna(axis=1)
    kept = table["racepctblack"] >= 0.1
    features = table.drop(columns=["ViolentCrimesPerPop", "racepctblack"])
    features = (features - features.mean()) / features.std()
    return features[kept].to_numpy(float), table.loc[kept, "ViolentCrimesPerPop"].to_numpy(float)


def tecator(rng: np.random.Generator) -> Table:
    """Tecator meat spectra: 240 rows, 124 features."""
    table = pd.read_csv(io.BytesIO(gzip.decompress(read("tecator/505_tecator.tsv.gz"))), sep="\t")
    return table.drop(columns="target").to_numpy(float), table["target"].to_numpy(float)


def _linear_response(X: NDArray[np.float64], rng: np.random.Generator) -> Table:
    """Y = xθ₀ + 0.1 ξ, θ₀ uniform on the sphere, ξ uniform on [-1, 1]."""
    theta = rng.standard_normal(X.shape[1])
    return X, X @ theta / np.linalg.norm(theta) + 0.1 * rng.uniform(-1, 1, len(X))


def gaussian(rng: np.random.Generator, n: int = 10_240, d: int = 512) -> Table:
    """The paper's Gaussian set: rows N(0, QQᵀ) of rank 4. Four fifths of the rows make its n = 8,192."""
    Q = np.linalg.qr(rng.standard_normal((d, 4)))[0]
    return _linear_response(rng.standard_normal((n, 4)) @ Q.T, rng)


def uniform(rng: np.random.Generator, n: int = 10_240, d: int = 512) -> Table:
    """The paper's uniform set: independent features of variance 1. Four fifths of the rows make its n = 8,192."""
    return _linear_response(np.sqrt(3) * rng.uniform(-1, 1, (n, d)), rng)


LINEAR: dict[str, Callable[[np.random.Generator], Table]] = {
    "boston": boston,
    "wine": wine,
    "bike": bike,
    "communities": communities,
    "tecator": tecator,
    "gaussian": gaussian,
    "uniform": uniform,
}
