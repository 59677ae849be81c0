"""Certificates of every mechanism are computed anew; sketches beyond 2⁴⁰ rows are refused everywhere."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest

import gaussmix as gm
from gaussmix import accounting
from gaussmix.accounting.accounts import Account, NonPrivate
from gaussmix.accounting.private_scale import private_scale_delta
from gaussmix.baselines import AdaSSP, BinAgg, ObjectivePerturbation, SheffetMixing
from gaussmix.releases.certificate import Certificate

RNG = np.random.default_rng(0)
X, y = RNG.uniform(-0.5, 0.5, (500, 3)), RNG.uniform(-1, 1, 500)
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0}


def fitted(name):
    regression = {**BUDGET, "bounds_y": (-1, 1)}
    return {
        "AdaSSP": lambda: AdaSSP(**regression).fit(X, y),
        "printed": lambda: AdaSSP(**regression, analysis="printed").fit(X, y),
        "BinAgg": lambda: BinAgg(**regression).fit(X, y),
        "SheffetMixing": lambda: SheffetMixing(**regression).fit(X, y),
        "Sheffet, Rényi": lambda: SheffetMixing(**regression, analysis="renyi").fit(X, y),
        "ObjectivePerturbation": lambda: ObjectivePerturbation(**BUDGET, classes=[False, True]).fit(X, y > 0),
        "LinearRegression": lambda: gm.LinearRegression(**regression).fit(X, y),
        "LogisticRegression": lambda: gm.LogisticRegression(**BUDGET, classes=[False, True]).fit(X, y > 0),
    }[name]().privacy_


NAMES = [
    "AdaSSP",
    "printed",
    "BinAgg",
    "SheffetMixing",
    "Sheffet, Rényi",
    "ObjectivePerturbation",
    "LinearRegression",
]


@pytest.mark.parametrize("name", [*NAMES, "LogisticRegression"])
def test_every_certificate_is_computed_anew(name):
    certificate = fitted(name)
    assert certificate.is_private
    certificate.verify()
    replace(certificate, epsilon=certificate.epsilon)
    for change in ({"epsilon": 0.02}, {"delta": 1e-300}, {"neighbours": "replace-one"}, {"account": NonPrivate()}):
        with pytest.raises(gm.NotPrivateError, match="claims epsilon="):
            replace(certificate, **change)
    account = certificate.account
    weaker = [key for key in ("noise", "gamma", "penalty", "margin", "laplace_scale", "mu") if hasattr(account, key)]
    assert weaker
    for key in weaker:  # published constants leave room
        with pytest.raises(gm.NotPrivateError):
            replace(certificate, account=replace(account, **{key: getattr(account, key) * 0.1}))


def test_a_seed_that_is_not_called_void_is_refused():
    certificate = gm.LinearRegression(**BUDGET, bounds_y=(-1, 1), random_state=0).fit(X, y).privacy_
    assert not certificate.is_private
    with pytest.raises(gm.NotPrivateError, match="does not state that the guarantee is void"):
        replace(certificate, conditions=())


def test_no_noise_has_no_finite_epsilon():
    certificate = gm.LinearRegression(**{**BUDGET, "epsilon": np.inf}, bounds_y=(-1, 1)).fit(X, y).privacy_
    with pytest.raises(gm.NotPrivateError, match=r"claims epsilon=1\.0"):
        replace(certificate, epsilon=1.0)


@pytest.mark.parametrize("name", [*NAMES, "LogisticRegression"])
def test_round_trip_with_exactly_its_keys(name):
    certificate = fitted(name)
    stored = json.loads(json.dumps(certificate.to_dict()))
    assert Certificate.from_dict(stored) == certificate
    assert type(Certificate.from_dict(stored).account) is type(certificate.account)
    assert set(stored) == {field.name for field in fields(Certificate)} - {"sites"}  # one curator
    for key in stored:
        with pytest.raises(gm.ArgumentError, match="the stored Certificate has missing or unknown fields"):
            Certificate.from_dict({name: value for name, value in stored.items() if name != key})
    with pytest.raises(gm.ArgumentError, match="the stored Certificate has missing or unknown fields"):
        Certificate.from_dict({**stored, "added": 1})
    with pytest.raises(gm.ArgumentError, match=r"the stored \w*Account has missing or unknown fields"):
        Certificate.from_dict({**stored, "account": {**stored["account"], "added": 1}})


def test_an_infinite_epsilon_is_void_whatever_the_account():
    certificate = gm.LinearRegression(**{**BUDGET, "epsilon": np.inf}, bounds_y=(-1, 1)).fit(X, y).privacy_
    assert not certificate.is_private
    assert certificate.account == NonPrivate()
    with pytest.raises(gm.NotPrivateError, match="does not state that the guarantee is void"):
        replace(certificate, conditions=())


def test_words_and_types_of_conditions():
    assert str(gm.Condition(True, "a seed.")) == "void: a seed."
    assert str(gm.Condition(False, "a promise.")) == "condition: a promise."
    for wrong in (("no", "text"), (1, "text"), (True, 3)):
        with pytest.raises(gm.ArgumentTypeError, match="void must be a bool"):
            gm.Condition(*wrong)
    certificate = fitted("LinearRegression")
    with pytest.raises(gm.ArgumentTypeError, match="conditions must be a tuple of Condition"):
        replace(certificate, conditions=("void: x",))
    with pytest.raises(gm.ArgumentTypeError, match="account must be an Account"):
        replace(certificate, account={"gamma": 1.0})
    with pytest.raises(gm.ArgumentError, match="release must be 32 hexadecimal digits"):
        replace(certificate, release="")


def test_the_text_says_everything():
    words = str(fitted("LinearRegression"))
    for text in (
        "(1, 1e-06)-differentially private: Gaussian mechanism on the Gram matrix (discrete Gaussian), made by LinearR",
        "membership-inference power ≤ 7.95 % at a 5 % false-positive rate",
        "add-remove",
        "one row added or removed",
        "noise: OpenDP's exact sampler",
        "exact",
    ):
        assert text in words


def test_what_drew_the_noise_is_said():
    """The noise of releases does not come from the generator that baselines draw from."""
    assert fitted("LinearRegression").generator_words == "OpenDP's exact sampler, seeded with operating-system entropy"
    assert fitted("AdaSSP").generator_words == "ChaCha20, keyed with operating-system entropy"
    proposed = gm.propose_bounds({"s": ["a", "b"] * 500}, {"s": "category"}, epsilon=1.0, delta=1e-6).certificate
    assert proposed.generator_words.startswith("OpenDP's exact sampler")
    seeded = gm.LinearRegression(**BUDGET | {"random_state": 0}, bounds_y=(-1, 1)).fit(X, y).privacy_
    assert seeded.generator_words.endswith(", not a secure generator")
    unprotected = gm.LinearRegression(**{**BUDGET, "epsilon": np.inf}, bounds_y=(-1, 1)).fit(X, y).privacy_
    assert unprotected.generator_words == "none"


@pytest.mark.parametrize(
    "call",
    [
        lambda k: gm.calibrate(1.0, 1e-6, sketch_size=k),
        lambda k: gm.calibrate(1.0, sketch_size=k, gamma=1e9),
        lambda k: accounting.delta(1.0, sketch_size=k, gamma=5.0),
        lambda k: accounting.delta([1.0, 2.0], sketch_size=[5, k], gamma=5.0),
        lambda k: accounting.epsilon(1e-6, sketch_size=k, gamma=5.0, analysis="renyi"),
        lambda k: accounting.rdp(2.0, sketch_size=k, gamma=5.0),
        lambda k: accounting.theorem1_epsilon(1e-6, sketch_size=k, gamma=5.0, eta=1.0),
        lambda k: private_scale_delta(1.0, sketch_size=k, gamma=5.0, eta=1.0, tau=0.0),
        lambda k: gm.paper.LinearMixing(**BUDGET, bounds_y=(-1, 1), sketch_size=k).fit(X, y),
        lambda k: SheffetMixing(**BUDGET, bounds_y=(-1, 1), sketch_size=k).fit(X, y),
    ],
)
def test_sketches_beyond_2_to_the_40_are_refused(call):
    for k in (2**40 + 1, 9 * 10**18):
        with pytest.raises(ValueError, match=r"must be at most 2\*\*40"):
            call(k)


def test_two_to_the_40_itself_is_private():
    found = gm.calibrate(1.0, 1e-6, sketch_size=2**40)
    assert accounting.delta(1.0, sketch_size=2**40, gamma=found.gamma) <= 1e-6


def test_accounts_are_held_against_the_schema():
    X, y = np.random.default_rng(0).uniform(-1, 1, (200, 2)), np.tile([0, 1], 100)
    fitted = gm.baselines.ObjectivePerturbation(epsilon=10.0, data_norm=1.0, classes=(0, 1)).fit(X, y)
    account = fitted.privacy_.account
    smaller = replace(account, **{k: getattr(account, k) * 1e-4 for k in ("noise", "x_norm", "gradient_norm")})
    with pytest.raises(gm.NotPrivateError, match="smaller norm of the features than the schema declares"):
        replace(fitted.privacy_, account=smaller)
    with pytest.raises(gm.NotPrivateError):
        replace(fitted.privacy_, account=replace(account, gradient_norm=1e9))
    sheffet = gm.baselines.SheffetMixing(epsilon=1.0, data_norm=1.0, bounds_y=(0, 1)).fit(X, y).privacy_
    wider = replace(sheffet.account, laplace_scale=1000 * sheffet.account.laplace_scale)
    with pytest.raises(gm.NotPrivateError):
        replace(sheffet, account=wider)


def test_every_mechanism_has_a_name_and_words():
    kinds = get_args(Account)
    assert all(kind.mechanism and kind.mechanism_words for kind in kinds)
    assert len({kind.mechanism for kind in kinds}) == len(kinds)
