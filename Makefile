# The front door. Each target is a line or two over the CMake presets and scripts/.
.PHONY: help setup run test bench docs install format
PREFIX ?= /usr/local
RUN ?=
BENCH ?=
SANITIZERS ?= asan-ubsan tsan
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell scripts/jobs)
configure = cmake --preset release --log-level=WARNING
release = $(configure) $(1) && cmake --build --preset release

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1@/p' $(MAKEFILE_LIST) | expand -t 4 | awk -F@ '{printf "%-16s%s\n", $$1, $$2}'

setup: ## install the packages that are missing (Debian and its kin); nothing when all is there
	@scripts/setup build

run: setup ## build, then draw build/clip.gif with the video transformer; RUN="--steps 8" passes options
	@$(configure) && cmake --build --preset release --target video_dit attn_command
	build/release/bin/video-dit --out build/clip.gif $(RUN)

test: setup ## all tests: plain, with address and undefined-behaviour sanitizers, with the thread sanitizer
	@scripts/test release $(SANITIZERS)

bench: setup ## speed on real models' shapes beside this machine's ceiling; BENCH="--json" passes options
	@$(configure) && cmake --build --preset release --target attn_command
	build/release/bin/attn bench $(BENCH)

docs: setup ## print the reference pages into docs/reference
	@$(configure) && cmake --build --preset release --target attn_command
	build/release/bin/attn docs --write docs/reference

install: setup ## install below PREFIX (/usr/local); DESTDIR stages it
	@$(call release,-DCMAKE_INSTALL_PREFIX=$(PREFIX))
	DESTDIR=$(DESTDIR) cmake --install build/release

format: ## lay out all C files
	@scripts/setup format
	@scripts/format
