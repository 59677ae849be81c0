"""From any table to one private release: what the curator calls.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> age = rng.uniform(18, 95, 50_000)
>>> table = {"age": age, "cost": 2 + 0.1 * age + rng.uniform(-1, 1, 50_000)}
>>> private = release(table, schema={"age": [18, 95], "cost": [0, 20]}, epsilon=1.0, delta=1e-6, random_state=0)
>>> abs(private.regress("cost").coef["age"] - 0.1) < 0.01
True
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import refuse_inputs
from gaussmix.accounting.parameters import Relation
from gaussmix.data.contributions import BoundRows, Unit
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema, declared_schema
from gaussmix.data.source import CsvOptions, ReadOptions
from gaussmix.data.table import open_table
from gaussmix.errors import DeclarationError
from gaussmix.ledger import Ledger
from gaussmix.mechanism.budgeting import Passes
from gaussmix.mechanism.preparation import prepare
from gaussmix.models.release import Release

__all__ = ["release"]


@check.misplaced(
    rows_per_group="it is for fit(groups=) of estimators. A release takes unit, a name of a column, and rows_per_unit."
)
def release(
    data: Any,
    *,
    schema: Schema | dict[str, Any] | str | Path | None = None,
    formula: str | None = None,
    weight: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    passes: Passes = "auto",
    keep_tails: bool = False,
    relation: Relation | None = None,
    ledger: Ledger | str | Path | None = None,
    share: float | str | None = None,
    note: str = "",
    csv: CsvOptions | None = None,
    expect_rows: int | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    random_state: int | np.random.Generator | None = None,
    progress: bool = False,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    bound_rows: BoundRows | None = None,
    unit_sorted: bool = False,
    row_by_row: bool = False,
) -> Release:
    """Release private second moments of a table, which serve any number of models.

    The budget, the ledger's room, the schema and the output are looked at before a row is read, and the ledger is
    charged only when nothing but the draw is left to do.

    Parameters
    ----------
    data : table or Moments
        Anything that :func:`gaussmix.data.table.open_table` opens, or moments that were built before.
    schema : Schema, dict or path
        Columns with declared bounds and levels; not needed with moments, which refuse another one than theirs.
    formula : str, optional
        The columns and terms that the release is to hold, made from the declared columns (docs/terms.md):
        ``"log(wage) ~ poly(experience, 2) + ethnicity*smsa"``. Others are left out.
    weight : str, optional
        A numeric column with declared bounds [0, w_max] whose values weigh the rows; it is not released itself.
    epsilon, delta : float
        The privacy budget; left out with a ledger, whose budget covers all of its releases together.
    passes : int or "auto"
        How often the table is read. Later passes are drawn in a metric that the earlier ones have learned, with far
        less noise on real tables (docs/passes.md). ``"auto"`` is four, or one where the table can be read only once:
        an iterator, or moments. 1 to 4.
    keep_tails : bool
        Rows far out are shortened in later passes, and results are those of the shortened rows. True shortens hardly
        any in the last pass: for skewed columns whose own means, standard deviations and coefficients are wanted, at
        two to three times the noise (docs/inference.md).
    relation : {"zero-out", "replace-one"}, optional
        Neighbouring relation; default: zero-out, or the ledger's.
    ledger : Ledger or path, optional
        Where the release is recorded before its noise is drawn. Without one, a second release of the same files or
        objects in a process gives a warning: budgets of several releases of the same rows add up.
    share : float or str, optional
        Share of the ledger's budget μ² that the release takes; default: one of the parts that the ledger was planned
        for.
    note : str
        Kept in the ledger.
    csv : CsvOptions, optional
        How CSV files are written.
    expect_rows : int, optional
        Another number of rows is an error, before anything is spent.
    out : path, optional
        File for the release, in Parquet whatever its name; one that promises another format, as ``x.csv`` does, is an
        error. Its room on the disk is taken before the ledger is charged, so that a full disk costs no
        budget; :meth:`Release.save` comes too late for that.
    force : bool
        Whether a file of that name is replaced; otherwise it is an error.
    random_state : optional
        None is the secure generator; a seed is for tests.
    progress : bool
        Show a progress bar on a terminal.
    unit : str, optional
        Name of the column that says whose a row is: the guarantee is then for **all rows of one person**. The column is
        read as text or whole numbers, and never released. Default: the guarantee is for one row.
    rows_per_unit : int, optional
        j, needed with a unit: as how many rows a person counts at most, fixed before the data are seen.
    bound_rows : {"shorten", "keep"}, optional
        Of who has more than j rows, all are multiplied by one factor, so that their squared norms add up to at most jC²
        (the default), or j are kept, by a keyed hash (docs/persons.md).
    unit_sorted : bool
        Declares that rows of a person stand together in the table, which is checked: nothing is kept between passes.
        Otherwise encoded rows are brought together in memory or, where they are many, in a temporary file.
    row_by_row : bool
        Declares that each stored row affects at most one row of a query's result. By default a DuckDB query or relation
        whose plan has other operators than scans, filters, projections and UNION ALL is an error, before anything is
        spent; other lazy frames are not examined. The certificate states the condition in every case.
    """
    if isinstance(data, Moments):
        if formula is not None or weight is not None:
            raise DeclarationError("formula and weight say how rows are read: moments were summed up without them.")
        declared = data.schema if schema is None else Schema.of(schema)
    elif schema is not None:
        declared = declared_schema(schema, formula=formula, weight=weight)
    else:
        raise DeclarationError(
            "schema must be declared: bounds of numbers and levels of categories, fixed before the data are seen. "
            "`gaussmix schema FILE` writes a template."
        )
    whose = Unit.declared(unit, rows_per_unit, bound_rows, declared)
    options = ReadOptions(
        csv=csv, expected_rows=expect_rows, progress=progress, row_by_row=row_by_row, sorted_by_unit=unit_sorted
    )
    inputs = [schema] if isinstance(schema, str | os.PathLike) else []
    if isinstance(data, Moments):
        whose = data.unit if whose is None else whose
    else:
        data = open_table(data, options)
        inputs += data.paths
    if out is not None:
        refuse_inputs(out, inputs)
    with (
        prepare(
            declared,
            epsilon=epsilon,
            delta=delta,
            passes=passes,
            keep_tails=keep_tails,
            relation=relation,
            ledger=ledger,
            share=share,
            note=note,
            out=out,
            force=force,
            random_state=random_state,
            unit=whose,
        ) as prepared,
        closing(prepared.rows(data, options)) as rows,
    ):
        return prepared.draw(rows, data=data, progress=progress)
