# Does it cost scoring anything when many look on?
.PHONY: bench-dashboards
bench-dashboards: all ## scoring with 1,000 open dashboards, beside scoring without
	$(Q)$(PYTHON) bench/dashboards.py $(OUT)
