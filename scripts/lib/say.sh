# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Messages of the scripts. All of them go to stderr: stdout carries results.

quiet=${quiet:-0}
program=${0##*/}

say() {
    [[ $quiet -eq 1 ]] || printf '%s: %s\n' "$program" "$*" >&2
}

warn() {
    printf '%s: %s\n' "$program" "$*" >&2
}

die() {
    warn "$*"
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# need COMMAND PACKAGE WHY: stops, naming the package that brings the command.
need() {
    have "$1" || die "$1 is missing; it is needed to $3. Install it: apt-get install $2"
}
