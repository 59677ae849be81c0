"""The tables of the paper's experiments, one small loader each.

Real tables come from the folder named by ``GAUSSMIX_DATA``, their files checked (:mod:`experiments.data_files`);
without it from OpenML and UCI, and then rows, columns and two sums are checked. Preprocessing is that of the paper's
published code, which looks at the data (imputation by the mean, standardisation): it belongs to the protocol of its
experiments and is **not private**. Synthetic tables are as the paper's text describes them; its code differs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special
from sklearn.datasets import fetch_openml

from experiments import Floats
from experiments.data_files import data_folder, download, read

Table = tuple[Floats, Floats]

BIKE_MIRROR = "https://archive.ics.uci.edu/static/public/275/bike+sharing+dataset.zip"


class Fingerprint(NamedTuple):
    """What a table from a mirror must agree with, the sums to one part in 10⁵."""

    openml: int | None
    rows: int
    columns: int
    sum_y: float
    sum_squares: float


FINGERPRINTS = {
    "bike": Fingerprint(None, 10886, 18, 2085476, 62963041),
    "boston": Fingerprint(531, 506, 13, 11401.6, 1.7089967e8),
    "wine": Fingerprint(40691, 1359, 11, 7642, 5263163.9),
    "communities": Fingerprint(315, 822, 99, 311.13, 87398.001),
    "tecator": Fingerprint(505, 240, 124, 4440.5, 1315398.1),
}


# ---------------------------------------------------------------------------------------------------------------
# Real tables
def boston(rng: np.random.Generator) -> Table:
    """Boston housing: 506 rows, 13 features."""
    if data_folder() is None:
        return _from_openml("boston")
    table = np.loadtxt(io.BytesIO(read("boston/housing.txt")))
    return table[:, :-1], table[:, -1]


def wine(rng: np.random.Generator) -> Table:
    """Red wine quality without duplicates: 1,359 rows, 11 features."""
    if data_folder() is None:
        return _from_openml("wine", lambda table: table.drop_duplicates())
    table = pd.read_csv(io.BytesIO(read("wine_red/winequality-red.csv"))).drop_duplicates()
    return table.drop(columns="quality").to_numpy(float), table["quality"].to_numpy(float)


def bike(rng: np.random.Generator) -> Table:
    """Bike sharing: 10,886 rows; weather, one-hot season and weather class, hour, weekday, month, year."""
    if data_folder() is None:
        with zipfile.ZipFile(io.BytesIO(download(BIKE_MIRROR))) as archive:
            table = pd.read_csv(archive.open("hour.csv"), parse_dates=["dteday"])
        return _checked("bike", *_prepare_bike(_first_days(table)))
    return _prepare_bike(pd.read_csv(io.BytesIO(read("bike/bike_train.csv")), parse_dates=["datetime"]))


def _prepare_bike(table: pd.DataFrame) -> Table:
    time = table["datetime"].dt
    features = [table[name] for name in ("holiday", "workingday", "temp", "atemp", "humidity", "windspeed")]
    features += [table["season"] == level for level in (1, 2, 3, 4)]
    features += [table["weather"] == level for level in (1, 2, 3, 4)]
    features += [time.hour, time.day_of_week, time.month, time.year - 2011]
    return np.column_stack([np.asarray(f, float) for f in features]), table["count"].to_numpy(float)


def _first_days(hours: pd.DataFrame) -> pd.DataFrame:
    """UCI's hourly table as the published code has it: days 1 to 19 of each month, weather in its units."""
    hours = hours[hours["dteday"].dt.day <= 19]
    units = {"temp": ("temp", 41), "atemp": ("atemp", 50), "humidity": ("hum", 100), "windspeed": ("windspeed", 67)}
    return pd.DataFrame(
        {name: hours[column] * unit for name, (column, unit) in units.items()}
        | {name: hours[name] for name in ("holiday", "workingday", "season")}
        | {"weather": hours["weathersit"], "count": hours["cnt"]}
        | {"datetime": hours["dteday"] + pd.to_timedelta(hours["hr"], unit="h")}
    )


def communities(rng: np.random.Generator) -> Table:
    """Communities and Crime as the published code prepares it: 822 rows, 99 standardised features."""
    if data_folder() is None:
        found = _openml("communities")
        return _checked("communities", *_prepare_communities(found.frame.apply(pd.to_numeric, errors="coerce")))
    names = [
        line.split()[1]
        for line in read("communities/communities.names").decode(errors="replace").splitlines()
        if line.startswith("@attribute")
    ]
    return _prepare_communities(
        pd.read_csv(io.BytesIO(read("communities/communities.data")), names=names, na_values="?")
    )


def _prepare_communities(table: pd.DataFrame) -> Table:
    table = table.drop(columns=["state", "county", "community", "communityname", "fold"])
    table["OtherPerCap"] = table["OtherPerCap"].fillna(table["OtherPerCap"].mean())
    table = table.dropna(axis=1)
    kept = table["racepctblack"] >= 0.1
    features = table.drop(columns=["ViolentCrimesPerPop", "racepctblack"])
    features = (features - features.mean()) / features.std()
    return features[kept].to_numpy(float), table.loc[kept, "ViolentCrimesPerPop"].to_numpy(float)


def tecator(rng: np.random.Generator) -> Table:
    """Tecator meat spectra: 240 rows, 124 features."""
    if data_folder() is None:
        return _from_openml("tecator")
    table = pd.read_csv(io.BytesIO(read("tecator/505_tecator.tsv.gz")), sep="\t")
    return table.drop(columns="target").to_numpy(float), table["target"].to_numpy(float)


def _openml(name: str) -> Any:
    try:
        return fetch_openml(data_id=FINGERPRINTS[name].openml, as_frame=True, parser="auto")
    except OSError as error:
        raise OSError(f"OpenML cannot be reached ({error}): set GAUSSMIX_DATA to a folder of data sets.") from error


def _from_openml(name: str, prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table) -> Table:
    found = _openml(name)
    table = prepare(found.frame).apply(pd.to_numeric)
    target = found.target_names[0]
    return _checked(name, table.drop(columns=target).to_numpy(float), table[target].to_numpy(float))


def _checked(name: str, X: Floats, y: Floats) -> Table:
    expected = FINGERPRINTS[name]
    if X.shape != (expected.rows, expected.columns) or not np.allclose(
        [y.sum(), (X**2).sum()], [expected.sum_y, expected.sum_squares], rtol=1e-5
    ):
        raise ValueError(f"The mirror's {name} is not the table that the experiments were made with.")
    return X, y


# ---------------------------------------------------------------------------------------------------------------
# Synthetic tables: rows and noise are new in each trial; subspace, layers and θ₀ are the same in all
SYNTHETIC_ROWS, SYNTHETIC_COLUMNS = 10_240, 512  # four fifths are the paper's n = 8,192


def _fixed() -> np.random.Generator:
    return np.random.default_rng(2505)


def _linear_response(X: Floats, fixed: np.random.Generator, rng: np.random.Generator) -> Table:
    """Y = xθ₀ + 0.1 ξ, θ₀ uniform on the sphere, ξ uniform on [-1, 1]."""
    theta = fixed.standard_normal(X.shape[1])
    return X, X @ theta / np.linalg.norm(theta) + 0.1 * rng.uniform(-1, 1, len(X))


def gaussian(rng: np.random.Generator) -> Table:
    """The paper's Gaussian set: rows N(0, QQᵀ) of rank 4."""
    fixed = _fixed()
    Q = np.linalg.qr(fixed.standard_normal((SYNTHETIC_COLUMNS, 4)))[0]
    return _linear_response(rng.standard_normal((SYNTHETIC_ROWS, 4)) @ Q.T, fixed, rng)


def mlp(rng: np.random.Generator) -> Table:
    """The paper's synthetic set: two normal latents through layers of 100 and d sigmoids."""
    fixed = _fixed()
    W1, b1 = fixed.standard_normal((2, 100)), 1e-3 * fixed.standard_normal(100)
    W2, b2 = fixed.standard_normal((100, SYNTHETIC_COLUMNS)), 1e-3 * fixed.standard_normal(SYNTHETIC_COLUMNS)
    hidden = special.expit(rng.standard_normal((SYNTHETIC_ROWS, 2)) @ W1 + b1)
    return _linear_response(special.expit(hidden @ W2 + b2), fixed, rng)


def uniform(rng: np.random.Generator) -> Table:
    """The paper's uniform set: independent features, uniform on [-1, 1]."""
    return _linear_response(rng.uniform(-1, 1, (SYNTHETIC_ROWS, SYNTHETIC_COLUMNS)), _fixed(), rng)


LINEAR: dict[str, Callable[[np.random.Generator], Table]] = {
    "communities": communities,
    "tecator": tecator,
    "gaussian": gaussian,
    "mlp": mlp,
    "wine": wine,
    "uniform": uniform,
    "boston": boston,
    "bike": bike,
}
