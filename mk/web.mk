# The dashboard's files are embedded by the assembler, which reports no dependency.
$(OUT)/obj/service/web_assets.o: $(wildcard service/web/*)
