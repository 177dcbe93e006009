# The dashboard: its files are embedded by the assembler, which reports no
# dependency, and a server over invented data lets a browser test it alone.
$(OUT)/obj/service/web_assets.o: $(wildcard service/web/*)

$(OUT)/tests/web-demo-server: $(OUT)/obj/tests/support/web/demo_server.o $(LINK_service)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

DEBS_WEB := chromium chromium-driver python3-selenium

.PHONY: deps-web test-web
deps-web: ## install the browser that make test-web drives
	$(Q)mk/install-debs $(DEBS_WEB)
test-web: $(OUT)/tests/web-demo-server ## the dashboard in headless Chromium (make deps-web first)
	$(Q)$(RUN_TESTS) --pytest tests/integration/web_dashboard_test.py
