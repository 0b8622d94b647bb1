#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The main job on a real GPU, with figures.

For each program: suspend and resume ten times, checkpoint (which ends it), restore,
a second checkpoint of the restored program and its restore; memory and counters
verified after each step. Prints one line per step and a table for
docs/measurements.md. Names of programs on the command line select some.

GPUCR_BUILD names the build folder, GPUCR_CRIU the criu, GPUCR_TEST_CYCLES the number
of suspends (default 10), GPUCR_TEST_IMAGES the folder for images."""
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import harness
from harness import Failed, Machine, all_stopped, alive, check, phases, processes, skip

CYCLES = int(os.environ.get("GPUCR_TEST_CYCLES", "10"))
PYTHON = os.environ.get("GPUCR_TEST_PYTHON", "python3")
SAMPLES = os.path.join(harness.SOURCE, "sim", "samples", "python")


def gpu_count():
    out = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return sum(line.startswith("GPU ") for line in out.split("\n"))


def counter(*args):
    return lambda machine: machine.counter(*args, timeout=180)


def stopped_counter(machine):
    program = machine.counter("--gib", "1")
    program.owner_stops = True
    return program


def torch(script):
    def start(machine):
        return machine.start(PYTHON, os.path.join(SAMPLES, script), timeout=180)

    return start


PROGRAMS = {
    "counter-1g": counter("--gib", "1"),
    "counter-20g": counter("--gib", "20"),
    "tree": counter("--gib", "1", "--fork-tree", "cuda=2,cpu=1"),
    "pinned-poller": counter("--gib", "1", "--pinned-poll", str(256 << 20)),
    "owner-stopped": stopped_counter,
    "vmm": counter("--gib", "1", "--vmm"),
    "threads": counter("--gib", "1", "--threads", "32"),
    "two-gpus": counter("--gib", "1", "--devices", "all"),
    "torch-counter": torch("torch_counter.py"),
    "torch-graph": torch("torch_graph.py"),
}


class Figures:
    def __init__(self):
        self.rows = []

    def add(self, name, step, document):
        cost = phases(document)
        row = {
            "program": name, "step": step, "total_s": document["seconds"],
            "device_gib": sum(p["device_bytes_before"] for p in document["processes"]) / 2**30,
            "image_gib": document.get("image_bytes", 0) / 2**30,
            "phases": {k: v["seconds"] for k, v in cost.items()},
        }
        self.rows.append(row)
        return row


def owner(program, stop):
    """What an owner who stopped the program does around a verification."""
    if not getattr(program, "owner_stops", False):
        return
    os.kill(program.pid, signal.SIGSTOP if stop else signal.SIGCONT)
    if stop:
        harness.wait_until(lambda: all_stopped(program.pid), 5, "stopped by its owner")


def verified(program):
    owner(program, False)
    line = program.verify(seconds=180)[0]
    value = int(line["counter"])
    owner(program, True)
    return value


def expect_state(program, document):
    state = processes(document)[program.pid]
    wanted = "stopped" if getattr(program, "owner_stops", False) else "running"
    check(state["state_after"] == wanted, f"after: {state['state_after']}, expected {wanted}")
    if wanted == "stopped":
        check(all_stopped(program.pid), "the owner's stop was lost")


def suspend_resume(machine, name, program, figures, value):
    for turn in range(CYCLES):
        document = machine.gpucr("suspend", "--pid", program.pid, timeout=300)
        for state in document["processes"]:
            check(state["device_bytes_after"] == 0, f"device memory did not fall: {state}")
        check(all_stopped(program.pid), "a thread is not stopped")
        figures.add(name, "suspend", document)
        document = machine.gpucr("resume", "--pid", program.pid, timeout=300)
        expect_state(program, document)
        figures.add(name, "resume", document)
        after = verified(program)
        check(after > value, f"cycle {turn}: the counter went from {value} to {after}")
        value = after
    return value


def checkpoint_restore(machine, name, program, figures, value):
    for turn in range(2):
        image = os.path.join(os.environ.get("GPUCR_TEST_IMAGES", machine.dir), f"{name}-{turn}")
        document = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, timeout=400)
        figures.add(name, "checkpoint", document)
        program.reap()
        check(not alive(program.pid), "the program is still there")
        document = machine.gpucr("restore", image, timeout=400)
        machine.restored.append(program.pid)
        expect_state(program, document)
        figures.add(name, "restore", document)
        after = verified(program)
        check(after > value, f"turn {turn}: the counter went from {value} to {after}")
        value = after
        subprocess.run(["rm", "-rf", image], check=False)
    return value


def run_one(name, figures):
    machine = Machine(real=True)
    try:
        program = PROGRAMS[name](machine)
        owner(program, True)
        value = verified(program)
        value = suspend_resume(machine, name, program, figures, value)
        checkpoint_restore(machine, name, program, figures, value)
    finally:
        machine.close()


def print_table(figures):
    print("\n| program | step | n | device GiB | median s | min–max s | phases of the median run (s) |")
    print("|---|---|---|---|---|---|---|")
    keys = dict.fromkeys((r["program"], r["step"]) for r in figures.rows)
    for program, step in keys:
        rows = [r for r in figures.rows if (r["program"], r["step"]) == (program, step)]
        times = sorted(r["total_s"] for r in rows)
        median = statistics.median_low(times)
        row = next(r for r in rows if r["total_s"] == median)
        shown = ", ".join(f"{k} {v:.3f}" for k, v in row["phases"].items() if v >= 0.0005)
        device = max(r["device_gib"] for r in rows)
        print(f"| {program} | {step} | {len(rows)} | {device:.1f} | {median:.2f} | "
              f"{times[0]:.2f}–{times[-1]:.2f} | {shown} |")


def describe_machine():
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                           capture_output=True, text=True, check=False).stdout.strip()
    thp = open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii").read().strip()
    print(f"machine: {query}; {platform.platform()}; {os.cpu_count()} CPUs; THP {thp}; "
          f"{datetime.date.today()}")


def main():
    if not harness.has_gpu():
        skip("no NVIDIA GPU on this machine")
    names = [n for n in sys.argv[1:] if n in PROGRAMS] or list(PROGRAMS)
    if gpu_count() < 2 and "two-gpus" in names:
        names.remove("two-gpus")
        print("two-gpus: left out, one GPU here")
    describe_machine()
    figures = Figures()
    passed = failed = 0
    for name in names:
        begin = time.monotonic()
        try:
            run_one(name, figures)
            passed += 1
            print(f"ok   {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAIL {name}: {error}", flush=True)
        except Exception:  # a broken test must not hide the others
            failed += 1
            print(f"FAIL {name}: {traceback.format_exc()}", flush=True)
    print_table(figures)
    if "GPUCR_TEST_JSON" in os.environ:
        with open(os.environ["GPUCR_TEST_JSON"], "w", encoding="utf-8") as f:
            json.dump(figures.rows, f)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
