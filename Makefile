# Front door; the build itself is CMake with presets (CMakePresets.json, docs/building.md).
# Works on a fresh Debian 12: installs the packages it names, as root or through sudo.
# Not parallel by itself: every step uses all cores.
.NOTPARALLEL:
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# Compilers of this code need up to 1.5 GB each.
JOBS ?= $(shell awk -v n=$$(nproc) '/MemAvailable/ {m = int($$2 / 1500000); \
          print (m < 1 ? 1 : m < n ? m : n)}' /proc/meminfo)
FUZZ_SECONDS ?= 30
PREFIX ?= /usr/local
CAMPAIGN_SECONDS ?= 3600
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)
# What ccache asks for before it caches compilations that use a precompiled header.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
# A file that is not in the cache is not preprocessed twice: the compiler's list of included files
# makes the key.
export CCACHE_DEPEND ?= 1
# A clone in another folder shares the cache.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

# $(call step,NAME,COMMANDS): runs COMMANDS and prints how long they took.
step = @start=$$SECONDS; echo "--- $(1)"; { $(2); } && echo "--- $(1): $$((SECONDS - start)) s"

.PHONY: help
help:
	@echo "make demo      install packages, build, serve the demo model and chat with it"
	@echo "make build     the release binary at build/sluice"
	@echo "make install   program, manual, completions and a systemd unit below PREFIX ($(PREFIX)); DESTDIR"
	@echo "make package   a Debian package in build/packages"
	@echo "make dist      build/sluice-gpu: binary, GPU tests and libraries for a machine with a GPU"
	@echo "make test      every unit, parity, golden and integration test, tidy, format check,"
	@echo "               on the binary and the libraries that make build makes"
	@echo "make asan      the tests of the libraries under the address and undefined-behaviour sanitizers"
	@echo "make asan-all  the same with the tests of the program and of its clients"
	@echo "make tsan      the tests of threaded code under the thread sanitizer"
	@echo "make fuzz      each fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) seconds"
	@echo "make campaign NAME=scheduler|fuzz|fuzz-TARGET|kill|kv-kill|gateway-kill|agent-kill|etcd-kill|ray-kill|gateway-soak|"
	@echo "               soak|snapshot-kill|clients|lend-pages|lend-partition|lend-clock|agent-partition|etcd|three-hosts"
	@echo "               one long test for CAMPAIGN_SECONDS ($(CAMPAIGN_SECONDS)) seconds; SEED repeats it"
	@echo "make tidy      include directions, sizes, words (tools/tidy.py)"
	@echo "make format    format all C++ files in place"
	@echo "make lint      clang-tidy over all code but tests (minutes); LINT=quick: no static analyzer"
	@echo "make venv-clients   litellm, LangChain, LlamaIndex and llm, for one of the client tests;"
	@echo "               venv-agents, venv-libraries, venv-lm-eval, venv-guidellm and venv-aiperf are for one test each"
	@echo "make venv-oracles   Python environment for golden files and training"
	@echo "make clean     remove build/"
	@echo "JOBS=$(JOBS) compilers at once; SLUICE_NO_INSTALL=1 leaves packages to you"

# ---------------------------------------------------------------- release and demo

.PHONY: packages-build packages-test packages-dist packages-fuzz packages-package
packages-build:
	@tools/install.sh build
packages-test:
	@tools/install.sh build test
packages-dist:
	@tools/install.sh build test bench
packages-package:
	@tools/install.sh build package
packages-fuzz:
	@tools/install.sh build fuzz

.PHONY: build
build: packages-build
	$(call step,configure release,cmake --preset release -DSLUICE_TESTS=OFF >/dev/null)
	$(call step,build release,cmake --build --preset release -j$(JOBS) --target sluice)
	@ln -sfn release/apps/sluice build/sluice

DEMO_PROMPT ?= Tell me a story about a little boat and the sea.
.PHONY: demo
demo: build
	@tools/demo.sh build/sluice models/demo "$(DEMO_PROMPT)"

# ---------------------------------------------------------------- for other machines

# $(call files_for,PREFIX): builds what is installed below PREFIX.
define files_for
	$(call step,configure release,cmake --preset release -DSLUICE_TESTS=OFF \
	  -DCMAKE_INSTALL_PREFIX=$(1) >/dev/null)
	$(call step,build release,cmake --build --preset release -j$(JOBS) --target to_install)
endef

.PHONY: install package
install: packages-package
	$(call files_for,$(PREFIX))
	@DESTDIR="$(DESTDIR)" cmake --install build/release --strip

package: packages-package
	$(call files_for,/usr)
	@cd build/release && cpack --config CPackConfig.cmake
	@rm -rf build/packages/_CPack_Packages; ls build/packages/*.deb

# ---------------------------------------------------------------- for a machine with a GPU

.PHONY: dist
dist: packages-dist
	$(call step,configure dist,cmake --preset dist >/dev/null)
	$(call step,build dist,cmake --build --preset dist -j$(JOBS) --target sluice parity_test \
	  cuda_models_test device_cuda_test ops_bench)
	@tools/make_dist.sh build/dist build/sluice-gpu

# ---------------------------------------------------------------- tests

# $(call preset_tests,PRESET,TARGET,CTEST OPTIONS)
define preset_tests
	$(call step,configure $(1),cmake --preset $(1) -DSLUICE_TESTS=ON >/dev/null)
	$(call step,build $(1),cmake --build --preset $(1) -j$(JOBS) --target $(2))
	$(call step,test $(1),ctest --preset $(1) -j$(JOBS) --output-junit junit.xml $(3))
endef

.PHONY: test test-release asan asan-all tsan
test: test-release format-check

test-release: packages-test client-venv
	$(call preset_tests,release,all,)

asan: packages-test client-venv
	$(call preset_tests,asan-ubsan,library_tests,-LE 'style|browser|memory|client|binary' -E NOT_BUILT)

asan-all: packages-test client-venv
	$(call preset_tests,asan-ubsan,all,-LE 'style|browser|memory')

tsan: packages-test
	$(call preset_tests,tsan,thread_tests,-L threads)

.PHONY: fuzz
fuzz: packages-fuzz
	$(call step,configure fuzz,cmake --preset fuzz >/dev/null)
	$(call step,build fuzz,cmake --build --preset fuzz -j$(JOBS) --target fuzz_targets)
	$(call step,fuzz,tools/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(JOBS))

.PHONY: campaign
campaign:
	$(call step,campaign $(NAME),tools/campaign.sh "$(NAME)" $(CAMPAIGN_SECONDS) $(JOBS) $(SEED))

# ---------------------------------------------------------------- style

.PHONY: tidy format format-check lint
tidy:
	@python3 tools/tidy.py
	@cd tools && python3 -m unittest -q tidy_test tidy_prose_test gpu_check_test paper_tables_test \
	  manuals_test

# The files git tracks, so that a scratch file breaks nobody's build.
CPP_FILES = git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh'

format: build/venv/dev.stamp
	@$(CPP_FILES) | xargs -0 -r build/venv/bin/clang-format -i

format-check: build/venv/dev.stamp
	$(call step,format check,$(CPP_FILES) | \
	  xargs -0 -r -P$(JOBS) -n50 build/venv/bin/clang-format --dry-run -Werror || \
	  { echo "run: make format"; exit 1; })

# LINT=quick leaves out the static analyzer, which takes half of the time.
LINT ?= all
lint: packages-test build/venv/lint.stamp
	$(call step,configure,cmake --preset release -DSLUICE_TESTS=ON >/dev/null)
	$(call step,lint,tools/lint.py --jobs $(JOBS) --checks $(LINT))

# Without PyPI the tests of tests/client are skipped, as ctest shows, and the others run.
.PHONY: client-venv
client-venv:
	@$(MAKE) --no-print-directory build/venv/client.stamp || \
	  echo "no packages for tests/client: its tests will be skipped" >&2

build/venv/%.stamp: tools/requirements-dev.txt tools/requirements-lint.txt \
                    tools/requirements-client.txt tools/requirements-client-nodeps.txt
	@tools/install.sh test
	@test -x build/venv/bin/pip || { mkdir -p build; python3 -m venv build/venv; }
	@build/venv/bin/pip -q --disable-pip-version-check install --no-compile -r tools/requirements-$*.txt
	@test ! -f tools/requirements-$*-nodeps.txt || build/venv/bin/pip -q \
	  --disable-pip-version-check install --no-compile --no-deps -r tools/requirements-$*-nodeps.txt
	@touch $@

# ---------------------------------------------------------------- Python for golden files, training

.PHONY: venv-oracles
venv-oracles: build/venv-oracles/stamp
build/venv-oracles/stamp: tools/requirements.txt
	@tools/install.sh test
	@test -x build/venv-oracles/bin/pip || { mkdir -p build; python3 -m venv build/venv-oracles; }
	build/venv-oracles/bin/pip --disable-pip-version-check install -r tools/requirements.txt
	@touch $@

# Clients that people use, for tests/client: venv-clients 450 MB, a minute; agents 250 MB; libraries 1 GB; lm-eval 1 GB;
# aiperf 700 MB; guidellm 6 GB. CI has none of them.
OTHER_VENVS = venv-clients venv-agents venv-libraries venv-lm-eval venv-guidellm venv-aiperf
.PHONY: $(OTHER_VENVS)
$(OTHER_VENVS): %: build/%/stamp
$(OTHER_VENVS:%=build/%/stamp): \
    build/venv-%/stamp: tools/requirements-%.txt
	@tools/install.sh test
	@test -x build/venv-$*/bin/pip || { mkdir -p build; python3 -m venv build/venv-$*; }
	build/venv-$*/bin/pip -q --disable-pip-version-check install --no-compile \
	  -r tools/requirements-$*.txt
	@touch $@

# Ray, for make campaign NAME=ray-kill: 250 MB.
.PHONY: venv-ray
venv-ray: build/venv-ray/stamp
build/venv-ray/stamp: examples/ray/requirements.txt
	@tools/install.sh test
	@test -x build/venv-ray/bin/pip || { mkdir -p build; python3 -m venv build/venv-ray; }
	build/venv-ray/bin/pip -q --disable-pip-version-check install --no-compile -r $<
	@touch $@

.PHONY: clean
clean:
	rm -rf build
