# Shift against AP over data sets and spans: docs/DRIFT.md and docs/shift.svg.
.PHONY: bench-shift
bench-shift: all ## shift against AP over the data sets in DRIFTLINE_DATA; writes docs/DRIFT.md
	$(Q)test -n "$(DRIFTLINE_DATA)" || { echo 'DRIFTLINE_DATA names no folder of data sets'; exit 1; }
	$(Q)$(PYTHON) bench/shift.py --driftline $(OUT)/driftline --data $(DRIFTLINE_DATA) --work $(OUT)/bench/shift --out docs
