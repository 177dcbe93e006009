# Helper programs of the RPC tests and of the RPC benchmark.

RPC_HELPERS := $(OUT)/tests/rpc-echo $(OUT)/tests/rpc-backend
$(OUT)/tests/rpc-%: $(OUT)/obj/tests/integration/rpc_%_server.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
	@echo "  LINK   $@"
.SECONDARY: $(call obj,tests/integration/rpc_echo_server.c tests/integration/rpc_backend_server.c)
test-progs: $(RPC_HELPERS)
