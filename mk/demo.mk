.PHONY: demo
demo: ## everything in one process, with a dashboard; ARGS="--seconds 60" ends it
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	$(Q)$(OUT)/driftline demo $(ARGS)
