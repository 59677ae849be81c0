# Two commands: `make demo` runs the main job, `make test` passes the tests.
# Each makes .venv with what it needs, so that Python (3.11 or later) and make are enough.

PYTHON ?= python3
BIN := .venv/bin
# Per cent of lines and branches, a point below what is measured.
COVERAGE := 96

.PHONY: demo sites-demo test test-slow test-processors test-oldest test-python release-check docs format audit bench bench-compare league figures networks networks-env clean

demo: .venv/core
	$(BIN)/gaussmix demo --out demo --force

# Three hospitals as three processes on this machine, and their joint release.
sites-demo: .venv/test
	rm -rf sites-demo
	$(BIN)/gaussmix sites demo --out sites-demo

test: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE)

# Simulations of distributions, coverage and attacks, and long sweeps over inputs.
test-slow: .venv/test
	$(BIN)/pytest -n auto -m slow

# Golden files, formats and accounts as other processors compute them: BLAS kernels, SIMD paths, no compiled functions.
test-processors: .venv/test
	$(BIN)/python tests/processors.py

# The same tests with the lowest versions that pyproject.toml declares.
test-oldest: .venv-oldest/ready
	.venv-oldest/bin/python -m pytest -n auto

# The same tests with another Python: make test-python PYTHON=python3.13.
test-python:
	$(PYTHON) -m venv --clear .venv-python
	.venv-python/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	.venv-python/bin/python -m pytest -n auto

# Sdist, wheels, citation and conda recipe from what is committed; installs and uses the packages in empty environments of every Python that is installed: four minutes.
release-check:
	$(PYTHON) tests/release_check.py

# The site, in docs/_build/html: a warning, a name or a link inside that leads nowhere is an error.
docs: .venv-docs/ready
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --nitpicky --fresh-env -q docs docs/_build/html

format: .venv/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Lower bounds on the ε that fast mechanisms spend: a few minutes. More runs: make audit RUNS=20000.
RUNS ?= 5000
audit: .venv/test
	$(BIN)/python -m audit --runs $(RUNS)

# All benchmarks into one file of benchmarks/runs; ratios worse than the committed ones by 15 % are red.
bench: .venv/test .venv-field/ready
	$(BIN)/python -m benchmarks.run

bench-compare: .venv/test
	$(BIN)/python -m benchmarks.compare

# Figures 1 to 5 of the paper from the data in GAUSSMIX_DATA: two hours on two cores, most of them for the networks.
figures: .venv/test networks
	$(BIN)/python -m experiments.linear_in_passes
	$(BIN)/python -m experiments.logistic_in_passes
	$(BIN)/python -m experiments.logistic_times
	$(BIN)/python -m experiments.excess_risk
	$(BIN)/python -m experiments.reproduce

# The league: accuracy and intervals beside other methods and libraries, some of which have environments of their own.
# Half an hour on two cores, most of it for synthetic rows. More splits: make league SPLITS=20.
SPLITS ?= 10
league: .venv/test .venv-field/ready .venv-synth/ready
	$(BIN)/python -m experiments.league --splits $(SPLITS)

.venv-field/ready:
	$(PYTHON) -m venv .venv-field
	.venv-field/bin/python -m pip install --quiet --disable-pip-version-check diffprivlib==0.6.6 'scikit-learn<1.6'
	touch $@

.venv-synth/ready:
	$(PYTHON) -m venv .venv-synth
	.venv-synth/bin/python -m pip install --quiet --disable-pip-version-check smartnoise-synth==1.0.8 mbi==1.1.0
	touch $@

networks: networks-env
	.venv-networks/bin/python -m experiments.dp_sgd

networks-env: .venv-networks/ready

clean:
	rm -rf .venv .venv-docs .venv-field .venv-networks .venv-oldest .venv-python .venv-synth .venv-uv docs/_build

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gaussmix needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plots]'
	touch $@

.venv/test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ .venv/core

.venv-docs/ready: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

.venv-oldest/ready: pyproject.toml
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.4'
	rm -rf .venv-oldest
	$(PYTHON) -m venv .venv-oldest
	VIRTUAL_ENV="$$PWD/.venv-oldest" .venv-uv/bin/uv pip install --quiet --resolution lowest-direct -e '.[test]'
	touch $@

# torch first and alone, in an environment of its own: it holds other packages back.
.venv-networks/ready:
	$(PYTHON) -m venv .venv-networks
	.venv-networks/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-networks/bin/python -m pip install --quiet --disable-pip-version-check 'opacus>=1.5' 'dp-accounting>=0.6' tqdm
	touch $@
