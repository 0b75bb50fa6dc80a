# Every target does its own set-up. Needs Python 3.11 or newer, git and make.

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
READY := .venv/.ready
VENDORS := tests/lab/vendors
STANDINS := $(VENDORS)/node_modules/.package-lock.json
AGENTS_READY := .venv/.agents-ready
BROWSER := tests/browser
BROWSER_READY := $(BROWSER)/unpacked/chromium
PEERS := tests/agents/peers
PEERS_READY := $(PEERS)/node_modules/.package-lock.json
FRAMEWORKS := langchain openai-agents pydantic-ai claude-agent-sdk fastmcp flask django  # extras that the group agents brings, and no demo needs
RIVALS_READY := .venv/.rivals-ready
DOCS_READY := .venv/.docs-ready
LOWEST_READY := .venv-lowest/.ready
LOWEST := server litestar httpx2 httpx stripe signed postgres redis lab mcp requests aiohttp flask django opentelemetry
comma := ,
space := $() $()
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes, and none should compile everything anew

.PHONY: help setup demo test test-extras test-dist test-lowest check format docs docs-serve dist bench bench-quick bench-fleet schemas modules measured lock clean

help:  ## Show what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

setup: $(READY) $(AGENTS_READY) $(DOCS_READY) $(STANDINS) $(BROWSER_READY)  ## Do only the set-up, into .venv

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found; install one, or say make PYTHON=/path/to/python."; exit 1; }
	@echo "Setting up .venv (once; about two minutes)"
	@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)

$(STANDINS) $(PEERS_READY) $(BROWSER)/node_modules/.package-lock.json: %/node_modules/.package-lock.json: %/package-lock.json | $(READY)
	@cd $* && $(CURDIR)/$(BIN)/npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@

$(BROWSER_READY): $(BROWSER)/node_modules/.package-lock.json
	@cd $(BROWSER) && $(CURDIR)/$(BIN)/node unpack.mjs
	@touch $@

demo: $(READY)  ## The story of one fix, then the paper's evaluation beside ours
	@$(BIN)/shelflife demo

$(AGENTS_READY): $(READY) tests/agents/requirements.lock
	@echo "Installing the frameworks that the tests run agents with (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement tests/agents/requirements.lock
	@touch $(AGENTS_READY)

test: $(READY) $(AGENTS_READY) $(DOCS_READY) $(STANDINS) $(BROWSER_READY)  ## Run the whole suite
	@$(BIN)/pytest --workers=4 -q  # on two cores too: much of it waits for real servers

test-extras: $(READY) $(AGENTS_READY) $(STANDINS) $(PEERS_READY)  ## Run what needs more than the suite: fresh environments for the extras, MCP's own programs and its conformance suite
	@$(BIN)/pytest --workers=2 -q tests/fresh_environments.py
	@$(BIN)/pytest -q -s tests/agents/peers.py

dist: $(READY)  ## Build the wheel and the source distribution, into dist
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist

test-dist: $(READY)  ## Install the wheel into empty environments, and follow the tutorials there
	@$(BIN)/pytest -q tests/distributions.py

test-lowest: $(LOWEST_READY)  ## Run the tests of both sides with the lowest versions that the package says it works with (needs uv)
	@.venv-lowest/bin/pytest --workers=2 -q -p no:cacheprovider -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning tests/contract tests/server tests/client tests/integrations

$(LOWEST_READY): pyproject.toml
	@mkdir -p build
	@uv pip compile --quiet pyproject.toml --python-version 3.11 --resolution lowest-direct $(LOWEST:%=--extra %) --no-annotate --no-header --output-file build/lowest.txt
	@uv venv --quiet --clear --python 3.11 .venv-lowest
	@grep -E "^($$($(PYTHON) tests/lowest_dependencies.py))(\[.*\])?==" build/lowest.txt > build/lowest-direct.txt
	@VIRTUAL_ENV=.venv-lowest uv pip install --quiet --group dev --constraint build/lowest-direct.txt --editable ".[$(subst $(space),$(comma),$(LOWEST))]"
	@touch $(LOWEST_READY)

check: $(READY) $(AGENTS_READY) $(DOCS_READY)  ## Check format, lint, types (the documents' too), the import sentence and the locks
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy || $(BIN)/mypy --num-workers=0  # on a busy machine its workers may not come up in time
	@$(BIN)/python -m tests.document_programs
	@$(BIN)/lint-imports --no-cache
	@! grep -n '://' requirements.lock tests/agents/requirements.lock benchmarks/requirements.lock docs/requirements.lock $(VENDORS)/package-lock.json $(PEERS)/package-lock.json $(BROWSER)/package-lock.json || { echo "a lock names an address"; exit 1; }

format: $(READY)  ## Put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

$(DOCS_READY): $(READY) docs/requirements.lock
	@echo "Installing what the book is made with (once; some seconds)"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement docs/requirements.lock
	@touch $(DOCS_READY)

docs: $(DOCS_READY)  ## Make the book of docs/, into build/docs; a broken link is an error
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --doctree-dir build/doctrees docs build/docs
	@echo "build/docs/index.html"

docs-serve: docs  ## Make it, and serve it at http://127.0.0.1:8001
	@$(BIN)/python -m http.server 8001 --bind 127.0.0.1 --directory build/docs

ifneq ($(filter setup check test,$(MAKECMDGOALS)),)
$(DOCS_READY): | $(AGENTS_READY)  # with several jobs too, only one installs into .venv at a time
endif

$(RIVALS_READY): $(READY) benchmarks/requirements.lock
	@echo "Installing what the memory is compared with"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement benchmarks/requirements.lock
	@touch $(RIVALS_READY)

bench: $(RIVALS_READY)  ## Run the benchmarks, into benchmarks/results
	@$(BIN)/python -m benchmarks server memory wire

bench-quick: $(RIVALS_READY)  ## Run the benchmarks in a minute, with few fixes and few samples, to the terminal alone
	@$(BIN)/python -m benchmarks --quick server memory wire

bench-fleet: $(RIVALS_READY)  ## Run those with a PostgreSQL and a Valkey of their own
	@$(BIN)/python -m benchmarks fleet

schemas: $(READY)  ## Write the JSON Schemas anew from the types
	@$(BIN)/python -m tests.schema_files

modules: $(READY)  ## Write the table of modules anew from their docstrings
	@$(BIN)/python -m tests.module_table

measured: $(READY)  ## Write the tables of kept runs in the documents anew from measured/
	@$(BIN)/python -m tests.measured_tables

lock: $(READY)  ## Resolve the dependencies anew (needs uv)
	uv export --quiet --all-groups --no-group bench --no-group agents --no-group docs --all-extras $(FRAMEWORKS:%=--no-extra %) --no-header --no-emit-project --output-file requirements.lock
	uv export --quiet --only-group agents --no-header --no-emit-project --output-file tests/agents/requirements.lock
	uv export --quiet --only-group docs --no-header --no-emit-project --output-file docs/requirements.lock
	uv export --quiet --only-group bench --no-header --no-emit-project --output-file benchmarks/requirements.lock
	for folder in $(VENDORS) $(PEERS) $(BROWSER); do (cd $$folder && $(CURDIR)/$(BIN)/npm install --package-lock-only --loglevel=error --no-audit --no-fund); done
	$(BIN)/python -m tests.npm_locks $(VENDORS) $(PEERS) $(BROWSER)

clean:  ## Remove everything that was made
	rm -rf .venv .venv-lowest .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist shelflife-demo $(VENDORS)/node_modules $(PEERS)/node_modules $(BROWSER)/node_modules $(BROWSER)/unpacked
