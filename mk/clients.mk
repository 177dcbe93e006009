# Tests with the stock gRPC clients of other languages, at pinned versions, and
# of hostile HTTP/2. All that they need is installed below $(CLIENTS), apart
# from what the product needs.

CLIENTS := build/clients
CLIENTS_PYTHON := $(CLIENTS)/python/bin/python
GO_TOOLS := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 \
  google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 \
  github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
GO_PROTOS := driftline/v1/event.proto driftline/v1/records.proto driftline/v1/service.proto
empty :=
comma := ,
GO_MAP := $(subst $(empty) ,,$(foreach p,$(GO_PROTOS),M$p=driftline/clients/pb,))module=driftline/clients

.PHONY: deps-clients test-clients test-clients-built
deps-clients: ## install the stock gRPC clients (Python, Node, Go) for make test-clients
	$(Q)mk/install-debs protobuf-compiler python3-venv openssl nghttp2-client
	$(Q)command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer"; exit 1; }
	$(Q)command -v go >/dev/null || { echo "go is missing: install Go 1.26 or newer"; exit 1; }
	$(Q)$(MAKE) --no-print-directory $(CLIENTS)/python.done $(CLIENTS)/node.done $(CLIENTS)/tools.done

$(CLIENTS)/python.done: tests/clients/python/requirements.txt
	@mkdir -p $(@D)
	$(Q)$(PYTHON) -m venv $(CLIENTS)/python
	$(Q)$(CLIENTS_PYTHON) -m pip install -q --disable-pip-version-check -r $<
	@touch $@
$(CLIENTS)/node.done: tests/clients/node/package.json tests/clients/node/package-lock.json
	@mkdir -p $(CLIENTS)/node
	$(Q)cp $^ $(CLIENTS)/node
	$(Q)cd $(CLIENTS)/node && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@
$(CLIENTS)/tools.done: mk/clients.mk
	@mkdir -p $(@D)
	$(Q)for tool in $(GO_TOOLS); do GOBIN=$(abspath $(CLIENTS))/bin go install $$tool || exit 1; done
	@touch $@

# The generated code is made here, beside a copy of the source: none is committed.
$(CLIENTS)/go/client: $(wildcard tests/clients/go/*) $(PROTOS) $(CLIENTS)/tools.done
	@mkdir -p $(@D)
	$(Q)cp tests/clients/go/* $(@D)
	$(Q)PATH=$(abspath $(CLIENTS))/bin:$$PATH protoc -Iproto --go_out=$(@D) --go_opt=$(GO_MAP) \
	  --go-grpc_out=$(@D) --go-grpc_opt=$(GO_MAP) $(GO_PROTOS)
	$(Q)cd $(@D) && go build -mod=readonly -o client .
$(CLIENTS)/stubs/done: $(PROTOS) $(CLIENTS)/python.done
	@mkdir -p $(@D)
	$(Q)$(CLIENTS_PYTHON) -m grpc_tools.protoc -Iproto --python_out=$(@D) --grpc_python_out=$(@D) $(PROTOS)
	@touch $@

test-clients: ## the stock clients and bad HTTP/2 against a running service
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory deps-clients
	@$(MAKE) --no-print-directory -j$(JOBS) all $(CLIENTS)/go/client $(CLIENTS)/stubs/done
	@$(MAKE) --no-print-directory test-clients-built
test-clients-built: TALLY = $(OUT)/tally-clients
test-clients-built:
	$(Q)$(RUN_TESTS:$(PYTHON)%=$(CLIENTS_PYTHON)%) --pytest $(wildcard tests/clients/test_*.py)
