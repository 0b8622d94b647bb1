#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The house rules find what they promise to find, and nothing in a good house.

usage: test_house.py HOUSE
"""
import os
import subprocess
import sys
import tempfile
import unittest

HOUSE = os.path.abspath(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(HOUSE))

import rules.c_code  # noqa: E402
import rules.files  # noqa: E402
import rules.prose  # noqa: E402

C = "/* SPDX-License-Identifier: LGPL-2.1-or-later */\n"
SH = "#!/bin/sh\n# SPDX-License-Identifier: LGPL-2.1-or-later\n"
GOOD = {
    "include/gpucr/thing.h": C + "#ifndef T\n#define T\n#include <stdint.h>\nuint32_t thing(void);\n"
                             "#endif\n",
    "src/base/low.h": C + "#ifndef L\n#define L\nint low(void);\n#endif\n",
    "src/proc/high.c": C + '#include "base/low.h"\n\nint high(void)\n{\n    return low();\n}\n',
    "cli/main.c": C + "#include <gpucr/thing.h>\n",
    "docs/page.md": "# A page\n\nSee [itself](#a-page) and [the other](other.md#part-2-of-it).\n",
    "docs/other.md": "# Other\n\n## Part 2 of it\n\n```\n[code](is/no/link)\n```\n",
    "scripts/run": SH + 'echo "$1"\n',
}


class House(unittest.TestCase):
    def breaks(self, files, outside=False):
        """What the rules say about FILES; with OUTSIDE those that call other programs, too."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                if text.startswith("#!") and "plain" not in name:
                    os.chmod(path, 0o755)
            if outside:
                return self.call(root)
            tree, found = rules.files.Tree(root), []
            rules.prose.check_tree(tree, found)
            rules.c_code.check_tree(tree, found)
            return "\n".join(found)

    def call(self, root):
        run = subprocess.run([HOUSE, root], capture_output=True, text=True, timeout=60)
        self.assertIn("house rules:", run.stderr)
        self.assertEqual(run.returncode, 1 if run.stdout else 0, run.stdout)
        return run.stdout

    def finds(self, name, text, wanted):
        out = self.breaks({name: text})
        self.assertIn(wanted, out)
        self.assertIn(name, out)

    def passes(self, name, text):
        self.assertEqual(self.breaks({name: text}), "")

    def test_a_good_house(self):
        self.assertEqual(self.breaks(GOOD, outside=True), "")

    def test_includes_point_down(self):
        self.finds("src/proc/a.c", C + '#include "gpu/driver.h"\n', "proc/ may not include gpu/")
        self.finds("src/image/a.c", C + '#include "proc/tree.h"\n', "image/ may not include proc/")
        self.finds("src/base/a.c", C + '#include "text.h"\n', 'include as "layer/file.h"')
        self.finds("cli/a.c", C + '#include "base/text.h"\n', "cli/ may include")
        self.finds("include/gpucr/a.h", C + '#include "base/text.h"\n', "public headers include")
        self.finds("sim/a.c", C + "#include <gpucr/job.h>\n", "sim/ may not include the product")
        self.passes("src/job/a.c", C + '#include "engine/criu.h"\n')
        self.passes("src/a/b.c", C + '/* house: allow include: it stands alone */\n#include "c.h"\n')

    def test_sizes(self):
        body = "    (void)0;\n"
        for lines, good in ((68, True), (69, True), (70, False)):
            text = C + "int f(void)\n{\n" + body * lines + "}\n"
            (self.passes if good else lambda n, t: self.finds(n, t, "function of 71 lines"))(
                "tests/a.c", text)
        self.finds("tests/a.c", C + "int i;\n" * 800, "801 lines, more than 800")
        self.passes("tests/a.c", C + "int i;\n" * 799)

    def test_parameters(self):
        def text(head, above=""):
            return C + f"{above}{head}\n{{\n    return 0;\n}}\n"

        six = "int f(int a, int b, int c, int d, int e, int g)"
        self.finds("src/base/a.c", text(six), "6 parameters: int f")
        self.finds("src/base/a.c", text("int f(int a, int (*b)(int, int), int c, int d, int e,\n"
                                        "      int g)"), "6 parameters")
        self.passes("src/base/a.c", text("int f(int a, int (*b)(int, int, int), int c, int d,"
                                         " int e)"))
        self.passes("src/base/a.c", text("int f(int a, int b, int c, int d, int e, ...)"))
        self.passes("tests/a.c", text(six))
        self.passes("src/base/a.c", text(six, "/* house: allow parameters: the kernel's ABI */\n"))
        self.finds("src/base/a.c", text(six, "/* house: allow parameters: */\n"), "6 parameters")
        self.finds("src/base/a.c", text(six, "/* house: allow call: no */\n"), "6 parameters")
        self.finds("src/base/a.c",
                   text(six, "/* house: allow parameters: elsewhere */\nint x;\n"), "6 parameters")

    def test_calls(self):
        def text(call):
            return C + f"void f(void)\n{{\n    {call};\n}}\n"

        for call in ("strcpy(a, b)", "sprintf(a, b)", "n = atoi(a)", "system(a)", "alloca(9)"):
            self.finds("cli/a.c", text(call), "is not used here")
        self.finds("src/base/a.c", text("memset(&thing, 0, sizeof(thing))"), "by = {0}")
        self.finds("src/base/a.c", text("exit(1)"), "does not exit")
        self.passes("src/base/a.c", text("_exit(1)"))
        self.passes("src/base/a.c", text('say("system(a)") /* strcpy(a, b) */'))
        self.finds("src/base/a.c", text("fd = open(a, O_RDONLY)"), "without close-on-exec")
        self.passes("src/base/a.c", text("fd = open(a, O_RDONLY | O_CLOEXEC)"))
        self.passes("src/base/a.c", text("ops->open(a)"))
        self.finds("src/base/a.c", text('f = fopen(a, "r")'), "without close-on-exec")
        self.passes("src/base/a.c", text('f = fopen(a, "re")'))

    def test_names_are_unique(self):
        out = self.breaks({"src/base/a.c": C, "src/proc/a.c": C})
        self.assertIn("src/proc/a.c: same file name as src/base/a.c", out)

    def test_layout(self):
        self.finds("docs/a.md", "a \n", "white space at the end")
        self.finds("docs/a.md", "a", "exactly one newline")
        self.finds("docs/a.md", "a\n\n", "exactly one newline")
        self.finds("src/base/a.c", C + "int\ta;\n", "a tab")

    def test_licence_line(self):
        self.finds("src/base/a.c", "int a;\n", "no SPDX line")
        self.finds("cmake/a.cmake", "set(A 1)\n", "no SPDX line")

    def test_words(self):
        for word in ("/wo" + "rk/main", "Is" + "sue 12", "deb.deb" + "ian.org", "sub" + "agents"):
            self.finds("docs/a.md", f"see {word}\n", "does not belong here")
        self.passes("docs/a.md", "see build/wo" + "rk/main and the is" + "sue with it\n")
        for word in ("TO" + "DO", "not imple" + "mented", "a st" + "ub"):
            self.finds("src/base/a.c", C + f"/* {word} */\n", "unfinished by its own words")

    def test_links(self):
        self.finds("docs/a.md", "[a](b.md)\n", "link to nothing: b.md")
        self.finds("docs/a.md", "# A\n\n[a](#b)\n", "no such heading: #b")
        self.finds("docs/a.md", "[a](../../../../etc/passwd)\n", "link to nothing")
        self.passes("docs/a.md", "# A b-c, d!\n\n[a](#a-b-c-d) `[x](y)`\n")

    def test_other_programs_are_asked(self):
        out = self.breaks({
            ".clang-format": "# SPDX-License-Identifier: x\nBasedOnStyle: LLVM\n",
            "src/base/a.c": C + "int    a;\n",
            "src/base/a.h": C + "size_t f(void);\n",
            "scripts/a": SH + "echo $1\n",
            "scripts/plain": SH + "exit 0\n",
            "scripts/a.py": "# SPDX-License-Identifier: x\nif True\n",
            "docs/a.md": "It is recie" + "ved.\n",
        }, outside=True)
        for wanted in ("src/base/a.c:2: not laid out", "src/base/a.h: does not compile alone",
                       "SC2086", "scripts/plain: a script that cannot be executed",
                       "scripts/a.py:2:", "docs/a.md:1: "):
            self.assertIn(wanted, out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
