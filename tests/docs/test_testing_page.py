#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""docs/testing.md lists every fault point, label and preset, and a test arms each fault point.

usage: test_testing_page.py SOURCE_DIR
"""
import glob
import json
import os
import re
import sys
import unittest

from markdown import plain, table

SOURCE = sys.argv[1]


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def files(*patterns):
    for pattern in patterns:
        for path in glob.glob(os.path.join(SOURCE, pattern), recursive=True):
            if os.path.isfile(path):
                yield os.path.relpath(path, SOURCE)


def fault_points():
    points = {}
    for name in files("src/**/*.c"):
        for point in re.findall(r"\bgpucr_fault\(\s*\"([^\"]+)\"", read(name)):
            points.setdefault(point, []).append(name)
    return points


PAGE = read("docs/testing.md")


class FaultPoints(unittest.TestCase):
    def test_names_are_literal_and_used_once(self):
        for name in files("src/**/*.c"):
            if name == "src/base/fault.c":
                continue
            text = read(name)
            self.assertEqual(len(re.findall(r"\bgpucr_fault\(", text)),
                             len(re.findall(r"\bgpucr_fault\(\s*\"[\w.-]+\"", text)), name)
        for point, places in fault_points().items():
            self.assertEqual(len(places), 1, f"{point} is in {places}")

    def test_page_lists_exactly_those(self):
        self.assertEqual(sorted(plain(row[0]) for row in table(PAGE, "fault point")),
                         sorted(fault_points()))

    def test_page_says_where_each_is(self):
        for point, where in table(PAGE, "fault point"):
            self.assertRegex(where, r"\w+ \w+", point)

    def test_a_test_arms_each(self):
        texts = {name: read(name) for name in files("tests/**/*.py", "tests/**/*.c", "tests/**/*.sh",
                                                    "tests/**/CMakeLists.txt")
                 if not name.startswith("tests/docs/")}
        missing = []
        for point in fault_points():
            word = re.compile(r"(?<![\w.-])" + re.escape(point) + r"(?![\w.-])")
            if not any(word.search(text) for text in texts.values()):
                missing.append(point)
        self.assertEqual(sorted(missing), [], "no test under tests/ names these fault points")


class Build(unittest.TestCase):
    def test_page_lists_the_labels(self):
        labels = {"unit"}  # the default of gpucr_unit_test
        for name in files("tests/**/CMakeLists.txt", "sim/**/CMakeLists.txt", "bench/CMakeLists.txt"):
            for words in re.findall(r"LABELS\s+\"?((?:[a-z]+[ ;\"]*)+)", read(name)):
                labels.update(re.findall(r"[a-z]+", words))
        self.assertEqual(sorted(plain(row[0]) for row in table(PAGE, "label")), sorted(labels))

    def test_page_lists_the_presets(self):
        presets = [p["name"] for p in json.loads(read("CMakePresets.json"))["configurePresets"]
                   if not p.get("hidden")]
        self.assertEqual([plain(row[0]) for row in table(PAGE, "preset")], presets)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
