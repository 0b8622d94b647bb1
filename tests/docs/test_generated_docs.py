#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The committed manual page and completions are those of the option table, and work.

usage: test_generated_docs.py GEN_DOCS SOURCE_DIR [--update]
"""
import os
import shutil
import subprocess
import sys
import unittest

KINDS = {
    "man": "man/gpucr.1",
    "bash": "completions/gpucr.bash",
    "zsh": "completions/_gpucr",
    "fish": "completions/gpucr.fish",
}
TOOL, SOURCE = sys.argv[1], sys.argv[2]


def generate(kind):
    return subprocess.run([TOOL, kind], check=True, capture_output=True, timeout=30).stdout


def path_of(kind):
    return os.path.join(SOURCE, KINDS[kind])


def run(*command, **keywords):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)


def need(program):
    found = shutil.which(program)
    if not found:
        raise unittest.SkipTest(f"{program} is not installed")
    return found


class Generated(unittest.TestCase):
    def test_committed_copies_are_current(self):
        for kind, name in KINDS.items():
            with self.subTest(file=name), open(path_of(kind), "rb") as f:
                self.assertEqual(f.read(), generate(kind), f"regenerate {name}: {__doc__}")

    def test_tool_refuses_other_kinds(self):
        self.assertEqual(run(TOOL, "pdf").returncode, 1)


class Man(unittest.TestCase):
    def render(self):
        env = {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PATH": os.environ["PATH"]}
        return run(need("groff"), "-man", "-Tutf8", "-ww", "-P-cbou", path_of("man"), env=env)

    def test_no_warnings(self):
        self.assertEqual(self.render().stderr, "")

    def test_sections(self):
        text = self.render().stdout
        for title in ("NAME", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES"):
            self.assertIn(f"\n{title}\n", text)
        self.assertIn("--leave-running", text)
        self.assertIn("GPUCR_DRIVER_ROOT", text)


class Bash(unittest.TestCase):
    def complete(self, *words):
        script = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=();'
            ' _gpucr; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        result = run(need("bash"), "-c", script, "bash", path_of("bash"), "gpucr", *words)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_commands(self):
        self.assertIn("checkpoint", self.complete(""))
        self.assertEqual(self.complete("sus"), ["suspend"])
        self.assertEqual(self.complete("image", ""), ["inspect", "verify"])
        self.assertEqual(self.complete("--log", "x", "sus"), ["suspend"])

    def test_options(self):
        self.assertEqual(self.complete("checkpoint", "--gh"), ["--ghost-limit"])
        self.assertEqual(self.complete("restore", "--gh"), [])
        self.assertEqual(self.complete("image", "inspect", "--js"), ["--json"])
        self.assertEqual(self.complete("--ver"), ["--verbose", "--version"])

    def test_arguments(self):
        self.assertIn(str(os.getpid()), self.complete("suspend", "--pid", ""))
        self.assertIn("/usr", self.complete("restore", "/us"))
        self.assertEqual(self.complete("checkpoint", "--ghost-limit", ""), [])


class OtherShells(unittest.TestCase):
    def test_zsh(self):
        self.assertEqual(run(need("zsh"), "-n", path_of("zsh")).stderr, "")

    def test_fish(self):
        self.assertEqual(run(need("fish"), "--no-execute", path_of("fish")).stderr, "")


if __name__ == "__main__":
    if sys.argv[3:] == ["--update"]:
        for kind in KINDS:
            with open(path_of(kind), "wb") as f:
                f.write(generate(kind))
        sys.exit(0)
    unittest.main(argv=sys.argv[:1])
