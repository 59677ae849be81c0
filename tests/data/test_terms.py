"""Terms: how they are written, what they need, and what a row with them is."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from encoded_rows import plain_rows, squared_lengths, summed_rows
from gaussmix.data.schema import Schema
from gaussmix.data.terms import needs_of, parse_terms
from gaussmix.errors import ArgumentError, DeclarationError

COLUMNS = {
    "wage": [50, 20_000],
    "experience": [-4, 63],
    "sex": ["female", "male"],
    "smsa": "boolean",
    "region": {"levels": ["n", "s", "w"], "unknown": "other", "missing": "level"},
}
TERMS = ["log(wage)", "poly(experience, 3)", "poly(experience, 2):sex", "region:sex", "smsa:experience",
         "spline(experience, 5)", "spline(experience, 3):region", "log(wage):smsa", "experience:sex:smsa"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("age", ["age"]),
        ("a b", ["a b"]),
        ("`a:b`", ["`a:b`"]),
        (" poly( age ,3 )", ["age", "age^2", "age^3"]),
        ("poly(log(age), 2)", ["log(age)", "log(age)^2"]),
        ("age^2", ["age^2"]),
        ("spline(age,4):sex", ["spline(age, 4):sex"]),
        ("poly(`odd (name)`, 2):sex", ["`odd (name)`:sex", "`odd (name)`^2:sex"]),
        ("hour(t):sex", ["hour(t):sex"]),
    ],
)
def test_terms_are_read(text, terms):
    assert [term.text for term in parse_terms(text, ())] == terms
    assert [parse_terms(term, ())[0].text for term in terms] == terms


def test_names_of_columns_are_columns():
    (term,) = parse_terms("log(x):y", ["log(x):y"])
    assert term.text == "`log(x):y`"


@pytest.mark.parametrize(
    "text",
    ["", "log(age", "log()", "exp(age)", "poly(age)", "poly(age, 0)", "poly(age, 13)", "spline(age, 2)", "age^1",
     "a:", ":a", "poly(a:b, 2)", "log(log(a))", "a^2^3", "poly(age, 2, raw)", "__import__('os')", "poly(age, 2))"],
)  # fmt: skip
def test_what_is_no_term_is_refused(text):
    with pytest.raises(DeclarationError, match="is not a valid term"):
        parse_terms(text, ())


def test_terms_need_their_lower_ones():
    (term,) = parse_terms("x^2:sex", ())
    assert [need.text for need in needs_of(term)] == ["x", "x^2", "sex", "x:sex", "x^2:sex"]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (["log(experience)"], "positive lower bound"),
        (["poly(sex, 2)"], "must be numeric"),
        (["hour(wage)"], "Declare an origin"),
        (["age:sex"], "'age' is not declared"),
        (["wage:log(wage)"], "occurs twice"),
        ({"log(wage)": 2.0**-40}, "weight, .* must be at least"),
    ],
)
def test_what_cannot_be_declared(terms, words):
    with pytest.raises(DeclarationError, match=words):
        Schema.of(COLUMNS, terms=terms)


def test_columns_that_terms_need_are_released():
    with pytest.raises(DeclarationError, match="requires column 'experience' itself in the release"):
        Schema.of(COLUMNS, terms=["poly(experience, 2)"], only_in_terms=["experience"])
    with pytest.raises(DeclarationError, match="must be a column used in a term"):
        Schema.of(COLUMNS, only_in_terms=["wage"])
    assert "wage" not in Schema.of(COLUMNS, terms=["log(wage)"], only_in_terms=["wage"]).parts


def test_a_schema_goes_there_and_back():
    schema = Schema.of(COLUMNS, terms=TERMS, only_in_terms=["wage"] * 0)
    assert Schema.of(schema.to_dict()) == schema
    assert Schema.of(COLUMNS).to_dict().keys() == {"columns", "intercept", "max_row_norm"}  # as before terms
    assert Schema.of(COLUMNS, terms={"log(wage)": 2.0}) != Schema.of(COLUMNS, terms=["log(wage)"])


def test_a_term_that_was_not_declared_says_which_would_have_to_be():
    schema = Schema.of(COLUMNS, terms=["poly(experience, 2)"])
    assert schema.resolve("poly(experience, 2)") == ("experience", "experience^2")
    with pytest.raises(ArgumentError, match=r"'experience\^3' must be declared in the schema's terms"):
        schema.resolve("poly(experience, 3)")
    with pytest.raises(ArgumentError, match="Column 'age' is not in the release"):
        schema.resolve("age")


def rows_at(wages, years, sexes=("female", "male"), smsa=(False, True), regions=("n", "zz", None)):
    chosen = list(itertools.product(wages, years, sexes, smsa, regions))
    arrays = [pa.array([row[i] for row in chosen]) for i in range(5)]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def test_entries_are_those_of_the_formulas():
    """Against plain formulas on the clipped values; the raw map gives back powers and products."""
    schema = Schema.of(COLUMNS, terms=TERMS)
    table = rows_at([1.0, 50.0, 777.0, 1e9], [-100.0, -4.0, 0.3, 29.5, 63.0, 64.0])
    x = plain_rows(schema, table) * schema.units.scales + schema.units.centres
    A, b = schema.units.raw
    raw = dict(zip(schema.names, (x @ A.T + b).T, strict=True))
    wage, years = (np.clip(table[name].to_numpy(), *COLUMNS[name]) for name in ("wage", "experience"))
    male, smsa = table["sex"].to_numpy() == "male", table["smsa"].to_numpy().astype(float)
    other = np.array([region == "zz" for region in table["region"].to_pylist()])
    for name, value in {
        "experience^2": years**2,
        "experience^3": years**3,
        "experience^2:sex=male": years**2 * male,
        "log(wage)": np.log(wage),
        "log(wage):smsa": np.log(wage) * smsa,
        "smsa:experience": smsa * years,
        "region=(other):sex=male": other & male,
        "experience:sex=male:smsa": years * male * smsa,
    }.items():
        np.testing.assert_allclose(raw[name], value, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.3, 7.0])
def test_no_row_is_longer_than_its_bound_and_corners_attain_it(weight):
    terms = dict.fromkeys([term for term in TERMS if "spline" not in term], weight)
    for declared in (dict.fromkeys(TERMS, weight), terms):
        schema = Schema.of(COLUMNS, terms=declared)
        rows = summed_rows(schema, rows_at([1.0, 50.0, 1000.0, 2e4, 1e9], [-9.0, -4.0, 7.7, 29.5, 40.0, 63.0, 64.0]))
        assert max(squared_lengths(rows)) <= 2**40
    m = schema.n_columns  # without splines, which the terms of lower degree keep from their bound: all ends at once
    assert max(squared_lengths(rows)) >= (2**20 - m) ** 2
