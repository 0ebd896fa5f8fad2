# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv from the package mirror once.

PYTHON ?= python3
BIN := .venv/bin
DEMO := demo-output
# Installed beside quietmean, from here.
REPRODUCTION := ./reproduction

.PHONY: demo test test-all lint bench docs clean

demo: .venv/demo.stamp
	@rm -rf $(DEMO)
	@$(BIN)/python examples/patients.py $(DEMO)/patients.csv
	$(BIN)/quietmean run --data $(DEMO)/patients.csv --party-column clinic \
	  --column age --bounds 0 110 --column bmi --bounds 10 60 \
	  --column blood_pressure --bounds 40 180 --column glucose --bounds 40 200 \
	  --epsilon 2 --delta 1e-6 --dropouts 0.1 --round-timeout 3 --out $(DEMO)/run
	@echo "Open $(DEMO)/run/report.html in a browser."

test: lint
	$(BIN)/pytest -n 2

test-all: lint
	$(BIN)/pytest -n 2 -m "slow or not slow"

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/test.stamp
	$(BIN)/pytest benchmarks --benchmark-only --benchmark-columns=min,median,max,rounds -p no:xdist -m "slow or not slow"

docs: .venv/docs.stamp
	$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "Open docs/_build/index.html in a browser."

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/test.stamp: REPRODUCTION := ./reproduction[dask]

.venv/%.stamp: pyproject.toml reproduction/pyproject.toml constraints.txt | .venv/bin/python
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/pip install -q -e ".[demo,$*]" -e "$(REPRODUCTION)"
	@touch $@

clean:
	rm -rf .venv $(DEMO) docs/_build
