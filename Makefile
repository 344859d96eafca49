PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make setup` installs beside the package; `make resolve` resolves exactly the same.
EXTRAS := triton,opencv,app,logging,spring,exr,docs,dev

.PHONY: setup demo test fuzz lint docs resolve package clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch and the rest into $(VENV): minutes, 0.2 GB of downloads with a CPU build of PyTorch, 3 GB with CUDA"
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: setup
	$(BIN)/matchattention predict --example --output output/demo

test: setup lint
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: setup
	MATCHATTENTION_MUTATIONS=400 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/data/test_fuzz.py

lint: setup
	$(BIN)/ruff check matchattention tests benchmarks scripts
	$(BIN)/ruff format --check matchattention tests benchmarks scripts
	$(BIN)/mypy

docs: setup
	$(BIN)/mkdocs build --strict

resolve: setup
	BIN=$(BIN) EXTRAS=$(EXTRAS) scripts/resolve_everywhere.sh

package: setup
	BIN=$(BIN) scripts/try_package.sh

clean:
	rm -rf $(VENV) build dist site output
