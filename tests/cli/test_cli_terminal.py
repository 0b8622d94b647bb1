#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Progress on a terminal, signals, and a restored program in the foreground."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from cli_testlib import SCRIPTED, Case, environment, main, scripted, scratch

SUSPEND = ("suspend", "4711")


class Terminal:
    """The command with stderr (and stdout) on a terminal of its own."""

    def __init__(self, ending, *arguments, columns=80, **extra):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        self.began = time.monotonic()
        self.text = ""
        self.process = subprocess.Popen(
            [SCRIPTED, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env=environment(GPUCR_TEST_ENDING=ending, **extra),
        )
        os.close(slave)

    def read(self, until=None, seconds=30):
        """Read to the end, or until the text is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (until and until in self.text):
            if not select.select([self.master], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:  # EIO: nobody has the other end open
                data = b""
            if not data:
                break
            self.text += data.decode(errors="replace")
        return self.text

    def end(self):
        self.read()
        os.close(self.master)
        return self.process.wait(30)


class Progress(Case):
    def test_shown_on_a_terminal_and_cleared(self):
        terminal = Terminal("slow", *SUSPEND)
        terminal.read(until="GB/s")
        self.assertGreater(time.monotonic() - terminal.began, 0.9)
        self.assertEqual(terminal.end(), 0)
        drawn = re.findall(r"\rdump  [^\r]*\x1b\[K", terminal.text)
        self.assertGreater(len(drawn), 3)
        self.assertLess(len(drawn), 18)
        self.assertRegex(drawn[0], r"dump  1\d\.0 GiB of 25\.0 GiB  \d+\.\d\d GB/s  \d s left")
        # what follows the last line is the report, on a cleared line
        self.assertIn("\r\x1b[K", terminal.text[terminal.text.rindex(drawn[-1]) + len(drawn[-1]):])

    def test_never_wider_than_the_terminal(self):
        terminal = Terminal("slow", *SUSPEND, columns=30)
        self.assertEqual(terminal.end(), 0)
        for line in re.findall(r"\r(dump[^\r]*)\x1b\[K", terminal.text):
            self.assertLess(len(line), 30)

    def test_none_when_quick_quiet_or_piped(self):
        for ending, arguments in (("done", SUSPEND), ("slow", (*SUSPEND, "-q"))):
            terminal = Terminal(ending, *arguments)
            self.assertEqual(terminal.end(), 0)
            self.assertNotIn("\x1b", terminal.text)
        piped = scripted("slow", *SUSPEND)
        self.assertNotIn("\r", piped.stderr + piped.stdout)
        self.assertNotIn("GB/s", piped.stderr)

    def test_nothing_is_cut_off_at_80_columns(self):
        terminal = Terminal("done", *SUSPEND)
        self.assertEqual(terminal.end(), 0)
        self.assertRegex(terminal.text, r"4711 trainer +running -> suspended +0,1 +20.0 GiB -> 0 B")
        for line in terminal.text.split("\r\n"):
            self.assertLessEqual(len(line), 80)


class Stopping(Case):
    def start(self):
        process = subprocess.Popen(
            [SCRIPTED, *SUSPEND, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(GPUCR_TEST_ENDING="slow"),
        )
        time.sleep(0.5)
        return process

    def test_first_signal_rolls_back(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start()
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 3)
            self.assertIn('"cancelled"', stdout)
            self.assertEqual(stderr.count("gpucr: stopping"), 1)

    def test_second_signal_tells_what_is_at_work(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3)
        self.assertIn("still undoing, so that nothing is lost; at work: dump", stderr)

    def test_ignored_hangup_stays_ignored(self):
        process = subprocess.Popen(
            ["nohup", SCRIPTED, *SUSPEND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(GPUCR_TEST_ENDING="slow"),
        )
        time.sleep(0.5)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0)


class Foreground(Case):
    def start(self, program, *extra):
        return subprocess.Popen(
            [SCRIPTED, "restore", "/x", "--foreground", *extra],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(GPUCR_TEST_ENDING="done", GPUCR_TEST_PROGRAM=program),
        )

    def test_exits_with_the_status_of_the_program(self):
        for program, status in (("exit 0", 0), ("exit 42", 42), ("kill -KILL $$", 137)):
            process = self.start(program)
            stdout, _ = process.communicate(timeout=30)
            self.assertEqual(process.returncode, status)
            self.assertEqual(stdout, "")

    def test_passes_signals_on(self):
        for name in ("TERM", "INT", "HUP", "USR1", "USR2"):
            ready = os.path.join(scratch(self), "ready")
            process = self.start(
                f"trap 'echo got {name}; exit 9' {name}; : > {ready};"
                " while :; do sleep 0.05; done"
            )
            while not os.path.exists(ready):
                time.sleep(0.02)
            process.send_signal(getattr(signal, f"SIG{name}"))
            stdout, stderr = process.communicate(timeout=30)
            self.assertEqual(stdout, f"got {name}\n", stderr)
            self.assertEqual(process.returncode, 9)

    def test_json_has_the_wait_status(self):
        process = self.start("exit 3", "--json")
        stdout, _ = process.communicate(timeout=30)
        self.assertIn('"wait_status": 768', stdout)
        self.assertIn('"exit_status": 3', stdout)

    def test_failed_restore_has_its_own_status(self):
        result = scripted("rolled-back", "restore", "/x", "--foreground")
        self.expect(result, 3, stderr="everything is as it was before")


if __name__ == "__main__":
    main()
