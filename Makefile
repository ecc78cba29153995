# From a bare checkout, run `make demo` or `make test`. Each installs what it needs, once. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# One process per core, each with one test file at a time, in their order: files with few but long tests must not come last. The tests' linear algebra is small, so BLAS threads would only
# wait for each other.
PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder
export OPENBLAS_NUM_THREADS := 1

.PHONY: help setup demo compare test test-all coverage lint docs bench clean

setup: $(READY)

help:
	@echo 'make demo      check and plot every claim of the paper, in a few minutes'
	@echo 'make compare   compare the methods, in some minutes'
	@echo 'make test      run the tests, every example and every code block in the docs; slow tests are left out'
	@echo 'make test-all  run the slow tests, too'
	@echo 'make lint      run ruff, import-linter and pyright, and check types and structure'
	@echo 'make docs      build the site in docs/_build/index.html, and the technical note as a PDF'
	@echo 'make coverage, make bench, make clean: see CONTRIBUTING.md'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo 'installing the packages that the tests need; this takes a minute or two'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	./.ci/browser
	touch $@

# The demo does not need the packages that only the tests use: Ray, Flower, a browser.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo 'installing the packages that the demo needs; this takes a minute'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[experiments,gymnasium,report]'
	touch $@

demo: $(DEMO)
	$(BIN)/fegsam reproduce --quick --output demo-output

compare: $(DEMO)
	$(BIN)/fegsam compare --quick --output compare-output

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL)

test-all: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) -m 'slow or not slow'

# Line coverage of src/: the ordinary tests, then the tiny agreement tests with the compiled code interpreted.
coverage: $(READY)
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -q
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run -m pytest -q tests/agreement tests/engines/test_resume.py -k tiny
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lint]'
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/python .ci/public_types
	$(BIN)/python .ci/structure

# Build the site in docs/_build/index.html; a warning or a dead link is an error. The technical note's numbers and figures are computed, and with Chromium it is printed as docs/_build/note/fegsam-note.pdf.
docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html docs docs/_build

bench: $(READY)
	$(BIN)/fegsam bench
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/exact.py

clean:
	rm -rf $(VENV) demo-output compare-output docs/_build .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -prune -exec rm -rf {} +
