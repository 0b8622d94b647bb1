#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""One process on two GPUs, and two processes on one GPU each."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import check, find_criu, processes, run_tests, skip


def process_on_two(machine):
    program = machine.counter("--mib", "16", "--devices", "all")
    before = program.goes_on()
    result = machine.gpucr("suspend", "--pid", program.pid)
    check(sorted(processes(result)[program.pid]["gpus"]) == [0, 1], result)
    machine.gpucr("resume", "--pid", program.pid)
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    check(program.goes_on() > before, "does not go on")


def one_each(machine):
    first = machine.counter("--mib", "16", "--device", "0")
    second = machine.counter("--mib", "16", "--device", "1")
    result = machine.gpucr("suspend", "--pid", first.pid)
    check(processes(result)[first.pid]["gpus"] == [0], result)
    second.goes_on()
    result = machine.gpucr("suspend", "--pid", second.pid)
    check(processes(result)[second.pid]["gpus"] == [1], result)
    for program in (first, second):
        machine.gpucr("resume", "--pid", program.pid)
        program.goes_on()


if __name__ == "__main__":
    if not find_criu():
        skip("no criu on this machine")
    run_tests([process_on_two, one_each], {"gpus": 2})
