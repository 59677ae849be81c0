"""The study of descriptive tables: its truths are pandas's, and both are the same where no row is shortened."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose

from experiments import describe_study as study
from gaussmix.report import demo


def test_truths_are_those_of_the_table():
    frame = demo.make_patients(2000).to_pandas()
    found = study.truths(study.in_units(frame), "demo", np.ones(2000))
    assert_allclose(found["describe", "age mean"], frame["age"].mean())
    assert_allclose(found["describe", "age std"], frame["age"].std())
    assert_allclose(found["describe", "region=west share"], (frame["region"] == "west").mean())
    assert_allclose(
        found["crosstab", "smoker=true region=west"], pd.crosstab(frame["smoker"], frame["region"]).loc[True, "west"]
    )
    assert_allclose(found["means", "cost region=west"], frame.groupby("region")["cost"].mean()["west"])
    assert_allclose(found["corr", "age cost"], frame["age"].corr(frame["cost"]))


def test_every_interval_has_a_truth(monkeypatch):
    monkeypatch.setattr(study.demo, "make_patients", lambda: MADE)
    found = pd.DataFrame(study.coverage("demo", 0, 2))
    own = study.shares(found)
    assert len(own) == 16 + 10 + 7 + 10
    assert set(own["kind"]) == {"describe", "crosstab", "means", "corr"}
    assert own["holds_shortened"].mean() > 0.7
    assert (own["length"] > 0).all()


MADE = demo.make_patients(3000)
