#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""docs/findings.md lists exactly the findings of the preflight, as its table has them.

usage: test_findings_page.py SOURCE_DIR [--update]

With --update the page's table is written anew from the code; what a finding means stays
as it was written by hand, and is empty for a new one.
"""
import glob
import os
import re
import sys
import unittest

from markdown import plain, table

SOURCE = sys.argv[1]
KIND = re.compile(
    r"\[(GPUCR_FINDING_\w+)\]\s*=\s*\{\"([^\"]+)\",\s*GPUCR_SEVERITY_(\w+),\s*(true|false),"
    r"\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)\}")


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
        return f.read()


def constants():
    body = read("src/job/preflight.h").split("enum gpucr_finding_id {")[1].split("}")[0]
    return [c for c in re.findall(r"GPUCR_FINDING_\w+", body) if c != "GPUCR_FINDING_MAX"]


def in_code():
    text = read("src/job/preflight.c")
    codes = dict(re.findall(r"\{(GPUCR_FINDING_\w+), GPUCR_ERR_(\w+)\}", text))
    found = {}
    for constant, name, severity, fixed, remedy in KIND.findall(text):
        refuses = severity == "REFUSE"
        found[constant] = {
            "name": name,
            "severity": severity.lower(),
            "force": ("no" if fixed == "true" else "yes") if refuses else "",
            "code": codes.get(constant, "REFUSED").lower().replace("_", "-") if refuses else "",
            "remedy": "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", remedy)),
        }
    return found


def update():
    page = read("docs/findings.md")
    meanings = {plain(row[0]): row[4] for row in table(page, "name")}
    found = in_code()
    lines = []
    for one in (found[c] for c in constants()):
        code = f"`{one['code']}`" if one["code"] else ""
        lines.append(f"| `{one['name']}` | {one['severity']} | {one['force']} | {code} | "
                     f"{meanings.get(one['name'], '')} | {one['remedy']} |")
    head = page[: re.search(r"^\| name \|.*\n\|.*\n", page, re.M).end()]
    with open(os.path.join(SOURCE, "docs/findings.md"), "w", encoding="utf-8") as f:
        f.write(head + "\n".join(lines) + "\n")


class Page(unittest.TestCase):
    maxDiff = None

    def test_lists_exactly_the_findings(self):
        found = in_code()
        self.assertEqual(set(found), set(constants()), "the table in preflight.c has gaps")
        rows = table(read("docs/findings.md"), "name")
        self.assertEqual([plain(row[0]) for row in rows],
                         [found[c]["name"] for c in constants()])

    def test_says_of_each_what_the_code_says(self):
        by_name = {f["name"]: f for f in in_code().values()}
        for name, severity, force, code, meaning, remedy in table(read("docs/findings.md"), "name"):
            wanted = by_name[plain(name)]
            with self.subTest(finding=name):
                self.assertEqual(severity, wanted["severity"])
                self.assertEqual(force, wanted["force"])
                self.assertEqual(plain(code), wanted["code"])
                self.assertEqual(plain(remedy), plain(wanted["remedy"]))
                self.assertTrue(meaning.endswith("."), "what it means is a sentence")

    def test_each_can_arise(self):
        text = "".join(read(os.path.relpath(path, SOURCE))
                       for path in glob.glob(os.path.join(SOURCE, "src/**/*.c"), recursive=True)
                       if not path.endswith("job/preflight.c"))
        for constant in constants():
            self.assertTrue(constant in text, f"nothing raises {constant}")


if __name__ == "__main__":
    if sys.argv[2:] == ["--update"]:
        update()
        sys.exit(0)
    unittest.main(argv=sys.argv[:1])
