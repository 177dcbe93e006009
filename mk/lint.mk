# What a reader may rely on: who includes whom, warnings are errors, one format.

C_FILES := $(wildcard $(foreach d,base proto store model model/kernels service bench bench/* tests/* tests/*/*,$d/*.c $d/*.h))

.PHONY: lint lint-includes lint-format lint-build fmt
lint: lint-includes lint-format lint-build ## include rules, format, warnings as errors
lint-includes:
	$(Q)$(PYTHON) mk/lint_includes.py
lint-format:
	$(Q)clang-format --dry-run -Werror $(C_FILES)
lint-build:
	@$(MAKE) --no-print-directory CI=1 BUILD=lint CFLAGS=-O1 -j$(JOBS) all test-progs
fmt: ## format every C file
	$(Q)clang-format -i $(C_FILES)
