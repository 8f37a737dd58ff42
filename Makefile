# Every target sets itself up from a fresh clone: a venv, then the package with its development extras.
# With .venv/.stamp present no installer runs, so everything works offline afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.PHONY: demo test test-slow lint types check sanitize test-faults fuzz soak docs release-check bench bench-quick reproduce-nbody reproduce-arteries browser clean
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "AnyGATr needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "The venv module is missing. Install it with: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## E, P, iP, C and a Transformer on gravitating bodies; ends with the path of the report
	$(BIN)/anygatr demo

test: $(STAMP) browser  ## the fast tests, on both cores
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP) browser  ## everything, orders 3 and 4 included
	$(BIN)/python -m pytest -m 'slow or not slow' -n 2

lint: $(STAMP)  ## format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror src/anygatr/execution/c/csrc/*.[ch]

types: $(STAMP)  ## static types of the package, and of the examples as a user's checker sees them
	$(BIN)/mypy
	$(BIN)/mypy --strict --allow-untyped-calls --no-warn-return-any examples

check: lint types  ## format, lint, types, fast tests
	$(BIN)/python -m pytest -n 2

sanitize: $(STAMP)  ## the C kernels on odd shapes with the address and undefined-behaviour sanitisers
	$(BIN)/python -m benchmarks.reliability.sanitize

ROUNDS ?= 240
SEED ?= 0
CASES ?= 1000000
MINUTES ?= 60

test-faults: $(STAMP)  ## kills, full and read-only disks, damaged files, NaN, clocks, lost ranks: ROUNDS=240 SEED=0
	$(BIN)/python -m benchmarks.reliability.faults --rounds $(ROUNDS) --seed $(SEED)

fuzz: $(STAMP)  ## every reader, the checkpoint loader, settings and the command line: CASES=1000000 SEED=0
	$(BIN)/python -m benchmarks.reliability.fuzz --cases $(CASES) --seed $(SEED)

soak: $(STAMP)  ## an hour of training and 50 000 ragged batches: slope of memory, drift of throughput; MINUTES=60
	$(BIN)/python -m benchmarks.reliability.soak --minutes $(MINUTES)

docs: $(STAMP)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

release-check: $(STAMP)  ## build sdist and wheel into dist/, check contents and metadata, install the wheel alone, run the README
	$(BIN)/python -m tools.release_check

bench: $(STAMP)  ## time the solver, and training steps against peers and targets; docs/performance.md shows the results
	$(BIN)/python -m benchmarks.solver.times
	$(BIN)/python -m benchmarks.speed.run
	$(BIN)/python -m benchmarks.speed.step_profile
	$(BIN)/python -m benchmarks.speed.roofline

bench-quick: $(STAMP)  ## a training step against the peers in three minutes
	$(BIN)/python -m benchmarks.speed.run --quick

reproduce-nbody: $(STAMP)  ## the paper's n-body figure; continues from the rows in results/nbody
	$(BIN)/python -m benchmarks.nbody.run figure
	$(BIN)/python -m benchmarks.nbody.write_page

reproduce-arteries: $(STAMP)  ## the paper's artery table on our own arteries; continues in runs/arteries
	$(BIN)/python -m benchmarks.arteries.run

browser:  ## Debian's Chromium for the tests that open the report; without it they are skipped
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		&& echo "Installing Chromium from Debian's packages for the browser tests" \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "No chromium: the browser tests will be skipped. On Debian: apt-get install chromium"

clean:
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
