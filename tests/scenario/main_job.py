#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The main job: suspend, resume, checkpoint, kill, restore, again; everything verified."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import (Failed, all_stopped, alive, check, find_criu, processes, run_tests,
                     skip, wait_until)


def suspend_resume_ten_times(machine):
    program = machine.counter("--mib", "64")
    value = program.goes_on()
    for _ in range(10):
        result = machine.gpucr("suspend", "--pid", program.pid)
        state = processes(result)[program.pid]
        check(state["state_after"] == "suspended", state)
        check(state["device_bytes_before"] > 0 and state["device_bytes_after"] == 0, state)
        check(all_stopped(program.pid), "a thread is not stopped")
        machine.gpucr("resume", "--pid", program.pid)
        after = program.goes_on()
        check(after > value, "the counter went back")
        value = after


def checkpoint_kill_restore_twice(machine):
    program = machine.counter("--mib", "64")
    value = program.goes_on()
    for turn in range(2):
        image = machine.path(f"image{turn}")
        machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
        program.reap()
        check(not alive(program.pid), "the program is still there")
        check(os.path.exists(os.path.join(image, "manifest.json")), "no manifest")
        machine.gpucr("image", "verify", image)
        result = machine.gpucr("restore", image)
        machine.restored.append(program.pid)
        check(processes(result)[program.pid]["state_after"] == "running", result)
        after = program.goes_on()
        check(after > value, "the counter went back")
        value = after


def leave_running(machine):
    program = machine.counter("--mib", "32")
    image = machine.path("image")
    before = program.goes_on()
    size = os.path.getsize(program.log)
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--leave-running")
    check(processes(result)[program.pid]["state_after"] == "running", result)
    check(program.goes_on() > before, "does not go on")
    program.end()
    # CRIU wants the open files as they were: what the program wrote afterwards goes.
    os.truncate(program.log, size)
    machine.gpucr("image", "verify", image)
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    check(program.goes_on() > before, "the restored one does not go on")


def tree(machine):
    program = machine.counter("--mib", "16", "--fork-tree", "cuda=2,cpu=1")
    wait_until(lambda: program.output().count("ready") >= 1, 30, "the tree is ready")
    time.sleep(0.3)
    for turn in range(2):
        result = machine.gpucr("suspend", "--pid", program.pid)
        found = processes(result)
        check(sum(p["is_cuda"] for p in found.values()) == 2 + found[program.pid]["is_cuda"], found)
        check(len(found) == 4, found)
        machine.gpucr("resume", "--pid", program.pid)
        image = machine.path(f"image{turn}")
        machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
        program.reap()
        machine.gpucr("restore", image)
        machine.restored.append(program.pid)
        program.verify()


if __name__ == "__main__":
    if not find_criu():
        skip("no criu on this machine")
    run_tests([suspend_resume_ten_times, checkpoint_kill_restore_twice, leave_running, tree])
