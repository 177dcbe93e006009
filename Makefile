# driftline: one readable entry point. `make help` lists what it can do.
#
#   BUILD=release (default) | debug | asan | tsan    each has its own folder
#   V=1                                              print full commands

BUILD   ?= release
CC      ?= gcc
PYTHON  ?= /usr/bin/python3
OUT     := $(if $(filter release,$(BUILD)),build,build/$(BUILD))
Q       := $(if $(V),,@)

# ---- what it is built with -------------------------------------------------

PKGS      := rdkafka libuv sqlite3 libprotobuf-c libnghttp2 libmicrohttpd openssl yaml-0.1 yajl zlib libcurl gnutls
ifneq ($(filter-out help deps deps-% fmt,$(or $(MAKECMDGOALS),all)),)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -lpthread
endif

WARN      := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla $(if $(CI),-Werror)
CPPFLAGS  += -D_GNU_SOURCE -I. -I$(OUT)/gen -MMD -MP
CFLAGS    ?= -O3 -g
CFLAGS_release := -fno-math-errno -fno-trapping-math -ffp-contract=off
CFLAGS_debug   := -Og -ffp-contract=off
CFLAGS_asan    := -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -ffp-contract=off
CFLAGS_tsan    := -O2 -fno-omit-frame-pointer -fsanitize=thread -ffp-contract=off
ALL_CFLAGS = -std=c11 $(WARN) $(CFLAGS) $(CFLAGS_$(BUILD)) $(PKG_CFLAGS)
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
ALL_LDFLAGS = $(LDFLAGS) $(LDFLAGS_$(BUILD))

# A kernel tier is one file; only that file gets the tier's instruction set.
ARCH_FLAGS_avx2   := -mavx2 -mfma
ARCH_FLAGS_avx512 := -mavx2 -mfma -mavx512f -mavx512dq -mavx512vl -mavx512bw
arch_flags = $(ARCH_FLAGS_$(lastword $(subst _, ,$(basename $(notdir $1)))))

# ---- sources: a folder is a library ----------------------------------------

MODULES   := base proto store model service
PROTOS    := $(wildcard proto/driftline/v1/*.proto proto/grpc/*/*/*.proto)
GEN_C     := $(PROTOS:proto/%.proto=$(OUT)/gen/%.pb-c.c)
.SECONDARY: $(GEN_C)
SRC_base    := $(wildcard base/*.c)
SRC_proto   := $(wildcard proto/*.c)
SRC_store   := $(wildcard store/*.c)
SRC_model   := $(wildcard model/*.c model/kernels/*.c)
SRC_service := $(filter-out service/main.c,$(wildcard service/*.c))
obj = $(patsubst %.c,$(OUT)/obj/%.o,$1)
OBJ_gen   := $(GEN_C:.c=.o)
LIBS      := $(foreach m,$(MODULES),$(OUT)/lib$m.a)
# What a module's tests may link: the module and what it may include.
LINK_base    := $(OUT)/libbase.a
LINK_proto   := $(OUT)/libproto.a $(LINK_base)
LINK_store   := $(OUT)/libstore.a $(LINK_base)
LINK_model   := $(OUT)/libmodel.a $(LINK_base)
LINK_service := $(OUT)/libservice.a $(OUT)/libproto.a $(OUT)/libstore.a $(OUT)/libmodel.a $(OUT)/libbase.a

.PHONY: all
all: $(OUT)/driftline ## build the program (build/driftline)

$(OUT)/driftline: $(OUT)/obj/service/main.o $(LINK_service)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
	@echo "  LINK   $@"

define module_rule
$(OUT)/lib$1.a: $$(call obj,$$(SRC_$1)) $2
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module_rule,$m,$(if $(filter proto,$m),$$(OBJ_gen)))))

$(OUT)/obj/%.o: %.c Makefile | $(GEN_C)
	@mkdir -p $(@D)
	@echo "  CC     $<"
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(call arch_flags,$<) -c -o $@ $<

$(OUT)/gen/%.pb-c.c: proto/%.proto $(PROTOS)
	@mkdir -p $(@D)
	$(Q)protoc-c --proto_path=proto --c_out=$(OUT)/gen $<
$(OUT)/gen/%.pb-c.o: $(OUT)/gen/%.pb-c.c
	$(Q)$(CC) $(CPPFLAGS) -std=c11 $(CFLAGS) $(CFLAGS_$(BUILD)) $(PKG_CFLAGS) -c -o $@ $<

# The model once more in double precision, plain C kernels only: central
# differences need it. Used by tests/grad alone.
SRC_real64 := $(wildcard model/*.c) $(wildcard model/kernels/*_c.c model/kernels/kernels.c)
$(OUT)/real64/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -DDL_REAL_DOUBLE -c -o $@ $<
$(OUT)/libmodel64.a: $(SRC_real64:%.c=$(OUT)/real64/%.o)
	$(Q)rm -f $@ && ar rcs $@ $^

# ---- tests ------------------------------------------------------------------
# tests/unit/<module>/*.c is one Criterion program a module; tests/<kind>/*.c
# one a kind, linked against everything (grad: against the double build).

UNIT_PROGS := $(foreach m,$(MODULES),$(if $(wildcard tests/unit/$m/*.c),$(OUT)/tests/unit-$m))
KIND_PROGS := $(foreach k,kernels grad fault sim regress,$(if $(wildcard tests/$k/*.c),$(OUT)/tests/$k))
TEST_PROGS := $(UNIT_PROGS) $(KIND_PROGS)
SUPPORT    := $(call obj,$(wildcard tests/support/*.c))
TEST_ARGS  ?= --timeout 600 --ignore-warnings
TEST_LIBS   = -lcriterion $(PKG_LIBS)

define unit_rule
$(OUT)/tests/unit-$1: $$(call obj,$$(wildcard tests/unit/$1/*.c)) $$(SUPPORT) $$(LINK_$1)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $$(TEST_LIBS)
endef
$(foreach m,$(MODULES),$(eval $(call unit_rule,$m)))
$(OUT)/tests/grad: $(patsubst %.c,$(OUT)/real64/%.o,$(wildcard tests/grad/*.c)) $(OUT)/libmodel64.a $(OUT)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(TEST_LIBS)
define kind_rule
$(OUT)/tests/$1: $$(call obj,$$(wildcard tests/$1/*.c)) $$(SUPPORT) $$(LINK_service)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $$(TEST_LIBS)
endef
$(foreach k,kernels fault sim regress,$(eval $(call kind_rule,$k)))

.PHONY: test-unit
test-unit: $(TEST_PROGS) ## unit, kernel, gradient, fault and regression tests (Criterion)
	$(Q)failed=; for t in $(TEST_PROGS); do echo "== $$t"; $$t $(TEST_ARGS) || failed="$$failed $$t"; done; \
	  if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

-include $(wildcard mk/*.mk)

# ---- housekeeping -----------------------------------------------------------

.PHONY: clean help
clean: ## remove everything that was built
	$(Q)rm -rf build
help: ## this list
	@grep -hE '^[a-z][a-zA-Z0-9_%<>-]*:.*## ' $(MAKEFILE_LIST) | sort | \
	  awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
