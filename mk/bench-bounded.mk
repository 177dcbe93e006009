# Memory and file sizes over a long feed: docs/bounded.csv and docs/bounded.svg.
EVENTS ?= 24000000
.PHONY: bench-bounded
bench-bounded: all ## memory and files of a bounded service over EVENTS=N; writes docs/bounded.svg
	$(Q)$(PYTHON) bench/bounded.py --driftline $(OUT)/driftline --events $(EVENTS) --work $(OUT)/bench/bounded --out docs
