"""Formulas: taken apart, never run."""

import sys

import pytest

from gaussmix.data.schema import Formula, Schema, declared_schema, read_formula
from gaussmix.errors import ArgumentError, DeclarationError, MissingPackageError

COLUMNS = {"wage": [50, 9000], "experience": [0, 60], "sex": ["f", "m"], "a b": [0, 1], "w": [0, 3], "log(x)": [0, 1]}


@pytest.mark.parametrize(
    ("text", "target", "on"),
    [
        ("y ~ a + b", "y", ("a", "b")),
        ("log(wage) ~ a*b", "log(wage)", ("a", "b", "a:b")),
        ("`a b` ~ `log(x)` + a:b", "a b", ("`log(x)`", "a:b")),
        ("y ~ poly(a, 2):b + (c + d)^2", "y", ("c", "d", "poly(a, 2):b", "c:d")),
        ("y ~ .", "y", None),
    ],
)
def test_formulas_are_read(text, target, on):
    read = read_formula(text)
    assert read.response == target
    assert (read.predictors and set(read.predictors)) == (on and set(on))


@pytest.mark.parametrize(
    "text",
    ["y", "y ~", "~ a", "y ~ a ~ b", "y ~ a - 1", "y ~ 0 + a", "a + b ~ c", "y ~ a | b", "y ~ 1", "y ~ a +", 'y ~ "a"'],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ArgumentError, match="formula"):
        read_formula(text)


def test_nothing_is_run(monkeypatch):
    called = []
    monkeypatch.setitem(sys.modules, "trap", type(sys)("trap"))
    sys.modules["trap"].spring = lambda: called.append(1)
    schema = Schema.of(COLUMNS)
    for text in ("wage ~ __import__('trap').spring()", "wage ~ {__import__('trap').spring()}", "wage ~ I(sex)"):
        with pytest.raises((DeclarationError, ArgumentError)):
            declared_schema(schema, formula=text)
    assert not called


def test_a_formula_makes_the_schema_of_a_release():
    schema = declared_schema(COLUMNS, formula="log(wage) ~ poly(experience, 2) + sex*`a b`", weight="w")
    assert list(schema.columns) == ["wage", "experience", "sex", "a b", "w"]
    assert list(schema.parts) == ["experience", "sex", "a b", "log(wage)", "experience^2", "sex:a b"]
    assert schema.only_in_terms == ("wage",)
    assert schema.weight == "w"
    assert declared_schema(COLUMNS, formula="wage ~ log(wage)").parts.keys() == {"wage", "log(wage)"}
    assert list(declared_schema(COLUMNS, formula="wage ~ `log(x)`").parts) == ["wage", "log(x)"]
    weighted = declared_schema(Schema.of(COLUMNS, terms={"log(wage)": 0.5}), formula="log(wage) ~ sex")
    assert dict(weighted.terms) == {"log(wage)": 0.5}
    with pytest.raises(DeclarationError, match="column 'age' is not declared"):
        declared_schema(COLUMNS, formula="wage ~ age")


def test_without_formulaic_only_sums_of_columns_are_parsed(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic.parser", None)
    assert read_formula("y ~ a + b") == Formula("y", ("a", "b"))
    for formula in ("y ~ log(a)", "y ~ a*b", "y ~ a - 1", "y ~ `a b`", "log(y) ~ a"):
        with pytest.raises(MissingPackageError, match=r"gaussmix\[formulas\]"):
            read_formula(formula)


@pytest.mark.parametrize("formula", ["y ~ a + b", "y ~ b + a + b", "y ~ größe", "_y ~ a1+ b_2 "])
def test_sums_of_columns_are_parsed_as_by_formulaic(formula):
    from formulaic.parser import DefaultFormulaParser

    parsed = DefaultFormulaParser().get_terms(formula.partition("~")[2])
    assert list(read_formula(formula).predictors) == [str(term) for term in parsed if str(term) != "1"]


@pytest.mark.parametrize(
    "formula", ["y ~ a + a^2", "y ~ a**2", "y ~ log(a) ^ 2", "y ~ `a b`^2", "y ~ b + (a + b):c**2"]
)
def test_powers_of_a_column_are_rejected_because_formulas_take_them_as_the_column(formula):
    with pytest.raises(ArgumentError, match=r"must not contain powers of a column .* Write poly\(age, 2\)"):
        read_formula(formula)
