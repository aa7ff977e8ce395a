# `make study` and `make test` need nothing but a Python of version 3.11 or newer: what they use
# they set up themselves, once. TORCH_CPU_INDEX, where pip does not know the CPU builds of PyTorch
# by itself, is the address of PyTorch's CPU wheel index, or a folder that holds the wheel.

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v "$$python" && break; done)
TORCH := 2.13.0
PYTEST := .venv/bin/python -m pytest
SHELL_SCRIPTS := .ci/run mlflow/backup.sh

export TORCH_CPU_INDEX

.DEFAULT_GOAL := help
.PHONY: help study test test-slow test-chaos test-engine test-study lint environment engine clean

help:
	@echo "make study        tune the embedded engine: the whole thing, from nothing"
	@echo "make test         the fast tests"
	@echo "make test-slow    set-up, interruption and search tests that take minutes"
	@echo "make test-chaos   kills engines, actors, hosts and drivers in the middle of their work"
	@echo "make test-engine  the tests that start the embedded engine"
	@echo "make test-study   one study of three trials on the embedded engine"
	@echo "make lint         ruff, mypy and shellcheck"
	@echo "make engine       set everything up and run nothing"
	@echo "make clean        remove environments, engine and model; studies are kept"

study: engine
	.venv/bin/tuner run studies/quickstart.yaml

test: environment
	$(PYTEST)

test-slow: environment
	$(PYTEST) -m "slow and not chaos and not engine and not gpu"

test-chaos: environment
	$(PYTEST) -m "chaos and not engine"

test-engine: engine
	$(PYTEST) -m "engine and not study"

# Exit code 5 says that no test carries the mark.
test-study: engine
	$(PYTEST) -m study || { code=$$?; test $$code -eq 5 && echo "no test is marked study"; }

lint: environment
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/shellcheck $(SHELL_SCRIPTS)

environment:
	@test -n "$(PYTHON)" || { \
		echo "no Python 3.11 or newer is on the PATH: install one, or name it as PYTHON=..." >&2; \
		exit 2; }
	@"$(PYTHON)" runners/embedded/environment.py .venv \
		--title "the tuner's environment" --expected "2.1 GB, one to two minutes" --needs-gb 3 \
		--install "torch==$(TORCH)+cpu" --editable ".[kernels,dev]" \
		--constraints constraints.txt --watch pyproject.toml \
		--imports optuna ray mlflow pydantic torch tuner

engine: environment
	@.venv/bin/python -m runners.embedded

clean:
	rm -rf .venv .venv.lock .venv.log .engines .models
	rm -rf build tuner.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
