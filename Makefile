# `make run` and `make test` set up everything that they need.

.DEFAULT_GOAL := help
.PHONY: help run run-kafka run-cluster test test-long test-all bench-engine bench-steering bench-recovery bench-throughput bench-latency bench-kafka-streams mutants docs screenshots lint setup kafka-up kafka-down java kafka-jars clean distclean

BIN := .venv/bin
STAMP := .venv/.installed
RUN_STAMP := .venv/.installed-run
RUN_KAFKA_STAMP := .venv/.installed-run-kafka
# Tests and executors start hundreds of interpreters; without compiled files each would compile the project anew.
export PYTHONDONTWRITEBYTECODE :=
# Options for pytest: make test ARGS="-k settings"; in one process: make test ARGS="-n 0 -x tests/spark/state"
ARGS ?=
BROKERS ?= 1
# One worker per core. In `make test`, one of them runs all tests with Spark, first; `make test-long` has nothing else to
# run, so two workers have a cluster each (tests/conftest.py).
# A worker that crashes ends the run; xdist would otherwise wait for ever.
PYTEST := $(BIN)/python -m pytest -n logical --dist loadgroup --no-loadscope-reorder --max-worker-restart=0

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: java $(RUN_STAMP) ## run the main job from the start: a year of flights, one executor killed on the way
	@rm -rf var/flights/checkpoint var/flights/state var/flights/output
	@$(BIN)/taskplace run conf/flights.yaml

run-kafka: java kafka-jars $(RUN_KAFKA_STAMP) ## run the main job on Kafka topics, from the start, with a broker of its own
	@rm -rf var/kafka-flights/checkpoint var/kafka-flights/state
	@$(BIN)/python -m examples.kafka with $(BIN)/taskplace run conf/kafka-flights.yaml

run-cluster: java $(RUN_STAMP) ## run a part of the main job on a cluster of three hosts, and kill one host
	@$(BIN)/python -m examples.cluster --set input.files=8

test: java kafka-jars chromium $(STAMP) ## run the everyday tests (about 8 minutes on 2 cores)
	@$(PYTEST) --hypothesis-profile quick -m "not slow and not long" $(ARGS)

test-long: java kafka-jars chromium $(STAMP) ## run the tests with Spark that `make test` leaves out (about 15 minutes on 2 cores)
	@TASKPLACE_TEST_CLUSTERS=2 $(PYTEST) -n 2 -m "long and not slow" $(ARGS)

test-all: java kafka-jars chromium $(STAMP) ## run all tests, with the long forms and other versions of Spark (hours)
	@$(PYTEST) $(ARGS)
	@scripts/test-versions.sh

bench-engine: $(STAMP) ## measure the engine, topologies and partition assignment, without Spark
	@$(BIN)/python benchmarks/bench_topology.py --limit 2
	@$(BIN)/python benchmarks/bench_engine.py
	@$(BIN)/python benchmarks/bench_partitions.py --kafka-up-to 1000

bench-steering: java $(STAMP) ## measure a query of Spark with and without steering, side by side
	@PYTHONPATH=. $(BIN)/python benchmarks/bench_steering.py

bench-recovery: java $(STAMP) ## measure how long an executor's death stops a stream, compared with Spark's own state
	@$(BIN)/python benchmarks/bench_recovery.py $(ARGS)

bench-throughput: java $(STAMP) ## measure rows/s and empty batches, compared with Spark's own operators
	@$(BIN)/python benchmarks/bench_throughput.py $(ARGS)

bench-latency: java $(STAMP) ## measure how long small batches take, compared with Spark's own operators
	@$(BIN)/python benchmarks/bench_latency.py $(ARGS)

bench-kafka-streams: java kafka-jars $(STAMP) ## measure throughput, latency and takeover, compared with Kafka Streams
	@$(BIN)/python benchmarks/bench_kafka_streams.py $(ARGS)

mutants: $(STAMP) ## test the tests: change the code at random places and check that a fast test fails
	@$(BIN)/python scripts/mutants/run.py $(ARGS)

docs: $(STAMP) ## build the documentation as a site: build/docs/index.html
	@scripts/quietly.sh "docs" $(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo build/docs/index.html

screenshots: java chromium $(STAMP) ## take the screenshots of the docs, of a real run (some minutes)
	@PYTHONPATH=. $(BIN)/python scripts/screenshots/run.py $(ARGS)

lint: $(STAMP) ## check style, types and import directions
	@scripts/quietly.sh "ruff check" $(BIN)/ruff check .
	@scripts/quietly.sh "ruff format" $(BIN)/ruff format --check .
	@scripts/quietly.sh "mypy" $(BIN)/mypy
	@scripts/quietly.sh "import rules" $(BIN)/lint-imports

kafka-up: java $(RUN_KAFKA_STAMP) ## start a Kafka broker in the background; three with BROKERS=3
	@$(BIN)/python -m examples.kafka up --brokers $(BROKERS)

kafka-down: $(RUN_KAFKA_STAMP) ## stop what make kafka-up has started, and remove its data
	@$(BIN)/python -m examples.kafka down

setup: java $(STAMP) ## create .venv and install what is missing

java:
	@scripts/java.sh

kafka-jars: java
	@scripts/kafka.sh

chromium:
	@scripts/chromium.sh

# Only what a run needs, so that a first run does not wait for linters.
$(RUN_STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh spark,examples
	@touch $@

$(RUN_KAFKA_STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh spark,kafka,examples
	@touch $@ $(RUN_STAMP)

$(STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh spark,kafka,schema-registry,metrics,examples,plots,docs,dev
	@touch $@ $(RUN_STAMP) $(RUN_KAFKA_STAMP)

clean: ## remove the files that runs and tools have left
	@rm -rf var work app-[0-9]* build spark-warehouse metastore_db derby.log *.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -path ./.venv -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf

distclean: clean ## remove the virtual environment as well
	@rm -rf .venv
