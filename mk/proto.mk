# The descriptors of all .proto files, for server reflection: compiled in as a
# C array. protoc-c understands protoc's options, so protoc itself is not needed.
$(OUT)/gen/descriptors.inc: $(PROTOS)
	@mkdir -p $(@D)
	$(Q)protoc-c --proto_path=proto --include_imports --descriptor_set_out=$(@:.inc=.bin) $(PROTOS)
	$(Q)od -An -v -tu1 $(@:.inc=.bin) | sed 's/  *\([0-9][0-9]*\)/\1,/g' >$@
$(OUT)/obj/proto/reflection.o: $(OUT)/gen/descriptors.inc
