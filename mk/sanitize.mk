# The Criterion tests once more under the sanitizers. Each has its own build
# folder, build/asan and build/tsan.

SANITIZED_JOBS := $(shell nproc 2>/dev/null || echo 2)
# TSan's shadow memory and address space randomisation may collide.
NO_ASLR := $(if $(shell setarch -R true 2>/dev/null && echo yes),setarch -R)

# Criterion cannot run under TSan, and passes a test that leaks under ASan:
# tests/support/plain stands in for it.
ifneq ($(filter asan tsan,$(BUILD)),)
CPPFLAGS  += -Itests/support/plain
TEST_LIBS  = $(PKG_LIBS)
$(TEST_PROGS): $(OUT)/obj/tests/support/plain/runner.o
endif

.PHONY: test-asan test-tsan
test-asan: ## the Criterion tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory BUILD=asan -j$(SANITIZED_JOBS) test-progs
	@ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(MAKE) --no-print-directory BUILD=asan PYTESTS= test-built
test-tsan: ## the Criterion tests under ThreadSanitizer
	@$(MAKE) --no-print-directory BUILD=tsan -j$(SANITIZED_JOBS) test-progs
	@TSAN_OPTIONS="halt_on_error=1 exitcode=66" \
	  $(NO_ASLR) $(MAKE) --no-print-directory BUILD=tsan PYTESTS= test-built
