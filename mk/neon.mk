# The kernels for AArch64, cross-compiled, with their tests under qemu's user
# emulation: the same sources as on a machine of that kind, against plain C.

NEON_CC  := aarch64-linux-gnu-gcc
NEON_RUN := qemu-aarch64
NEON_SRC := $(wildcard model/kernels/*.c) base/check.c base/rng.c base/status.c tests/kernels/tiers.c \
  tests/support/plain/runner.c

ifeq ($(BUILD),release)
TEST_PROGS += $(OUT)/tests/kernels-neon
endif

$(OUT)/neon/%.o: %.c Makefile mk/neon.mk
	@mkdir -p $(@D)
	@echo "  CC     $< (aarch64)"
	$(Q)$(NEON_CC) -std=c11 $(WARN) -O3 $(CFLAGS_release) -Itests/support/plain $(CPPFLAGS) -c -o $@ $<
$(OUT)/neon/kernels: $(NEON_SRC:%.c=$(OUT)/neon/%.o)
	$(Q)$(NEON_CC) -static -o $@ $^ -lm -lpthread
# A program like the others to whoever runs them.
$(OUT)/tests/kernels-neon: $(OUT)/neon/kernels
	@mkdir -p $(@D)
	$(Q)printf '#!/bin/sh\nexec $(NEON_RUN) %s "$$@"\n' $< > $@ && chmod +x $@
