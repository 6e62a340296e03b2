# Each target sets up what it needs; the only prerequisites are Python 3.11+, git and make.
.PHONY: help run flwr-run test test-slow test-all lint format docs wheel bench hashes gpu-check clean
.DEFAULT_GOAL := help

PYTHON ?= python3
# With FLWR=1.42.0 or TORCH=2.6.0 a target uses that version, in an environment of its own.
VENV := .venv$(if $(FLWR),-$(FLWR))$(if $(TORCH),-torch-$(TORCH))
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@echo "setting up $(VENV) (the first time this fetches torch: minutes, and several GB)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' $(if $(FLWR),flwr==$(FLWR)) $(if $(TORCH),torch==$(TORCH))
	@touch $@

run: $(READY)  ## train the main job: FedAvg, MNIST-2NN, 100 clients, C = 0.1, E = 1, B = 10
	$(BIN)/python simulation.py run $(ARGS)

# FLWR_DISABLE_...: Flower would otherwise install every dependency again for each run. `flwr run`
# exits with 0 even when the run fails, so its status is asked for.
flwr-run: export PATH := $(CURDIR)/$(BIN):$(PATH)
flwr-run: export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
# The local SuperLink is not behind a proxy that HTTP_PROXY names.
flwr-run: export NO_PROXY := $(or $(no_proxy),$(NO_PROXY)),localhost,127.0.0.1,::1
flwr-run: export no_proxy = $(NO_PROXY)
flwr-run: $(READY)  ## the same job under `flwr run`, on 100 simulated SuperNodes
	flwr run . --stream -c "run-dir='$(CURDIR)/runs' $(ARGS)" \
		--federation-config "num-supernodes=100 client-resources-num-cpus=1"
	@flwr ls --format json | python -c "import json, sys; \
		run = json.load(sys.stdin)['runs'][0]; \
		sys.exit(0 if run['status'] == 'finished:completed' else run['status-details'])"

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY)  ## run the quick tests, and one real run of each way to run the app (minutes)
	$(PYTEST) -m "not slow and not long"

test-slow: $(READY)  ## run the slow tests: all tasks and strategies, faults, deployments
	$(PYTEST) -n 3 --durations=15 -m "slow and not long"  # they wait half of the time

test-all: $(READY)  ## run all tests, also those of attacks and kills that take minutes each
	$(PYTEST)

lint: $(READY)  ## check style, types and each folder's number of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/budgets.py

format: $(READY)  ## reformat the code
	$(BIN)/ruff format .

# In an environment of its own: its packages and iambic's do not go together.
.venv-docs/.ready: docs/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@touch $@

docs: .venv-docs/.ready  ## build the documentation's site into site/
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet --strict
	@echo "open site/index.html, or with search: python3 -m http.server --directory site"

wheel:  ## build the package into dist/, in seconds; only hatchling is fetched for it
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

bench: $(READY)  ## time the compressors, next to a copy, zlib and zstd
	$(BIN)/python -m benchmarks.codec $(ARGS)

hashes: $(READY)  ## hash many seeded runs: what a change of the code has changed by a bit
	@$(BIN)/python -m benchmarks.hashes $(ARGS)

# Its results come line by line; eight minutes are enough on a machine with one GPU.
gpu-check: $(READY)  ## check the results on this machine's GPU, and time workers that share it
	timeout 480 $(BIN)/python -m benchmarks.gpu_check $(ARGS)

clean:  ## remove the virtual environments, caches and the site
	rm -rf .venv .venv-* site .pytest_cache .mypy_cache .ruff_cache .hypothesis
