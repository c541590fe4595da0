# Everything a developer runs. `make test` is what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest

.PHONY: help venv check generate unit contract component helm-test cluster-test test bench image demo demo-down cluster release clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -t -s "$$(printf '\t')"

venv: .venv/.ready  ## Python packages of uv.lock in .venv

.venv/.ready: pyproject.toml uv.lock hack/venv
	@hack/venv
	@touch $@

check: venv  ## formatting, lints, types, import contracts, generated files
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@hack/gen/check

generate: venv  ## write the generated files anew
	@PATH="$$PWD/.venv/bin:$$PATH" $(PYTHON) hack/gen/protos.py
	@$(PYTHON) hack/gen/deviceclasses.py
	@$(PYTHON) hack/gen/chart.py

unit: venv  ## tests without root, processes or network
	@$(PYTEST) tests/unit -q

contract: venv  ## one suite for a fake and the real thing
	@$(PYTEST) tests/contract -q

component: venv  ## real entry point, C mock of NVML, kubelet and API server fakes
	@$(PYTEST) tests/component -q

helm-test: venv  ## the chart, rendered by the real Helm
	@$(PYTEST) tests/helm -q

cluster-test: venv  ## real Kubernetes: all on 1.37, smoke on 1.34
	@$(PYTEST) tests/cluster -q

test: check unit  ## everything
	@hack/cluster build 1.37 1.34
	@$(PYTEST) tests/helm tests/contract tests/component tests/cluster

bench: venv  ## figures for docs/performance.md, as a table and as JSON
	@$(PYTHON) -m tests.perf.bench

image: venv  ## the container image as an archive; prints where it is
	@hack/image

demo: venv  ## a local Kubernetes with two GPU nodes, the driver, and pods that claim GPUs
	@$(PYTHON) -m hack.demo.main up

demo-down:  ## take the demo away
	@hack/cluster down --name demo

release: venv  ## wheel, image archive, chart and SHA256SUMS in dist/
	@$(PYTHON) hack/release

clean:  ## build products in the checkout
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
