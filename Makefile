# `make demo` shows what cosen does, `make test` checks everything. Both set up .venv first.

VENV := .venv
CONSTRAINTS := constraints.txt
EXTRAS := dev,docs
ifeq ($(OS),Windows_NT)  # with the tools of Git Bash
PYTHON ?= python
BIN := $(VENV)/Scripts
else
PYTHON ?= python3
BIN := $(VENV)/bin
endif
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c $(CONSTRAINTS)

# Packages are installed uncompiled; Python compiles modules on first import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test fuzz coverage bench format docs recipes clean help chromium lint quick oldest workflows dist

help:
	@echo "make demo      compare six methods on handwritten digits with rare odd digits"
	@echo "make check     lint, types and quick tests (about a minute)"
	@echo "make test      lint, types and all tests"
	@echo "make fuzz      damaged files and requests: twenty times the cases of make test, random ones"
	@echo "make coverage  all tests, with the coverage of each file"
	@echo "make bench     speed and memory, as ratios (minutes; keep the machine idle)"
	@echo "make format    format the code"
	@echo "make docs      build the documentation in site/; warnings are errors"
	@echo "make recipes   install Lightning, transformers, fastai and skorch, and test the recipes"
	@echo "make oldest    the quick tests with the oldest supported dependencies"
	@echo "make workflows check the files in .github/workflows"
	@echo "make dist      build and check the files of a release in dist/"
	@echo "make clean     remove the environment and the caches"

demo: $(VENV)/.runtime
	@echo "==> Comparing six methods on scikit-learn's digits with 10 % of the odd digits, 3 seeds"
	@rm -rf studies/demo
	@$(BIN)/cosen compare digits --imbalance odd:0.1 --seeds 3 --out studies/demo \
		--methods baseline,fixed-h,cosen,class-weights,balanced-softmax,smote
	@$(BIN)/cosen report studies/demo

# mypy runs in parallel with pytest, which uses both cores
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder --quiet
define typed_and_tested
	@types=$$(mktemp); $(BIN)/mypy >$$types 2>&1 & checked=$$!; \
	$(PYTEST) $(1) $(TESTS); tested=$$?; \
	wait $$checked; typed=$$?; cat $$types; rm -f $$types; \
	[ $$tested = 0 ] && [ $$typed = 0 ]
endef

QUICK := -m "not (training or processes or browser or ray)"
check: lint
	@echo "==> Types (mypy) and quick tests (pytest)"
	$(call typed_and_tested,$(QUICK))

test: lint
	@echo "==> Types (mypy) and all tests (pytest)"
	$(call typed_and_tested,)

fuzz: $(VENV)/.dev
	@COSEN_FUZZ=20 $(PYTEST) tests/robustness tests/serving/test_fuzz.py $(TESTS)

coverage: $(VENV)/.dev
	@$(PYTEST) --cov=cosen --cov-report=term:skip-covered $(TESTS)

lint: $(VENV)/.dev
	@echo "==> Lint (ruff)"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "The format differs from ruff's: run 'make format'."; exit 1; }

bench: $(VENV)/.dev
	@$(BIN)/python benchmarks

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs site
	@echo "Open site/index.html"

recipes: $(VENV)/.dev
	@$(PIP) -r examples/recipes/requirements.txt
	@$(BIN)/python -m pytest --quiet -rs tests/docs/test_recipes.py

quick: $(VENV)/.dev
	@$(PYTEST) $(QUICK) $(TESTS)

# Old packages call deprecated functions of newer ones: these warnings are not errors here.
oldest:
	@$(MAKE) --no-print-directory quick VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt EXTRAS=dev TESTS="$(TESTS) \
		-W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning"

workflows: | $(VENV)/pyvenv.cfg
	@$(PIP) zizmor
	@$(BIN)/zizmor --offline --quiet .github
	@if command -v actionlint >/dev/null; then actionlint; fi

# 'make dist TAG=v1.2.3' also checks that the version is that of the tag.
dist: | $(VENV)/pyvenv.cfg
	@$(PIP) build twine
	@rm -rf dist
	@$(BIN)/python -m build --quiet
	@$(BIN)/python -m twine check --strict dist/*
	@$(if $(TAG),[ -e dist/cosen-$(TAG:v%=%).tar.gz ] || { echo "The version of dist/ is not that of the tag $(TAG)."; exit 1; })

clean:
	rm -rf $(VENV) .venv-oldest dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*

$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { echo "cosen needs Python 3.11.4 or newer, but '$(PYTHON)' was not found: install it, or use 'make PYTHON=...'."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || { echo "cosen needs Python 3.11.4 or newer, but '$(PYTHON)' is older: use 'make PYTHON=python3.11'."; exit 1; }
	@echo "==> Creating a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu install the package python3-venv."; exit 1; }

$(VENV)/.runtime: pyproject.toml $(CONSTRAINTS) | $(VENV)/pyvenv.cfg
	@echo "==> Installing cosen (PyTorch is large: this takes minutes the first time)"
	@$(PIP) -e '.[export,serve,labels]' || { echo "The installation failed: see the message above; 'make clean' removes everything."; exit 1; }
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) | $(VENV)/pyvenv.cfg
	@echo "==> Installing cosen and the development tools (this takes minutes the first time)"
	@$(PIP) -e '.[$(EXTRAS)]' || { echo "The installation failed: see the message above; 'make clean' removes everything."; exit 1; }
	@$(MAKE) --no-print-directory chromium
	@touch $(VENV)/.runtime $(if $(findstring docs,$(EXTRAS)),$(VENV)/.docs) $@

$(VENV)/.docs: pyproject.toml $(CONSTRAINTS) | $(VENV)/pyvenv.cfg
	@echo "==> Installing cosen and the tools for the documentation (this takes minutes the first time)"
	@$(PIP) -e '.[docs]' || { echo "The installation failed: see the message above; 'make clean' removes everything."; exit 1; }
	@touch $@

# The report is tested in a real browser, installed from Debian's packages if possible.
chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		echo "==> Installing Chromium for the tests of the report"; \
		{ [ "$$(id -u)" = 0 ] && root= || root="sudo -n"; \
		  command -v apt-get >/dev/null && $$root apt-get update -qq && \
		  $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
		} >/dev/null 2>&1 || echo "Chromium could not be installed: its tests will be skipped."; }
