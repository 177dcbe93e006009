# The dashboard: its files are embedded by the assembler, which reports no
# dependency, and a server over invented data lets a browser test it alone.
$(OUT)/obj/service/web_assets.o: $(wildcard service/web/*)

$(OUT)/tests/web-demo-server: $(OUT)/obj/tests/support/web/demo_server.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

.PHONY: test-web
test-web: $(OUT)/tests/web-demo-server ## the dashboard in headless Chromium (needs chromium-driver, python3-selenium)
	$(Q)DRIFTLINE_BUILD=$(OUT) $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/integration/web_dashboard_test.py
