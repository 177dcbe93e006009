# How good the model is. Rivals: pip install lightgbm numpy.
$(OUT)/bench/features: $(OUT)/obj/bench/features.o $(LINK_model)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)
