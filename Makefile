# All targets work on a fresh machine with Python 3.11 or newer; they use the virtual environment .venv.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3; do \
	command -v $$each >/dev/null 2>&1 && $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$each; exit; }; done; echo python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Tests run in more processes than there are processors, because many tests only wait. A process without tests takes
# some from another one, so that all end at about the same time. WORKERS=0 runs them one by one.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 8)))
ARGS ?=
ONLY ?=
# The long versions of the tests, in parts; docs/faults.md has their times.
PART ?= remote faults e2e journal core simulation
SOAK_remote := tests/remote
SOAK_faults := tests/faults tests/cli tests/bench
SOAK_e2e := tests/e2e tests/package
SOAK_journal := tests/journal
SOAK_core := tests/core tests/ops
SOAK_simulation := tests/simulation

.PHONY: help demo demo-autoscale test test-jax soak bench lint types docs clean

help:
	@echo "make demo            run gangs on a local cluster (KEEP=1 keeps it running)"
	@echo "make demo-autoscale  show slices on demand with an emulator of Google's TPU API"
	@echo "make test            run all tests (ARGS='-k gang' runs some)"
	@echo "make test-jax        install JAX and run a real gang program"
	@echo "make soak            run the long versions of the tests, about 45 minutes (PART=journal runs one part)"
	@echo "make bench           measure against docs/performance.md (ONLY=8,9 measures some targets)"
	@echo "make lint types      run ruff and mypy"
	@echo "make docs            regenerate pages of docs/"

demo: $(VENV)/.installed
	@$(BIN)/iris demo $(if $(KEEP),--keep)

demo-autoscale: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --editable ".[gcp]"
	@$(BIN)/python -m tests.support.tpu_emulator.demo

test: $(VENV)/.tested
	@sh scripts/install-test-tools.sh
	@$(BIN)/python -m compileall -q -j 0 iris_cli tests/support # otherwise all test processes compile them at the same time
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-jax: $(VENV)/.tested
	@sh scripts/install-test-tools.sh
	$(BIN)/python -m pip install --quiet "jax[cpu]>=0.4.30"
	$(BIN)/python -m pytest -m jax $(ARGS)

soak: $(PART:%=soak-%)

soak-%: $(VENV)/.tested
	@sh scripts/install-test-tools.sh
	$(BIN)/python -m pytest -n $(WORKERS) -m soak $(SOAK_$*) $(ARGS)

bench: $(VENV)/.tested
	@sh scripts/install-test-tools.sh
	$(BIN)/python -m bench --only "$(ONLY)"

lint: $(VENV)/.linted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.linted $(VENV)/.tested
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python scripts/write_docs.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@sh scripts/make-venv.sh "$(PYTHON)" "$(VENV)"

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.tested: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	@touch $@

$(VENV)/.linted: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[lint]"
	@touch $@
