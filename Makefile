# Every verb of this project. `make` alone prints them; each works on a fresh clone.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
READY := .venv/.ready
# How many test processes run side by side; measured end-to-end tests always run alone.
JOBS ?= 2
# Without compiled files every test process would compile every module it reads, on every run: half a minute of work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup battle test test-fast lint format bench chaos docs lock clean

help: ## print this list
	@echo "BattleBrokers: which broker fits my load, how much can it take, what holds it back?"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv from requirements.lock, install Java and all brokers where possible
	@scripts/prepare-brokers
	@echo "Ready. Next: make battle, or $(BIN)/bb --help"

battle: $(READY) ## fight a first battle: Mosquitto against another broker, with a report (about two minutes)
	@scripts/prepare-brokers --minimal
	@scripts/first-battle

test: $(READY) ## run every test: in parallel where safe, measured ones alone; ends with what was skipped and why
	@scripts/prepare-brokers
	@JOBS=$(JOBS) scripts/run-tests

test-fast: $(READY) ## run the tests that need neither Spark, brokers nor patience
	@JOBS=$(JOBS) scripts/run-tests --fast

lint: $(READY) ## ruff, mypy --strict, import directions, size budget, generated docs
	@scripts/run-lint

format: $(READY) ## rewrite sources the way ruff wants them
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

bench: $(READY) ## measure ourselves against peers; ONLY=engine runs one group; writes benchmarks/latest.json
	@scripts/prepare-brokers
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

chaos: $(READY) ## let hundreds of faults happen to the real thing; ONLY=kill tries one group; half an hour
	@scripts/prepare-brokers
	@$(BIN)/python -m chaos $(if $(ONLY),--only "$(ONLY)",--record docs/explanation)

docs: $(READY) ## regenerate the reference pages and build the site into site/
	@$(BIN)/python scripts/generate-reference
	@NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet --strict
	@echo "Built. Open site/index.html"

lock: ## resolve the dependencies anew into requirements.lock
	@scripts/lock

clean: ## remove .venv, caches and built files; runs/ stays
	@rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	@find src tests benchmarks chaos -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Clean. Your runs are still in runs/."

# The stamp makes repeated calls instant; a changed lock or pyproject brings the venv up to date.
$(READY): requirements.lock pyproject.toml scripts/create-venv
	@scripts/create-venv
	@touch $@
