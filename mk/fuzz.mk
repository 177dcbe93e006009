# Fuzzing by libFuzzer with ASan and UBSan (clang).
#
#   make fuzz-<name> RUNS=1000000   runs tests/fuzz/<name>.c from its kept corpus
#   make fuzz RUNS=100000           all of them, one after the other
#   make fuzz-corpus                only the kept inputs, no new ones
#   make keep-<name>                adds what new coverage was found to the kept corpus
#
# A target links the modules of the headers that it includes.

ifneq ($(filter fuzz% keep-% build/fuzz%,$(MAKECMDGOALS)),)

FUZZ_CC     ?= clang
RUNS        ?= 100000
FUZZ_OUT    := build/fuzz
FUZZ_NAMES  := $(basename $(notdir $(wildcard tests/fuzz/*.c)))
includes     = $(shell grep -c '^#include "$1/' tests/fuzz/$2.c | grep -v '^0')
FUZZ_MODULES = $(if $(call includes,service,$1),service proto store model base,\
  $(foreach m,proto store model,$(if $(call includes,$m,$1),$m)) base)
FUZZ_CFLAGS := -std=c11 -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
  -fno-sanitize-recover=undefined -ffp-contract=off
# A model file has thousands of weights.
FUZZ_LENGTH_safetensors := 65536
FUZZ_LENGTH_graph_page := 8192
# Long enough for a few requests or streams; more only makes them slow.
FUZZ_LENGTH_http_request := 512
FUZZ_LENGTH_h2_server := 1024
FUZZ_LENGTH_grpc_frame := 1024
FUZZ_ARGS    = -runs=$(RUNS) -print_final_stats=1 -timeout=10 -rss_limit_mb=1024 -max_len=$(or $(FUZZ_LENGTH_$1),4096) \
  $(addprefix -dict=,$(wildcard tests/fuzz/$1.dict)) -artifact_prefix=$(FUZZ_OUT)/found/

$(FUZZ_OUT)/obj/%.o: %.c Makefile | $(GEN_C) $(OUT)/gen/descriptors.inc
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(CPPFLAGS) $(FUZZ_CFLAGS) $(PKG_CFLAGS) -fsanitize=fuzzer-no-link $(call arch_flags,$<) -c -o $@ $<
# Checks in every unrolled tile take clang very long; the tiers have their own tests.
$(FUZZ_OUT)/obj/model/kernels/%.o: FUZZ_CFLAGS := -std=c11 -g -O1 -ffp-contract=off
define fuzz_module
$(FUZZ_OUT)/lib$1.a: $(SRC_$1:%.c=$(FUZZ_OUT)/obj/%.o) $(if $(filter proto,$1),$(GEN_C:%.c=$(FUZZ_OUT)/obj/%.o))
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call fuzz_module,$m)))
define fuzz_target
$(FUZZ_OUT)/$1: $(FUZZ_OUT)/obj/tests/fuzz/$1.o $(foreach m,$(call FUZZ_MODULES,$1),$(FUZZ_OUT)/lib$m.a)
	$$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $$@ $$^ $$(PKG_LIBS)
.PHONY: fuzz-$1 keep-$1
fuzz-$1: $(FUZZ_OUT)/$1
	@mkdir -p $(FUZZ_OUT)/corpus/$1 $(FUZZ_OUT)/found tests/fuzz/corpus/$1
	$$(Q)$(FUZZ_OUT)/$1 $(call FUZZ_ARGS,$1) $(FUZZ_OUT)/corpus/$1 tests/fuzz/corpus/$1
keep-$1: $(FUZZ_OUT)/$1
	$$(Q)$(FUZZ_OUT)/$1 -merge=1 tests/fuzz/corpus/$1 $(FUZZ_OUT)/corpus/$1
endef
$(foreach n,$(FUZZ_NAMES),$(eval $(call fuzz_target,$n)))

.PHONY: fuzz fuzz-corpus fuzz-<name>
fuzz-<name>: ## one fuzzer from its kept corpus; RUNS=N inputs
	@echo "name one of: $(FUZZ_NAMES)" && exit 2
fuzz: $(FUZZ_NAMES:%=fuzz-%) ## every fuzzer from its kept corpus; RUNS=N inputs each
fuzz-corpus: $(FUZZ_NAMES:%=$(FUZZ_OUT)/%) ## the kept corpus once through every fuzzer
	$(Q)for n in $(FUZZ_NAMES); do echo "== $$n"; $(FUZZ_OUT)/$$n -runs=0 tests/fuzz/corpus/$$n || exit 1; done
-include $(shell find $(FUZZ_OUT) -name '*.d' 2>/dev/null)
endif
