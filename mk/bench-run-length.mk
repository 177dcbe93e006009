# Are asked run lengths met? DRIFTLINE_DATA names a folder with uci.csv.gz.
$(OUT)/bench/run-length: $(OUT)/obj/bench/run_length.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-run-length
bench-run-length: $(OUT)/bench/run-length ## drift: asked against measured run length (normal, AR(1), UCI)
	$(Q)$< $(wildcard $(DRIFTLINE_DATA:%=%/uci.csv.gz))
