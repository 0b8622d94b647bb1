#!/usr/bin/env bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# smoke.sh: a first look at a machine with a GPU, by hand, with everything printed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
export GPUCR_CRIU=${GPUCR_CRIU:-$PWD/build/criu/criu} GPUCR_STATE_DIR=/tmp/gpucr-state
bin=${GPUCR_BUILD:-build/carry}
timeout 60 "$bin/gpucr" check
setsid "$bin/counter" --gib 1 </dev/null >/tmp/counter.out 2>&1 &
sleep 4
pid=$(sed -n 's/^ready pid=\([0-9]*\).*/\1/p' /tmp/counter.out)
cat /tmp/counter.out
timeout 60 "$bin/gpucr" list
timeout 60 "$bin/gpucr" check --pid "$pid"
timeout 90 "$bin/gpucr" suspend --pid "$pid" -vv
nvidia-smi --query-gpu=memory.used --format=csv
timeout 60 "$bin/gpucr" list
timeout 90 "$bin/gpucr" resume --pid "$pid" -vv
kill -USR1 "$pid"; sleep 2; tail -1 /tmp/counter.out
timeout 120 "$bin/gpucr" checkpoint --pid "$pid" -o /tmp/image -v
timeout 60 "$bin/gpucr" image inspect /tmp/image
timeout 120 "$bin/gpucr" restore /tmp/image -v
kill -USR1 "$pid"; sleep 2; tail -1 /tmp/counter.out
kill -9 "$pid"
