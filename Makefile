# Every target sets up what it needs: a fresh machine wants Python 3.11 and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo page test lint docs bench fuzz faults clean

demo: $(VENV)/.core
	$(BIN)/pdrn demo

page: $(VENV)/.page
	$(BIN)/pdrn serve

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.core
	$(BIN)/python tools/make_cli_docs.py > docs/cli.md

bench: $(VENV)-bench/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(VENV)-bench/bin/python -m benchmarks

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz_files.py 10000

faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.faults.run --kills 200 --corruptions 5000

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp file per set of extras: installing runs again when the project's requirements change.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.page: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e '.[serve]'
	touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e '.[dev,train,onnx]'
	$(BIN)/pip install -q -c constraints.txt -e '.[metrics]' || echo 'no PESQ (it wants a C compiler): its tests are skipped'
	touch $@ $(VENV)/.core $(VENV)/.page

# The peers have an environment of their own: one of them brings a pytest plugin that breaks pytest.
$(VENV)-bench/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/pip install -q -c constraints.txt -e '.[train,bench]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
