# A thin front of CMake: one word per job. `make help` lists them.
FUZZ ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
MAKEFLAGS += --no-print-directory
ifneq ($(shell command -v ninja 2>/dev/null),)
export CMAKE_GENERATOR ?= Ninja
endif

# $(call build,DIR,CMAKE_OPTIONS): set up, configure, build; everything unless a --target follows.
configure = cmake -S . -B $(1) $(2) >/dev/null
build = scripts/setup build && $(configure) && cmake --build $(1) --parallel $(shell nproc)
# gcc's TSan cannot start under the wide address randomisation of some kernels.
unrandomised = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: weir demo install uninstall test soak bench san mutants lint fuzz format clean help

weir: ## build build/weir (the default)
	@$(call build,build) --target weir

demo: weir ## build, then run the flagship example and check its result
	build/weir run examples/ag_matmul.weir --check

install: ## install under PREFIX (/usr/local): the command, libweir, headers, pkg-config and CMake files; DESTDIR
	@$(call build,build) --target weir_installed
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

uninstall: ## remove what `make install` installed last
	xargs -d '\n' rm -f < build/install_manifest.txt

test: ## build and run every suite: what every change must pass
	@$(call build,build)
	@scripts/test build

soak: ## the long tests: random programs for minutes, all places where a rank can die, MPI on four ranks
	@$(call build,build)
	@scripts/test build soak

bench: ## build and run the benchmarks
	@$(call build,build)
	@set -e; for b in $(patsubst %.c,build/%,$(wildcard bench/*.c)); do echo "$$b"; $$b; done
	@for rate in 1gbit 250mbit; do bench/overlap/run $$rate; done

san: ## every suite under ASan + UBSan, then under TSan
	@$(call build,build-asan,-DWEIR_SANITIZE=address$(comma)undefined)
	@scripts/test build-asan
	@$(call build,build-tsan,-DWEIR_SANITIZE=thread)
	@$(unrandomised) scripts/test build-tsan
comma := ,

mutants: ## plant mistakes in the sources; every one must fail a test (tests/mutants/table.md); MUTANTS=regex for some
	@scripts/setup build
	@scripts/mutants build-mutants $(MUTANTS)

lint: ## formatting, clang-tidy and the include law
	@scripts/setup lint
	@$(call configure,build)
	@scripts/lint build

fuzz: ## fuzz the targets FUZZ (all: host, machine, npy, parser, trace) for FUZZ_SECONDS (60) each
	@scripts/setup fuzz
	@$(call build,build-fuzz,-DWEIR_LIBFUZZER=ON -DCMAKE_C_COMPILER=clang) \
	  --target $(addprefix tests_fuzz_fuzz_,$(FUZZ))
	@scripts/fuzz build-fuzz $(FUZZ_SECONDS) $(FUZZ)

format: ## rewrite the sources in the house format
	@scripts/setup lint
	@find src include tools examples tests bench -name '*.[ch]' -exec clang-format -i {} +

clean: ## remove what was built
	rm -rf build build-asan build-tsan build-fuzz build-mutants

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s%s\n", $$1, $$2}' Makefile
