#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""While a program is suspended the world goes on: the shell that started it exits,
somebody sends SIGCONT, timers fire and signals arrive. Nothing is lost, or it was
refused beforehand by name."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import (alive, all_stopped, check, processes, run_tests, skip_test,
                     thread_states, wait_until)


def can_freeze(machine, pid):
    """Is there a cgroup v2 that gpucr can freeze?"""
    probe = machine.gpucr("suspend", "--pid", pid, "--force", "weak-hold", expect=None)
    if probe["status"] != 0:
        return False
    frozen = "gpucr-" in open(f"/proc/{pid}/cgroup", encoding="utf-8").read()
    machine.gpucr("resume", "--pid", pid)
    return frozen


def sigcont_does_not_wake(machine):
    program = machine.counter("--mib", "16", "--pinned-poll", "1048576")
    if not can_freeze(machine, program.pid):
        skip_test("no writable cgroup v2 here: a SIGCONT cannot be withstood, gpucr warns of it")
    before = program.goes_on()
    machine.gpucr("suspend", "--pid", program.pid)
    for _ in range(20):
        os.kill(program.pid, signal.SIGCONT)
        time.sleep(0.01)
    check(alive(program.pid), "the program died of SIGCONT")
    machine.gpucr("resume", "--pid", program.pid)
    check(program.goes_on() > before, "does not go on")


def signals_and_timer_survive(machine):
    program = machine.counter("--mib", "16", "--timer-us", "1000", "--term-counter")
    before = program.verify()[0]
    for _ in range(3):
        machine.gpucr("suspend", "--pid", program.pid)
        os.kill(program.pid, signal.SIGTERM)
        time.sleep(0.05)
        check(alive(program.pid), "died while suspended")
        machine.gpucr("resume", "--pid", program.pid)
        time.sleep(0.05)
    after = program.verify()[0]
    check(int(after["term"]) == int(before["term"]) + 3, f"SIGTERM was lost: {before} {after}")
    check(int(after["timer"]) > int(before["timer"]), "the timer does not fire any more")
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    time.sleep(0.05)
    last = program.verify()[0]
    check(int(last["timer"]) > int(after["timer"]), "the timer was lost by the restore")


def shell_exits(machine):
    """A job of an interactive-like shell: a process group of its own in the shell's session."""
    log = machine.path("shell-out")
    script = (f"set -m; {machine.tool('counter')} --mib 16 </dev/null >{log} 2>&1 & "
              f"echo $!; read line; exit 0")
    shell = subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, start_new_session=True,
                             env=machine.env())
    pid = int(shell.stdout.readline())
    try:
        wait_until(lambda: os.path.exists(log) and "ready" in open(log, encoding="utf-8").read(),
                   30, "ready")
        result = machine.gpucr("suspend", "--pid", pid, expect=None)
        if result["status"] == 2:
            check(result["error"]["finding"] == "orphanable-group", result["error"])
            check(alive(pid) and not all_stopped(pid), "refused, but the program was touched")
            return
        check(result["status"] == 0, result)
        shell.stdin.write("\n")
        shell.stdin.close()
        shell.wait(10)
        time.sleep(0.2)
        check(alive(pid), "the exit of the shell ended the suspended program")
        before = open(log, encoding="utf-8").read().count("verify")
        machine.gpucr("resume", "--pid", pid)
        # The kernel's SIGHUP of an orphaned group arrives at the thaw if the stop was lost.
        time.sleep(0.2)
        check(alive(pid), "ended after the resume")
        os.kill(pid, signal.SIGUSR1)
        wait_until(lambda: open(log, encoding="utf-8").read().count("verify") > before, 20,
                   "verifies after the resume")
        check(" bad=0" in open(log, encoding="utf-8").read(), "memory differs")
    finally:
        shell.kill()
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def owner_stopped(machine):
    program = machine.counter("--mib", "16")
    before = program.goes_on()
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(lambda: all_stopped(program.pid), 5, "stopped by its owner")
    for _ in range(3):
        result = machine.gpucr("suspend", "--pid", program.pid)
        check(processes(result)[program.pid]["was_stopped"], result)
        check(all_stopped(program.pid), "was let run")
        result = machine.gpucr("resume", "--pid", program.pid)
        check(processes(result)[program.pid]["state_after"] == "stopped", result)
        check(all_stopped(program.pid), "the owner's stop was lost")
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    result = machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    check(processes(result)[program.pid]["state_after"] == "stopped", result)
    check(all_stopped(program.pid), "the owner's stop was lost by the restore")
    os.kill(program.pid, signal.SIGCONT)
    check(program.goes_on() > before, "does not go on")


def pinned_poller_survives(machine):
    """A thread polls pinned memory, which the driver unmaps: it dies if it is let run."""
    program = machine.counter("--mib", "16", "--pinned-poll", "4194304", "--threads", "8")
    before = program.goes_on()
    for _ in range(10):
        machine.gpucr("suspend", "--pid", program.pid)
        time.sleep(0.02)
        machine.gpucr("resume", "--pid", program.pid)
    check(program.goes_on() > before, "does not go on")


def namespace_init_is_refused(machine):
    """gpucr inside a pid namespace, the target its first process."""
    if os.geteuid() != 0:
        skip_test("needs root for a pid namespace")
    gpucr = machine.tool("gpucr")
    command = (f"mount -t proc proc /proc; (sleep 3; "
               f"{gpucr} suspend --pid 1 --json >{machine.path('json')} 2>/dev/null; "
               f"echo $? >{machine.path('status')}) & "
               f"exec {machine.tool('counter')} --mib 16")
    program = machine.start("unshare", "--pid", "--fork", "--mount", "sh", "-c", command)
    wait_until(lambda: os.path.exists(machine.path("status")), 20, "gpucr inside has ended")
    time.sleep(0.1)
    status = open(machine.path("status"), encoding="utf-8").read().strip()
    text = open(machine.path("json"), encoding="utf-8").read()
    check(status == "2" and "namespace-init" in text, f"status {status}: {text[-800:]}")
    check("T" not in thread_states(program.pid), "was stopped")


def inside_namespace_works(machine):
    """gpucr inside a pid namespace, the target an ordinary process there."""
    if os.geteuid() != 0:
        skip_test("needs root for a pid namespace")
    gpucr = machine.tool("gpucr")
    log = machine.path("inner")
    command = (f"mount -t proc proc /proc; {machine.tool('counter')} --mib 16 >{log} 2>&1 & "
               f"p=$!; sleep 2; setsid -w {gpucr} suspend --force orphanable-group --pid $p --json "
               f">{machine.path('json1')} 2>&1; echo $? >{machine.path('status1')}; "
               f"setsid -w {gpucr} resume --pid $p --json >{machine.path('json2')} 2>&1; "
               f"echo $? >{machine.path('status2')}; kill -USR1 $p; sleep 2; echo ready done; "
               f"sleep 1")
    machine.start("unshare", "--pid", "--fork", "--mount", "sh", "-c", command)
    for turn in ("1", "2"):
        status = open(machine.path("status" + turn), encoding="utf-8").read().strip()
        check(status == "0", open(machine.path("json" + turn), encoding="utf-8").read()[-1500:])
    check("bad=0" in open(log, encoding="utf-8").read(), "memory differs")


if __name__ == "__main__":
    run_tests([signals_and_timer_survive, sigcont_does_not_wake, shell_exits, owner_stopped,
               pinned_poller_survives, namespace_init_is_refused, inside_namespace_works])
