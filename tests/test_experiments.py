"""The experiments run: loaders on real files and on made ones, and every figure on few trials."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks import accounting as accounting_benchmark
from benchmarks import record
from experiments import (
    coverage,
    data_files,
    datasets,
    distributed,
    excess_risk,
    figures,
    first_figure,
    images,
    linear,
    linear_accuracy,
    linear_in_passes,
    logistic,
    logistic_in_passes,
    logistic_times,
    network_features,
    paper_table,
    parallel,
    published,
    published_check,
    reproduce,
)
from gaussmix import accounting, paper

ROOT = Path(__file__).parents[1]
NETWORKS_PYTHON = ROOT / ".venv-networks" / "bin" / "python"
REFERENCE = pd.read_csv(published_check.REFERENCE)

needs_data = pytest.mark.skipif(
    data_files.data_folder() is None, reason="set GAUSSMIX_DATA to the folder of the data sets"
)


# ---------------------------------------------------------------------------------------------------------------
# Loaders
SHAPES = {
    "boston": (506, 13),
    "wine": (1359, 11),
    "bike": (10886, 18),
    "communities": (822, 99),
    "tecator": (240, 124),
    "gaussian": (10_240, 512),
    "mlp": (10_240, 512),
    "uniform": (10_240, 512),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tables_have_the_published_shapes(name):
    if name not in linear.SYNTHETIC and data_files.data_folder() is None:
        pytest.skip("set GAUSSMIX_DATA to the folder of the data sets")
    X, y = datasets.LINEAR[name](np.random.default_rng(0))
    assert X.shape == SHAPES[name]
    assert y.shape == SHAPES[name][:1]
    assert np.isfinite(X).all()


@needs_data
@pytest.mark.parametrize("name", datasets.FINGERPRINTS)
def test_fingerprints_are_those_of_the_checked_files(name):
    datasets._checked(name, *datasets.LINEAR[name](np.random.default_rng(0)))


@needs_data
@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("mnist", (11982, 1, 28, 28), 1984),
        ("fashion", (12000, 1, 28, 28), 2000),
        ("cifar10", (10000, 3, 32, 32), 2000),
        ("cifar100", (1000, 3, 32, 32), 200),
    ],
)
def test_images_have_the_published_shapes(name, train, test):
    found = images.IMAGES[name]()
    assert found.train.shape == train
    assert len(found.test) == len(found.test_labels) == test
    assert set(found.train_labels) == set(found.test_labels) == {-1, 1}


def test_synthetic_tables_are_as_the_text_has_them():
    rng = np.random.default_rng(1)
    X, _ = datasets.gaussian(rng)
    assert np.linalg.matrix_rank(X[:50]) == 4
    assert (X**2).sum(axis=1).mean() == pytest.approx(4, rel=0.05)
    X, y = datasets.uniform(rng)
    assert np.abs(X).max() <= 1
    assert y.var() == pytest.approx(1 / 3 + 0.01 / 3, rel=0.05)  # |θ₀| = 1
    X, _ = datasets.mlp(rng)
    assert 0 < X.min() < X.max() < 1
    first, second = (datasets.uniform(np.random.default_rng(seed)) for seed in (1, 2))
    theta = [np.linalg.solve(X.T @ X, X.T @ y) for X, y in (first, second)]
    assert theta[0] @ theta[1] > 0.99  # θ₀ is the same in all trials


def test_other_files_and_folders_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSMIX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="not a folder"):
        datasets.boston(np.random.default_rng(0))
    monkeypatch.setenv("GAUSSMIX_DATA", str(tmp_path))
    (tmp_path / "boston").mkdir()
    (tmp_path / "boston" / "housing.txt").write_text("1 2 3\n")
    with pytest.raises(ValueError, match="its checksum differs"):
        datasets.boston(np.random.default_rng(0))


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """No data folder, an empty cache, and a mirror that serves what a test puts there."""
    served: dict[str, bytes] = {}
    monkeypatch.delenv("GAUSSMIX_DATA", raising=False)
    monkeypatch.setenv("GAUSSMIX_CACHE", str(tmp_path))

    def urlopen(url, timeout):
        if url not in served:
            raise OSError("no such address")
        return io.BytesIO(served[url])

    monkeypatch.setattr(data_files.urllib.request, "urlopen", urlopen)
    return served


def expect(monkeypatch, name, content):
    monkeypatch.setitem(data_files.CHECKSUMS, name, hashlib.sha256(content).hexdigest())


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes()


def test_digits_come_from_the_mirror_where_there_is_no_folder(mirror, monkeypatch):
    rng = np.random.default_rng(0)
    labels = {"train": np.array([3, 8, 1, 8], np.uint8), "t10k": np.array([8, 3], np.uint8)}
    pixels = {part: rng.integers(0, 256, (len(found), 28, 28), np.uint8) for part, found in labels.items()}
    for part in labels:
        for kind, array in (("images-idx3", pixels[part]), ("labels-idx1", labels[part])):
            name = f"{part}-{kind}-ubyte.gz"
            mirror[images.MNIST_MIRROR + name] = gzip.compress(idx(array))
            expect(monkeypatch, f"mnist/{name}", idx(array))
    found = images.mnist()
    assert np.array_equal(found.train[:, 0], pixels["train"][[0, 1, 3]])
    assert found.train_labels.tolist() == [-1, 1, 1]
    assert found.test_labels.tolist() == [1, -1]
    mirror.clear()
    assert np.array_equal(images.mnist().train, found.train)  # now from the cache
    expect(monkeypatch, "mnist/train-labels-idx1-ubyte.gz", b"other")
    with pytest.raises(ValueError, match="its checksum differs"):
        images.mnist()
    with pytest.raises(OSError, match="set GAUSSMIX_DATA"):
        images.fashion()


def archive(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def records(rng, labels, label_bytes=1):
    found = rng.integers(0, 256, (len(labels), label_bytes + 3072), np.uint8)
    found[:, label_bytes - 1] = labels
    return found


def test_cifar_comes_from_the_mirror(mirror, monkeypatch):
    rng = np.random.default_rng(0)
    batches = {f"data_batch_{i}": records(rng, [3, 5, 8]) for i in range(1, 6)} | {"test_batch": records(rng, [8, 3])}
    mirror[images.CIFAR_MIRROR + "cifar-10-binary.tar.gz"] = archive(
        {f"cifar-10-batches-bin/{name}.bin": found.tobytes() for name, found in batches.items()}
    )
    train = b"".join(batches[f"data_batch_{i}"][[0, 2]].tobytes() for i in range(1, 6))
    expect(monkeypatch, "cifar10_cat_ship/train_classes_3_8.bin.gz", train)
    expect(monkeypatch, "cifar10_cat_ship/test_classes_3_8.bin.gz", batches["test_batch"].tobytes())
    found = images.cifar10()
    assert found.train_labels.tolist() == [-1, 1] * 5
    assert found.test.tobytes() == batches["test_batch"][:, 1:].tobytes()


def test_cifar_100_is_split_by_hash_whatever_its_order(mirror, monkeypatch):
    rng = np.random.default_rng(0)
    pool = records(rng, [3] * 12 + [8] * 12 + [9] * 3, label_bytes=2)
    wanted = {}
    for label, rows in ((3, pool[:12]), (8, pool[12:24])):
        hashes = sorted(range(12), key=lambda i: hashlib.sha256(rows[i, 2:].tobytes()).digest())
        for part, chosen in (("train", hashes[:10]), ("test", hashes[10:])):
            wanted[part, label] = rows[chosen, 1:].tobytes()
    order = rng.permutation(len(pool))
    mirror[images.CIFAR_MIRROR + "cifar-100-binary.tar.gz"] = archive(
        {
            "cifar-100-binary/train.bin": pool[order[:20]].tobytes(),
            "cifar-100-binary/test.bin": pool[order[20:]].tobytes(),
        }
    )
    for part in ("train", "test"):
        expect(monkeypatch, f"cifar100_bear_bicycle/{part}_classes_3_8.bin.gz", wanted[part, 3] + wanted[part, 8])
    assert images.cifar100().train_labels.tolist() == [-1] * 10 + [1] * 10


def test_tables_come_from_openml_where_there_is_no_folder(mirror, monkeypatch):
    table = pd.DataFrame({"a": [1.0, 2.0, 2.0], "b": ["3", "4", "4"], "quality": [5, 6, 6]})
    answer = SimpleNamespace(frame=table, target_names=["quality"])
    monkeypatch.setattr(datasets, "fetch_openml", lambda **_: answer)
    monkeypatch.setitem(datasets.FINGERPRINTS, "wine", datasets.Fingerprint(0, 2, 2, 11.0, 30.0))
    X, y = datasets.wine(np.random.default_rng(0))  # one duplicate dropped
    assert X.tolist() == [[1, 3], [2, 4]]
    assert y.tolist() == [5, 6]
    with pytest.raises(ValueError, match="is not the table"):
        datasets.boston(np.random.default_rng(0))


def test_bikes_come_from_uci_in_the_units_of_the_published_file(mirror, monkeypatch):
    hours = pd.DataFrame(
        {"dteday": ["2011-01-01", "2011-01-20", "2012-02-19"], "hr": [5, 6, 7], "season": [1, 1, 2], "holiday": 0,
         "workingday": 1, "weathersit": [1, 2, 3], "temp": [0.5] * 3, "atemp": 0.5, "hum": 0.8, "windspeed": 0.1,
         "cnt": [10, 20, 30]}
    )  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("hour.csv", hours.to_csv())
    mirror[datasets.BIKE_MIRROR] = buffer.getvalue()
    with pytest.raises(ValueError, match="is not the table"):
        datasets.bike(np.random.default_rng(0))
    monkeypatch.setitem(datasets.FINGERPRINTS, "bike", datasets.Fingerprint(None, 2, 18, 40.0, 15_127.28))
    X, y = datasets.bike(np.random.default_rng(0))
    assert y.tolist() == [10, 30]  # days 1 to 19
    assert X[0] == pytest.approx([0, 1, 20.5, 25, 80, 6.7, 1, 0, 0, 0, 1, 0, 0, 0, 5, 5, 1, 0])


# ---------------------------------------------------------------------------------------------------------------
# The published code
@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", ["boston", "wine"])
def test_replaying_the_published_code_gives_its_numbers(name, monkeypatch):
    monkeypatch.setattr(published_check, "EPSILONS", linear.EPSILONS[:1])
    found = pd.DataFrame(published_check.check(name, 250, 400))
    table = published_check.compare(REFERENCE[REFERENCE["set"] == name], found)
    assert len(table) == 4
    assert table["replayed"].to_numpy() == pytest.approx(table["mse"].to_numpy(), rel=1e-7)
    assert (table["z"].abs() < 4.5).all()


def test_the_published_noise_is_less_than_theorem_1_asks_for():
    from gaussmix import calibrate

    for epsilon in (0.1, 1.0, 5.0):
        claimed = calibrate(epsilon, 1e-6, sketch_size=57, scale="private", analysis="paper").gamma
        assert published.linear_mixing_variance(epsilon, 1e-6, 57) / 2 < 0.9 * claimed


# ---------------------------------------------------------------------------------------------------------------
# Figures
@needs_data
def test_the_accuracy_table_has_every_method_and_the_default_leads():
    results = pd.DataFrame(linear_accuracy.one_split("boston", 0, 3))
    means = results.groupby("method")["score"].mean()
    assert set(means.index) == {*linear.METHODS, linear.MEAN}
    assert means["LinearMixing, exact"] < means["AdaSSP, exact"] < means["Sheffet, printed"]
    linear_accuracy.summary(results)
    linear_accuracy.by_epsilon(results)


def some_rows(seed, count):
    rng = np.random.default_rng(seed)
    return [{"seed": seed, "method": "one, two", "error": error} for error in (*rng.standard_normal(count), np.inf)]


@pytest.mark.slow
def test_trials_do_not_depend_on_processes_nor_on_the_folder(tmp_path):
    jobs = [(seed, 50) for seed in range(8)]
    wanted = pd.DataFrame([row for job in jobs for row in some_rows(*job)])
    for options in ({"processes": 1}, {"processes": 3}, {"folder": tmp_path}, {"folder": tmp_path}):
        pd.testing.assert_frame_equal(parallel.run_all(some_rows, jobs, **options), wanted, check_exact=True)
    assert len(list(tmp_path.iterdir())) == len(jobs)


@pytest.mark.slow
def test_coverage_is_near_its_level_and_the_same_for_any_number_of_processes(monkeypatch, capsys):
    monkeypatch.setattr(coverage, "ORDINARY", [(2_000, 2, 1.0)])
    monkeypatch.setattr(coverage, "WEAK", [(1, 0.3, 20.0, 0.05), (3, 0.1, 5.0, 0.02)])
    found = coverage.coverage(60, processes=2)
    pd.testing.assert_frame_equal(coverage.coverage(60, processes=1), found, check_exact=True)
    assert found["table"].between(0.8, 1).all()  # 0.95 in law: 1e-4 below
    coverage.main(["--releases", "20"])
    assert "false positives at 5 %" in capsys.readouterr().out


PNG = b"\x89PNG"


def drawn(folder, name):
    png, svg = (folder / "figures" / f"{name}{suffix}" for suffix in (".png", ".svg"))
    return png.read_bytes().startswith(PNG) and "</svg>" in svg.read_text()


@pytest.mark.slow
def test_tables_of_figure_1(tmp_path):
    reproduce.figure1(tmp_path, points=5)
    table = pd.read_csv(tmp_path / "figure1.csv")
    assert (table["exact"] < table["renyi"]).all()
    assert table["renyi"].iloc[0] == pytest.approx(116.46150, rel=1e-6)  # at γ = 16/9
    assert (table["sheffet"] / table["renyi"]).iloc[0] < 1 < (table["sheffet"] / table["renyi"]).iloc[1]
    ratio = table["sheffet_printed"] / table["renyi"]  # Figure 1(b), from 16/9 to 10⁷
    assert ratio.iloc[[0, -1]].to_numpy() == pytest.approx([0.936, 8.79], rel=1e-3)
    assert (table["sheffet_printed"] <= table["sheffet"] * (1 + 1e-9)).all()
    required = pd.read_csv(tmp_path / "figure1_gamma.csv")
    assert (required["exact"] <= required[["renyi", "tcdp", "sheffet"]].min(axis=1)).all()


@pytest.mark.slow
def test_the_committed_tables_draw_all_five_figures(tmp_path):
    reproduce.main(["--draw", "--out", str(tmp_path)])
    assert (tmp_path / "figure1.png").read_bytes().startswith(PNG)
    parts = [f"{name}_{part}" for name in reproduce.LINEAR for part in ("code", "library")]
    assert all(drawn(tmp_path, name) for name in (*reproduce.FIGURES, *parts, "training_risk"))
    for name in reproduce.LOGISTIC:  # the ratios of run times are in the picture
        assert "explicit sketch as printed" in (tmp_path / "figures" / f"{name}.svg").read_text()


def never_again(*job):
    raise InterruptedError("a trial that was kept is run again")


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", ["figure2", "figure4"])
def test_figures_2_and_4_on_few_trials_of_small_tables(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "SYNTHETIC_ROWS", 500)
    monkeypatch.setattr(datasets, "SYNTHETIC_COLUMNS", 20)
    monkeypatch.setattr(linear, "TRIALS_A_JOB", 1)
    folders = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path), "--out", str(tmp_path)]
    reproduce.main([name, "--trials", "2", *folders])
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert set(table["set"]) == set(reproduce.SETS[name])
    assert (table["trials"] == 2).all()
    assert np.isfinite(table[["mse", "train"]]).all(axis=None)
    assert set(table["method"]) == {*linear.PAPER_METHODS, linear.RIDGE, linear.MEAN, linear.ZERO}
    private = table[table["method"].isin(linear.PAPER_METHODS)]
    assert private.groupby(["set", "method"]).size().eq(6).all()
    largest = table[table["epsilon"].between(31, 32)].groupby("method")["mse"].mean()
    assert largest["AdaSSP, exact"] < largest["Sheffet, printed"]
    assert table[table["method"] == linear.RIDGE]["mse"].mean() < largest.min()
    mixing = table[table["method"] == "LinearMixing, paper"]
    assert (mixing["train"] <= mixing["best_limit"]).all()
    assert (mixing["best_limit"] <= mixing["limit"]).all()
    assert (mixing["held"] == 1).all()
    code = pd.read_csv(tmp_path / f"{name}_code.csv")
    assert len(set(code["method"])) == 4
    assert all(drawn(tmp_path, f"{name}{part}") for part in ("", "_code", "_library"))
    before = (tmp_path / f"{name}.csv").read_text()
    monkeypatch.setattr(linear, "paper_trials", never_again)
    monkeypatch.setattr(linear, "published_trials", never_again)
    reproduce.main([name, "--trials", "2", *folders])  # all from the cache
    assert (tmp_path / f"{name}.csv").read_text() == before
    with pytest.raises(InterruptedError, match="is run again"):
        reproduce.main([name, "--trials", "2", "--fresh", *folders])


def boston_table():
    X, y, *_ = linear.split_table("boston", np.random.default_rng([0, 2505]))
    return X, y, paper_table.PaperTable(X, y)


@needs_data
def test_the_training_risk_is_that_of_the_rows():
    X, y, table = boston_table()
    fit = table.linear_mixing(1.0, 1e-6, np.random.default_rng(0))
    assert table.risk(fit.theta) == pytest.approx(np.mean((y - X @ fit.theta) ** 2), rel=1e-9)
    assert table.least_squares == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], rel=1e-6)
    ridge = np.linalg.solve(X.T @ X + 1e-6 * np.eye(13), X.T @ y)
    assert table.risk(table.ridge().theta) == pytest.approx(table.risk(ridge), rel=1e-4)


ALARM, DRAWS = 1e-5, 2_000  # the chance that one comparison fails, and the draws of each


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("method", ["LinearMixing, paper", "Sheffet, Rényi", "Sheffet, printed"])
def test_methods_drawn_from_one_gram_matrix_have_the_distribution_of_the_library(method, monkeypatch, record_property):
    """Predictions for three rows. A tenth more noise in one of them is noticed."""
    X, y, table = boston_table()
    epsilon, delta, rng = 3.0, 1e-5, np.random.default_rng(0)

    def predictions(draw):
        return np.array([X[:3] @ draw() for _ in range(DRAWS)])

    def library():
        model = linear.METHODS[method](epsilon=epsilon, delta=delta, n_rows=len(y), random_state=rng)
        return model.fit(X, y).coef_

    def ours():
        return linear.PAPER_METHODS[method](table, epsilon, delta, rng).theta

    def least_p(one, other):
        return 3 * min(stats.ks_2samp(a, b).pvalue for a, b in zip(one.T, other.T, strict=True))

    found = predictions(library)
    right = least_p(found, predictions(ours))
    factor = paper_table.PaperTable._factor
    monkeypatch.setattr(paper_table.PaperTable, "_factor", lambda table, sigma2: factor(table, 1.1**2 * sigma2))
    wrong = least_p(found, predictions(ours))
    record_property(method, f"right {right:.3g}, wrong {wrong:.3g}")
    assert right > ALARM
    assert wrong < ALARM


@pytest.mark.slow
@needs_data
def test_training_risk_has_its_exact_mean():
    """2,000 draws of one table, whose noise is the same in all: the mean is within four standard errors."""
    _, _, table = boston_table()
    fits = [table.linear_mixing(3.0, 1e-5, np.random.default_rng(seed)) for seed in range(DRAWS)]
    risks, expected = np.array([table.risk(fit.theta) for fit in fits]), np.array([fit.expected for fit in fits])
    error = risks.std() / np.sqrt(DRAWS)
    assert expected.std() < 0.01 * expected.mean()
    assert abs(risks.mean() - expected.mean()) < 4 * error
    assert error < 0.02 * risks.mean()


@needs_data
def test_excess_risk_on_few_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(excess_risk, "TABLES", ("communities", "bike", "uniform"))
    excess_risk.main(["--draws", "20", "--processes", "1", "--results", str(tmp_path), "--out", str(tmp_path / "x")])
    assert "least p" in capsys.readouterr().out
    lines = pd.read_csv(tmp_path / excess_risk.FILE)
    assert len(lines) == 9
    assert (lines["bound_held"] == 1).all()
    assert lines["mean"].to_numpy() == pytest.approx(lines["exact_mean"].to_numpy(), rel=0.6)
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)


def test_the_recorded_excess_risks_agree_with_theorem_3():
    lines = pd.read_csv(data_files.RESULTS / excess_risk.FILE)
    assert len(lines) == 9
    assert (lines["draws"] == excess_risk.DRAWS).all()
    assert (lines["ks_p"] >= excess_risk.LEAST_P).all()
    assert (lines["bound_held"] >= excess_risk.PROBABILITY).all()
    assert (lines["sigma2_std"] > 1).any()  # the noise of one setting is random


def test_recorded_figures_have_250_trials_of_every_method_on_the_same_tables():
    for name in reproduce.LINEAR:
        table = pd.read_csv(data_files.RESULTS / f"{name}.csv")
        assert (table["trials"] == linear.TRIALS).all()
        assert set(table["method"]) >= set(figures.LINEAR)
        assert table.groupby("set").size().eq(6 * len(linear.PAPER_METHODS) + 3).all()
        held = table[table["method"] == "LinearMixing, paper"]
        assert (held["held"] >= paper_table.PROBABILITY).all()
        assert (held["best_held"] >= paper_table.PROBABILITY).all()


COMPARISONS = {  # rows of the table in docs/results.md
    "LinearMixing against AdaSSP |": ("published: LinearMixing", "published: AdaSSP"),
    "LinearMixing against Sheffet with Lemma 1 | 40": ("published: LinearMixing", "published: Sheffet, Rényi"),
    "LinearMixing against AdaSSP as printed": ("LinearMixing, paper", "AdaSSP, printed"),
    "LinearMixing against AdaSSP with exact accounting": ("LinearMixing, paper", "AdaSSP, exact"),
    "| LinearMixing against Sheffet with Lemma 1": ("LinearMixing, paper", "Sheffet, Rényi"),
    "LinearMixing against Sheffet as printed": ("LinearMixing, paper", "Sheffet, printed"),
    "Sheffet with Lemma 1 against Sheffet as printed": ("Sheffet, Rényi", "Sheffet, printed"),
    "our large sketch against AdaSSP with exact accounting": ("LinearMixing, exact", "AdaSSP, exact"),
}


@pytest.mark.parametrize("words", COMPARISONS)
def test_the_page_counts_what_the_tables_say(words):
    """Points with a lower mean, and points beyond the joint interval in either direction, of 48."""
    names = [f"{name}{part}.csv" for name in reproduce.LINEAR for part in ("", "_code", "_library")]
    table = pd.concat([pd.read_csv(data_files.RESULTS / name) for name in names])
    one, other = (table[table["method"] == name].set_index(["set", "epsilon"]) for name in COMPARISONS[words])
    difference, width = one["mse"] - other["mse"], np.hypot(one["ci95"], other["ci95"])
    assert len(difference) == 48
    lower, clear = int((difference < 0).sum()), (int((difference < -width).sum()), int((difference > width).sum()))
    (line,) = [line for line in (ROOT / "docs" / "results.md").read_text("utf-8").splitlines() if words in line]
    assert f"| {lower} | {clear[0]} – {clear[1]} |" in line
    if COMPARISONS[words][0] == "LinearMixing, paper":
        paired = other["paired_ci95"]
        assert f"| {int((difference < -paired).sum())} – {int((difference > paired).sum())} |" in line


# ---------------------------------------------------------------------------------------------------------------
# Distributed sketching
def test_accounts_of_distributed_sketches():
    sigma = distributed.noise(1.0, 400)
    held = distributed.account(8, 50, sigma).set_index("holder")
    assert held["sketch_rows"].tolist() == [50, 100, 200, 400]
    assert held.loc["all, and the result", "exact"] == pytest.approx(1.0, rel=1e-6)
    assert (held["exact"] < held["renyi"]).all()
    assert (held["renyi"] < held["sheffet"]).all()
    A = np.eye(8)[:3]
    sketches = [
        paper.gauss_mix(A, 50, sigma, row_norm=distributed.ROW_NORM, columns=distributed.COLUMNS, rng=seed)
        for seed in range(8)
    ]
    assert paper.stack(sketches).epsilon(1e-6) == pytest.approx(held["exact"].iloc[-1], rel=1e-6)
    assert sketches[0].epsilon(1e-6) == pytest.approx(held["exact"].iloc[0], rel=1e-6)


def test_a_row_that_two_workers_hold_has_the_account_of_both_sketches():
    """Two sketches of k rows whose leverage is largest: δ by simulation of the two losses, against 2k rows."""
    k, gamma, epsilon = 20, 12.0, 1.0
    t, rng = 1 / (1 + gamma), np.random.default_rng(0)

    def losses(rows):  # of the larger table against the smaller, which lacks the row
        z = rng.chisquare(rows, 400_000)
        return rows / 2 * np.log(1 - t) + z * t / (2 * (1 - t))

    both = losses(k) + losses(k)
    found = np.maximum(1 - np.exp(epsilon - both), 0)
    exact = accounting.delta(epsilon, sketch_size=2 * k, gamma=gamma)
    one = accounting.delta(epsilon, sketch_size=k, gamma=gamma)
    assert abs(found.mean() - exact) < 5 * found.std() / np.sqrt(len(found))
    assert found.mean() > 2 * one


def test_rows_are_encoded_one_by_one():
    table = pd.DataFrame(
        {"wage": [50.0, 1e9, 400.0], "education": [0, 40, 12], "experience": [-5, 99, 10],
         "ethnicity": ["afam", "cauc", "cauc"], "smsa": ["yes", "no", "yes"], "parttime": ["no", "yes", "no"]}
    )  # fmt: skip
    A = distributed.encode(table)
    assert np.abs(A).max() <= 1
    assert np.linalg.norm(A, axis=1).max() <= distributed.ROW_NORM
    assert np.array_equal(distributed.encode(table.iloc[[2]])[0], A[2])


@pytest.mark.slow
@needs_data
def test_workers_in_processes_of_their_own(tmp_path, capsys):
    distributed.main(
        ["--workers", "2", "--rows", "40", "--repeats", "60", "--epsilons", "3", "--results", str(tmp_path)]
    )
    assert "split rows" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / distributed.FILE).set_index(["setting", "combined", "analysis"])["excess"]
    assert table["one table", "stacked", "exact"] == pytest.approx(table["one curator", "-", "exact"], rel=0.4)
    assert table["one table", "stacked", "exact"] < table["one table", "stacked", "sheffet"]
    assert table["split rows", "stacked", "exact"] < table["split rows", "added", "exact"]
    assert (tmp_path / distributed.ACCOUNT_FILE).exists()


@pytest.mark.slow
@needs_data
def test_stacked_sketches_of_split_rows_regress_the_whole_table(tmp_path):
    """Without the cluster: with many sketch rows the stack tends to a ridge regression with q times the noise."""
    table = pd.read_csv(io.BytesIO(data_files.read("cps1988/cps1988.csv")))
    parts = distributed.write_parts(table, 3, tmp_path)
    assert sum(len(pd.read_csv(part)) for part in parts) == len(table)
    sigma, A = 20.0, distributed.encode(table)
    sketches = [distributed.sketch_part(str(part), 3_000, sigma, [[7, i]])[1][0] for i, part in enumerate(parts)]
    X, y = A[:, :-1], A[:, -1]
    ridge = np.linalg.solve(X.T @ X + 3 * sigma**2 * np.eye(X.shape[1]), X.T @ y)
    found = paper.stack(sketches).lstsq(distributed.RESPONSE)
    assert np.sum((X @ (found - ridge)) ** 2) < 0.02 * np.sum((y - X @ ridge) ** 2)


def test_recorded_distributed_results_are_those_of_the_page():
    table = pd.read_csv(data_files.RESULTS / distributed.FILE)
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    recorded = {f"{100 * row.excess:.1f} ± {100 * row.se:.1f}" for row in table.itertuples()}
    shown = re.findall(r"\d+\.\d ± \d+\.\d", page)
    assert len(shown) == 18
    assert set(shown) <= recorded
    table = table.set_index(["epsilon", "setting", "combined", "analysis"])
    for epsilon in (0.3, 1.0, 3.0):
        excess = table["excess"][epsilon]
        assert excess["one table", "stacked", "exact"] < excess["one table", "averaged", "exact"]
        assert excess["one table", "averaged", "exact"] < excess["split rows", "stacked", "exact"]
        assert excess["split rows", "stacked", "exact"] < excess["split rows", "averaged", "exact"]
        assert excess["one table", "stacked", "sheffet"] > 2 * excess["one table", "stacked", "exact"]


@pytest.mark.slow
@needs_data
def test_trials_in_passes_on_the_splits_of_figures_2_and_4(tmp_path, monkeypatch):
    folders = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path)]
    linear_in_passes.main(["--sets", "wine", "--trials", "2", "--processes", "1", *folders])
    table = pd.read_csv(tmp_path / linear_in_passes.FILE).set_index("epsilon")["mse"]
    X, y, X_test, y_test = linear.split_table("wine", np.random.default_rng([0, 2505]))
    ridge = np.mean((y_test - X_test @ np.linalg.solve(X.T @ X, X.T @ y)) ** 2)
    assert len(table) == 6
    assert 0.9 * ridge < table.iloc[-1] < 2 * ridge < table.iloc[0]
    monkeypatch.setattr(linear_in_passes, "trials", never_again)
    with pytest.raises(InterruptedError, match="is run again"):
        linear_in_passes.main(["--sets", "wine", "--trials", "2", "--processes", "1", "--fresh", *folders])


@needs_data
def test_wide_sets_have_all_methods_on_the_same_few_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(linear_in_passes, "SYNTHETIC", ("wine",))
    folders = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path)]
    linear_in_passes.main(["--sets", "wine", "--wide-trials", "1", "--processes", "1", *folders])
    assert set(pd.read_csv(tmp_path / linear_in_passes.FILE)["trials"]) == {1}
    table = pd.read_csv(tmp_path / linear_in_passes.WIDE_FILE)
    found = pd.DataFrame(linear.trials("wine", 0, 1))
    assert table["mse"].to_numpy() == pytest.approx(found["mse"].to_numpy(), rel=1e-5)
    assert (table["method"] == found["method"]).all()


def make_features(folder, name, epsilon, n=400, signal=4.0, rate=0.5):
    """A file like those of dp_sgd.py: one unit tells the labels apart."""
    rng = np.random.default_rng(7)
    parts = {}
    for part in ("train", "test"):
        labels = rng.choice([-1, 1], n)
        rows = np.maximum(rng.standard_normal((n, 128)), 0) * 0.1
        rows[:, 0] += signal * (labels > 0)
        parts |= {part: rows.astype(np.float32), f"{part}_labels": labels}
    folder.mkdir(exist_ok=True)
    np.savez(
        network_features.feature_file(name, epsilon, folder),
        **parts, epsilon=epsilon, delta=1e-6, noise=80.0 / epsilon, rate=rate, steps=4, error=0.1, seconds=1.0,
    )  # fmt: skip


def test_heads_in_passes_on_made_features(tmp_path, monkeypatch):
    for epsilon in (0.001, 30.0):
        make_features(tmp_path / "cache", "mnist", epsilon)
    folders = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path)]
    asked = ["--sets", "mnist", "--epsilons", "0.001", "30", "--trials", "2", "--processes", "1", *folders]
    logistic_in_passes.main(asked)
    table = pd.read_csv(tmp_path / logistic_in_passes.FILE).set_index(["method", "epsilon"])["error"]
    for method in logistic_in_passes.HEADS:
        assert table[method, 30.0] < 0.1 < table[method, 0.001]
    monkeypatch.setattr(logistic_in_passes, "trials", never_again)
    with pytest.raises(InterruptedError, match="is run again"):
        logistic_in_passes.main([*asked, "--fresh"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["figure3", "figure5"])
def test_figures_3_and_5_on_few_trials_of_made_features(name, tmp_path, monkeypatch):
    monkeypatch.setattr(logistic, "TUNED_K", np.array([2.0, 3.0]))
    monkeypatch.setattr(logistic, "LOSS_INTERVAL", 2e-3)
    for image_set in reproduce.SETS[name]:
        make_features(tmp_path / "cache", image_set, 30.0)
    folders = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path), "--out", str(tmp_path)]
    reproduce.main([name, "--trials", "2", "--epsilons", "30", *folders])
    table = pd.read_csv(tmp_path / f"{name}.csv").set_index(["set", "method", "epsilon"])["error"]
    for image_set in reproduce.SETS[name]:
        assert table[image_set, logistic.EXACT, 30.0] < 0.1 < table[image_set, logistic.CONSTANT, 30.0]
        assert table[image_set, logistic.SKLEARN, 30.0] < 0.1
    budget = pd.read_csv(tmp_path / f"{name}_budget.csv")
    assert budget["composed"].between(0.98 * budget["head"], 0.98 * budget["epsilon"]).all()
    assert (budget["head_could_have"] > budget["head"]).all()
    assert drawn(tmp_path, name)


def test_run_times_of_both_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(logistic_times, "SHAPES", {"mnist": (400, 200)})
    logistic_times.main(["--repeats", "2", "--results", str(tmp_path)])
    table = pd.read_csv(tmp_path / logistic_times.FILE)
    assert (table[["gram_ms", "explicit_ms"]] > 0).all(axis=None)
    assert table["ratio"].iloc[0] == pytest.approx(table["explicit_ms"].iloc[0] / table["gram_ms"].iloc[0], rel=1e-3)
    fits = pd.DataFrame(
        {"set": "mnist", "method": [logistic_times.PAPER, logistic_times.LBFGS], "fit_ms": [10.0, 80.0]}
    )
    shown = logistic_times.ratios(fits, table.assign(ratio=4.0))
    assert "2 with the explicit sketch" in shown["mnist"]
    assert "8 through the Gram matrix" in shown["mnist"]
    assert logistic_times.ratios(fits, table.iloc[:0]) == {}


def test_quick_tries_do_not_overwrite_the_kept_tables(capsys):
    with pytest.raises(SystemExit):
        reproduce.main(["figure2", "--trials", "3"])
    assert "give it other --results" in capsys.readouterr().err


@pytest.mark.slow
def test_network_and_head_compose_to_the_exact_account(tmp_path):
    """Without subsampling the network is a Gaussian release of μ = √steps/noise, for which there is an exact curve."""
    from experiments.sketches import LARGE_SKETCH
    from gaussmix import calibrate

    make_features(tmp_path, "mnist", 3.0, rate=1.0)
    (found,) = logistic.composed_budget("mnist", 3.0, tmp_path)
    head = calibrate(2.7, 0.9e-6, sketch_size=LARGE_SKETCH)
    mu = np.sqrt(4) / (80.0 / 3.0)
    exact = accounting.epsilon(1e-6, sketch_size=head.sketch_size, gamma=head.gamma, mu=mu)
    assert exact <= found["composed"] <= exact * (1 + 1e-3)


def test_missing_features_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="make networks"):
        network_features.load("mnist", 1.0, tmp_path)


def test_features_of_another_budget_are_refused(tmp_path):
    make_features(tmp_path, "mnist", 7.4989)
    with pytest.raises(ValueError, match="is of a network for"):
        network_features.load("mnist", 7.49891, tmp_path)


def test_other_networks_get_other_results(tmp_path):
    make_features(tmp_path, "mnist", 1.0)
    before = network_features.digest([("mnist", 1.0)], tmp_path)
    make_features(tmp_path, "mnist", 1.0, signal=1.0)
    assert network_features.digest([("mnist", 1.0)], tmp_path) != before


def test_features_are_scaled_row_by_row():
    rows = np.array([[3.0, 4.0], [0.0, 0.1], [30.0, 40.0]])
    table = network_features.Features(rows, rows[:, 0], rows, rows[:, 0], 1e-6, 1.0, 0.5, 10, 0.0)
    found = logistic.normalised(table, largest_norm=False)
    assert np.allclose(found.X, [[0.6, 0.8], [0, 0.4], [0.6, 0.8]])
    alone = logistic.normalised(table._replace(X=rows[:1]), largest_norm=False)
    assert np.array_equal(alone.X[0], found.X[0])  # does not depend on other rows
    assert np.linalg.norm(logistic.normalised(table, largest_norm=True).X, axis=1).max() == pytest.approx(1)


NETWORKS_READY = ROOT / ".venv-networks" / "ready"
needs_networks = pytest.mark.skipif(not NETWORKS_READY.exists(), reason="make networks-env installs torch and opacus")


@needs_networks
def test_noise_is_added_once_for_each_batch_of_dp_sgd():
    command = [NETWORKS_PYTHON, "-m", "experiments.dp_sgd_check"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert float(found.stdout) == pytest.approx(1, abs=0.01)


@needs_data
@needs_networks
def test_networks_train_and_their_features_serve_heads(tmp_path):
    """End to end: DP-SGD by opacus on 200 images, then heads on its features."""
    small = ["--sets", "cifar100", "--epsilons", "31", "--epochs", "2", "--rows", "200", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [NETWORKS_PYTHON, "-m", "experiments.dp_sgd", *small]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    found = network_features.load("cifar100", 31.0, tmp_path)
    assert found.X.shape == (200, 128)
    assert found.delta == pytest.approx(1e-6)
    assert found.steps == 2
    # One batch an epoch with rate 1: two Gaussian releases, so that the noise is that of the exact Gaussian curve.
    assert found.noise == pytest.approx(np.sqrt(2) / accounting.gaussian_mu(3.1, 1e-7), rel=1e-3)
    table = pd.DataFrame(logistic.trials("cifar100", 31.0, logistic.EXACT, 0, 0, 3, tmp_path, False))
    assert table["error"].between(0, 0.7).all()


# ---------------------------------------------------------------------------------------------------------------
# Benchmarks
def test_the_accounting_benchmark_measures_work_and_not_caches():
    calls = []

    @functools.lru_cache
    def remembered(number):
        calls.append(number)

    remembered.__module__ = "gaussmix.some_module"
    accounting_benchmark.best_of(lambda: remembered(1), repeats=3)
    assert len(calls) == 4


def test_measurements_are_recorded_with_machine_commit_and_date(tmp_path):
    path = tmp_path / "new" / "bench.csv"
    for value in (1.25, 2.0):
        record.append(path, "speed", [("a, b", "ms", value), ("c", "ratio", 0.5)])
    found = pd.read_csv(path)
    assert found["value"].tolist() == [1.25, 0.5, 2.0, 0.5]
    assert found["case"].tolist() == ["a, b", "c"] * 2
    assert (found["cores"] == os.cpu_count()).all()
    assert found[["date", "commit", "cpu", "benchmark"]].notna().all(axis=None)
    record.append(None, "speed", [("a", "ms", 1.0)])  # nothing is asked for, nothing is written


# ---------------------------------------------------------------------------------------------------------------
# Audit
@pytest.mark.parametrize("name", ["audit_million", "audit_topcoded", "audit", "audit_expensive"])
def test_the_page_shows_the_stored_audits(name):
    audits = json.loads((data_files.RESULTS / f"{name}.json").read_text("utf-8"))
    page = (ROOT / "docs" / "results.md").read_text("utf-8").splitlines()
    (line,) = [line for line in page if line.startswith("|") and f"`{name}.json`" in line]
    ((runs, delta, claimed),) = {(one["runs"], one["delta"], one["epsilon"]) for one in audits}
    bounds = sorted(one["points"][0]["lower_bound"] for one in audits)
    shown = f"{bounds[0]:.3f}" if len(audits) == 1 else f"{bounds[0]:g} to {bounds[-1]:.3f}"
    assert line.endswith(f"| {runs:,} | {delta:g} | {claimed:g} | {shown} |")
    assert len(audits) == 1 or f"| {len(audits)} " in line
    assert all(one["holds"] for one in audits)


def test_standard_errors_of_releases_are_compared():
    found = first_figure.range_of_errors(first_figure.tutorial_table(), releases=2, passes=4)
    assert list(found.index[:2]) == ["(intercept)", "pays"]
    assert (found["ratio"] > 1).all()
