# Two commands: `make demo` shows what cosen does, `make test` checks everything.
# Both set up .venv first, and do so again only when the requirements change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt

# Packages are installed uncompiled; what is imported is compiled once, and kept for the next process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test bench format clean help chromium

help:
	@echo "make demo    compare six methods on embedded digits of which the odd ones are rare"
	@echo "make test    lint, types, tests and doctests"
	@echo "make bench   speed and memory, as ratios (minutes; keep the machine idle)"
	@echo "make format  lay the code out as the lint wants it"
	@echo "make clean   remove the environment and the caches"

demo: $(VENV)/.runtime
	@echo "==> Comparing six methods on scikit-learn's digits with 10 % of the odd digits, 3 seeds"
	@rm -rf studies/demo
	@$(BIN)/cosen compare digits --imbalance odd:0.1 --seeds 3 --out studies/demo \
		--methods baseline,fixed-h,cosen,class-weights,balanced-softmax,smote
	@$(BIN)/cosen report studies/demo

test: $(VENV)/.dev
	@echo "==> Lint (ruff)"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "The layout differs from ruff's: run 'make format'."; exit 1; }
	@echo "==> Types (mypy), and beside it tests and doctests (pytest)"
	@types=$$(mktemp); $(BIN)/mypy >$$types 2>&1 & checked=$$!; \
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --quiet $(TESTS); tested=$$?; \
	wait $$checked; typed=$$?; cat $$types; rm -f $$types; \
	[ $$tested = 0 ] && [ $$typed = 0 ]

bench: $(VENV)/.dev
	@$(BIN)/python benchmarks

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "cosen needs Python 3.11.4 or newer, and '$(PYTHON)' was not found: install it, or name yours with 'make PYTHON=...'."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || { echo "cosen needs Python 3.11.4 or newer, and '$(PYTHON)' is older: name a newer one with 'make PYTHON=python3.11'."; exit 1; }
	@echo "==> Creating a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu install the package python3-venv."; exit 1; }

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> Installing cosen and what it needs (PyTorch is large: minutes the first time)"
	@$(PIP) -e '.[export]' || { echo "The installation failed: see the message above; 'make clean' starts afresh."; exit 1; }
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> Installing cosen and the development tools (PyTorch is large: minutes the first time)"
	@$(PIP) -e '.[dev]' || { echo "The installation failed: see the message above; 'make clean' starts afresh."; exit 1; }
	@$(MAKE) --no-print-directory chromium
	@touch $(VENV)/.runtime $@

# The report is tested in a real browser, from Debian's packages where that can be.
chromium:
	@command -v chromium >/dev/null || { \
		echo "==> Installing Chromium for the tests of the report"; \
		{ [ "$$(id -u)" = 0 ] && root= || root="sudo -n"; \
		  command -v apt-get >/dev/null && $$root apt-get update -qq && \
		  $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
		} >/dev/null 2>&1 || echo "There is no Chromium, and it could not be installed: those tests will be skipped."; }
