# Edge decode beside protobuf-c and yajl; see bench/decode.c for what is measured.
$(OUT)/bench/decode: $(call obj,bench/decode.c) $(LINK_proto)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
.PHONY: bench-decode
bench-decode: $(OUT)/bench/decode ## edge decode, events a second, beside protobuf-c
	$(Q)$(if $(shell command -v taskset),taskset -c $(or $(BENCH_CPU),0)) $(OUT)/bench/decode
