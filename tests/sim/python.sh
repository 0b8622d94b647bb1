#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The Python samples compile; they need a GPU to run.
set -eu
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3 here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0
for program in "$1"/*.py; do
    test -s "$program"
    PYTHONPYCACHEPREFIX=$work python3 -m py_compile "$program"
    found=$((found + 1))
done
test "$found" -ge 2
