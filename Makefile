# Every target sets up what it needs: a fresh machine wants Python 3.11 and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The laws of the mathematics, of files and of workers.
QUICK  := tests/convex tests/nets tests/audio tests/restoration tests/test_storage.py tests/test_errors.py tests/test_workers.py

.PHONY: demo page test quick lint docs site dist bench fuzz faults clean

demo: $(VENV)/.core
	$(BIN)/pdrn demo

page: $(VENV)/.page
	$(BIN)/pdrn serve

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

quick: $(VENV)/.dev
	HYPOTHESIS_PROFILE=quick OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal \
	    -m "not slow and not browser and not cluster" $(QUICK)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.core
	$(BIN)/python tools/make_cli_docs.py > docs/cli.md

site: $(VENV)/.site
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -n -q -d build/site-doctrees docs build/site
	@echo 'Open build/site/index.html'

dist: $(VENV)-dist/.dist
	rm -rf dist
	$(VENV)-dist/bin/python -m build
	$(VENV)-dist/bin/twine check --strict dist/*

bench: $(VENV)-bench/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
	MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432 $(VENV)-bench/bin/python -m benchmarks

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

$(VENV)/.site: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e '.[dev,docs,train,onnx]'
	$(BIN)/pip install -q -c constraints.txt -e '.[metrics]' || echo 'no PESQ (it wants a C compiler): its tests are skipped'
	touch $@ $(VENV)/.core $(VENV)/.page $(VENV)/.site

# The peers have an environment of their own: one of them brings a pytest plugin that breaks pytest.
$(VENV)-bench/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/pip install -q -c constraints.txt -e '.[train,bench]'
	touch $@

$(VENV)-dist/.dist: constraints.txt
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/pip install -q -c constraints.txt build twine
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-dist build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
