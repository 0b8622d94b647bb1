#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is installed is whole: a program is built and run with it by pkg-config, the library
shows exactly the functions that its headers declare, and the command runs.

usage: test_install.py BUILD_DIR SOURCE_DIR
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (os.path.abspath(a) for a in sys.argv[1:3])
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <gpucr/gpucr.h>

int main(void)
{
    struct gpucr_result result = GPUCR_RESULT_INIT;
    struct gpucr_job_options options = {.pid = -1};
    int rc = gpucr_suspend(&options, &result);

    printf("%s %s\n", gpucr_version(), gpucr_code_name(rc));
    gpucr_result_done(&result);
    return strcmp(gpucr_version(), GPUCR_VERSION) != 0 || rc >= 0;
}
"""


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def declared():
    names = set()
    for header in glob.glob(os.path.join(SOURCE, "include/gpucr/*.h")):
        with open(header, encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/|^\s*#.*?(?<!\\)$", "", f.read(), flags=re.S | re.M)
        names.update(re.findall(r"^[\w\s*]*?\b(gpucr_\w+)\(", text, re.M))
    return names


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = cls.folder.name
        done = run("cmake", "--install", BUILD, "--prefix", cls.root)
        if done.returncode:
            raise RuntimeError(done.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def find(self, pattern):
        found = glob.glob(os.path.join(self.root, pattern), recursive=True)
        self.assertEqual(len(found), 1, f"{pattern}: {found}")
        return found[0]

    def test_library_shows_what_the_headers_declare(self):
        done = run("nm", "-D", "--defined-only", self.find("lib/**/libgpucr.so.0"))
        shown = {line.split()[2].split("@")[0] for line in done.stdout.splitlines()
                 if line.split()[1] in "TDBRVW"}
        self.assertEqual(sorted(name for name in shown if name.startswith("gpucr_")),
                         sorted(declared()))
        others = {name for name in shown if not name.startswith(("gpucr_", "__asan", "__odr_asan"))}
        self.assertEqual(others, set(), "symbols of others are shown")

    def test_program_builds_and_runs(self):
        config = self.find("lib/**/gpucr.pc")
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(config), ASAN_OPTIONS="detect_leaks=0")
        env["LD_LIBRARY_PATH"] = os.path.dirname(os.path.dirname(config))
        flags = run("pkg-config", "--cflags", "--libs", "gpucr", env=env)
        self.assertEqual(flags.returncode, 0, flags.stderr)
        path = os.path.join(self.root, "program")
        with open(path + ".c", "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        needed = run("readelf", "-d", self.find("lib/**/libgpucr.so.0")).stdout
        sanitizers = [f"-fsanitize={name}" for name, library in
                      (("address", "libasan"), ("undefined", "libubsan"), ("thread", "libtsan"))
                      if library in needed]
        built = run("cc", "-Wall", "-Wextra", "-Werror", "-std=c11", "-o", path, path + ".c",
                    *sanitizers, *flags.stdout.split())
        self.assertEqual(built.returncode, 0, built.stderr)
        done = run(path, env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_command_and_pages(self):
        done = run(self.find("bin/gpucr"), "--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        for page in ("share/man/man1/gpucr.1", "share/bash-completion/completions/gpucr"):
            self.find(page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
