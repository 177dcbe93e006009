# The crash test: SIGKILL at random instants of a replay on a real broker.
KILLS        ?= 30
BROKER_KILLS ?= 0
BROKER_STOP  ?= 0
CRASH_SEED   ?=

.PHONY: crash
crash: $(OUT)/driftline ## kill the service KILLS=N times in one replay (BROKER_KILLS=N, BROKER_STOP=SECONDS too)
	$(Q)DRIFTLINE_BUILD=$(OUT) $(PYTHON) tests/crash/crash.py --kills $(KILLS) \
	  --broker-kills $(BROKER_KILLS) --broker-stop $(BROKER_STOP) $(CRASH_SEED:%=--seed %) $(CRASH_ARGS)
