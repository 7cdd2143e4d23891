# `make run` and `make test` work on a fresh clone with nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: docs-test help run test test-all tests-computing tests-of-processes lint types docs bench clean browser

help:
	@echo "make run       set up, calibrate once, run the quick suite: findings, a table and report.html"
	@echo "make test      set up, lint, check types, run the tests"
	@echo "make test-all  the same with the slow tests"
	@echo "make docs      rewrite the generated parts of the docs"
	@echo "make docs-test the commands and examples of the docs"
	@echo "make bench     the side-by-side benchmarks against peers (long; quiet machine)"
	@echo "make clean     remove what the other targets made"

$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

# The engines beside torch that `make run` compares.
$(VENV)/.engines: $(VENV)/.run
	$(PIP) -e '.[onnxruntime,openvino]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PIP) -e '.[bench,mpi,onnxruntime,openvino]'
	touch $@

run: $(VENV)/.engines
	$(BIN)/tessera suite quick --calibrate -o report.html

browser:
	@sh tests/install-browser.sh

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# The tests in two halves of like length, side by side: what mostly computes, and what starts processes and browsers.
COMPUTING := src $(addprefix tests/,operators geometry models coregrid spatial transport phased results)

test: $(VENV)/.dev browser lint types
	@echo 'the tests run in two halves; what each says is shown when it is through'
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target tests-computing tests-of-processes

tests-computing: $(VENV)/.dev
	$(BIN)/pytest $(COMPUTING)

tests-of-processes: $(VENV)/.dev
	$(BIN)/pytest $(addprefix --ignore=,$(COMPUTING))

test-all: $(VENV)/.dev browser lint types
	$(BIN)/pytest -m ''

docs: $(VENV)/.run
	$(BIN)/python -m tessera.cli.options_table --write
	$(BIN)/python -m tessera.api.reference --write docs/api.md

# Every command line of the docs parses, and the examples run.
docs-test: $(VENV)/.dev
	$(BIN)/pytest tests/cli/test_docs_commands.py tests/report/test_docs.py tests/examples

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/operators.py --only all --only interval --only spread --only ab
	$(BIN)/python benchmarks/halo.py
	$(BIN)/python benchmarks/coregrid.py
	$(BIN)/python benchmarks/phased.py
	$(BIN)/python benchmarks/inference.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
