# Benches on the test broker (make deps-kafka).
$(OUT)/bench/consume: $(call obj,bench/consume.c)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
.PHONY: bench-consume
bench-consume: all $(OUT)/bench/consume ## Kafka to window without scoring, beside bare consumption
	$(Q)$(PYTHON) bench/consume.py --driftline $(OUT)/driftline --bare $(OUT)/bench/consume --work $(OUT)/bench/consume-run $(ARGS)
.PHONY: bench-scale
bench-scale: all ## scoring by two instances on two cores, beside one on one
	$(Q)$(PYTHON) bench/scale.py --driftline $(OUT)/driftline --work $(OUT)/bench/scale $(ARGS)
$(OUT)/bench/latency-probe: $(OUT)/obj/bench/latency_probe.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
.PHONY: bench-latency
bench-latency: all $(OUT)/bench/latency-probe ## from an event to its score, at half of the capacity
	$(Q)$(PYTHON) bench/latency.py --driftline $(OUT)/driftline --probe $(OUT)/bench/latency-probe --work $(OUT)/bench/latency $(ARGS)
