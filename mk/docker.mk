# The image's steps, proven without Docker: what its packages are enough for.
DEBS_DOCKER := debootstrap

.PHONY: test-docker
test-docker: ## the steps of docker/Dockerfile in debootstrap chroots (as root)
	$(Q)mk/install-debs $(DEBS_DOCKER)
	$(Q)$(PYTHON) tests/docker/chroot.py
