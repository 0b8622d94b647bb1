# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Whether a criu can dump and restore a small process on this kernel.
#
# criu --version and criu check say little about that: a criu may pass both and
# then fail on the kernel's vdso, or stop for ever in a virtual machine whose
# hardware breakpoints never fire. So a process of our own is dumped and restored.
# With GPUCR_KEEP_SMOKE=1 the images and logs of that are kept.

: "${smoke_child:?set it to the path of criu-smoke}"

# Set by smoke_criu, read by get-criu:
smoke_fault=unknown         # needs CRIU_FAULT=130: yes, no, unknown (not tested)
smoke_plain="not tested"    # how the try without CRIU_FAULT ended
smoke_faulted="not tested"  # how the try with CRIU_FAULT=130 ended

# Set by smoke_try:
smoke_why=
smoke_dump_ms=0
smoke_restore_ms=0

now_ms() {
    local now=${EPOCHREALTIME//[^0-9]/}
    echo $((now / 1000))
}

# smoke_last LOG: the last line of a criu log.
smoke_last() {
    local line
    line=$(tail -n 1 "$1" 2>/dev/null || true)
    printf '%s' "${line:-none, there is no log}"
}

# smoke_reason LOG: the first error in a criu log, without time and source line. Two
# are no reason: criu goes on without CAP_SYS_RESOURCE (RLIMIT_NOFILE) and without
# the programs that it tries (iptables: "exited, status=1").
smoke_reason() {
    local line
    line=$(grep -a 'Error (' "$1" 2>/dev/null | grep -avE 'RLIMIT_NOFILE|exited, status=' |
        head -n 1 | sed -E 's/^.*Error \([^)]*\): //' || true)
    printf '%s' "${line:-$(smoke_last "$1")}"
}

# smoke_call LIMIT FAULT DIR NAME COMMAND...: one bounded criu call. 0, or 1 with
# the reason in $smoke_why.
smoke_call() {
    local limit=$1 fault=$2 dir=$3 name=$4 rc=0
    shift 4
    # SIGKILL must follow: a hanging criu can ignore SIGTERM.
    (
        cd "$dir"
        if [[ -n $fault ]]; then export CRIU_FAULT=$fault; else unset CRIU_FAULT; fi
        exec timeout --kill-after=1 "$limit" "$@"
    ) </dev/null >"$dir/$name.out" 2>&1 || rc=$?
    case $rc in
        0) return 0 ;;
        124 | 137) smoke_why="$name hangs, killed after $limit s; its last words: $(
            smoke_last "$dir/img/$name.log")" ;;
        126 | 127) smoke_why="$name could not be started: $(head -n 1 "$dir/$name.out")" ;;
        *) smoke_why="$name ended with status $rc: $(smoke_reason "$dir/img/$name.log")" ;;
    esac
    return 1
}

# smoke_count DIR NONCE ABOVE: waits up to 3 s for a count above ABOVE; prints it.
smoke_count() {
    local nonce count tries
    for ((tries = 0; tries < 150; tries++)); do
        if { read -r nonce count <"$1/count"; } 2>/dev/null &&
            [[ $nonce == "$2" && $count -gt $3 ]]; then
            echo "$count"
            return 0
        fi
        sleep 0.02
    done
    return 1
}

# smoke_gone PID: waits up to 2 s until PID is reaped (bash does that for its
# children): the restore needs the process id.
smoke_gone() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [[ -e /proc/$1 ]] || return 0
        sleep 0.02
    done
    return 1
}

# smoke_round CRIU FAULT LIMIT DIR PID NONCE: dump, check that it is gone, restore,
# check that it counts on from where it was.
smoke_round() {
    local criu=$1 fault=$2 limit=$3 dir=$4 pid=$5 nonce=$6 before start
    local args=(--no-default-config --libdir "$dir/plugins" --images-dir "$dir/img" -v4)
    before=$(smoke_count "$dir" "$nonce" 3) || {
        smoke_why="the test process did not start"
        return 1
    }
    start=$(now_ms)
    smoke_call "$limit" "$fault" "$dir" dump \
        "$criu" dump "${args[@]}" --log-file dump.log --tree "$pid" || return 1
    smoke_dump_ms=$(($(now_ms) - start))
    smoke_gone "$pid" || { smoke_why="the dumped process is still there"; return 1; }
    read -r _ before <"$dir/count" || before=0
    rm -f "$dir/count"
    start=$(now_ms)
    smoke_call "$limit" "$fault" "$dir" restore \
        "$criu" restore "${args[@]}" --log-file restore.log --restore-detached || return 1
    smoke_restore_ms=$(($(now_ms) - start))
    smoke_count "$dir" "$nonce" "$((before + 3))" >/dev/null || {
        smoke_why="criu reports success, but the restored process does not go on"
        return 1
    }
}

# smoke_try CRIU FAULT LIMIT: one dump and restore; 0, or 1 with $smoke_why.
smoke_try() {
    local dir pid nonce rc=0
    dir=$(mktemp -d "${TMPDIR:-/tmp}/criu-smoke.XXXXXX")
    mkdir "$dir/img" "$dir/plugins"
    nonce=$RANDOM$RANDOM$RANDOM
    "$smoke_child" run "$dir" "$nonce" </dev/null >/dev/null 2>&1 &
    pid=$!
    disown "$pid" # else bash reports on stderr that it was killed
    smoke_why=
    smoke_round "$1" "$2" "$3" "$dir" "$pid" "$nonce" || rc=1
    # The pid is the child's or its restored self's: both write in $dir as their cwd.
    if [[ $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$dir" ]]; then
        kill -KILL "$pid" 2>/dev/null || true
    fi
    if [[ -n ${GPUCR_KEEP_SMOKE:-} ]]; then say "kept $dir"; else rm -rf "$dir"; fi
    return $rc
}

# smoke_outcome CRIU FAULT LIMIT: prints how one try ended.
smoke_outcome() {
    if smoke_try "$1" "$2" "$3"; then
        echo "works (dump $smoke_dump_ms ms, restore $smoke_restore_ms ms)"
    else
        echo "fails: $smoke_why"
    fi
}

# smoke_criu CRIU BREAKPOINTS: tries without and with CRIU_FAULT=130, criu's switch
# for "no hardware breakpoints". 0 if one of them works.
# shellcheck disable=SC2034 # smoke_fault is read by get-criu
smoke_criu() {
    local criu=$1 limit=30
    # Where they are dead, criu before 4.2 waits for one for ever. A dump of the
    # test process takes well under 1 s, so waiting 30 s would show no more.
    [[ $2 != dead* ]] || limit=5
    smoke_plain=$(smoke_outcome "$criu" "" "$limit")
    say "  without CRIU_FAULT:  $smoke_plain"
    smoke_faulted=$(smoke_outcome "$criu" 130 30)
    say "  with CRIU_FAULT=130: $smoke_faulted"
    smoke_fault=yes
    [[ $smoke_plain != works* ]] || smoke_fault=no
    [[ $smoke_plain == works* || $smoke_faulted == works* ]]
}
