# Benches of the store. They need no more than the program does.
BENCH_CORE ?= 0
BENCH_DIR  ?= $(OUT)/bench
BENCH_STORE := $(OUT)/bench/ingest $(OUT)/bench/recovery

$(BENCH_STORE): $(OUT)/bench/%: $(OUT)/obj/bench/%.o $(LINK_store)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-ingest bench-recovery
bench-ingest: $(OUT)/bench/ingest ## durable ingest, beside SQLite append alone
	$(Q)taskset -c $(BENCH_CORE) $< -d $(BENCH_DIR) $(ARGS)
bench-recovery: $(OUT)/bench/recovery ## recovery of 100,000 windows, beside reading the file
	$(Q)taskset -c $(BENCH_CORE) $< -d $(BENCH_DIR) $(ARGS)
