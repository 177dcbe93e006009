# How good the model is. Rivals: pip install lightgbm numpy.
$(OUT)/bench/features: $(OUT)/obj/bench/features.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
$(OUT)/bench/recall: $(OUT)/obj/bench/recall.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: bench-ablation bench-dispersion
bench-ablation bench-dispersion: bench-%: $(OUT)/driftline ## what each part is worth; differential against softmax attention
	$(Q)$(PYTHON) bench/attention.py $* --driftline $(OUT)/driftline --work $(OUT)/bench/attention $(BENCH_ARGS)

.PHONY: bench-trees bench-recall
bench-trees: $(OUT)/bench/features ## boosted trees on the model's own columns
	$(Q)python3 -c 'import lightgbm' 2>/dev/null || { echo 'LightGBM is missing: pip install lightgbm numpy'; exit 1; }
	$(Q)python3 bench/trees.py --features $(OUT)/bench/features $(BENCH_ARGS)
ARCHITECTURE ?= mlp
bench-recall: $(OUT)/driftline $(OUT)/bench/recall ## TopK on the test spans beside recency, popularity and their mix
	$(Q)test -n '$(DRIFTLINE_DATA)' || { echo 'where is the data? DRIFTLINE_DATA=FOLDER'; exit 1; }
	$(Q)mkdir -p $(OUT)/bench/recall-models
	$(Q)for name in uslegis canparl uci unvote; do \
	  unit=ticks; [ $$name = uci ] && unit=s; model=$(OUT)/bench/recall-models/$$name.safetensors; \
	  [ -e $$model ] || $(OUT)/driftline train $(DRIFTLINE_DATA)/$$name.csv.gz --time-unit $$unit \
	    --ties stream --architecture $(ARCHITECTURE) --out $$model >/dev/null 2>&1 || exit 1; \
	  $(OUT)/bench/recall $(DRIFTLINE_DATA)/$$name.csv.gz $$model $(BENCH_ARGS) || exit 1; done
