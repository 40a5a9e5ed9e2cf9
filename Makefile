# Everything a newcomer needs: `make demo` shows the whole chain, `make test` proves it.
.POSIX:
export PYTHONDONTWRITEBYTECODE =
PYTHON_BIN = .venv/bin/python
KIND = cel
DIR = cases/$(KIND)

.PHONY: help setup demo test e2e check bench bench-allocation fuzz fuzz-cdi vectors conformance docs clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null || true

setup: ## make .venv (done by every other target)
	@tools/setup

demo: setup ## an embedded cluster with a simulated DGX H100, and a tour with real kubectl
	@$(PYTHON_BIN) -m tools.demo

test: setup ## every test
	@$(PYTHON_BIN) tools/kubectl.py 1.34 1.37 helm3 helm4 > /dev/null
	@$(PYTHON_BIN) -m pytest -n 2 --dist loadgroup --cov --cov-report=term:skip-covered $(PYTEST)

e2e: setup ## the driver on a real Kubernetes 1.37, built from source once (root, runc, Go; 8 minutes the first time)
	@$(PYTHON_BIN) tools/kubectl.py 1.37 helm3 helm4 > /dev/null
	@$(PYTHON_BIN) -m tools.realkube
	@$(PYTHON_BIN) -m pytest tests/e2e -m realkube --timeout=300 --durations=10 $(PYTEST)

check: setup ## style, types, layers, generated code
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PYTHON_BIN) tools/protobuf.py --check

bench: setup ## figures, printed as tables
	@$(PYTHON_BIN) -m bench

vectors: setup ## run a folder of cases: make vectors KIND=cel DIR=folder
	@$(PYTHON_BIN) -m tools.vectors $(KIND) $(DIR)

bench-allocation: setup ## race the allocator against upstream's: make bench-allocation DIR=folder
	@$(PYTHON_BIN) -m bench.allocation $(if $(filter command line,$(origin DIR)),$(DIR))

fuzz: setup ## race allocator, CEL and GPUs' slices against the upstream libraries: make fuzz SECONDS=120 SEED=1
	@$(PYTHON_BIN) -m tools.fuzz_race --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

fuzz-cdi: setup ## damaged CDI files for two minutes, nothing but clear errors: make fuzz-cdi SECONDS=120 SEED=1
	@$(PYTHON_BIN) -m tools.fuzz_cdi --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

conformance: setup ## run a folder of recorded conversations: make conformance DIR=folder
	@$(PYTHON_BIN) -m tools.conformance $(DIR)

docs: setup ## run every command block of README and docs and compare its output
	@$(PYTHON_BIN) -m tools.docs

clean: ## remove what the other targets made
	rm -rf .venv .cache build dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
