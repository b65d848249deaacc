# `make` alone prints what there is. Everything sets itself up; PYTHON names another interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
PACKAGES := cli testing controller admin pipeline brokers metadata_store state_machines configs regent_agent
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL := -n $(shell expr $(CORES) + 2) --dist=worksteal
LATER := tests/simulation tests/real tests/verify

# Tests start some hundred processes of Python: each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

# Workers start together, so each of them would rewrite the asserts of all tests: in a new clone two processes do it.
REWRITTEN := build/rewritten
COLLECT := $(PYTEST) --collect-only -qq

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv venv-pipeline jars check format test test-core test-simulation simulate test-pipeline test-zookeeper test-cluster verify verify-simulation verify-tests mutants bench bench-full bench-procedures bench-regions demo docs dashboards screenshots prometheus package clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

demo: ## a real cluster on this machine, its brokers and its controller killed in turn (KEEP=1 leaves it up, PIPELINE=1 adds an audit and a report)
	@$(PYTHON) scripts/bootstrap.py $(if $(PIPELINE),pipeline,demo)
	@$(BIN)/regent demo $(if $(KEEP),--keep) $(if $(PIPELINE),--report build/demo)

test: test-core test-simulation test-zookeeper test-cluster test-pipeline ## all tests but the long ones, cheapest first

$(REWRITTEN): | venv
	@$(COLLECT) tests/unit/controller >/dev/null & \
	$(COLLECT) tests $(addprefix --ignore=,$(LATER)) --ignore=tests/unit/controller >/dev/null; wait
	@mkdir -p $(@D) && touch $@

test-core: venv $(REWRITTEN) ## tests without Java
	$(PYTEST) tests $(addprefix --ignore=,$(LATER)) $(PARALLEL)

test-simulation: venv ## whole clusters in virtual time, 60 seeds, and the regions of a service, 30 seeds
	$(PYTEST) tests/simulation --timeout=600 -n 2 --dist=worksteal

simulate: venv ## SEEDS=n seeds of the simulation, figures in build/simulation.json
	$(BIN)/python -m tests.simulation.kafka --seeds $(or $(SEEDS),300)

test-zookeeper: venv jars ## tests on a real ZooKeeper
	$(PYTEST) tests/real/zookeeper $(PARALLEL)

test-cluster: venv jars ## tests on real brokers, two clusters at a time
	$(PYTEST) tests/real/cluster --timeout=300 -n 2

test-pipeline: venv-pipeline ## jobs on two local Sparks, also over the journals that tests left; skipped without Java 17
	$(PYTEST) tests/real/pipeline --timeout=300 -n 2

verify: verify-simulation verify-tests ## the long tests, hours on two cores; the two parts may run side by side in two terminals

verify-simulation: venv-pipeline ## planted bugs, 10,000 seeds, and 5,000 of regions
	$(BIN)/python -m tests.simulation.kafka --mutations
	$(BIN)/python -m tests.simulation.kafka --seeds 10000
	REGENT_AUDITED_SEEDS=40 $(PYTEST) tests/real/pipeline/test_audits.py --timeout=3600
	$(BIN)/python -m tests.simulation.regions --mutations --audit
	$(BIN)/python -m tests.simulation.regions --seeds 5000 --audit

verify-tests: venv-pipeline jars prometheus ## the long tests on real parts
	$(PYTEST) tests/verify --timeout=1200

mutants: venv ## plants bugs one at a time, counts those that tests miss: those by hand, and MUTANTS=40 that are drawn
	$(BIN)/python -m scripts.mutants --generated $(or $(MUTANTS),40)

bench: venv jars ## beside Kafka's own controller, and procedures without HBase's tools, small sizes, in seven minutes
	@$(BIN)/python -m benchmarks; status=$$?; $(BIN)/python -m benchmarks.procedures --short --without-peer && exit $$status

bench-regions: venv ## assignment of regions, docs/reference/performance-regions.md from it; PEER=1: HBase beside (170 MB of jars)
	@$(if $(PEER),$(BIN)/python -m benchmarks.regions.hbase;)$(BIN)/python -m benchmarks.regions; status=$$?; $(BIN)/python -m benchmarks.regions.report && exit $$status

bench-full: venv jars ## all sizes up to a million partitions, an hour; docs/reference/performance.md from it
	@$(BIN)/python -m benchmarks --full; status=$$?; $(BIN)/python -m benchmarks.report && exit $$status

bench-procedures: venv jars ## procedures beside HBase's own tools (63 MB of jars), a quarter of an hour, the page from it; SINCE=revision: calls, too
	@$(BIN)/python -m benchmarks.procedures $(if $(SINCE),--since $(SINCE)); status=$$?; $(BIN)/python -m benchmarks.report && exit $$status

check: venv ## lint, format, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) benchmarks examples tests scripts
	$(BIN)/lint-imports

format: venv ## rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

package: venv ## sdist and wheel in dist/, the wheel installed and imported
	$(BIN)/python scripts/package.py

docs: venv ## the generated pages: state machines, stock tools and clients from their tables, conformance from the last test and verify
	$(BIN)/python -m scripts.docs
	$(BIN)/python scripts/conformance.py

venv: ## the virtual environment .venv with every pinned package
	@$(PYTHON) scripts/bootstrap.py test

venv-pipeline: ## PySpark besides, which is large, where a Java 17 or newer is
	@$(PYTHON) scripts/bootstrap.py pipeline

jars: venv ## Kafka and ZooKeeper in the cache folder, verified, and archives of their classes
	@$(BIN)/python -m testing.embedded.jars
	@$(BIN)/python -m testing.embedded.archives

prometheus:
	@$(BIN)/python -m tests.verify.watched.prometheus

dashboards: venv ## Grafana's dashboards from their tables, checked against Grafana's own types (needs npm)
	$(BIN)/python -m scripts.dashboards
	$(BIN)/python -m scripts.grafana_types

screenshots: venv jars prometheus ## the docs' pictures and the alerts' recordings, from faults on a real cluster, in half an hour (root; needs chromium)
	$(BIN)/python -m tests.verify.watched.record
	$(BIN)/python -m tests.verify.watched.replay
	$(BIN)/python -m scripts.screenshots

clean: ## remove what was made here (the cache folder of the jars stays)
	rm -rf .venv build dist .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
