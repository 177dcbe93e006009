# RPC on a cached answer beside a bare nghttp2 echo and nghttpd.

DEBS_BENCH_RPC := nghttp2-client nghttp2-server

$(OUT)/bench/rpc_bare: $(OUT)/obj/bench/rpc_bare.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-rpc
bench-rpc: $(OUT)/bench/rpc_bare $(OUT)/tests/rpc-echo $(OUT)/tests/rpc-backend ## RPC calls a second on a cached answer, beside nghttp2 and nghttpd
	$(Q)mk/install-debs $(DEBS_BENCH_RPC)
	$(Q)$(PYTHON) bench/rpc.py $(OUT)

.PHONY: bench-rpc-hold
bench-rpc-hold: $(OUT)/tests/rpc-backend ## memory of 10,000 idle RPC connections and of 1,000 subscribers
	$(Q)$(PYTHON) bench/rpc_hold.py $(OUT)
