# The model's speed on one core. The rivals are not needed to build or run the
# program: apt-get install libopenblas-dev python3-torch.
BENCH_CORE   ?= 0
BENCH_ROUNDS ?= 6

$(OUT)/bench/kernels: $(OUT)/obj/bench/kernels.o $(OUT)/obj/bench/peak_avx2.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS) $(shell pkg-config --libs openblas)
$(OUT)/obj/bench/kernels.o: PKG_CFLAGS += $(shell pkg-config --cflags openblas 2>/dev/null)
$(OUT)/bench/forward: $(OUT)/obj/bench/forward.o $(OUT)/obj/bench/peak_avx2.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-kernels bench-forward bench-train
bench-kernels: ## matrix kernels beside OpenBLAS and the multiply-add peak
	$(Q)pkg-config --exists openblas || { echo 'OpenBLAS is missing: apt-get install libopenblas-dev'; exit 1; }
	@$(MAKE) --no-print-directory $(OUT)/bench/kernels
	@echo 'Both sides with AVX2:'
	$(Q)DRIFTLINE_KERNELS=avx2 OPENBLAS_CORETYPE=Zen OPENBLAS_NUM_THREADS=1 taskset -c $(BENCH_CORE) $(OUT)/bench/kernels | sed 's/^kernels:/with AVX2:/'
	@echo 'Each side with the best that it has for this processor:'
	$(Q)OPENBLAS_NUM_THREADS=1 taskset -c $(BENCH_CORE) $(OUT)/bench/kernels
bench-forward bench-train: bench-%: $(OUT)/bench/forward ## whole model, scoring or training, beside PyTorch
	$(Q)$(PYTHON) -c 'import torch' 2>/dev/null || { echo 'PyTorch is missing: apt-get install python3-torch, or PYTHON=... with pip install torch'; exit 1; }
	$(Q)OMP_NUM_THREADS=1 taskset -c $(BENCH_CORE) $(PYTHON) bench/forward.py $* $(OUT)/bench/forward $(BENCH_ROUNDS)

$(OUT)/bench/topk: $(OUT)/obj/bench/topk.o $(OUT)/obj/bench/peak_avx2.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
.PHONY: bench-topk
bench-topk: $(OUT)/bench/topk ## 1,000 candidates of a node, encodings cached, beside the joint model
	$(Q)taskset -c $(BENCH_CORE) $(OUT)/bench/topk 32 64 500
	$(Q)taskset -c $(BENCH_CORE) $(OUT)/bench/topk 8 32

$(OUT)/bench/growth: $(OUT)/obj/bench/growth.o $(OUT)/obj/bench/peak_avx2.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
.PHONY: bench-growth
bench-growth: $(OUT)/bench/growth ## cost by window, width and number of candidates
	$(Q)taskset -c $(BENCH_CORE) $(OUT)/bench/growth
