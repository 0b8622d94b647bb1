#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# A checkpointed program is ordinary memory and ordinary descriptors: CRIU saves it, it is killed,
# comes back under its pid, and goes on.
set -eu
sim=$1
criu=${GPUCR_CRIU:-}
for candidate in "$sim/../criu/criu" "$(dirname "$0")/../../build/criu/criu" \
    "$(command -v criu || true)"; do
    [ -z "$criu" ] && [ -n "$candidate" ] && [ -x "$candidate" ] && criu=$candidate
done
if [ -z "$criu" ]; then
    echo "skipped: there is no criu here"
    exit 77
fi
if [ "$(id -u)" != 0 ] || ! timeout 20 "$criu" check >/dev/null 2>&1; then
    echo "skipped: $criu cannot work here"
    exit 77
fi

work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
root=$work/root
"$sim/bin/gpucr-sim" create "$root" >/dev/null

call() {
    GPUCR_SIM_ROOT=$root LD_LIBRARY_PATH=$root/lib timeout 60 "$sim/tests/driver_call" "$@"
}

await() {
    tries=0
    until [ "$(grep -c "$1" "$work/log")" -ge "$2" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 200 ]; then
            cat "$work/log"
            exit 1
        fi
        sleep 0.1
    done
}

: >"$work/log"
# Its parent must reap it, or its pid is not free: so it is a child of a waiting gpucr-sim.
"$sim/bin/gpucr-sim" run "$root" --log "$work/log" --pidfile "$work/pid" --wait -- \
    "$sim/samples/counter" --mib 96 --vmm --threads 8 --pinned-poll 4194304 --timer-us 1000 \
    --nvml >/dev/null 2>&1 &
await '^ready ' 1
pid=$(cat "$work/pid")
verified=0
for round in 1 2; do
    kill -USR1 "$pid"
    verified=$((verified + 1))
    await '^verify ' "$verified"
    call "$pid" lock=10000
    call --hold "$pid" checkpoint
    mkdir "$work/image$round"
    CRIU_FAULT=130 timeout 60 "$criu" dump -t "$pid" -D "$work/image$round" -o dump.log -v4 || {
        echo "dump failed with $?"
        tail -n 30 "$work/image$round/dump.log"
        exit 1
    }
    tries=0
    while [ -d "/proc/$pid" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 50 ]; then
            # Restored processes belong to pid 1, which may take its time to reap them.
            echo "skipped after round $((round - 1)): nobody reaps $pid"
            [ "$round" -gt 1 ] && exit 0
            exit 77
        fi
        sleep 0.1
    done
    CRIU_FAULT=130 timeout 60 "$criu" restore -d -D "$work/image$round" -o restore.log -v4 || {
        echo "restore failed with $?"
        tail -n 30 "$work/image$round/restore.log"
        exit 1
    }
    # Let go by criu, it stops by itself, but not at once.
    tries=0
    until grep -q '^State:.T' "/proc/$pid/status"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 50 ]; then
            grep '^State' "/proc/$pid/status"
            exit 1
        fi
        sleep 0.05
    done
    call --init --hold "$pid" restore unlock
    kill -CONT "$pid"
    "$sim/bin/gpucr-sim" show "$root" | grep -q "pid=$pid "
done
sleep 0.3
kill -USR2 "$pid"
await '^verify ' $((verified + 1))
if grep '^verify ' "$work/log" | grep -vq ' bad=0 pinned_bad=0 .* thread_bad=0 '; then
    cat "$work/log"
    exit 1
fi
# The counter has gone up from one line to the next, and CPU and GPU agree about it.
awk '/^verify / {
    for (i = 2; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] }
    if (value["counter"] != value["expected"] || value["counter"] <= last) exit 1
    last = value["counter"]
}' "$work/log"
pid=
