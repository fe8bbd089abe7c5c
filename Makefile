# Two commands: `make demo` shows what it does, `make test` proves it. Each sets itself up on a fresh clone.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := locks/install.sh $(BIN)/python
RUN := runs/numbers
TEXT := $(RUN)/text
NUMBERS := 'Mein Nachbar hat dreihundertzweiundachtzig graue Stühle gekauft.' \
	'Der Lastwagen ist sechshundertneun Kilometer zum Hafen gefahren.' \
	'Herr Weber zieht am Freitag in die Wohnung Nummer viertausendeinhundertsieben ein.'

SENTENCES := 'Ich habe gestern ein neues Fahrrad gekauft.' \
	'Wir machen keine Fehler.' \
	'Die Bürger Europas erwarten von uns, dass wir endlich handeln.' \
	'Diese Richtlinie wird die Sicherheit der Verbraucher in der gesamten Union verbessern.' \
	'Ich fragte mich, warum mich die Leute anstarrten.'

.PHONY: demo train-demo test test-long mutants lint docs lock sbom clean

demo: .venv/installed
	@echo; echo "German sentences before refinement (L=0) and after each step of delta inference, and how sure the model is:"
	@$(BIN)/latentmt trace --method delta --steps 2 $(SENTENCES)
	@echo "By latentmt translate: one step, a few places more, and a language model:"
	@$(BIN)/latentmt translate $(SENTENCES)

# The whole pipeline on a miniature task, from text to a measured model: about seven minutes on two cores.
train-demo: .venv/installed-dev
	$(BIN)/latentmt numbers $(TEXT)
	$(BIN)/latentmt run recipes/numbers --data $(TEXT)
	@echo; echo "Translations before refinement (L=0) and after each step along the learned score, and their confidence:"
	@$(BIN)/latentmt trace --model $(RUN) --steps 2 $(NUMBERS)
	@echo; echo "The test set; a sentence counts as exact if it keeps to one style throughout:"
	@$(BIN)/latentmt evaluate --model $(RUN) --src $(TEXT)/test.de \
		--ref $(TEXT)/test.british.en --ref $(TEXT)/test.american.en

# Two processes, a file each at a time: what a file's tests share is made once.
test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# What takes too long for every change: processes killed many times, and twenty times as many random inputs.
test-long: .venv/installed-dev
	$(BIN)/python -m pytest -m 'long or hypothesis' --hypothesis-profile=long

# Does any test notice a mistake in a line that matters? See tests/MUTANTS.md.
mutants: .venv/installed-dev
	$(BIN)/python tests/mutants.py

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The documentation as a site in site/. A broken link or an unknown name in the reference is an error.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The lock files, after pyproject.toml or constraints.txt were changed.
lock: .tools/installed
	.tools/bin/python locks/lock.py

# What the environment of `make test` consists of, as CycloneDX JSON.
sbom: .venv/installed-dev .tools/installed
	.tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-format JSON --output-file sbom.json $(BIN)/python

# What translates, and nothing more. Packages are installed by their hashes.
.venv/installed: pyproject.toml constraints.txt locks/demo.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) demo ''
	touch $@

# What trains, measures, serves and checks, too.
.venv/installed-dev: .venv/installed locks/test.txt
	$(INSTALL) test '[torch,train,documents,serve,cluster,plots,dev]'
	touch $@

.venv/installed-docs: .venv/installed locks/docs.txt
	$(INSTALL) docs '[docs]'
	touch $@

.tools/installed: locks/tools.txt
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r locks/tools.txt
	touch $@

clean:
	rm -rf .venv .tools runs build site sbom.json *.egg-info
