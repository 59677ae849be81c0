"""Whatever is printed of a seeded release says first that nothing is guaranteed."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.baselines import AdaSSP, ObjectivePerturbation, SheffetMixing
from gaussmix.cli import main
from gaussmix.releases.certificate import NO_GUARANTEE
from gaussmix.report.label import label_of
from gaussmix.report.page import render
from gaussmix.report.statement import fields_of
from gaussmix.report.verify import verify

BUDGET = {"schema": SCHEMA, "epsilon": 3.0, "delta": 1e-6}


def releases(**options):
    table = patients(4000)
    return [gm.release(table, **BUDGET, **options), gm.release(table, **BUDGET, passes=1, **options)]


@pytest.fixture(scope="module")
def seeded():
    return releases(random_state=0)


@pytest.fixture(scope="module")
def secure():
    return releases()


def printed(release):
    """Everything with a text of its own that a release gives."""
    models = [release.ols("cost"), release.logit("smoker"), release.mnlogit("region"), release.poisson("cost")]
    models.append(release.iv("cost", ["bmi", "age"], instruments=["smoker", "age"]))
    summaries = [own for model in models for own in (values(model.summary()))]
    summaries += [test(["age"]) for test in (models[0].t_test, models[0].wald_test, models[0].f_test)]
    ratios = [models[1].odds_ratios(), *models[2].odds_ratios().values(), models[3].rate_ratios()]
    tables = [release.describe(), release.means("cost", "region"), release.corr(), release.corr().pairs()]
    tables += [release.crosstab("sex", "region"), release.crosstab("sex", "region").table()]
    tables += [release.anova("cost", "region"), release.anova("cost", "region").table()]
    return models, [*summaries, *ratios, *tables]


def values(summary):
    return list(summary.values()) if isinstance(summary, dict) else [summary]


def test_no_attack_power_without_a_guarantee(seeded, secure):
    """A bound on membership inference is a part of the guarantee: with a known seed or without noise there is none."""
    unprotected = gm.release(patients(4000), **BUDGET | {"epsilon": math.inf})
    for release, valid in [(secure[0], True), (secure[1], True), (seeded[0], False), (unprotected, False)]:
        texts = [str(release.certificate), str(label_of(release)), render(release)]
        texts += [field.name for field in fields_of(release, None, valid=valid)]
        found = re.search(r"attack power|membership-inference|true-positive|Gaussian DP", " ".join(texts), re.I)
        assert bool(found) == valid


def test_results_of_a_seeded_release(seeded):
    for release in seeded:
        models, results = printed(release)
        assert NO_GUARANTEE in str(release.certificate).splitlines()[0]
        for found in [release, release.certificate, *models, *results]:
            assert re.match(r"\w+\(no privacy guarantee, ", repr(found)), repr(found)
        for found in results:
            assert str(found).startswith(NO_GUARANTEE), str(found)
            assert str(found).count(NO_GUARANTEE) == 1
            if hasattr(found, "as_html"):
                assert found.as_html().startswith(f"<p>{NO_GUARANTEE}")
            if hasattr(found, "as_latex"):
                assert found.as_latex().startswith(f"% {NO_GUARANTEE}")
                assert NO_GUARANTEE in found.as_latex().split(r"\hline")[1]
            if hasattr(found, "as_plain") and "title" in found.as_plain():
                assert found.as_plain()["guarantee"].startswith("void: the noise came from a seed")
        for model in models:
            assert model._repr_html_().startswith(f"<p>{NO_GUARANTEE}")
        assert json.loads(release.synthetic(10).schema.metadata[b"gaussmix.synthetic"])["guarantee"].startswith("void")


def test_results_of_a_secure_release_do_not_say_so(secure):
    for release in secure:
        models, results = printed(release)
        for found in [release, release.certificate, *models, *results]:
            assert "guarantee" not in repr(found)
            assert "guarantee" not in str(found).lower()
        assert "guarantee" not in release.describe().as_plain()


def test_estimators_with_a_seed():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (2000, 2)), rng.uniform(-1, 1, 2000)
    options = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0, "random_state": 0}
    linear = gm.LinearRegression(**options, bounds_y=(-1, 1)).fit(X, y)
    logistic = gm.LogisticRegression(**options, classes=[False, True]).fit(X, y > 0)
    fitted = [linear, logistic, AdaSSP(**options, bounds_y=(-1, 1)).fit(X, y)]
    fitted += [SheffetMixing(**options, bounds_y=(-1, 1)).fit(X, y)]
    fitted += [ObjectivePerturbation(**options, classes=[False, True]).fit(X, y > 0)]
    for found in [*(model.privacy_ for model in fitted), linear.summary(), logistic.summary(), logistic.odds_ratios()]:
        assert str(found).startswith(NO_GUARANTEE)


def test_an_infinite_epsilon_is_said_first():
    release = gm.release(patients(500), schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    for found in (release.certificate, release.describe(), release.ols("cost").summary()):
        assert str(found).startswith(f"{NO_GUARANTEE} epsilon is infinite")


def test_a_proposal_with_a_seed():
    found = gm.propose_bounds(patients(4000), {"age": "number"}, epsilon=1.0, delta=1e-6, random_state=0)
    assert str(found).startswith(NO_GUARANTEE)


def test_files_keep_it_and_commands_print_it(seeded, tmp_path):
    file = tmp_path / "r.parquet"
    seeded[0].save(file)
    assert str(gm.load(file).describe()).startswith(NO_GUARANTEE)
    for command in (
        ["describe", file],
        ["corr", file],
        ["crosstab", file, "sex", "region"],
        ["ols", file, "cost"],
        ["logit", file, "smoker"],
        ["logit", file, "smoker", "--odds"],
        ["mnlogit", file, "region"],
        ["mnlogit", file, "region", "--odds"],
        ["poisson", file, "cost"],
        ["poisson", file, "cost", "--log"],
    ):
        assert run(*command).stdout.startswith(NO_GUARANTEE)
        assert json.loads(run(*command, "--json").stdout)["guarantee"].startswith("void: the noise came from a seed")
    for command in (
        ["describe", file, "--csv"],
        ["export", file, tmp_path / "e.csv"],
        ["synthetic", file, 9, "-o", tmp_path / "s.csv"],
    ):
        assert run(*command).stderr.startswith(NO_GUARANTEE)
    assert "no privacy guarantee" in run("verify", file, code=5).stdout.splitlines()[0]
    assert json.loads(run("verify", file, "--json", code=5).stdout)["state"] == "void"
    assert verify(file).state == "void"


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_page_and_the_label_say_it_before_any_number(seeded):
    pytest.importorskip("jinja2")
    page = render(seeded[0])
    assert page.index("The guarantee is void.") < page.index("<svg") < page.index("ε")
    assert "There is no privacy guarantee" in page
    assert fields_of(seeded[0], None, valid=False)[0].value.startswith("no guarantee")
    label = label_of(seeded[0])
    assert str(label).startswith("The guarantee is void.")
    assert label.numbers == ()
