# Helper programs of the RPC tests and of the RPC benchmark.

$(OUT)/tests/rpc-echo: $(call obj,tests/integration/rpc_echo_server.c) $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
	@echo "  LINK   $@"
test-progs: $(OUT)/tests/rpc-echo
