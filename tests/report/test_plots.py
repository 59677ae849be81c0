"""Figures are files of public quantities: PNG, SVG or PDF, and no file where an argument is wrong."""

from __future__ import annotations

import builtins

import pytest

import gaussmix as gm
from gaussmix.report.plan import Planner, numeric_schema
from gaussmix.report.plots import compare_analyses
from gaussmix.report.plots import lost_r2 as draw_lost_r2

pytest.importorskip("matplotlib", reason="the extra gaussmix[plots] is not installed")

STARTS = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}
ANALYSES = {"sketch_size": 150, "delta": 1e-8}
PLAN = {"schema": numeric_schema(3), "n_rows": 500, "delta": 1e-6, "r2": 0.4, "chosen": 1.0}


def lost_r2(path, *, n_rows, chosen, force=False, **question):
    draw_lost_r2(path, Planner(**question), n_rows=n_rows, chosen=chosen, force=force)


@pytest.mark.slow
@pytest.mark.parametrize("ending", STARTS)
@pytest.mark.parametrize(("draw", "arguments"), [(compare_analyses, ANALYSES), (lost_r2, PLAN)])
def test_files_are_written(tmp_path, draw, arguments, ending):
    path = tmp_path / f"figure.{ending}"
    draw(path, **arguments)
    assert path.read_bytes().startswith(STARTS[ending])
    assert path.stat().st_size > 5000
    before = path.read_bytes()
    with pytest.raises(gm.errors.OutputExistsError, match="exists already"):
        draw(path, **arguments)
    assert path.read_bytes() == before
    draw(str(path), **arguments, force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == [f"figure.{ending}"]


@pytest.mark.slow
def test_figures_have_axes_legends_and_every_curve(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    compare_analyses(tmp_path / "a.png", **ANALYSES)
    lost_r2(tmp_path / "b.png", **PLAN)
    left, right = figures[0].axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "Sheffet 2019, Theorem 2", "tCDP, Corollary 1", "Rényi, Lemma 1", "exact",
    ]  # fmt: skip
    exact = left.get_lines()[-1]
    for gamma, epsilon in zip(exact.get_xdata()[::20], exact.get_ydata()[::20], strict=True):
        assert epsilon == gm.accounting.epsilon(1e-8, sketch_size=150, gamma=gamma, bound_holds_for="larger")
    assert all((line.get_ydata() >= 1 - 1e-12).all() for line in right.get_lines())  # no analysis beats the exact one
    (axes,) = figures[1].axes
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == [
        "best case", "typical", "adverse", "a tenth of R²", "ε = 1",
    ]  # fmt: skip
    assert lines[1].get_xdata()[3] == pytest.approx(1.0)
    expected = Planner(PLAN["schema"], delta=1e-6).expect(n_rows=500, epsilon=float(lines[1].get_xdata()[3]))
    assert lines[1].get_ydata()[3] == max(expected["typical"].lost_r2, 1e-5)
    for line in lines[:3]:
        assert line.get_ydata()[0] > line.get_ydata()[-1]  # ε buys R²
    for shown in (left, right, axes):
        assert shown.get_xlabel()
        assert shown.get_ylabel()


@pytest.mark.parametrize(
    ("draw", "arguments", "words"),
    [
        (compare_analyses, {**ANALYSES, "sketch_size": 0}, "sketch_size must be"),
        (compare_analyses, {**ANALYSES, "delta": 2.0}, "delta must"),
        (lost_r2, {**PLAN, "n_rows": 0}, "rows must be an integer ≥ 1"),
        (lost_r2, {**PLAN, "response": "z"}, "'z' is not in the schema"),
        (lost_r2, {**PLAN, "chosen": 0.0}, "epsilon must be a finite number > 0"),
        (lost_r2, {**PLAN, "r2": 1.5}, "r2 must lie in"),
        (lost_r2, {**PLAN, "delta": 0.0}, "delta must lie in"),
    ],
)
def test_wrong_input_leaves_no_file(tmp_path, draw, arguments, words):
    with pytest.raises(gm.ArgumentError, match=words):
        draw(tmp_path / "figure.png", **arguments)
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_is_explained(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(gm.MissingPackageError, match=r'pip install "gaussmix\[plots\]"'):
        compare_analyses(tmp_path / "figure.png", **ANALYSES)
