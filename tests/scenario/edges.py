#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The edges of the flows: parts of a suspended tree, several callers at once, records that
do not fit any more, a resume that fails or is killed in the middle, interrupts, and an
image that is the only copy left."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import (Machine, alive, all_stopped, check, descendants, find_criu, frozen_cgroup,
                     phases, proc_stat, processes, run_tests, skip_test, wait_until)


def tree(machine):
    """A parent, two CUDA children and one without."""
    program = machine.counter("--mib", "8", "--fork-tree", "cuda=2,cpu=1")
    wait_until(lambda: program.output().count("ready") >= 4, 30, "the tree is ready")
    program.children = [pid for pid in descendants(program.pid) if pid != program.pid]
    return program


def tree_runs(program):
    for pid in [program.pid, *program.children]:
        wait_until(lambda pid=pid: alive(pid) and not all_stopped(pid), 10, f"{pid} runs")
    count = program.output().count("answered=4")
    program.verify()
    wait_until(lambda: program.output().count("answered=4") > count, 30, "all four answer")
    check(re.findall(r"bad=[1-9]", program.output()) == [], program.output())


def tree_held(program):
    for pid in [program.pid, *program.children]:
        check(all_stopped(pid), f"{pid} of the tree runs")


def states(document, moment="after"):
    return {pid: p["state_" + moment] for pid, p in processes(document).items()}


def start_gpucr(machine, *args, env=None):
    return subprocess.Popen([machine.tool("gpucr"), *[str(a) for a in args], "--json"],
                            env=machine.env(env), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def without_cgroups(machine, *args, expect=0):
    """gpucr where no cgroup can be frozen: SIGSTOP alone holds the tree."""
    if os.geteuid() != 0:
        skip_test("needs root for a mount namespace")
    hide = "umount -l /sys/fs/cgroup/unified 2>/dev/null || umount -l /sys/fs/cgroup; exec \"$@\""
    run = subprocess.run(["unshare", "--mount", "sh", "-c", hide, "sh", machine.tool("gpucr"),
                          *[str(a) for a in args], "--json"], env=machine.env(), timeout=60,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    check(run.returncode == expect, f"status {run.returncode}: {run.stdout[-2000:]} {run.stderr}")
    return json.loads(run.stdout)


def part_of_a_suspended_tree(machine):
    """One process of it alone is neither resumed nor suspended: the others would wake with it."""
    program = tree(machine)
    machine.gpucr("suspend", "--pid", program.pid)
    child = program.children[0]
    result = machine.gpucr("resume", "--pid", child, expect=1)
    check(f"gpucr resume --pid {program.pid}" in result["error"]["text"], result["error"])
    result = machine.gpucr("suspend", "--pid", child, expect=2)
    check(result["error"]["finding"] == "already-suspended", result["error"])
    check(str(program.pid) in result["error"]["text"], result["error"])
    result = machine.gpucr("resume", "--pid", program.pid, "--single-process", expect=1)
    check("--single-process" in result["error"]["text"], result["error"])
    tree_held(program)
    machine.gpucr("resume", "--pid", program.pid)
    tree_runs(program)


def part_of_a_tree_without_record(machine):
    program = tree(machine)
    machine.gpucr("suspend", "--pid", program.pid)
    if not frozen_cgroup(program.pid):
        skip_test("no writable cgroup v2 here: nothing but the record tells what belongs together")
    shutil.rmtree(machine.path("state"))
    result = machine.gpucr("resume", "--pid", program.children[0], expect=1)
    check(f"gpucr resume --pid {program.pid}" in result["error"]["text"], result["error"])
    tree_held(program)
    machine.gpucr("resume", "--pid", program.pid)
    tree_runs(program)


def single_process(machine):
    """Its children run on, and a resume does not touch them."""
    program = tree(machine)
    machine.gpucr("suspend", "--pid", program.pid, "--single-process")
    check(all_stopped(program.pid), "is not stopped")
    for pid in program.children:
        check(not all_stopped(pid), f"the child {pid} was stopped")
    result = machine.gpucr("resume", "--pid", program.pid)
    check(list(processes(result)) == [program.pid], states(result))
    tree_runs(program)


def several_callers(machine):
    """Of several at once one works, the others are told so and do no harm."""
    program = tree(machine)
    for _ in range(4):
        runs = [start_gpucr(machine, "suspend", "--pid", program.pid) for _ in range(3)]
        results = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
        outcomes = sorted(r["outcome"] for r in results)
        check(outcomes == ["done", "refused", "refused"], [r["error"] for r in results])
        tree_held(program)
        machine.gpucr("resume", "--pid", program.pid)
    tree_runs(program)
    left = [name for name in os.listdir(machine.path("state")) if name.startswith(("lock", "."))]
    check(not left, f"left in the state folder: {left}")


def overlapping_trees(machine):
    """A tree and parts of it at once: whoever does not work is refused, nobody waits for ever."""
    program = tree(machine)
    children = [pid for pid in program.children
                if "counter" in open(f"/proc/{pid}/comm", encoding="ascii").read()]
    for _ in range(4):
        roots = [program.pid, *children]
        runs = [start_gpucr(machine, "suspend", "--pid", pid) for pid in roots]
        results = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
        outcomes = [r["outcome"] for r in results]
        check(set(outcomes) <= {"done", "refused"}, [r["error"] for r in results])
        check(outcomes[0] == "refused" or outcomes[1:] == ["refused", "refused"], outcomes)
        for pid, outcome in zip(roots, outcomes):
            if outcome == "done":
                machine.gpucr("resume", "--pid", pid)
        tree_runs(program)


def record_left_over(machine):
    """A record of a program that runs says nothing."""
    program = machine.counter("--mib", "8")
    machine.gpucr("suspend", "--pid", program.pid)
    shutil.copytree(machine.path("state"), machine.path("kept"))
    machine.gpucr("resume", "--pid", program.pid)
    shutil.rmtree(machine.path("state"))
    shutil.copytree(machine.path("kept"), machine.path("state"))
    machine.gpucr("suspend", "--pid", program.pid)
    machine.gpucr("resume", "--pid", program.pid)
    shutil.rmtree(machine.path("state"))
    shutil.copytree(machine.path("kept"), machine.path("state"))
    result = machine.gpucr("resume", "--pid", program.pid, expect=1)
    check("is suspended" in result["error"]["text"], result["error"])
    check(os.listdir(machine.path("state")) == [], "the record was not removed")
    program.goes_on()


def woken_by_sigcont(machine):
    """Without a frozen cgroup a SIGCONT wakes the tree; resume stops it again and brings it back."""
    program = machine.counter("--mib", "8")
    without_cgroups(machine, "suspend", "--pid", program.pid, "--force", "orphanable-group")
    check(proc_stat(program.pid)[0] == "T" and all_stopped(program.pid), "is not stopped")
    os.kill(program.pid, signal.SIGCONT)
    wait_until(lambda: not all_stopped(program.pid), 5, "woken")
    result = without_cgroups(machine, "resume", "--pid", program.pid)
    check(states(result)[program.pid] == "running", states(result))
    program.goes_on()


def resume_fails(machine):
    """In any driver call of a resume: the tree is suspended as before, and a retry works."""
    program = tree(machine)
    machine.gpucr("suspend", "--pid", program.pid)
    for rule in ("restore nth=2 fail=999", "unlock nth=2 fail=999", "unlock nth=3 fail=999"):
        machine.faults(rule + "\n")
        result = machine.gpucr("resume", "--pid", program.pid, expect=3)
        machine.faults("")
        check(states(result) == states(result, "before"), result["processes"])
        check(sorted(states(result).values()) == ["stopped"] + 3 * ["suspended"], states(result))
        tree_held(program)
    machine.gpucr("resume", "--pid", program.pid)
    tree_runs(program)


def resume_is_killed(machine):
    """Before the GPU state is back, and after it, before the tree runs: a second one goes on."""
    program = tree(machine)
    for point in ("job.restore:kill", "job.release:kill"):
        machine.gpucr("suspend", "--pid", program.pid)
        run = start_gpucr(machine, "resume", "--pid", program.pid, env={"GPUCR_FAULT": point})
        run.communicate(timeout=60)
        check(run.returncode == -signal.SIGKILL, f"{point}: status {run.returncode}")
        tree_held(program)
        machine.gpucr("resume", "--pid", program.pid)
        tree_runs(program)


def refused_resume_shows_suspended(machine):
    """Too little device memory: refused, nothing touched, and the states shown are the true ones."""
    small = Machine(vram=256 << 20)
    try:
        program = small.counter("--mib", "64")
        small.gpucr("suspend", "--pid", program.pid)
        hog = small.counter("--mib", "128")
        result = small.gpucr("resume", "--pid", program.pid, expect=2)
        check(result["error"]["finding"] == "device-memory", result["error"])
        check(states(result)[program.pid] == "suspended", states(result))
        check(all_stopped(program.pid), "was let run")
        hog.end()
        small.gpucr("resume", "--pid", program.pid)
        program.goes_on()
    finally:
        small.close()


def rollback_that_fails(machine):
    """What cannot be brought back keeps the tree stopped; a later resume brings it back."""
    program = tree(machine)
    machine.faults(f"checkpoint pid={program.pid} fail=999\nrestore nth=1 fail=999\n")
    result = machine.gpucr("suspend", "--pid", program.pid, expect=4)
    machine.faults("")
    check(sorted(states(result).values()) == 3 * ["stopped"] + ["suspended"], states(result))
    tree_held(program)
    machine.gpucr("resume", "--pid", program.pid)
    tree_runs(program)


def dead_and_astray(machine):
    """One process dies in the Checkpoint, another does not come back: the tree must not run."""
    program = tree(machine)
    cuda = [pid for pid in program.children if "counter" in open(f"/proc/{pid}/comm").read()]
    dying, lost = cuda
    machine.faults(f"checkpoint pid={dying} crash\nrestore pid={lost} fail=999\n")
    result = machine.gpucr("suspend", "--pid", program.pid, expect=4)
    machine.faults("")
    check(states(result)[dying] == "gone", states(result))
    check(states(result)[lost] == "suspended", states(result))
    check(all_stopped(program.pid) and all_stopped(lost), "a process without its GPU state runs")
    machine.gpucr("resume", "--pid", program.pid)
    wait_until(lambda: not all_stopped(lost), 5, "runs")


def interrupted(machine):
    """SIGINT while the GPU state moves, in the dump and while pids are waited for."""
    slow = os.path.join(machine.root, "state", "config")
    program = machine.counter("--mib", "64")
    with open(slow, "a", encoding="utf-8") as config:
        config.write("checkpoint_floor_ms=1500\n")
    image = machine.path("image")
    for verb in (["suspend"], ["checkpoint", "-o", image]):
        before = program.goes_on()
        run = start_gpucr(machine, *verb, "--pid", program.pid)
        wait_until(lambda: proc_stat(program.pid)[0] == "T", 10, "stopped")
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        result = json.loads(run.communicate(timeout=60)[0])
        check(result["outcome"] == "rolled-back", result["outcome"])
        check(result["error"]["code_name"] == "cancelled", result["error"])
        check(program.goes_on() > before, "does not go on")
        check(not os.path.exists(image), "an image appeared")
    with open(slow, "a", encoding="utf-8") as config:
        config.write("checkpoint_floor_ms=20\n")
    if not find_criu():
        skip_test("no criu on this machine: the rest was not tried")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--leave-running")
    run = start_gpucr(machine, "restore", image, "--pid-wait", "60s")
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    result = json.loads(run.communicate(timeout=20)[0])
    check(result["error"]["code_name"] == "cancelled", result["error"])
    program.goes_on()


def image_is_kept(machine):
    """--leave-running, and the driver loses the program: the image is the only copy of it."""
    if not find_criu():
        skip_test("no criu on this machine")
    program = machine.counter("--mib", "16")
    before = program.goes_on()
    image = machine.path("image")
    machine.faults("restore poison\n")
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--leave-running",
                           expect=4)
    machine.faults("")
    check(image in result["error"]["text"], result["error"])
    check(states(result)[program.pid] == "failed", states(result))
    check(all_stopped(program.pid), "a process without its GPU state runs")
    machine.gpucr("image", "verify", image, expect=None)
    program.end()
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    check(program.goes_on() > before, "does not go on")


def wrong_option_is_refused(machine):
    """An option that no image can hold is found before anything is paused."""
    if not find_criu():
        skip_test("no criu on this machine")
    program = machine.counter("--mib", "8")
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", machine.path("image"),
                           "--criu-option", "x" * 4000 + "=1", expect=None)
    check(result["status"] in (1, 2) and "lock" not in phases(result), result["error"])
    program.goes_on()


def kill_moves_nothing(machine):
    if not find_criu():
        skip_test("no criu on this machine")
    program = machine.counter("--mib", "8")
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", machine.path("image"))
    program.reap()
    check(phases(result)["kill"]["bytes"] == 0, phases(result)["kill"])
    check(phases(result)["commit"]["bytes"] == result["image_bytes"], phases(result)["commit"])


def restores_at_once(machine):
    """Two restores of one image: one comes, the other is refused and does not end the first."""
    if not find_criu():
        skip_test("no criu on this machine")
    program = machine.counter("--mib", "16")
    before = program.goes_on()
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    machine.restored.append(program.pid)
    runs = [start_gpucr(machine, "restore", image, "--pid-wait", "1s") for _ in range(2)]
    results = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
    outcomes = sorted(r["outcome"] for r in results)
    check(outcomes == ["done", "refused"], [r["error"] for r in results])
    check(program.goes_on() > before, "does not go on")


def stops_again_by_itself(machine):
    """A job that stops as soon as it runs (as one that reads its terminal): resume ends, and says so."""
    program = machine.counter("--mib", "8")
    for _ in range(8):
        machine.gpucr("suspend", "--pid", program.pid)
        done = threading.Event()

        def stop_again():
            while not done.is_set():
                with open(f"/proc/{program.pid}/cgroup", encoding="utf-8") as cgroup:
                    ours = "/gpucr-" in cgroup.read()
                if not ours and proc_stat(program.pid)[0] not in "Tt":
                    os.kill(program.pid, signal.SIGSTOP)
                    return

        stopper = threading.Thread(target=stop_again)
        stopper.start()
        try:
            machine.gpucr("resume", "--pid", program.pid, expect=None, timeout=20)
        finally:
            done.set()
            stopper.join()
            os.kill(program.pid, signal.SIGCONT)
        wait_until(lambda: not all_stopped(program.pid), 5, "runs")
    program.goes_on()


def driver_that_does_not_start(machine):
    """cuInit fails: the restore is refused before CRIU begins."""
    if not find_criu():
        skip_test("no criu on this machine")
    program = machine.counter("--mib", "8")
    image = machine.path("image")
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    machine.faults("init fail=999\n")
    result = machine.gpucr("restore", image, expect=2)
    machine.faults("")
    check("engine-restore" not in phases(result), list(phases(result)))
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    program.goes_on()


if __name__ == "__main__":
    run_tests([part_of_a_suspended_tree, part_of_a_tree_without_record, single_process,
               several_callers, overlapping_trees, record_left_over, woken_by_sigcont, resume_fails,
               resume_is_killed, refused_resume_shows_suspended, rollback_that_fails,
               dead_and_astray, interrupted, image_is_kept, wrong_option_is_refused,
               kill_moves_nothing, restores_at_once, stops_again_by_itself,
               driver_that_does_not_start])
