# Two commands do everything on a fresh Linux machine with CPython 3.11 or 3.12 and make:
#   make demo   compiles a real network on the embedded service and prints the plan
#   make test   runs the quick tests; make test-sample and make test-all run the others
SHELL := /bin/sh
VENV ?= .venv
EXPORT_VENV ?= .venv-export
ZOO_VENV ?= .venv-zoo
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
WORKERS ?= 2
# tests run side by side, a process per core
export OPENBLAS_NUM_THREADS = 1
# they start hundreds of processes: each would compile every module anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo serve test test-sample test-all test-bounds backend api-fuzz check format bench chaos stack page page-images export-models zoo openapi changelog lock clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

$(BIN)/python:
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) || exit 1; \
	  echo "set-up: virtual environment in $(VENV) from $$python"; "$$python" -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	@echo "set-up: locked packages (requirements/runtime.txt)"
	@$(PIP) install --require-hashes -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime | $(VENV)/.kernels
	@echo "set-up: packages for tests and checks (requirements/dev.txt)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# what is compiled to machine code is compiled here, not in the first job
KERNELS := $(shell grep -rl --include='*.py' 'from compiler.machine_code import' compiler)
$(VENV)/.kernels: $(VENV)/.runtime compiler/machine_code.py $(KERNELS)
	@echo "set-up: machine code (compiler/kernels.py)"
	@$(BIN)/python -m compiler.kernels
	@touch $@

demo: $(VENV)/.kernels  ## compile a real network on the embedded service and print the plan
	@$(BIN)/tessera demo

serve: $(VENV)/.kernels  ## start the embedded service and keep it running
	@$(BIN)/tessera serve

test: $(VENV)/.dev  ## run the quick tests (of the large matrices a few cases)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --matrices first

test-sample: $(VENV)/.dev  ## run the slow tests and a seeded sample of the large matrices
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --matrices rest

test-all: $(VENV)/.dev  ## run the tests with the large matrices whole
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-bounds: $(VENV)/.dev  ## run the quick tests with every index in machine code checked (compiles it anew: minutes)
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(abspath $(VENV))/checked $(BIN)/python -m compiler.kernels
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(abspath $(VENV))/checked \
	  $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --matrices first

backend: $(VENV)/.dev  ## run the ONNX backend suite whole, on simulated chips
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/backend

$(VENV)/.fuzz: requirements/fuzz.txt $(VENV)/.dev
	@echo "set-up: what sends requests made from the API's description (requirements/fuzz.txt)"
	@$(PIP) install --require-hashes -r requirements/fuzz.txt
	@touch $@

EXAMPLES ?= 200
SEED ?= 1
api-fuzz: $(VENV)/.fuzz  ## try every answer of the API against its description (EXAMPLES=200 SEED=1)
	@$(BIN)/python -m tests.api_fuzz --examples $(EXAMPLES) --seed $(SEED)

check: $(VENV)/.dev  ## lint, format check and strict types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev  ## apply the formatter and the safe lint fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev  ## measure and print the figures of docs/benchmarks
	@$(BIN)/python -m tests.bench

CHAOS ?= --seed 1 --jobs 300 --faults 200

chaos: $(VENV)/.dev  ## kill, freeze, fill, slow down, damage and upgrade the service (installs a C compiler where there is none)
	@command -v cc > /dev/null || { apt-get -q update && apt-get -qy install gcc libc6-dev; }
	@$(BIN)/python -m pytest -q tests/chaos/checks.py
	@$(BIN)/python -m tests.chaos $(CHAOS)

STACK ?= --jobs 40

stack: $(VENV)/.dev  ## run the service on several hosts (network namespaces) and lose some of them (installs iproute2 where there is none)
	@command -v ip > /dev/null || { apt-get -q update && apt-get -qy install iproute2; }
	@$(BIN)/python -m tests.stack $(STACK)

$(EXPORT_VENV)/.export: requirements/export.txt
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) || exit 1; \
	  echo "set-up: virtual environment in $(EXPORT_VENV) from $$python"; "$$python" -m venv $(EXPORT_VENV)
	@$(EXPORT_VENV)/bin/python -m pip --disable-pip-version-check --quiet --no-input install -r requirements/export.txt
	@touch $@

export-models: $(EXPORT_VENV)/.export  ## write tests/data/exported anew (installs torch in $(EXPORT_VENV))
	@$(EXPORT_VENV)/bin/python -m tests.export

$(ZOO_VENV)/.zoo: requirements/zoo.txt requirements/zoo-alone.txt
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) || exit 1; \
	  echo "set-up: virtual environment in $(ZOO_VENV) from $$python"; "$$python" -m venv $(ZOO_VENV)
	@$(ZOO_VENV)/bin/python -m pip --disable-pip-version-check --quiet --no-input install -r requirements/zoo.txt
	@$(ZOO_VENV)/bin/python -m pip --disable-pip-version-check --quiet --no-input install --no-deps -r requirements/zoo-alone.txt
	@touch $@

zoo: $(ZOO_VENV)/.zoo $(VENV)/.kernels  ## compile hundreds of networks of model libraries, verify, write the table (hours)
	@$(ZOO_VENV)/bin/python -m tests.zoo export --workers $(WORKERS)
	@$(BIN)/python -m tests.zoo compile --workers $(WORKERS)

$(VENV)/.page: requirements/page.txt $(VENV)/.dev
	@echo "set-up: what drives a browser (requirements/page.txt), and Chromium where there is none"
	@$(PIP) install --require-hashes -r requirements/page.txt
	@command -v chromium > /dev/null || [ -n "$$TESSERA_BROWSER" ] || { apt-get -q update && apt-get -qy install chromium; }
	@touch $@

page: $(VENV)/.page  ## check the HTML report, and what web pages reach of the service, in headless Chromium
	@$(BIN)/python -m pytest -q tests/page/checks.py tests/page/site_checks.py

page-images: $(VENV)/.page  ## measure the HTML reports of three networks, and make the screenshots of docs
	@$(BIN)/python -m tests.page --images docs/images

openapi: $(VENV)/.runtime  ## rewrite docs/openapi.json, supported-ops.md, rules.md, the JSON schemas, and tables in profiles.md and service.md
	@$(BIN)/python -m app.documents

changelog:  ## move the fragments of changelog.d to CHANGELOG.md (VERSION=1.2.3)
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) && "$$python" scripts/changelog.py "$(VERSION)"

lock:  ## re-resolve the lock files (needs uv on PATH)
	@scripts/lock

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
