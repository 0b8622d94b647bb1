#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""docs/errors.md is the contract: its tables equal the enums, the names and the exit codes.

usage: test_errors_page.py SOURCE_DIR
"""
import os
import re
import sys
import unittest

from markdown import plain, table

SOURCE = sys.argv[1]


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
        return f.read()


PAGE, HEADER, NAMES = read("docs/errors.md"), read("include/gpucr/error.h"), read("src/base/err.c")


class Codes(unittest.TestCase):
    def in_code(self):
        numbers = {m[0]: int(m[1]) for m in re.findall(r"(GPUCR_(?:OK|ERR_\w+)) = (-?\d+)", HEADER)}
        names = dict(re.findall(r"\[-(GPUCR_\w+)\] = \"([\w-]+)\"", NAMES))
        self.assertEqual(set(numbers), set(names))
        return [(numbers[c], names[c]) for c in sorted(numbers, key=lambda c: -numbers[c])]

    def test_page_equals_code(self):
        page = [(int(row[0]), plain(row[1])) for row in table(PAGE, "number")]
        self.assertEqual(page, self.in_code())

    def test_names_are_those_of_the_constants(self):
        for constant, name in re.findall(r"\[-GPUCR_(\w+)\] = \"([\w-]+)\"", NAMES):
            self.assertEqual(constant.replace("ERR_", "").lower().replace("_", "-"), name)

    def test_every_code_is_explained(self):
        for row in table(PAGE, "number"):
            self.assertEqual(len(row), 4, row)
            self.assertTrue(row[2], row)


class Stages(unittest.TestCase):
    def test_page_equals_code(self):
        body = re.search(r"enum gpucr_stage \{(.*?)\};", HEADER, re.S).group(1)
        constants = [c for c in re.findall(r"GPUCR_STAGE_\w+", body) if c != "GPUCR_STAGE_MAX"]
        names = dict(re.findall(r"\[(GPUCR_STAGE_\w+)\] = \"([\w-]+)\"", NAMES))
        self.assertEqual([plain(row[0]) for row in table(PAGE, "stage")],
                         [names[c] for c in constants])
        self.assertEqual(set(names), set(constants))


class ExitCodes(unittest.TestCase):
    def test_page_equals_help(self):
        text = read("cli/verbs.c").split("cli_exit_table[] = {")[1].split("};")[0]
        wanted = []
        for entry in re.findall(r"\{((?:\s*\"[^\"]*\",?)+)\}", text):
            number, *parts = re.findall(r"\"([^\"]*)\"", entry)
            wanted.append((number, "".join(parts).lower()))
        page = [(row[0], plain(row[1]).lower()) for row in table(PAGE, "status")]
        self.assertEqual(page, wanted)


class Outcomes(unittest.TestCase):
    def test_page_names_them(self):
        names = re.findall(r"\[GPUCR_OUTCOME_\w+\] = \"([\w-]+)\"", read("src/job/result.c"))
        self.assertEqual(len(names), 4)
        for name in names:
            self.assertIn(f"`{name}`", PAGE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
