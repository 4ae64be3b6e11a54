# make demo | make test | make check | make help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SLOW := $(VENV)/.slow

# Public data for tests and experiments; tests that need it skip where it is missing.
FEDPERF_DATA ?= $(realpath ../shared/data)
export FEDPERF_DATA
# Libraries of ours must not call home.
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
# Tests start hundreds of processes: what one has compiled the others read.
export PYTHONDONTWRITEBYTECODE :=

IN ?=

.PHONY: help install demo test map check lint types contracts proto slow clocked computed nightly clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv with every dependency, pinned by constraints.txt

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	# torch first and alone, so that a CPU wheel is taken where one is at hand
	$(BIN)/python -m pip install --quiet "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP) ## why to join, what it costs and a page about it, in 6 minutes
	$(BIN)/fedperf-sim demo --out out/demo

# Two processes with a pool of threads each get into each other's way on two cores.
test slow clocked computed: export OMP_NUM_THREADS = 1

test: $(STAMP) ## the fast tests, under 4 minutes
	$(BIN)/python -m pytest -q -n 2 --dist loadscope -m "not slow and not fault"

# Slow tests also need Ray, on which Flower's simulation engine runs. Tests of logs that Spark
# writes need Spark and Java; without Java they skip. Object stores are emulated, that of Azure by
# a program of npm.
$(SLOW): $(STAMP)
	extras=sim,emulators; if command -v java >/dev/null; then extras=$$extras,spark; fi; \
	  $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$$extras]"
	if command -v npm >/dev/null; then npm install --silent --prefix $(VENV) azurite@3.35.0 || true; fi
	touch $(SLOW)

# Real daemons keep the times of a calendar, so tests that watch them go before all that only
# computes. They mostly wait.
CLOCKED := tests/integration/federation tests/integration/organizations tests/fault \
  tests/unit/simulations/demo tests/integration/pages/test_participant_pages.py \
  tests/integration/pages/test_operator_page.py
PYTEST_SLOW = $(BIN)/python -m pytest -q -n 2 --dist loadscope -m "slow or fault" $(PICK)
# Exit code 5: all tests passed before.
OR_NONE_LEFT := || [ $$? -eq 5 ]
PICK ?=

slow: $(SLOW) ## slow and fault tests
	$(MAKE) --jobs=2 --output-sync=target clocked computed

clocked: $(SLOW)
	$(PYTEST_SLOW) $(CLOCKED) $(OR_NONE_LEFT)

computed: $(SLOW)
	nice -n 19 $(PYTEST_SLOW) --timeout 900 tests $(CLOCKED:%=--ignore=%) $(OR_NONE_LEFT)

lint: $(STAMP) ## format and lint; what is imported is declared, and the other way round; no unused code, no replaced words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/deptry shared client server simulations
	$(BIN)/vulture
	$(BIN)/python -m tests.shape.words

types: $(STAMP) ## mypy --strict on code and tests
	$(BIN)/mypy

contracts: $(STAMP) ## import contracts, and generated code in step with proto/
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

proto: $(STAMP) ## generate the wire modules from proto/
	$(BIN)/python proto/generate.py

map: ## every module with what it is; those of one package by IN=client
	@$(PYTHON) -m tests.shape.modules $(IN)

check: export PICK := --first-of-each
check: lint types contracts test slow ## what CI runs, with one slow test of each file, under 35 minutes

nightly: export PICK = --resume $(CURDIR)/out/nightly/$(shell git rev-parse HEAD)
nightly: lint types contracts test slow ## everything, under 3 hours; goes on where it stopped

clean: ## remove what was made here
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: shape
shape: ## count files, lines and code of each package
	@$(PYTHON) tests/shape/count.py

.PHONY: newest installed
newest: ## fast tests of base and [join] from the wheel, with the newest versions
	$(PYTHON) -m tests.shape.installed newest

installed: ## sizes of base and [join] in fresh environments; what the base resolves beside
	$(PYTHON) -m tests.shape.installed sizes
	$(PYTHON) -m tests.shape.installed beside
