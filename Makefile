# The usual way in. Everything real is in CMakeLists.txt and scripts/; `make help` lists the targets.
#
#   make run [PROMPT="..."]     a real model's answer         make test     every test
.DEFAULT_GOAL := build
.PHONY: build run test test-cuda parity models asan tsan aarch64 fuzz sweep goldens format lint bench install uninstall package clean help

# Taken literally, whatever characters it holds: no expansion by make, none by the shell.
unexport PROMPT
run: export TERN_PROMPT := $(value PROMPT)
unexport ONLY
parity: export TERN_ONLY := $(value ONLY)
FUZZ_RUNS ?= 2000000
PREFIX ?= /usr/local

build: ## build/tern, the libraries and the unit tests
	@scripts/setup.sh build test && scripts/build.sh build

run: ## answer PROMPT with the starter model, fetching it first
	@scripts/run-starter.sh

test: ## every test; its last line counts them
	@scripts/test.sh

test-cuda: build ## the cuda backend on this machine's GPU: kernels, models, properties, sanitizers
	@scripts/test-cuda.sh

parity: build ## every row of tests/parity/manifest in every format; ONLY=regex takes some
	@scripts/oracle.sh && build/oracle/bin/python tests/parity/run_live.py --full --jobs "$$(nproc)" --only "$$TERN_ONLY"

models: build ## docs/models.md from test results, after both selections of live comparisons
	@scripts/oracle.sh && for full in "" --full; do build/oracle/bin/python tests/parity/run_live.py $$full --jobs "$$(nproc)" || exit 1; done
	@python3 tests/parity/models_md.py

asan: ## unit tests under address and undefined-behaviour sanitizers
	@scripts/sanitize.sh asan

tsan: ## unit tests under the thread sanitizer
	@scripts/sanitize.sh tsan

aarch64: ## tests of the ops and the stored goldens on aarch64, under qemu
	@scripts/aarch64.sh

fuzz: ## every parser under libFuzzer, FUZZ_RUNS inputs each
	@scripts/sanitize.sh asan && scripts/fuzz.sh $(FUZZ_RUNS)

sweep: ## every tiny case of every model type over the reference; writes build/SWEEP.md
	@scripts/setup.sh test && scripts/oracle.sh && build/oracle/bin/python tests/oracle/sweep.py --out build/SWEEP.md --results build/sweep.json

goldens: ## make the committed goldens again, with the reference
	@scripts/setup.sh test && scripts/oracle.sh && build/oracle/bin/python tests/golden/make.py

format: ## clang-format all C files in place
	@scripts/setup.sh tools && scripts/format.sh

lint: ## clang-tidy over src/, format check
	@scripts/setup.sh build test tools && scripts/format.sh --check && scripts/lint.sh

bench: ## speed of the starter model
	@scripts/run-starter.sh --bench

install: ## program, library, man pages and completions under PREFIX (and DESTDIR)
	@scripts/setup.sh build && scripts/build.sh build && cmake --install build --prefix "$(PREFIX)"

uninstall: ## removes what install put under PREFIX
	@cmake "-DPREFIX=$(PREFIX)" -P cmake/uninstall.cmake

package: ## a Debian package of it, in build/package
	@scripts/package.sh

clean: ## remove build folders (models, the reference and all)
	rm -rf build build-asan build-tsan build-aarch64

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' Makefile | expand -t 10
