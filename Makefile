# What people type. The build itself is CMake's: see CMakePresets.json.
.DEFAULT_GOAL := help
.PHONY: help demo build test soak lint format format-check asan tsan fuzz engine

PRESET ?= release
SAMPLE ?= samples/a4-11pt.png
SECONDS_EACH ?= 60

cc_files = git ls-files '*.cc' '*.h'

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: ## install what is missing, build, read a sample page with the shipped model
	@tools/install-dependencies.sh build
	@$(MAKE) --no-print-directory build
	build/quire read $(SAMPLE)

build: ## the program: build/quire
	cmake --preset $(PRESET) -DQUIRE_TESTS=OFF
	cmake --build --preset $(PRESET)

test: ## install what is missing, build, run the tests (those named soak left out)
	@tools/install-dependencies.sh build test
	cmake --preset $(PRESET) -DQUIRE_TESTS=ON
	cmake --build --preset $(PRESET)
	ctest --preset $(PRESET)

soak: ## the long tests; `make test` first
	ctest --preset soak

asan: ## the tests with AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/install-dependencies.sh build test
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

tsan: ## the tests with ThreadSanitizer
	@tools/install-dependencies.sh build test
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan

fuzz: ## every fuzz target for SECONDS_EACH=60 seconds
	@tools/install-dependencies.sh build ci
	cmake --preset fuzz
	cmake --build --preset fuzz
	tests/fuzz/run.sh build-fuzz $(SECONDS_EACH)

engine: ## the engine library alone, with a compiler and CMake and no other package
	cmake --preset engine
	cmake --build --preset engine

lint: ## clang-tidy over all sources in C++ (clang 14 does not know CUDA 13)
	@tools/install-dependencies.sh build test ci
	cmake --preset dev
	run-clang-tidy -quiet -p build-dev -extra-arg=-Wno-unknown-warning-option '\.cc$$' >build-dev/lint.log 2>&1 || { grep -A3 -E 'error:|warning:' build-dev/lint.log; exit 1; }

format: ## clang-format over all sources
	$(cc_files) | xargs clang-format -i

format-check: ## are all sources as clang-format writes them?
	$(cc_files) | xargs clang-format --dry-run -Werror
