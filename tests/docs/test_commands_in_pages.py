#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every command and option that README.md and docs/ name exists.

usage: test_commands_in_pages.py SOURCE_DIR GPUCR
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import unittest

from markdown import commands, plain, table

SOURCE, GPUCR = sys.argv[1:3]
PAGES = ["README.md"] + sorted(
    os.path.relpath(p, SOURCE) for p in glob.glob(os.path.join(SOURCE, "docs/*.md")))
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
        return f.read()


def help_of(*words):
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=30,
                          cwd=SOURCE)
    return done.stdout if done.returncode == 0 else ""


def options_in(text):
    return set(OPTION.findall(text))


TOP = help_of(GPUCR)
VERBS = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +[A-Z]", TOP.split("\nCommands:")[1].split("\n\n")[0], re.M)
HELP = {verb: help_of(GPUCR, *verb.split()) for verb in VERBS}
ALL = options_in(TOP) | set().union(*(options_in(text) for text in HELP.values()))


def words_of(command):
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def gpucr_call(words):
    """The words behind gpucr, if the command calls it."""
    for i, word in enumerate(words):
        if os.path.basename(word) == "gpucr" and not word.startswith("-"):
            return words[i + 1 :]
        if word not in ("$", "#", "sudo", "setsid") and "=" not in word:
            return None
    return None


class Pages(unittest.TestCase):
    def every_command(self):
        for page in PAGES:
            for number, command in commands(read(page)):
                yield f"{page}:{number}: {command}", command

    def test_calls_of_gpucr(self):
        seen = 0
        for where, command in self.every_command():
            call = gpucr_call(words_of(command))
            if not call or call[0] in ("COMMAND", "…"):
                continue
            seen += 1
            with self.subTest(where):
                if call[0].startswith("-"):
                    self.assertLessEqual(options_in(" ".join(call)), options_in(TOP))
                    continue
                verb = " ".join(call[:2]) if call[0] == "image" else call[0]
                self.assertIn(verb, HELP, "no such command")
                for word in call:
                    if word.startswith("-"):
                        self.assertIn(word.split("=")[0], options_in(HELP[verb]))
        self.assertGreater(seen, 5, "the pages show no commands?")

    def test_bare_options(self):
        for where, command in self.every_command():
            if re.match(r"--[a-z]", command):
                with self.subTest(where):
                    self.assertIn(re.match(OPTION, command).group(1), ALL)

    def test_scripts(self):
        for where, command in self.every_command():
            words = words_of(command.removeprefix("$ "))
            if not words or not re.match(r"(scripts|tests|bench)/[\w./-]+$", words[0]):
                continue
            with self.subTest(where):
                self.assertTrue(glob.glob(os.path.join(SOURCE, words[0])), "no such file")
                for word in words[1:]:
                    if word.startswith("--"):
                        self.assertIn(word, help_of(os.path.join(SOURCE, words[0])))

    def test_make_targets(self):
        targets = re.findall(r"^([a-z]+):", read("Makefile"), re.M)
        for where, command in self.every_command():
            m = re.match(r"(?:\$ )?make ([a-z]+)\b", command)
            if m:
                with self.subTest(where):
                    self.assertIn(m.group(1), targets)


class Readme(unittest.TestCase):
    def test_lists_every_command(self):
        listed = [plain(row[0]).removeprefix("gpucr ") for row in table(read("README.md"), "command")]
        self.assertEqual(listed, [v for v in VERBS if v != "help"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
