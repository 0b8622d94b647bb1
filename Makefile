# SPDX-License-Identifier: LGPL-2.1-or-later
# The whole set-up in a few targets. Each installs what it needs (as root on
# Debian and Ubuntu; otherwise it says what is missing), builds and runs.
#
#   make demo     the main job: a program is checkpointed, killed, restored, verified
#   make check    all tests
#   make bench    figures, as ratios within one run
#   make build    the release build in build/release
#   make portable the command with the distribution's libraries linked in
#   make install  to PREFIX (default /usr/local)

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)

.PHONY: all build demo check bench install portable clean

all: build

build:
	@scripts/install-deps --for build
	@scripts/build release $(JOBS)

demo:
	@scripts/install-deps --for build
	@scripts/get-criu --quiet >/dev/null
	@scripts/build release $(JOBS)
	@scripts/demo

check:
	@scripts/install-deps --for check
	@scripts/get-criu --quiet >/dev/null
	@scripts/check-all $(JOBS)

bench:
	@scripts/install-deps --for bench
	@scripts/get-criu --quiet >/dev/null
	@scripts/build release $(JOBS)
	@bench/run build/release

portable:
	@scripts/install-deps --for build
	@scripts/build portable $(JOBS)

install: build
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

clean:
	rm -rf build/release build/dev build/fuzz build/tsan build/portable
