#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# gpucr-sim: a root is made, a program started in it with clean descriptors, its memory counted.
set -eu
tool=$1
samples=$2
driver_call=$3
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT

"$tool" create "$work/root" --gpus 2 --vram 512MiB copy_gbps=4.5 >"$work/env"
grep -qx "GPUCR_SIM_ROOT=$work/root" "$work/env"
grep -qx "LD_LIBRARY_PATH=$work/root/lib" "$work/env"
for node in nvidiactl nvidia-uvm nvidia0 nvidia1; do
    test -e "$work/root/dev/$node"
done
test -L "$work/root/usr/lib/x86_64-linux-gnu"
test -f "$work/root/usr/lib/x86_64-linux-gnu/libcuda.so.1"
if "$tool" create "$work/root" >/dev/null 2>&1; then
    echo "a root was made a second time"
    exit 1
fi

# Started with the environment of the root, and none of our descriptors.
exec 7<"$work/env"
pid=$("$tool" run "$work/root" --log "$work/log" --pidfile "$work/pid" -- \
    "$samples/counter" --mib 32 --device 1)
test "$pid" = "$(cat "$work/pid")"
tries=0
until grep -q '^ready ' "$work/log"; do
    tries=$((tries + 1))
    test "$tries" -lt 100
    sleep 0.1
done
if readlink "/proc/$pid/fd/7" | grep -q env; then
    echo "a descriptor was inherited"
    exit 1
fi
test "$(readlink "/proc/$pid/fd/0")" = /dev/null
test "$(readlink "/proc/$pid/fd/1")" = "$work/log"
"$tool" show "$work/root" >"$work/show"
grep -q "^gpu=1 pid=$pid bytes=" "$work/show"
grep -q '^gpu=0 .* used=0$' "$work/show"
kill -USR2 "$pid"
until ! kill -0 "$pid" 2>/dev/null || grep -q '^State:.Z' "/proc/$pid/status"; do
    sleep 0.1
done
grep -q '^verify .* bad=0 ' "$work/log"
"$tool" show "$work/root" | grep -q '^gpu=1 .* used=0$'
pid=

# In a pid namespace of its own, with the outer /proc: seen from here under its outer numbers.
if unshare --pid --fork true 2>/dev/null; then
    : >"$work/log"
    "$tool" run "$work/root" --log "$work/log" -- unshare --pid --fork --kill-child \
        "$samples/counter" --mib 32 >"$work/pid"
    pid=$(cat "$work/pid")
    tries=0
    until grep -q '^ready pid=1 ' "$work/log"; do
        tries=$((tries + 1))
        test "$tries" -lt 100
        sleep 0.1
    done
    inner=$(cat "/proc/$pid/task/$pid/children")
    inner=${inner% }
    call() {
        GPUCR_SIM_ROOT=$work/root LD_LIBRARY_PATH=$work/root/lib timeout 60 "$driver_call" "$@"
    }
    "$tool" show "$work/root" | grep -q "^gpu=0 pid=$inner bytes="
    tid=$(call "$inner" gettid | sed -n 's/^tid=\([0-9]*\) .*/\1/p')
    grep -q '^cuda' "/proc/$inner/task/$tid/comm"
    call --init "$inner" lock=5000 checkpoint >/dev/null
    "$tool" show "$work/root" | grep -q '^gpu=0 .* used=0$'
    call --init "$inner" restore unlock >/dev/null
    "$tool" show "$work/root" | grep -q "^gpu=0 pid=$inner bytes="
    kill -USR2 "$inner"
    until ! [ -d "/proc/$inner" ]; do
        sleep 0.1
    done
    grep -q '^verify .* bad=0 ' "$work/log"
    "$tool" show "$work/root" | grep -q '^gpu=0 .* used=0$'
    pid=
fi

# The exit status comes through, a missing program is named, the faults are listed.
status=0
"$tool" run "$work/root" --wait -- sh -c 'exit 7' >/dev/null || status=$?
test "$status" = 7
if "$tool" run "$work/root" -- "$work/nothing" >/dev/null 2>"$work/error"; then
    exit 1
fi
grep -q "cannot start $work/nothing" "$work/error"
"$tool" faults --list >"$work/faults"
for word in init getstate gettid lock checkpoint restore unlock memalloc launch crash poison; do
    grep -q "^$word" "$work/faults"
done
