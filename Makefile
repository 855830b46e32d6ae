# Each target does its own set-up: a machine needs python3 (3.10 or newer) and make.
# The set-up is repeated when pyproject.toml changes, and skipped otherwise.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
KEY := $(shell cksum pyproject.toml | cut -d' ' -f1)
WORKERS ?= 2
comma := ,
# Other plugins that happen to be installed are neither needed nor wanted.
PYTEST := $(RUN) -m pytest -q --disable-plugin-autoload -p xdist -n $(WORKERS) --dist worksteal

.PHONY: help demo bench gpu test test-fast test-sweep lint types docs wheel clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train on handwritten digits, define-by-run and compiled; writes demo.png"
	@echo "make bench      eager against compiled, as a table; writes bench.png"
	@echo "make gpu        test and measure a graphics card, in nine minutes, with the Python of PYTHON=; writes benchmarks/gpu.md"
	@echo "make test       lint, types, documentation and the whole test suite"
	@echo "make test-fast  the test suite without the slow tests"
	@echo "make test-sweep  what the tests have a sample of: functions on the stand-in for a graphics card, random programs"
	@echo "make lint       ruff"
	@echo "make types      basedpyright"
	@echo "make docs       the documentation as a site, in site/; warnings are errors"
	@echo "make wheel      build the wheel, install it elsewhere, import everything from it; try the lower bounds"
	@echo "make clean      remove what the targets made"

# pip shows what it does on a terminal, and says only what goes wrong elsewhere.
QUIET := $(shell test -t 2 || echo --quiet)

# $(1): the name of the set-up, $(2): its extras.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Kusari needs Python 3.10 or newer: make PYTHON=...")'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) for \"$(1)\": a minute or two, once"
	$(RUN) -m pip install $(QUIET) --disable-pip-version-check --editable ".[$(2)]"
	@rm -f $(VENV)/ready-$(1)-*
	@touch $@
endef

$(VENV)/ready-run-$(KEY):
	$(call install,run,onnx$(comma)examples)

$(VENV)/ready-dev-$(KEY):
	$(call install,dev,dev)

demo: $(VENV)/ready-run-$(KEY)
	$(RUN) -m kusari demo

bench: $(VENV)/ready-run-$(KEY)
	$(RUN) -m kusari bench --plot

# With any Python that has CuPy, NumPy and Numba, and torch, jax, pytest and hypothesis where it can: nothing is installed.
gpu:
	@$(PYTHON) tools/link_typings.py > /dev/null
	PYTHONPATH=typings:$(PYTHONPATH) $(PYTHON) benchmarks/gpu.py

test: lint types docs
	$(PYTEST) tests

# What `make test` has a sample of: rows and models on the stand-in for a graphics card, random programs, many ranks.
test-sweep: $(VENV)/ready-dev-$(KEY)
	$(PYTEST) -m sweep tests

# To make assertions explain themselves takes longer than to collect all tests: only those that fail do. Kernels are
# kept for the next run, under digests of the code that makes them.
test-fast: export TEST_KERNELS := $(CURDIR)/$(VENV)/kernels
FAST := -m "not slow and not further and not network and not oracle and not gpu" tests
test-fast: $(VENV)/ready-dev-$(KEY)
	@$(PYTEST) --assert=plain $(FAST) || ($(PYTEST) --last-failed --last-failed-no-failures none $(FAST); exit 1)

lint: $(VENV)/ready-dev-$(KEY)
	$(RUN) -m ruff check .

types: $(VENV)/ready-dev-$(KEY)
	$(RUN) tools/link_typings.py
	$(RUN) -m basedpyright

docs: $(VENV)/ready-dev-$(KEY)
	$(RUN) -m sphinx -q -W --keep-going -j auto -b html docs site
	@echo "site/index.html"

wheel: $(VENV)/ready-dev-$(KEY)
	$(RUN) tools/check_wheel.py

clean:
	rm -rf $(VENV) build dist typings *.egg-info .pytest_cache .ruff_cache .hypothesis demo.png demo.onnx demo.onnx.* bench.png site result benchmarks/gpu.log
