# Benches of the store. Needs no more than the program does.
BENCH_CORE ?= 0
BENCH_DIR  ?= $(OUT)/bench

$(OUT)/bench/ingest: $(OUT)/bench/%: $(OUT)/obj/bench/%.o $(LINK_store)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-ingest
bench-ingest: $(OUT)/bench/ingest ## durable ingest, beside SQLite append alone (ARGS="-e events -n nodes -b batch")
	$(Q)taskset -c $(BENCH_CORE) $< -d $(BENCH_DIR) $(ARGS)
