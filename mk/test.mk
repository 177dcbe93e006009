# Tests. `make test` is the whole suite that needs no broker; it installs and
# builds what is missing first, and ends with one line that adds all up.

JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
TALLY   ?= $(OUT)/tally
PYTESTS       := $(wildcard tests/integration/test_*.py)
PYTESTS_KAFKA := $(wildcard tests/integration/kafka_*.py)
RUN_TESTS = DRIFTLINE_BUILD=$(OUT) TEST_ARGS='$(TEST_ARGS)' PYTEST_ARGS='$(PYTEST_ARGS)' $(PYTHON) tests/run.py --out $(TALLY)

.PHONY: test test-built test-kafka test-kafka-built
test: ## every test that needs no broker (does deps and build first)
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) all test-progs
	@$(MAKE) --no-print-directory test-built
test-built:
	$(Q)$(RUN_TESTS) --criterion $(TEST_PROGS) --pytest $(PYTESTS)
.PHONY: test-progs
test-progs: $(TEST_PROGS)

test-kafka: ## the tests on a real Kafka broker, which it starts and stops
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@$(MAKE) --no-print-directory test-kafka-built
test-kafka-built:
	$(Q)tests/kafka/broker run --fresh --dir $(OUT)/kafka -- \
	  env $(RUN_TESTS) --pytest $(PYTESTS_KAFKA)
