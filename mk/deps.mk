# Everything is a Debian package (bookworm or newer). `make deps` installs what
# is missing, as root or through sudo, and does nothing when all is there.

DEBS := gcc make pkg-config python3 protobuf-compiler protobuf-c-compiler \
  librdkafka-dev libuv1-dev libsqlite3-dev libprotobuf-c-dev libnghttp2-dev \
  libmicrohttpd-dev libssl-dev libyaml-dev libyajl-dev zlib1g-dev \
  libcurl4-openssl-dev libgnutls28-dev
DEBS_TEST  := libcriterion-dev python3-pytest python3-grpcio python3-grpc-tools \
  python3-numpy python3-confluent-kafka clang-format \
  gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
DEBS_KAFKA := $(if $(shell command -v java),,openjdk-17-jre-headless) \
  $(if $(shell command -v mvn),,maven)

.PHONY: deps deps-kafka
deps: ## install the Debian packages that building and testing need
	$(Q)mk/install-debs $(DEBS) $(DEBS_TEST)
deps-kafka: ## install Java and Maven, for make test-kafka
	$(Q)mk/install-debs $(DEBS_KAFKA)
