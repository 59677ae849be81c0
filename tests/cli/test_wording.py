"""Arguments become options; names of columns and of files, and values, stay."""

import pytest

from gaussmix.cli.wording import with_options


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("delta must lie in [0, 1], got 2.0.", "--delta must lie in [0, 1], got 2.0."),
        ("rows must be an integer ≥ 1, got 0.", "--rows must be an integer ≥ 1, got 0."),
        ("The table has no rows.", "The table has no rows."),
        ("epsilon=0.1 and delta=1e-09.", "--epsilon 0.1 and --delta 1e-09."),
        ("leverage is 1/gamma (bound_holds_for='larger').", "leverage is 1/gamma (--bound-holds-for larger)."),
        ("Column 'delta' is not in delta.csv.", "Column 'delta' is not in delta.csv."),
        ('Column "it\'s delta" of /a/epsilon/b', 'Column "it\'s delta" of /a/epsilon/b'),
        ("the ledger's: leave relation out. The table's", "the ledger's: leave --relation out. The table's"),
        ("not epsilons, my_delta or delta_total", "not epsilons, my_delta or delta_total"),
        ("declare quoted_newlines=True, or quoting=False if", "declare --quoted-newlines, or --no-quoting if"),
        ("rows_per_unit must be declared with a unit.", "--rows-per-unit must be declared with a unit."),
        ("rows_per_unit and bound_rows go with", "--rows-per-unit and --bound-rows go with"),
        ("share must be more than 0, got '2'. A share of it", "--share must be more than 0, got '2'. A share of it"),
        ("with force=True (--force).", "with --force."),
        ("in one pass: leave passes out, or sketch_size.", "in one pass: leave --passes out, or --sketch-size."),
        ("serve one pass: set passes=1, or pass the table.", "serve one pass: give --passes 1, or pass the table."),
        ("the path of a file; or passes=1.", "the path of a file; or --passes 1."),
        ("leave keep_tails out, or ask for more passes.", "leave --keep-tails out, or ask for more passes."),
        ("share is a share of a ledger's budget: name", "--share is a share of a ledger's budget: name"),
        ("unit_sorted goes with a unit", "--unit-sorted goes with a unit"),
    ],
)
def test_words(said, shown):
    assert with_options(said) == shown
