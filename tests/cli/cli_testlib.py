# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the test scripts of the command share. Their arguments: GPUCR GPUCR_SCRIPTED."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

GPUCR, SCRIPTED = (os.path.abspath(path) for path in sys.argv[1:3])
OPERATIONS = (
    ("list",),
    ("suspend", "4711"),
    ("resume", "4711"),
    ("checkpoint", "4711", "-o", "/nowhere/image"),
    ("restore", "/nowhere/image"),
)


def environment(**extra):
    """Nothing of the caller's configuration, but the sanitizers' options and the like."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GPUCR_")}
    kept.update(LC_ALL="C.UTF-8", **extra)
    return kept


def run(program, *arguments, env=None, **keywords):
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [program, *arguments],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="surrogateescape",
        timeout=60,
        env=env or environment(),
        **keywords,
    )


def scripted(ending, *arguments, **keywords):
    """The command whose operations end as @ending says (scripted_jobs.c)."""
    return run(SCRIPTED, *arguments, env=environment(GPUCR_TEST_ENDING=ending), **keywords)


class Case(unittest.TestCase):
    maxDiff = None

    def expect(self, result, status, stdout=None, stderr=None):
        said = f"\nstdout: {result.stdout}\nstderr: {result.stderr}"
        self.assertEqual(result.returncode, status, said)
        for text, wanted in ((result.stdout, stdout), (result.stderr, stderr)):
            if wanted == "":
                self.assertEqual(text, "", said)
            elif wanted is not None:
                self.assertIn(wanted, text, said)

    def document(self, result):
        """The one JSON document that standard output must be, strict UTF-8."""
        text = result.stdout.encode(errors="surrogateescape").decode("utf-8")
        self.assertTrue(text.endswith("}\n"), text[-40:])
        return json.loads(text)


def scratch(case):
    folder = tempfile.TemporaryDirectory(prefix="gpucr-cli-")
    case.addCleanup(folder.cleanup)
    return folder.name


def main():
    unittest.main(argv=sys.argv[:1])
