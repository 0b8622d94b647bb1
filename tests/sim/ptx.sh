#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The kernels of the samples are PTX that the assembler takes, for old and new GPUs.
set -eu
counter=$1
ptxas=$(command -v ptxas || true)
[ -n "$ptxas" ] || ptxas=/usr/local/cuda/bin/ptxas
if [ ! -x "$ptxas" ]; then
    echo "skipped: there is no ptxas here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$counter" --print-ptx >"$work/sample.ptx"
for gpu in sm_75 sm_80 sm_90; do
    "$ptxas" -arch=$gpu "$work/sample.ptx" -o "$work/sample.cubin"
    test -s "$work/sample.cubin"
done
for kernel in gpucr_fill gpucr_check gpucr_increment gpucr_spin; do
    grep -q "entry $kernel" "$work/sample.ptx"
done
