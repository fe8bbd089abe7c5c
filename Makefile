# Two commands: `make demo` shows what it does, `make test` proves it. Each sets itself up on a fresh clone.

PYTHON ?= python3
BIN := .venv/bin
RUN := runs/numbers

.PHONY: demo test lint clean

demo: .venv/installed
	$(BIN)/latentmt numbers $(RUN)/text
	$(BIN)/latentmt prepare recipes/numbers --data $(RUN)/text
	$(BIN)/latentmt inspect $(RUN)/corpus

test: lint
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# torch goes first and pinned: a looser request would pull gigabytes of CUDA.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[train,serve,plots,export,dev]'
	touch $@

clean:
	rm -rf .venv runs build *.egg-info
