"""``gaussmix release --model``: declared models by text, and what is refused before anything is read."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.cli.data import _declared


def test_a_model_is_a_formula_with_a_family_and_an_exposure():
    assert _declared("sick ~ age + smoker") == gm.DeclaredModel("sick ~ age + smoker")
    assert _declared("poisson: claims ~ age; years") == gm.DeclaredModel("claims ~ age", "poisson", "years")
    assert _declared("y ~ a*b") == gm.DeclaredModel("y ~ a*b")
    assert _declared("y ~ a + b + a:b") == gm.DeclaredModel("y ~ a + b + a:b")


def test_models_are_declared_on_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, 4000)
    table = pa.table({"age": age, "sick": rng.random(4000) < 0.2 + age / 200, "cost": rng.uniform(0, 9, 4000)})
    rows, schema, out = tmp_path / "rows.parquet", tmp_path / "schema.json", tmp_path / "out.parquet"
    pq.write_table(table, rows)
    columns = {"age": [20, 80], "sick": {"type": "boolean"}, "cost": [0, 9]}
    schema.write_text(json.dumps(gm.Schema.of({**columns, "sick": "boolean"}).to_dict()), encoding="utf-8")
    budget = ["-s", str(schema), "-e", "2", "-d", "1e-6", "-o", str(out)]
    done = CliRunner().invoke(
        main,
        ["release", str(rows), *budget, "--model", "sick ~ age", "--model", "ols: cost ~ age", "--model-share", "0.4"],
    )
    assert done.exit_code == 0, done.output
    private = gm.load(out)
    assert [str(own.model) for own in private.statistic.models] == ["logit: sick ~ age", "ols: cost ~ age"]
    assert private.statistic.model_share == 0.4
    assert "logit: sick ~ age; ols: cost ~ age" in done.output
    done = CliRunner().invoke(main, ["release", str(rows), *budget, "--model-share", "0.4"])
    assert done.exit_code == 2
    assert "--model-share requires --model" in done.output
    done = CliRunner().invoke(main, ["logit", str(out), "sick", "--predictors", "age"])
    assert "Declared model: two private Newton steps" in done.output
