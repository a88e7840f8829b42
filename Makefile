# Every target stays inside the checkout: .venv*/, build/, node_modules/ (all ignored by git).
#
#   PYTHON=/path/to/python   the interpreter to build .venv with (default: the newest supported one)
#   VENV=.venv-other         another virtual environment
#   ARGS="..."               extra arguments (make tests, stress, bench, mutants, switches)

SHELL := bash
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-print-directory

VENV ?= .venv
BIN := $(VENV)/bin
STAGE := .ci/stage
ARGS ?=
CORES := $(shell getconf _NPROCESSORS_ONLN)

ifndef PYTHON
PYTHON := $(shell .ci/find-python)
endif
# An existing virtual environment keeps its Python.
PYTHON_VERSION := $(shell python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
	$$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# A Python newer than the pinned ones uses the newest pins.
PINS := $(firstword $(wildcard tests/constraints/$(PYTHON_VERSION).txt) tests/constraints/3.13.txt)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_REQUIRE_VIRTUALENV := 1
# The tests start hundreds of Pythons, which must not compile the library again each time.
unexport PYTHONDONTWRITEBYTECODE
# pyright's wrapper would otherwise ask the registry for a newer version on each run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

# ---------------------------------------------------------------- set-up

$(VENV)/.base: pyproject.toml $(PINS)
	@test -n "$(PYTHON_VERSION)" || { echo "No Python >= 3.10 found; say make PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || $(STAGE) "virtual environment $(VENV) with Python $(PYTHON_VERSION)" $(PYTHON) -m venv $(VENV)
	@$(STAGE) "syncmcp and what it needs" $(BIN)/python -m pip install --progress-bar off -c $(PINS) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(STAGE) "development tools ($(PINS))" $(BIN)/python -m pip install --progress-bar off -c $(PINS) -e '.[dev]'
	@touch $@

.PHONY: venv
venv: $(VENV)/.dev ## set up: .venv with syncmcp and the development tools, pinned

.PHONY: peers
peers: $(VENV)/.dev ## set up: the real servers that the tests talk to
	@$(STAGE) "peers: real servers from PyPI and npm" $(BIN)/python tests/system/peers/setup_peers.py

.PHONY: programs
programs: $(VENV)/.dev ## set up: a Chromium and a sandbox for the tests, where they may be installed
	@$(STAGE) "programs: Chromium, bubblewrap" $(BIN)/python -m tests.support.setup_programs

# ---------------------------------------------------------------- use

.PHONY: demo
demo: $(VENV)/.base ## run the demo: open a server, list, call, eight futures
	@$(STAGE) "demo: examples/first_steps/demo.py" $(BIN)/python examples/first_steps/demo.py

# ---------------------------------------------------------------- check

# `make stress` runs the other tests; `make check` leaves out tests that run whole programs.
ALL := not stress
QUICK := $(ALL) and not peer and not slow
TIER ?= $(ALL)

.PHONY: test
test: ## set up everything, then every check and every test
	@$(MAKE) venv peers programs
	@$(MAKE) --keep-going before tests

.PHONY: check
check: ## every check, and the tests that run no whole programs: for each change
	@$(MAKE) --keep-going before tests TIER="$(QUICK)"

STATIC := format-check lint types contracts docs

.PHONY: static
static: $(VENV)/.dev ## format, lint, types, contracts, docs
	@$(MAKE) -j $(CORES) --output-sync=target $(STATIC)

# Each of these checks is one process; as many run at a time as there are cores.
.PHONY: before
before: $(VENV)/.dev
	@$(MAKE) --keep-going -j $(CORES) --output-sync=target protocol $(STATIC)

.PHONY: format
format: $(VENV)/.dev ## rewrite the code in the house format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: format-check
format-check: $(VENV)/.dev
	@$(STAGE) "format" $(BIN)/ruff format --check --quiet --diff .

.PHONY: lint
lint: $(VENV)/.dev ## ruff
	@$(STAGE) "lint" $(BIN)/ruff check .

# The library is checked for each platform; the tests use functions of Linux.
.PHONY: types mypy-linux mypy-win32 mypy-darwin pyright
types: mypy-linux pyright mypy-win32 mypy-darwin ## mypy for linux, win32 and darwin; pyright
mypy-win32 mypy-darwin: WHAT := syncmcp pytest_syncmcp.py syncmcp_command.py examples
mypy-linux mypy-win32 mypy-darwin: mypy-%: $(VENV)/.dev
	@$(STAGE) "mypy for $*" $(BIN)/mypy --platform $* --cache-dir build/mypy/$* $(WHAT)
pyright: $(VENV)/.dev
	@$(STAGE) "pyright" $(BIN)/pyright --pythonpath $(BIN)/python

.PHONY: contracts
contracts: $(VENV)/.dev ## the architecture: import contracts of setup.cfg
	@$(STAGE) "import contracts" $(BIN)/lint-imports --config setup.cfg --cache-dir build/import_linter

.PHONY: docs
docs: $(VENV)/.dev ## build docs/ into build/docs, warnings are errors
	@$(STAGE) "documentation" $(BIN)/sphinx-build -W --keep-going -q -b html -d build/doctrees docs build/docs

# Several processes share the tests; tests/support/plugin_workers.py says how.
# A worker that ended at the time limit of a test is not replaced: pytest-xdist could then hang.
PYTEST := $(BIN)/pytest -n auto --dist loadscope --max-worker-restart=0

.PHONY: protocol
protocol: $(VENV)/.dev ## the protocol core's own tests, which must cover every branch of it
	@$(STAGE) "protocol core, 100 % of its branches" $(BIN)/pytest -q tests/protocol \
		--cov=syncmcp._protocol --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

# The target above runs these tests.
WITHOUT ?= --ignore=tests/protocol

.PHONY: tests
tests: $(VENV)/.dev ## the other tests alone (ARGS="-k name" and the like)
	@$(STAGE) "tests on Python $(PYTHON_VERSION)" $(PYTEST) -m "$(TIER)" --durations=15 $(WITHOUT) $(ARGS)

# The official SDK and the frameworks need newer versions than the lowest ones. Other targets test the browser and the
# checkers. The tests of threads and questions use no package that the other tests do not use.
NEWER := tests/testing/test_official_client.py tests/system/test_from_official_sdk.py tests/contract/test_typing.py \
	tests/contract/test_mutants.py tests/ui/test_browser_chromium.py tests/system/test_benchmarks.py \
	tests/system/embedding tests/connection/questions tests/system/stress

.PHONY: oldest
oldest: ## tests on Python 3.10, pinned versions: those of `make check` that `make floors` leaves out; clients, models
	@$(MAKE) VENV=.venv-3.10 PYTHON="$$(.ci/find-python 3.10)" tests TIER="$(QUICK)" WITHOUT= \
		ARGS="$(NEWER) tests/client tests/types $(ARGS)"

.PHONY: floors
floors: ## the other tests on Python 3.10, with the lowest versions that pyproject.toml allows
	@$(MAKE) VENV=.venv-floors PYTHON="$$(.ci/find-python 3.10)" floors-here

.PHONY: floors-here
floors-here: $(VENV)/.floors
	@$(STAGE) "tests on the lowest versions" $(PYTEST) -m "$(ALL) and not peer" $(addprefix --ignore=,$(NEWER)) $(ARGS)

$(VENV)/.floors: pyproject.toml tests/constraints/floors.txt
	@test -x $(BIN)/python || $(STAGE) "virtual environment $(VENV) with Python $(PYTHON_VERSION)" $(PYTHON) -m venv $(VENV)
	@$(STAGE) "the lowest versions" $(BIN)/python -m pip install --progress-bar off -r tests/constraints/floors.txt -e '.[anthropic,browser,cli,gemini,keyring,oauth,openai,opentelemetry,skills,socks,terminal]'
	@touch $@

.PHONY: api
api: $(VENV)/.dev ## rewrite tests/contract/public_api.txt from the code
	@$(BIN)/python -m tests.contract.public_api

.PHONY: requirements
requirements: $(VENV)/.dev ## rewrite docs/requirements.md from the marks of the tests
	@$(BIN)/python -m tests.contract.requirements --page

$(VENV)/.mutation: $(VENV)/.dev
	@$(STAGE) "mutmut" $(BIN)/python -m pip install --progress-bar off -c $(PINS) -e '.[dev,mutation]'
	@touch $@

.PHONY: mutants
mutants: $(VENV)/.mutation ## mutate the rules by mutmut and print the scores (ARGS="MODULE --again"): docs/mutation.md
	@$(STAGE) "mutants" $(BIN)/python -m tests.contract.mutation $(ARGS)

.PHONY: switches
switches: $(VENV)/.dev ## switch off one behaviour at a time and print which tests fail
	@$(STAGE) "switches" $(BIN)/python -m tests.contract.mutants $(ARGS)

# ---------------------------------------------------------------- measure

.PHONY: stress
stress: venv ## full-size stress, fuzz and soak
	@$(STAGE) "stress" $(BIN)/pytest -m stress -s --timeout=1800 $(ARGS)

.PHONY: bench
bench: venv ## benchmarks against the official SDK and a bare floor
	@$(STAGE) "benchmarks" $(BIN)/python -m benchmarks $(ARGS)

# ---------------------------------------------------------------- release

TOOLS := .venv-tools

$(TOOLS)/.done: tests/constraints/tools.txt
	@$(STAGE) "virtual environment $(TOOLS)" $(PYTHON) -m venv $(TOOLS)
	@$(STAGE) "release tools" $(TOOLS)/bin/python -m pip install --progress-bar off -r tests/constraints/tools.txt
	@touch $@

.PHONY: release
release: $(TOOLS)/.done ## build wheel and sdist into dist/ and try each in a clean environment
	@.ci/release $(TOOLS) $(PYTHON)

.PHONY: pins
pins: $(TOOLS)/.done ## rewrite tests/constraints from pyproject.toml
	@for version in 3.10 3.11 3.12 3.13; do \
		$(STAGE) "pins for Python $$version" $(TOOLS)/bin/uv pip compile --quiet --upgrade --system-certs --no-header --no-annotate \
			--extra dev --extra mutation --python-version $$version pyproject.toml -o tests/constraints/$$version.txt; \
	done

.PHONY: clean
clean: ## remove everything the other targets made
	rm -rf .venv* build dist tests/system/peers/.venvs tests/system/peers/node_modules tests/system/peers/.repository
	rm -rf .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
