PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make setup` installs beside the package; `make resolve` resolves exactly the same.
EXTRAS := triton,opencv,app,serve,export,openvino,logging,spring,exr,ray,docs,dev

.PHONY: setup demo test test-gpu test-kernels fuzz lint docs resolve package clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch and the rest into $(VENV): minutes, 0.4 GB of downloads with a CPU build of PyTorch, 3 GB with CUDA"
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: setup
	$(BIN)/matchattention predict --example --output output/demo

test: setup lint
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# What needs a CUDA device: parity of every kernel at real shapes, CUDA graphs, a training step.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu

# Every kernel of the runtime, compiled for six GPU architectures; no GPU is needed.
test-kernels: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m kernels

fuzz: setup
	MATCHATTENTION_MUTATIONS=400 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/data/test_fuzz.py

lint: setup
	$(BIN)/ruff check matchattention tests benchmarks scripts examples ros2
	$(BIN)/ruff format --check matchattention tests benchmarks scripts examples ros2
	$(BIN)/mypy

docs: setup
	$(BIN)/mkdocs build --strict

resolve: setup
	BIN=$(BIN) EXTRAS=$(EXTRAS) scripts/resolve_everywhere.sh

package: setup
	BIN=$(BIN) scripts/try_package.sh

clean:
	rm -rf $(VENV) build dist site output
