#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The analysers are really asked: they find planted faults, know what analyze.h tells
them, and are not asked twice about the same text.

usage: test_analyze.py ANALYZE SOURCE_DIR
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ANALYZE, SOURCE = (os.path.abspath(a) for a in sys.argv[1:3])
HEAD = """/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include "base/cleanup.h"
#include "base/err.h"
int use(const char *text);
int planted(int n, struct gpucr_error *err);
"""
FILES = {
    "good": """
static int make(int n, char **ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *text = n > 0 ? calloc(1, 8) : NULL;

    if (!text)
        return gpucr_error_pid(err, gpucr_error_no_memory(err), n);
    if (n > 5)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "%d is too much", n);
    *ret = gpucr_steal_ptr(&text);
    return 0;
}

int planted(int n, struct gpucr_error *err)
{
    char *text = NULL;
    int rc = make(n, &text, err);

    if (rc < 0)
        return rc;
    text[0] = 'x';
    free(text);
    return 0;
}
""",
    "null": """
int planted(int n, struct gpucr_error *err)
{
    char *text = n > 3 ? calloc(1, 8) : NULL;

    (void)err;
    text[0] = 'x';
    n = use(text);
    free(text);
    return n;
}
""",
    "twice": """
int planted(int n, struct gpucr_error *err)
{
    char *text = malloc(8);

    (void)err;
    free(text);
    if (n > 3)
        free(text);
    return n;
}
""",
}


def plant(root):
    shutil.copytree(os.path.join(SOURCE, "include"), os.path.join(root, "include"))
    os.makedirs(os.path.join(root, "src/base"))
    os.makedirs(os.path.join(root, "src/proc"))
    for name in ("cleanup.h", "err.h"):
        shutil.copy(os.path.join(SOURCE, "src/base", name), os.path.join(root, "src/base"))
    commands = []
    for name, body in FILES.items():
        path = os.path.join(root, "src/proc", name + ".c")
        with open(path, "w", encoding="utf-8") as f:
            f.write(HEAD + body)
        commands.append({"directory": root, "file": path, "command":
                         f"cc -std=gnu17 -D_GNU_SOURCE -I{root}/src -I{root}/include -Wlogical-op "
                         f"-fstack-clash-protection -fsanitize=address -o x.o -c {path}"})
    os.makedirs(os.path.join(root, "build/dev"))
    with open(os.path.join(root, "build/dev/compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump(commands, f)


def analyze(root):
    run = subprocess.run([ANALYZE, "2", "--root", root], capture_output=True, text=True, timeout=100)
    if "LEFT OUT" in run.stderr:
        print(f"skipped: {run.stderr}")
        sys.exit(77)
    found = re.findall(r"^src/proc/(\w+)\.c:\d+:\d+: warning: .*\[(\S+)\]$", run.stdout, re.M)
    known = re.search(r"(\d+) files, (\d+) of them known", run.stderr)
    return run, set(found), (int(known.group(1)), int(known.group(2)))


def check(condition, run):
    if not condition:
        sys.exit(f"not as expected:\n{run.stdout}\n{run.stderr}")


def main():
    with tempfile.TemporaryDirectory() as root:
        plant(root)
        run, found, counts = analyze(root)
        check(run.returncode == 1 and counts == (3, 0), run)
        check({name for name, _ in found} == {"null", "twice"}, run)
        for name in ("null", "twice"):
            tools = {"gcc" if how.startswith("-Wanalyzer") else "clang" for n, how in found
                     if n == name}
            check(tools == {"gcc", "clang"}, run)
        again, found_again, counts = analyze(root)
        check(again.returncode == 1 and counts == (3, 3) and found_again == found, again)
        # a comment alone may suppress a finding, so it counts as a change
        with open(os.path.join(root, "src/proc/good.c"), "a", encoding="utf-8") as f:
            f.write("/* one more comment */\n")
        changed, _, counts = analyze(root)
        check(counts == (3, 2), changed)
    print("analyze: planted faults found, known text not asked again")


main()
