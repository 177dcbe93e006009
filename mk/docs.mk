.PHONY: docs
docs: all ## write the tables of docs/OPERATIONS.md from the program
	$(Q)$(PYTHON) mk/docs.py $(OUT)/driftline
