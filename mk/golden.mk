# Golden tensors of the model, made anew by the independent implementation. They
# are kept in the repository; tests only read them.
.PHONY: golden
golden: ## make the model's golden tensors anew (needs python3-torch)
	$(Q)$(PYTHON) -c 'import torch' 2>/dev/null || { echo 'PyTorch is missing: apt-get install python3-torch, or PYTHON=... with pip install torch'; exit 1; }
	$(Q)$(PYTHON) tests/golden/diffdyg.py tests/golden
