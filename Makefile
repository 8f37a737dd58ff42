# Every target sets itself up from a fresh clone: a venv, then the package with its development extras.
# With .venv/.stamp present no installer runs, so everything works offline afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.PHONY: demo test test-slow check docs bench clean
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "AnyGATr needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "The venv module is missing. Install it with: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## the map tables of E, P and C, and which maps a network can build
	$(BIN)/python examples/demo.py

test: $(STAMP)  ## the fast tests, on both cores
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP)  ## everything, orders 3 and 4 included
	$(BIN)/python -m pytest -m 'slow or not slow' -n 2

check: $(STAMP)  ## format, lint, types, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

docs: $(STAMP)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

bench: $(STAMP)  ## time the solver against its targets
	$(BIN)/python benchmarks/solver.py

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
