"""Draw the README's picture: the tutorial's first model from a release, beside least squares on the same coded table.

    python -m experiments.first_figure

Seed 1, as in ``tests/doc_pages.py``, so that the picture shows the numbers of docs/tutorial.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from statsmodels.datasets import randhie

import gaussmix as gm

OUT = Path(__file__).parents[1] / "docs" / "figures" / "first.png"
SCHEMA = {
    "visits": [0, 40],
    "pays": [0, 100],
    "deductible": "boolean",
    "limited": [0, 1],
    "diseases": [0, 60],
    "health": ["excellent", "good", "fair or poor"],
}
UNITS = {"pays": 100, "diseases": 10}  # coefficients are drawn per so many units
LABELS = {"pays": "pays everything", "diseases": "disease index + 10"}


def main() -> None:
    """Write the picture."""
    rand = randhie.load_pandas().data
    health = np.select([rand.hlthg == 1, rand.hlthf + rand.hlthp > 0], ["good", "fair or poor"], "excellent")
    table = rand[["mdvis", "disea", "physlm"]].set_axis(["visits", "diseases", "limited"], axis=1)
    table = table.assign(pays=np.exp(rand.lncoins) - 1, deductible=rand.idp == 1, health=health).round(3)
    private = gm.release(table, SCHEMA, epsilon=1.0, delta=1e-6, random_state=1)
    fit, coded = private.ols("visits"), private.topcode(table)
    weights = np.sqrt(private.weights(coded))
    numbers = coded[["pays", "deductible", "limited", "diseases"]].astype(float)
    X = np.column_stack([np.ones(len(coded)), numbers, coded.health == "good", coded.health == "fair or poor"])
    solution = np.linalg.lstsq(weights[:, None] * X, weights * coded.visits, rcond=None)[0]
    exact = dict(zip(fit.params, solution, strict=True))

    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    names = [name for name in fit.params if name != "(intercept)"]
    for height, name in enumerate(reversed(names)):
        unit = UNITS.get(name, 1)
        low, high = (unit * end for end in fit.conf_int()[name])
        axes.plot([low, high], [height, height], color="#1f5fa8", lw=3, solid_capstyle="butt")
        ours, theirs = ("", "") if height else ("private, 95 % interval", "least squares on the rows")
        axes.plot(unit * fit.params[name], height, "o", color="#1f5fa8", label=ours)
        axes.plot(unit * exact[name], height, "x", color="#d1495b", ms=8, mew=2, label=theirs)
    axes.axvline(0, color="0.6", lw=1, ls="--")
    axes.set_yticks(range(len(names)), [LABELS.get(name, name) for name in reversed(names)])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("visits to a doctor in a year")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
