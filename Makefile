# Tidemill: every target does its own set-up; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TIDEMILL := $(BIN)/tidemill

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test check classes lint types format bench torture docs lock clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## install everything into .venv (all other targets do it too)

$(READY): requirements.lock pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)"
	@touch $@

demo: $(READY)  ## a live run with a bug: backfill, compare, publish beside it, revert
	@$(BIN)/python -m apps.demo

ui: $(READY)  ## the page, over the project that `make demo` leaves in demo/
	@[ -f demo/tidemill.yaml ] || { mkdir -p demo && cd demo && ../$(TIDEMILL) init; }
	@cd demo && ../$(TIDEMILL) ui

check: $(READY)  ## fast: lint, types, tests without Spark and Kafka
	@$(MAKE) --no-print-directory -j 2 lint types
	@$(BIN)/pytest -q -n 2 --dist loadfile -m "not spark and not kafka and not cluster and not kill and not slow and not browser"

test: $(READY)  ## everything: lint, types, all tests (Spark, Kafka, a cluster, kill -9)
	@$(MAKE) --no-print-directory -j 3 lint types classes
	@$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations=60

classes: $(READY)
	@$(BIN)/python -m tests.jvm

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

format: $(READY)  ## format the code
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format .

bench: $(READY)  ## compare with peers in one run; writes docs/performance.md
	@$(BIN)/python -m bench

torture: $(READY)  ## long: kills, faults at every step, breakages, a soak; writes docs/reliability.md
	@$(BIN)/python -m tests.torture
	@TIDEMILL_TESTS=long $(BIN)/pytest -q tests/laws tests/connectors/sinks/iceberg/test_commit_cost.py
	@$(BIN)/python -m tests.mutations
	@$(BIN)/python -m tests.soak

docs: $(READY)  ## write the generated references (YAML, CLI)
	@$(BIN)/python tools/references.py

lock:  ## resolve the dependencies anew into requirements.lock
	@uv pip compile pyproject.toml --group dev --universal --generate-hashes \
	  --no-annotate --no-header -q -o requirements.lock

clean:  ## remove what was installed and made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo
