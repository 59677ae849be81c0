# Two commands: `make demo` runs the main job, `make test` passes the tests.
# Each makes .venv with what it needs, so that Python (3.11 or later) and make are enough.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test format bench clean

demo: .venv/core
	$(BIN)/gaussmix demo --out demo

test: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

format: .venv/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/test
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gaussmix needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plots]'
	touch $@

.venv/test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ .venv/core
