"""Plans and pages of schemas with terms, weights and columns of missing values."""

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.report.page_data import first_response, possible_responses
from gaussmix.report.plan import SCENARIOS, response_of, simulate
from gaussmix.report.statement import bounds_of

SCHEMA = gm.Schema.of(
    {
        "wage": [50, 20_000],
        "experience": {"lower": -4, "upper": 63, "missing": "indicator"},
        "sex": ["f", "m"],
        "born": gm.Date("1950-01-01", "2010-01-01"),
        "w": [0, 3],
    },
    terms=["log(wage)", "poly(experience, 2)", "experience:sex"],
    only_in_terms=["wage"],
    weight="w",
)


@pytest.mark.parametrize("kind", SCENARIOS)
def test_simulated_tables_have_the_terms_of_their_columns(kind):
    target = response_of(SCHEMA)
    assert target == "log(wage)"
    rows = simulate(SCHEMA, kind, response=target, r2=0.5, rows=500).rows * SCHEMA.row_norm
    z, square, product, male = (
        rows[:, SCHEMA.names.index(name)] for name in ("experience", "experience^2", "experience:sex=m", "sex=m")
    )
    np.testing.assert_allclose(square, 1.5 * z**2 - 0.5, atol=1e-4)
    np.testing.assert_allclose(product, z * male, atol=1e-4)
    assert (np.linalg.norm(rows, axis=1) <= SCHEMA.row_norm).all()


def test_a_page_says_what_terms_and_weights_are():
    found = {row[0]: row for row in bounds_of(SCHEMA)["rows"]}
    assert found["wage"][3] == "in terms only"
    assert found["w"][3] == "row weight"
    assert found["experience^2"][1] == "term"
    assert found["born"][1:3] == ["date", "0 to 21915 days since 1950-01-01"]


def test_terms_and_dates_can_be_responses():
    assert possible_responses(SCHEMA)[0] == "born"
    assert first_response(SCHEMA, "log(wage)") == "log(wage)"
    with pytest.raises(gm.ArgumentError, match="without a missing-value indicator"):
        first_response(SCHEMA, "experience")
