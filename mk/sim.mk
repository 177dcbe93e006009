# The deterministic simulation (tests/sim), and bugs that it must catch.
SEEDS         ?= 10000
SEED          ?=
PLANTED_SEEDS ?= 500

.PHONY: sim sim-run sim-planted
sim: sim-run $(if $(SEED),,sim-planted) ## simulate SEEDS=N runs, then plant bugs to see them caught; or one: SEED=N
sim-run: $(OUT)/tests/sim
	$(Q)SIM_SEED=$(or $(SEED),1) SIM_SEEDS=$(if $(SEED),1,$(SEEDS)) $(OUT)/tests/sim --filter 'simulation/*' --timeout 36000
sim-planted: $(OUT)/tests/sim ## bugs planted in copies of the sources: each must be caught within PLANTED_SEEDS=N
	$(Q)SIM_FOLDER=$(OUT)/planted SIM_CC='$(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(ALL_CFLAGS)' SIM_LINK='$(CC) $(ALL_LDFLAGS)' \
	  SIM_OBJECTS='$(call obj,$(wildcard tests/sim/*.c)) $(SUPPORT) $(LINK_service) $(TEST_LIBS)' \
	  $(PYTHON) tests/sim/planted.py --seeds $(PLANTED_SEEDS) $(PLANTED_ARGS)
