# SPDX-License-Identifier: LGPL-2.1-or-later
"""The files of the repository and what is in them."""
import os
import re
import subprocess

PRODUCT = ("src/", "cli/", "plugin/", "vram/", "include/")
BINARY = (".png", ".bin", ".img", ".zst", ".gz", ".pyc")
ALLOW = re.compile(r"house: allow ([a-z]+): \w")


class Source:
    """One text file."""

    def __init__(self, root, name):
        self.name = name
        self.path = os.path.join(root, name)
        with open(self.path, encoding="utf-8", errors="replace", newline="") as f:
            self.text = f.read()
        self.lines = self.text.split("\n")

    @property
    def is_c(self):
        return self.name.endswith((".c", ".h"))

    @property
    def is_product(self):
        return self.name.startswith(PRODUCT)

    @property
    def is_python(self):
        return self.name.endswith(".py") or bool(re.match(r"#!.*\bpython3\b", self.lines[0]))

    @property
    def is_shell(self):
        return self.name.endswith((".sh", ".bash")) or bool(
            re.match(r"#!.*\b(ba|da)?sh\b", self.lines[0]))

    def allows(self, rule, number):
        """Is there a reasoned marker for RULE on line NUMBER or in the comment above it?"""
        for k in range(number - 1, max(number - 6, -1), -1):
            line = self.lines[k] if k < len(self.lines) else ""
            m = ALLOW.search(line)
            if m and m.group(1) == rule:
                return True
            if k < number - 1 and not re.match(r"\s*(/?\*|//|#)", line):
                return False
        return False


class Tree:
    def __init__(self, root):
        self.root = root
        self.names = self._list()
        self._sources = None

    def _list(self):
        run = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=self.root,
                             capture_output=True, text=True)
        names = run.stdout.split("\0") if run.returncode == 0 else []
        names = [n for n in names if n and os.path.isfile(os.path.join(self.root, n))]
        if not names:  # not a git checkout
            for folder, dirs, found in os.walk(self.root):
                dirs[:] = [d for d in dirs if d not in ("build", ".git", "__pycache__")]
                names += [os.path.relpath(os.path.join(folder, n), self.root) for n in found]
        return sorted(names)

    def texts(self):
        if self._sources is None:
            self._sources = [Source(self.root, n) for n in self.names if not is_data(n)]
        return self._sources


def is_data(name):
    return name.endswith(BINARY) or name.startswith("tests/fuzz/corpus")
