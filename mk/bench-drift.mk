# The drift statistic's cost an event. Needs no more than the program does.
BENCH_CORE ?= 0

$(OUT)/bench/drift: $(OUT)/obj/bench/drift.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-drift
bench-drift: $(OUT)/bench/drift ## rolling MMD an event: Fourier and exact, beside plain C
	$(Q)taskset -c $(BENCH_CORE) $<
