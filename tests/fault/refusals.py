#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Everything that goes wrong leaves the program running as before and names the cause;
an image that failed to restore is untouched and restores after the repair."""
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import (Program, alive, all_stopped, check, find_criu, processes, run_tests, skip,
                     skip_test, tracer_of, wait_until)


def refuse(machine, program, *args, code, text="", status=2, env=None, timeout=120):
    """The operation fails with @code and a text; the program runs on, verified."""
    before = program.goes_on() if isinstance(program, Program) else None
    result = machine.gpucr(*args, expect=status, env=env, timeout=timeout)
    error = result["error"]
    check(error["code_name"] == code, f"{error['code_name']}, expected {code}: {error['text']}")
    everything = error["text"] + "".join(f["text"] + (f["remedy"] or "") for f in result["findings"])
    everything += "".join(line["text"] for line in result.get("log", []))
    check(text in everything, f"{text!r} is not said: {everything}")
    check(result["outcome"] == {2: "refused", 3: "rolled-back"}[status], result["outcome"])
    if before is not None:
        check(tracer_of(program.pid) == 0, "a tracer was left")
        check(program.goes_on() > before, "does not run as before")
    return result


def no_image(machine, path):
    check(not os.path.exists(path), f"{path} appeared")
    left = [n for n in os.listdir(os.path.dirname(path)) if n.startswith(".")]
    check(not left, f"left behind: {left}")


def criu_script(machine, body):
    path = machine.path("criu")
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n" + body + "\n")
    os.chmod(path, 0o755)
    return path


def criu_missing(machine):
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", image, "--criu",
           "/nonexistent/criu", code="engine-missing", text="/nonexistent/criu")
    no_image(machine, image)


def criu_hangs_at_start(machine):
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    criu = criu_script(machine, "exec sleep 1000")
    refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", image, "--criu", criu,
           "--engine-timeout", "1s", code="engine-hung", timeout=60)
    no_image(machine, image)


def criu_hangs_in_dump(machine):
    """A real CRIU that is stopped in the middle and never goes on."""
    program = machine.counter("--mib", "64", "--threads", "4")
    image = machine.path("image")
    criu = criu_script(machine, f"""
(while ! grep -qs "Dumping pages" {machine.dir}/.image.*/logs/*.log; do :; done
kill -STOP $$) >/dev/null 2>&1 &
exec {find_criu()} "$@" """)
    before = program.goes_on()
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--criu", criu,
                           "--engine-timeout", "2s", expect=None, timeout=120)
    if result["status"] == 0:
        skip_test("CRIU was faster than the stop")
    check(result["outcome"] in ("rolled-back", "refused"), result["error"])
    check(result["error"]["code_name"] == "engine-hung", result["error"])
    check(program.goes_on() > before, "does not go on")
    maps = open(f"/proc/{program.pid}/maps", encoding="utf-8").read()
    check("CRIUMFD" not in maps, "CRIU's mapping was left in the program")
    no_image(machine, image)


def criu_misbehaves(machine):
    """Too old, dying, refusing, stuck: a criu that answers its protocol so."""
    original = os.path.join(os.environ.get("GPUCR_BUILD", "build/dev"),
                            "tests", "unit", "engine", "fake_criu")
    if not os.path.exists(original):
        skip_test(f"{original} is not built")
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    cases = (("fake-old", 2, "unsupported"), ("fake-dies", 3, "engine"),
             ("fake-exits", 3, "engine"), ("fake-refuses", 3, "engine"),
             ("fake-stuck", 3, "engine-hung"), ("fake-spins", 3, "engine-hung"))
    for name, status, code in cases:
        path = machine.path(name)
        shutil.copy(original, path)
        refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", image, "--criu", path,
               "--engine-timeout", "2s", code=code, status=status)
    no_image(machine, image)


def image_exists(machine):
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    os.mkdir(image)
    refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", image, code="exists",
           text=image)
    check(os.listdir(image) == [], "the folder was touched")


def image_not_writable(machine):
    program = machine.counter("--mib", "16")
    folder = machine.path("ro")
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], check=True)
    try:
        refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", folder + "/image",
               code="system", text="Read-only")
    finally:
        subprocess.run(["umount", folder], check=True)
    refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", "/nonexistent/x/image",
           code="not-found", text="/nonexistent")


def disk_full(machine):
    program = machine.counter("--mib", "64")
    folder = machine.path("small")
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs", folder], check=True)
    try:
        refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", folder + "/image",
               code="no-space", text="MiB")
        refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", folder + "/image",
               "--force", "disk-space", code="no-space", status=3)
        check(os.listdir(folder) == [], "something was left on the full disk")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def no_permission(machine):
    program = machine.counter("--mib", "16")
    before = program.goes_on()
    os.chmod(machine.dir, 0o777)
    run = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                          machine.tool("gpucr"), "suspend", "--pid", str(program.pid), "--json"],
                         env=machine.env({"GPUCR_STATE_DIR": machine.path("user-state")}),
                         capture_output=True, text=True, timeout=60, check=False)
    os.chmod(machine.dir, 0o755)
    check(run.returncode == 2, f"status {run.returncode}: {run.stdout} {run.stderr}")
    check('"permission"' in run.stdout, run.stdout)
    check(program.goes_on() > before, "does not go on")


def pid_not_there(machine):
    refuse(machine, None, "suspend", "--pid", "4194303", code="not-found", text="4194303")
    refuse(machine, None, "checkpoint", "--pid", "4194303", "-o", machine.path("image"),
           code="not-found", text="4194303")


def traced_by_gdb(machine):
    if not shutil.which("gdb"):
        skip_test("no gdb on this machine")
    program = machine.counter("--mib", "16")
    gdb = subprocess.Popen(["gdb", "-q", "-batch", "-p", str(program.pid), "-ex", "shell sleep 6"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: tracer_of(program.pid), 10, "traced")
        for verb in (["suspend"], ["checkpoint", "-o", machine.path("image")]):
            result = machine.gpucr(*verb, "--pid", program.pid, expect=2, timeout=20)
            check(result["error"]["code_name"] == "busy", result["error"])
            check("gdb" in result["error"]["text"], result["error"])
    finally:
        gdb.wait(30)
    check(tracer_of(program.pid) == 0, "still traced")
    program.goes_on()


def not_cuda(machine):
    program = machine.start(machine.tool("cpuonly"))
    refuse(machine, None, "suspend", "--pid", program.pid, code="not-cuda")
    image = machine.path("image")
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    check(any(f["name"] == "cpu-only" for f in result["findings"]), result["findings"])
    program.reap()
    check(not alive(program.pid), "still there")
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    program.verify()


def criu_refuses(machine):
    """What CRIU cannot dump is refused before anything is paused; forced, it is rolled back."""
    here = os.path.dirname(os.path.abspath(__file__))
    cases = (("io_uring", "io-uring", "io_uring"), ("device", "device-file", "/dev/"),
             ("tcp", "tcp-established", "--tcp-established"))
    for kind, finding, text in cases:
        program = machine.start(sys.executable, os.path.join(here, "holder.py"), kind, ready=False)
        wait_until(lambda: "ready" in program.output() or "cannot" in program.output(), 10, "ready")
        if "cannot" in program.output():
            print(f"     {kind}: {program.output().strip()}")
            continue
        image = machine.path("image-" + kind)
        result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, expect=2)
        check(result["error"]["finding"] == finding, result["error"])
        check(text in str(result["findings"]), result["findings"])
        result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", image, "--force", finding,
                               expect=3)
        check(result["error"]["code_name"] == "engine", result["error"])
        check(result["outcome"] == "rolled-back", result["outcome"])
        check(alive(program.pid) and not all_stopped(program.pid), "does not run as before")
        check(tracer_of(program.pid) == 0, "a tracer was left")
        no_image(machine, image)


def criu_option_is_checked_first(machine):
    program = machine.counter("--mib", "16")
    for option in ("bad name=1", "libdir=/tmp", "x=a\nb"):
        before = program.goes_on()
        result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", machine.path("image"),
                               "--criu-option", option, expect=1)
        check(result["outcome"] == "refused", result["outcome"])
        check(not any(p["name"] == "lock" for p in result["phases"]), "it was paused first")
        check(program.goes_on() > before, "does not go on")


def session_outside(machine):
    program = machine.counter("--mib", "16", new_session=False)
    refuse(machine, program, "checkpoint", "--pid", program.pid, "-o", machine.path("image"),
           code="refused", text="--shell-job")


def make_image(machine, name="image", *args):
    program = machine.counter("--mib", "32", *args)
    program.before = program.goes_on()
    image = machine.path(name)
    machine.gpucr("checkpoint", "--pid", program.pid, "-o", image)
    program.reap()
    return program, image


def digest(folder):
    total = hashlib.sha256()
    for base, dirs, names in sorted(os.walk(folder)):
        dirs.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            total.update(path.encode())
            total.update(open(path, "rb").read())
    return total.hexdigest()


def restores(machine, program, image):
    machine.gpucr("restore", image)
    machine.restored.append(program.pid)
    check(program.goes_on() > program.before, "does not go on")


def pid_taken(machine):
    program, image = make_image(machine)
    whole = digest(image)
    # A process with exactly that pid: the kernel takes the next one after ns_last_pid.
    squatter = None
    for _ in range(200):
        with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as f:
            f.write(str(program.pid - 1))
        one = subprocess.Popen(["sleep", "60"])
        if one.pid == program.pid:
            squatter = one
            break
        one.kill()
        one.wait()
    check(squatter, "could not take the pid")
    result = machine.gpucr("restore", image, "--pid-wait", "1s", expect=2)
    check(result["error"]["code_name"] == "exists", result["error"])
    check("sleep" in result["error"]["text"], result["error"])
    check(squatter.poll() is None, "the other process was harmed")
    check(digest(image) == whole, "the image was changed")
    squatter.kill()
    # Not reaped yet: the zombie's parent is named.
    result = machine.gpucr("restore", image, "--pid-wait", "1s", expect=2)
    check(str(os.getpid()) in result["error"]["text"], result["error"])
    squatter.wait()
    restores(machine, program, image)


def file_missing(machine):
    program, image = make_image(machine)
    whole = digest(image)
    os.rename(program.log, program.log + ".away")
    result = machine.gpucr("restore", image, expect=3)
    check(result["error"]["code_name"] == "engine", result["error"])
    check(os.path.basename(program.log) in result["error"]["text"] + str(result["log"]), result)
    check(not alive(program.pid), "a half-restored process was left")
    check(digest(image) == whole, "the image was changed")
    os.rename(program.log + ".away", program.log)
    restores(machine, program, image)


def image_damaged(machine):
    program, image = make_image(machine)
    whole = digest(image)
    pages = max((os.path.join(image, "criu", n) for n in os.listdir(image + "/criu")),
                key=os.path.getsize)
    data = open(pages, "rb").read()
    fake = criu_script(machine, f'case "$1" in swrk) touch {machine.path("reached")};; esac\n'
                       f'exec {find_criu()} "$@"')
    for damage in (data[:-4096], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        with open(pages, "wb") as f:
            f.write(damage)
        changed = digest(image)
        result = machine.gpucr("restore", image, expect=2)
        check(result["error"]["code_name"] == "image-damaged", result["error"])
        check(os.path.basename(pages) in result["error"]["text"], result["error"])
        check(not alive(program.pid), "was restored")
        check(digest(image) == changed, "the image was changed")
        machine.gpucr("image", "verify", image, expect=None)
    check(fake and not any(p["name"] == "engine-restore" for p in result["phases"]),
          "a damaged image reached CRIU")
    with open(pages, "wb") as f:
        f.write(data)
    check(digest(image) == whole, "the repair")
    restores(machine, program, image)


def image_unsafe(machine):
    program, image = make_image(machine)
    os.chmod(image, 0o777)
    result = machine.gpucr("restore", image, expect=2)
    check(result["error"]["code_name"] == "image-unsafe", result["error"])
    os.chmod(image, 0o700)
    inner = os.path.join(image, "criu")
    os.rename(inner, machine.path("elsewhere"))
    os.symlink(machine.path("elsewhere"), inner)
    result = machine.gpucr("restore", image, expect=2)
    check(result["error"]["code_name"] == "image-unsafe", result["error"])
    os.unlink(inner)
    os.rename(machine.path("elsewhere"), inner)
    os.chown(os.path.join(image, "manifest.json"), 65534, 65534)
    result = machine.gpucr("restore", image, expect=2)
    check(result["error"]["code_name"] == "image-unsafe", result["error"])
    os.chown(os.path.join(image, "manifest.json"), 0, 0)
    restores(machine, program, image)


def driver_faults(machine):
    """Each driver call fails once: the program runs as before, the cause is named."""
    program = machine.counter("--mib", "16")
    for call in ("lock", "checkpoint"):
        for rule in ("fail=999", "fail=801", "fail=304"):
            machine.faults(f"{call} {rule}\n")
            before = None
            result = machine.gpucr("suspend", "--pid", program.pid, expect=3)
            machine.faults("")
            check(result["error"]["driver_code"] == int(rule.split("=")[1]), result["error"])
            check(result["outcome"] == "rolled-back", result["outcome"])
            check(before is None and not all_stopped(program.pid), "is still stopped")
            program.goes_on()


def unverified_is_said(machine):
    """When the tree cannot be verified after a refused dump, that is what is reported."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = machine.start(sys.executable, os.path.join(here, "holder.py"), "tcp", ready=False)
    wait_until(lambda: "ready" in program.output(), 10, "ready")
    result = machine.gpucr("checkpoint", "--pid", program.pid, "-o", machine.path("image"),
                           "--force", "tcp-established", expect=4,
                           env={"GPUCR_FAULT": "snapshot.repair"})
    check(result["outcome"] == "not-rolled-back", result["outcome"])
    check("snapshot.repair" in result["error"]["text"], result["error"])
    check("criu refused the dump" in result["error"]["text"], result["error"])


def fault_points(machine):
    """The named fault points of the flow: failed there, rolled back."""
    program = machine.counter("--mib", "16")
    image = machine.path("image")
    suspend = ("suspend", "--pid", program.pid)
    checkpoint = ("checkpoint", "--pid", program.pid, "-o", image)
    points = [("job.lock", suspend), ("job.hold", suspend), ("job.checkpoint", suspend),
              ("suspend.record", suspend), ("checkpoint.dump", checkpoint),
              ("snapshot.take", checkpoint),
              ("checkpoint.commit", checkpoint)]
    for point, command in points:
        before = program.goes_on()
        result = machine.gpucr(*command, expect=3, env={"GPUCR_FAULT": point})
        check(point in result["error"]["text"] + str(result), result["error"])
        check(program.goes_on() > before, f"{point}: does not go on")
    no_image(machine, image)
    machine.gpucr(*suspend)
    result = machine.gpucr("resume", "--pid", program.pid, expect=3,
                           env={"GPUCR_FAULT": "job.restore"})
    check(processes(result)[program.pid]["state_after"] == "suspended", result)
    machine.gpucr("resume", "--pid", program.pid)
    program.before = program.goes_on()
    machine.gpucr(*checkpoint)
    program.reap()
    for point in ("restore.engine", "job.restore"):
        machine.gpucr("restore", image, expect=3, env={"GPUCR_FAULT": point})
        check(not alive(program.pid), f"{point}: something was left")
    restores(machine, program, image)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("needs root")
    if not find_criu():
        skip("no criu on this machine")
    run_tests([criu_missing, criu_hangs_at_start, criu_hangs_in_dump, criu_misbehaves, image_exists,
               image_not_writable, disk_full, no_permission, pid_not_there, traced_by_gdb,
               not_cuda, criu_refuses, criu_option_is_checked_first, session_outside, pid_taken, file_missing, image_damaged,
               image_unsafe, driver_faults, unverified_is_said, fault_points])
