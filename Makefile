PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint docs clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt triton -e '.[opencv,app,logging,spring,exr,docs,dev]'
	touch $@

demo: setup
	$(BIN)/matchattention predict --example --output output/demo

test: setup lint
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: setup
	$(BIN)/ruff check matchattention tests
	$(BIN)/mypy

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site output
