# Two commands matter: `make demo` runs the main job, `make test` passes the tests.
# Both set up everything in .venv first, and again in seconds.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH_INDEX ?=
MODEL ?=
DATA ?=
VLLM_PYTHON ?=
NAME ?=
TAG ?=
PYTEST ?=
SETUP = PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH_INDEX="$(TORCH_INDEX)" tools/setup.sh
# A run starts a thousand interpreters: without its bytecode each would compile Windlass anew.
unexport PYTHONDONTWRITEBYTECODE
RUN_TESTS = $(BIN)/python -m pytest -n auto --maxprocesses 6 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup runtime demo serve test test-fast test-all test-environments e2e-gpu cluster test-cluster check format proto bench docs previous-wheel release clean

help: ## Show this help
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

setup: ## Install everything into .venv
	@$(SETUP)

# What it runs with, without what its tests need.
runtime:
	@$(SETUP) runtime

demo: runtime ## Run the main job: a file goes in, a fine-tuned model answers (MODEL=folder DATA=file.jsonl for your own)
	@$(BIN)/python -m windlass.demo $(if $(MODEL),--model "$(MODEL)") $(if $(DATA),--data "$(DATA)")

serve: runtime ## Run the whole platform on this machine
	@$(BIN)/windlass serve

# A cluster that KUBECONFIG happens to name is touched only by `make test-cluster`.
test-fast: setup ## Pass the tests that take two minutes in all: unit, contract, architecture
	@env -u KUBECONFIG HF_HUB_OFFLINE=1 $(RUN_TESTS) tests/unit tests/contract tests/architecture $(PYTEST)

test: setup ## Pass all tests but the long ones (PYTEST="-k name" for some)
	@env -u KUBECONFIG HF_HUB_OFFLINE=1 $(RUN_TESTS) $(PYTEST)

test-all: setup ## Pass all tests, campaigns, broken clusters and every shape too
	@env -u KUBECONFIG HF_HUB_OFFLINE=1 LONG=1 $(RUN_TESTS) $(PYTEST)
	@for shape in "one process per target" "two replicas"; do \
		HF_HUB_OFFLINE=1 E2E_SHAPE="$$shape" $(RUN_TESTS) tests/e2e $(PYTEST) || exit; \
	done
	@HF_HUB_OFFLINE=1 INTEGRATION_SHAPE="one process per target" $(RUN_TESTS) tests/integration $(PYTEST)

test-environments: setup ## Make what the tests install for themselves: an S3 server, MLflow, TorchTune, vLLM
	@$(BIN)/python -m tests.support.environments.made_once

e2e-gpu: setup ## Train and serve on a GPU (MODEL=folder of Llama 3.2 1B, DATA=alpaca_data.json, VLLM_PYTHON=interpreter)
	@HF_HUB_OFFLINE=1 E2E_GPU=1 E2E_MODEL="$(MODEL)" E2E_DATA="$(DATA)" E2E_VLLM_PYTHON="$(VLLM_PYTHON)" $(BIN)/python -m pytest -m gpu tests/gpu $(PYTEST)

cluster: setup ## Build a whole Kubernetes for tests, once
	@$(BIN)/python -m tests.cluster build

test-cluster: setup $(if $(KUBECONFIG),,cluster) ## Pass the tests on real clusters: as root, or on the cluster of KUBECONFIG=
	@HF_HUB_OFFLINE=1 $(if $(KUBECONFIG),,REQUIRE_CLUSTER=1) $(RUN_TESTS) -m cluster $(PYTEST)

check: setup ## Style, types, architecture
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

format: setup ## Format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

proto: setup ## Generate windlass.api from proto/
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/generate_proto.py

docs: setup ## Generate the pages that are made from the code
	@$(BIN)/python tools/generate_layers.py
	@for page in cli parameters engine_arguments presets errors permissions prometheus configuration http; do $(BIN)/python tools/generate_$${page}_reference.py >/dev/null || exit; done

bench: setup ## Run the benchmarks (NAME=upload for one)
	@$(BIN)/python -m tests.bench $(NAME)

previous-wheel: setup ## Keep the release before for the tests of its agent (TAG=v0.1.0)
	@tools/build_fixture_wheel.sh "$(TAG)"

release: setup ## Date the changelog and build wheels and sdists of this version into dist/
	@$(BIN)/python tools/release.py

clean: ## Remove what can be made again; data/ stays
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
