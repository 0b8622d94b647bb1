#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The command in everyday use: states shown, kinds of memory, trees, foreground, fresh pids."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import (Failed, alive, all_stopped, check, find_criu, kill_tree, processes, run_tests,
                     skip, wait_until)


def listed(machine, pid, *args):
    return processes(machine.gpucr("list", *args)).get(pid)


def list_shows_states(machine):
    program = machine.counter("--mib", "32")
    other = machine.start(machine.tool("cpuonly"))
    holder = machine.start(machine.tool("nvmlonly"))
    seen = listed(machine, program.pid)
    check(seen["state_after"] == "running" and seen["device_bytes_before"] >= 32 << 20, seen)
    check(seen["gpus"] == [0], seen)
    check(listed(machine, other.pid) is None, "a process without CUDA is listed")
    check(listed(machine, holder.pid) is None, "a mere holder of device files is listed")
    seen = listed(machine, holder.pid, "--all")
    check(seen["holds_device"] and not seen["is_cuda"], seen)
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(lambda: all_stopped(program.pid), 5, "stopped")
    check(listed(machine, program.pid)["state_after"] == "stopped", "stopped by its owner")
    os.kill(program.pid, signal.SIGCONT)
    machine.gpucr("suspend", "--pid", program.pid)
    seen = listed(machine, program.pid)
    check(seen["state_after"] == "suspended", seen)
    check(seen["device_bytes_before"] >= 32 << 20, "what it will need again is not shown")
    machine.gpucr("resume", "--pid", program.pid)
    program.goes_on()


def suspend_twice(machine):
    program = machine.counter("--mib", "16")
    machine.gpucr("suspend", "--pid", program.pid)
    for verb in (["suspend"], ["checkpoint", "-o", machine.path("image")]):
        result = machine.gpucr(*verb, "--pid", program.pid, expect=2, timeout=20)
        check(result["error"]["finding"] == "already-suspended", result["error"])
        check(all_stopped(program.pid), "was woken")
    machine.gpucr("resume", "--pid", program.pid)
    before = program.goes_on()
    result = machine.gpucr("resume", "--pid", program.pid, expect=None, timeout=20)
    check(result["status"] in (1, 2) and not all_stopped(program.pid), result)
    check(program.goes_on() > before, "does not go on")


def kinds_of_memory(machine):
    for args in (["--vmm"], ["--pinned-poll", "8388608", "--host", "8388608"],
                 ["--threads", "24"]):
        program = machine.counter("--mib", "16", *args)
        before = program.goes_on()
        machine.gpucr("suspend", "--pid", program.pid)
        machine.gpucr("resume", "--pid", program.pid)
        image = machine.path("image" + args[0])
        machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
        program.reap()
        machine.gpucr("restore", image)
        machine.restored.append(program.pid)
        check(program.goes_on() > before, args)
        program.end()
        kill_tree(program.pid)


def managed_memory_is_rolled_back(machine):
    """Driver 580 says NOT_SUPPORTED at Checkpoint; the process must run afterwards."""
    program = machine.counter("--mib", "16", "--managed")
    before = program.goes_on()
    result = machine.gpucr("suspend", "--pid", program.pid, expect=3)
    check(result["error"]["driver_code"] == 801, result["error"])
    check("managed" in result["error"]["text"], result["error"])
    check(program.goes_on() > before, "does not go on")


def several_failures_are_all_reported(machine):
    program = machine.counter("--mib", "8", "--fork-tree", "cuda=2,cpu=1")
    wait_until(lambda: program.output().count("ready") >= 4, 30, "the tree is ready")
    machine.faults("checkpoint fail=801\n")
    result = machine.gpucr("suspend", "--pid", program.pid, expect=3)
    machine.faults("")
    failed = [p for p in result["processes"] if p["error"]]
    check(len(failed) == 3, f"{len(failed)} of 3 failures are reported: {result['processes']}")
    for process in failed:
        check(str(process["pid"]) in process["error"]["text"], process["error"])
        check(process["state_after"] == "running", process)
    plain = subprocess.run([machine.tool("gpucr"), "list"], env=machine.env(), timeout=20,
                           capture_output=True, text=True, check=True)
    check(str(program.pid) in plain.stdout, plain.stdout)
    program.verify()


def foreground(machine):
    program = machine.counter("--mib", "16", "--term-counter")
    program.goes_on()
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    run = subprocess.Popen([machine.tool("gpucr"), "restore", image, "--foreground"],
                           env=machine.env(), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    machine.restored.append(program.pid)
    wait_until(lambda: alive(program.pid) and not all_stopped(program.pid), 30, "restored")
    time.sleep(0.3)
    before = int(program.verify()[0]["term"])
    run.send_signal(signal.SIGTERM)
    wait_until(lambda: int(program.verify()[0]["term"]) == before + 1, 10, "SIGTERM is passed on")
    check(run.poll() is None, "gpucr ended with the signal")
    os.kill(program.pid, signal.SIGUSR2)
    check(run.wait(20) == 0, f"status {run.returncode}: {run.stderr.read()}")


def foreground_passes_status(machine):
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    run = subprocess.Popen([machine.tool("gpucr"), "restore", image, "--foreground"],
                           env=machine.env(), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    machine.restored.append(program.pid)
    wait_until(lambda: alive(program.pid) and not all_stopped(program.pid), 30, "restored")
    time.sleep(0.3)
    os.kill(program.pid, signal.SIGKILL)
    check(run.wait(20) == 128 + signal.SIGKILL, run.returncode)


def fresh_pids(machine):
    """The old pid is taken: in a pid namespace of its own the program comes back."""
    if os.geteuid() != 0:
        raise Failed("needs root")
    program = machine.counter("--mib", "16")
    before = program.goes_on()
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--leave-running")
    size = os.path.getsize(program.log)
    program.machine.gpucr("suspend", "--pid", program.pid)
    with open(program.log, "r+b") as log:
        log.truncate(size)
    result = machine.gpucr("restore", image, expect=2, *["--pid-wait", "1s"])
    check(result["error"]["code_name"] == "exists", result["error"])
    result = machine.gpucr("restore", image, "--pid-namespace")
    root = result["root_pid"]
    machine.restored.append(root)
    check(root != program.pid and alive(root), result)
    count = len(program.lines())
    os.kill(root, signal.SIGUSR1)
    lines = wait_until(lambda: program.lines()[count:], 20, "the restored one verifies")
    check(int(lines[0]["counter"]) > before and lines[0]["bad"] == "0", lines)
    check(lines[0]["pid"] == str(program.pid), "it does not see its old pid")
    second = machine.path("second")
    machine.gpucr("checkpoint", "--pid", root, "-o", second)
    wait_until(lambda: not alive(root), 20, "gone")
    result = machine.gpucr("restore", second, "--pid-namespace")
    root = result["root_pid"]
    machine.restored.append(root)
    parent = processes(result)[root]["parent_pid"]
    os.kill(root, signal.SIGUSR2)
    wait_until(lambda: not alive(root), 20, "ends")
    wait_until(lambda: parent in (0, 1) or not alive(parent), 20, "its keeper ends with it")


def late_cuda_process(machine):
    """Children that start CUDA while the tree is being suspended are taken in or not there yet."""
    program = machine.counter("--mib", "8", "--fork-tree", "cuda=2,cpu=1", ready=False)
    done = 0
    for _ in range(6):
        time.sleep(0.02)
        result = machine.gpucr("suspend", "--pid", program.pid, expect=None, timeout=60)
        if result["status"] == 0:
            check(all(p["device_bytes_after"] == 0 for p in result["processes"]), result)
            machine.gpucr("resume", "--pid", program.pid)
            done += 1
        else:
            check(result["outcome"] in ("refused", "rolled-back"), result)
    program.wait_ready()
    wait_until(lambda: program.output().count("ready") >= 4, 30, "the tree is ready")
    program.verify()


if __name__ == "__main__":
    if not find_criu():
        skip("no criu on this machine")
    run_tests([list_shows_states, suspend_twice, kinds_of_memory, managed_memory_is_rolled_back,
               several_failures_are_all_reported, foreground, foreground_passes_status, fresh_pids,
               late_cuda_process])
