# Two commands: `make demo` shows what cosen does, `make test` checks everything.
# Both set up .venv first, and do so again only when the requirements change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test bench format clean help

help:
	@echo "make demo    train on the embedded digits with rare odd digits; compare recalls"
	@echo "make test    lint, types, tests and doctests"
	@echo "make bench   speed and memory, as ratios (minutes; keep the machine idle)"
	@echo "make format  lay the code out as the lint wants it"
	@echo "make clean   remove the environment and the caches"

demo: $(VENV)/.runtime
	@echo "==> Training on scikit-learn's digits with 10 % of the odd digits"
	@$(BIN)/python examples/digits.py

test: $(VENV)/.dev
	@echo "==> Lint (ruff)"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "The layout differs from ruff's: run 'make format'."; exit 1; }
	@echo "==> Types (mypy)"
	@$(BIN)/mypy
	@echo "==> Tests and doctests (pytest)"
	@$(BIN)/python -m pytest --numprocesses 2 --quiet

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

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.runtime
	@echo "==> Installing the development tools"
	@$(PIP) -e '.[dev]' || { echo "The installation failed: see the message above; 'make clean' starts afresh."; exit 1; }
	@touch $@
