# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the scenario, fault and GPU tests share: a machine (simulated or real), sample
programs on it, and the command. Outcomes are read back from the programs, from /proc
and from the files, never from an exit status alone."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get(
    "GPUCR_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
)
BUILD = os.environ.get("GPUCR_BUILD", os.path.join(SOURCE, "build", "dev"))
SKIP = 77


class Failed(Exception):
    """An assertion of a test."""


class Skipped(Exception):
    """This machine cannot run the test; the reason is printed."""


def skip(reason):
    """Of a whole script, before its tests."""
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def skip_test(reason):
    """Of one test."""
    raise Skipped(reason)


def check(condition, text):
    if not condition:
        raise Failed(text)


def wait_until(condition, seconds, text):
    """Poll until condition() is true; its last value is returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {text}")
        time.sleep(0.005)


def proc_stat(pid):
    """Fields of /proc/PID/stat after the name, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid):
    stat = proc_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def thread_states(pid):
    """Letter of every thread."""
    states = ""
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            stat = proc_stat(f"{pid}/task/{tid}")
            states += stat[0] if stat else ""
    except FileNotFoundError:
        pass
    return states


def frozen_cgroup(pid):
    """The frozen cgroup v2 of ours in which a process sits, or None."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
            path = re.search(r"^0::(\S*/gpucr-\S+)$", f.read(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return None
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        events = path and f"{mount}{path.group(1)}/cgroup.events"
        if events and os.path.exists(events) and "frozen 1" in open(events, encoding="ascii").read():
            return mount + path.group(1)
    return None


def all_stopped(pid):
    """No thread of it can run: all are T, or it is frozen."""
    states = thread_states(pid)
    return states != "" and (set(states) <= {"T"} or frozen_cgroup(pid) is not None)


def tracer_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"TracerPid:\s+(\d+)", f.read()).group(1))


def find_criu():
    for path in (os.environ.get("GPUCR_CRIU"), os.path.join(SOURCE, "build", "criu", "criu"),
                 shutil.which("criu")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def has_gpu():
    return os.path.exists("/dev/nvidia0")


class Machine:
    """A place to run programs: a simulated driver root, or the real driver."""

    def __init__(self, gpus=1, vram=None, real=False):
        self.real = real
        self.dir = tempfile.mkdtemp(prefix="gpucr-test-")
        os.chmod(self.dir, 0o755)
        self.programs = []
        self.restored = []
        self.root = os.path.join(self.dir, "sim")
        if not real:
            self._create_sim(gpus, vram)

    def _create_sim(self, gpus, vram):
        command = [self.tool("gpucr-sim"), "create", self.root, "--gpus", str(gpus)]
        if vram:
            command += ["--vram", str(vram)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=30)

    @staticmethod
    def tool(name):
        for folder in ("", "sim", "sim/bin", "sim/samples"):
            path = os.path.join(BUILD, folder, name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        raise Failed(f"{name} is not built in {BUILD}")

    def path(self, name):
        return os.path.join(self.dir, name)

    def env(self, extra=None):
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin",
            "HOME": "/root",
            "ASAN_OPTIONS": "detect_leaks=0",
            "GPUCR_STATE_DIR": self.path("state"),
        }
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "NCCL_NVLS_ENABLE",
                     "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS", "LD_LIBRARY_PATH"):
            if self.real and name in os.environ:
                env[name] = os.environ[name]
        if self.real and "PATH" in os.environ:
            env["PATH"] = os.environ["PATH"]
        if not self.real:
            env["GPUCR_SIM_ROOT"] = self.root
            env["LD_LIBRARY_PATH"] = os.path.join(self.root, "lib")
            env["GPUCR_DEV_ROOT"] = os.path.join(self.root, "dev")
        criu = find_criu()
        if criu:
            env["GPUCR_CRIU"] = criu
        env.update(extra or {})
        return env

    def faults(self, text):
        """Rules of the simulated driver; an empty text removes them."""
        with open(os.path.join(self.root, "state", "faults"), "w", encoding="utf-8") as f:
            f.write(text)

    def start(self, *command, ready=True, new_session=True, env=None, timeout=60):
        program = Program(self, command, new_session, env)
        self.programs.append(program)
        if ready:
            program.wait_ready(timeout)
        return program

    def counter(self, *args, **kwargs):
        return self.start(self.tool("counter"), *args, **kwargs)

    def gpucr(self, *args, expect=0, timeout=120, env=None):
        """Run the command with --json; returns the parsed document with its exit status."""
        command = [self.tool("gpucr"), *[str(a) for a in args], "--json"]
        run = subprocess.run(command, env=self.env(env), stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=timeout, check=False)
        try:
            document = json.loads(run.stdout)
        except json.JSONDecodeError as bad:
            raise Failed(f"{' '.join(command)}: no JSON ({bad}), status {run.returncode}\n"
                         f"stdout: {run.stdout[-2000:]}\nstderr: {run.stderr[-4000:]}") from bad
        document["status"] = run.returncode
        document["stderr"] = run.stderr
        if expect is not None and run.returncode != expect:
            raise Failed(f"{' '.join(command)}: status {run.returncode}, expected {expect}\n"
                         f"{json.dumps(document, indent=1)[-6000:]}")
        return document

    def close(self):
        for program in self.programs:
            program.end()
        for pid in self.restored:
            kill_tree(pid)
        if not self.real:
            thaw_leftovers()
        shutil.rmtree(self.dir, ignore_errors=True)


def thaw_leftovers():
    """Nothing to do: a program of a test is killed, frozen or not."""


def descendants(pid):
    pids = [pid]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = proc_stat(entry)
            if stat and int(stat[1]) == pid:
                pids += descendants(int(entry))
    return pids


def kill_tree(pid):
    for one in descendants(pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Program:
    """A program under test with clean descriptors: stdin /dev/null, output to a file."""

    def __init__(self, machine, command, new_session, env):
        self.machine = machine
        self.log = tempfile.mktemp(prefix="out-", dir=machine.dir)
        with open(self.log, "wb") as out:
            self.popen = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                close_fds=True, start_new_session=new_session, cwd="/", env=machine.env(env))
        self.pid = self.popen.pid

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_ready(self, seconds=60):
        def ready():
            if self.popen.poll() is not None:
                raise Failed(f"ended with {self.popen.returncode}: {self.output()[-2000:]}")
            return "ready" in self.output()

        wait_until(ready, seconds, f"program {self.pid} is ready")

    def reap(self):
        """Collect a zombie of ours; the status or None."""
        return self.popen.poll()

    def verify(self, seconds=60, count=1):
        """Ask for a verification; returns its lines as dictionaries, all good."""
        before = len(self.lines())
        os.kill(self.pid, signal.SIGUSR1)
        lines = wait_until(
            lambda: self.lines()[before:] if len(self.lines()) >= before + count else None,
            seconds, f"program {self.pid} verifies; it printed {self.output()[-500:]!r}")
        for line in lines:
            for key, value in line.items():
                if key.endswith("bad"):
                    check(value == "0", f"memory differs: {line}")
        return lines

    def lines(self):
        found = []
        for line in self.output().split("\n")[:-1]:
            if line.startswith("verify "):
                found.append(dict(f.split("=", 1) for f in line.split()[1:] if "=" in f))
        return found

    def counter(self):
        """Verified value of its counter."""
        return int(self.verify()[0]["counter"])

    def goes_on(self):
        """The counter grows and memory is intact."""
        first = self.counter()
        time.sleep(0.05)
        second = self.counter()
        check(second > first, f"the counter of {self.pid} stands still at {first}")
        return second

    def end(self):
        kill_tree(self.pid)
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            pass


def processes(document):
    """Processes of a result by pid."""
    return {p["pid"]: p for p in document["processes"]}


def phases(document):
    return {p["name"]: p for p in document["phases"]}


def run_tests(tests, machine_args=None):
    """Run functions that take a Machine, each on a fresh one; the names given on the
    command line, or all. Ends with the plain closing line."""
    names = sys.argv[1:]
    machine_args = dict(machine_args or {})
    if os.environ.get("GPUCR_TEST_REAL") == "1":
        machine_args["real"] = True
        if not has_gpu():
            skip("no NVIDIA GPU on this machine")
    passed = failed = skipped = 0
    for test in tests:
        if names and test.__name__ not in names:
            continue
        machine = Machine(**machine_args)
        begin = time.monotonic()
        try:
            test(machine)
            passed += 1
            print(f"ok   {test.__name__} ({time.monotonic() - begin:.2f} s)", flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"skip {test.__name__}: {reason}", flush=True)
        except (Failed, subprocess.TimeoutExpired, AssertionError) as error:
            failed += 1
            print(f"FAIL {test.__name__}: {error}", flush=True)
            for program in machine.programs:
                print(f"     output of {program.pid}: {program.output()[-800:]!r}", flush=True)
        finally:
            machine.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if failed:
        sys.exit(1)
    sys.exit(0 if passed else SKIP)
