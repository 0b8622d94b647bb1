#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Help, usage errors, images that cannot be read, output that cannot be written."""
import os
import stat

from cli_testlib import GPUCR, Case, main, run, scratch

COMMANDS = ("list", "check", "suspend", "resume", "checkpoint", "restore", "image inspect",
            "image verify", "help")


class Help(Case):
    def pages(self):
        yield run(GPUCR, "--help")
        yield run(GPUCR, "-h")
        for command in COMMANDS:
            yield run(GPUCR, *command.split(), "--help")

    def test_goes_to_stdout_and_fits(self):
        for page in self.pages():
            self.expect(page, 0, stdout="Usage: gpucr", stderr="")
            for line in page.stdout.split("\n"):
                self.assertLess(len(line), 80, line)
                self.assertEqual(line, line.rstrip(), page.args)

    def test_names_every_command_and_status(self):
        page = run(GPUCR, "--help").stdout
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", page)
        for status in "012345N":
            self.assertIn(f"\n  {status}     ", page)

    def test_help_command_equals_option(self):
        for command in COMMANDS:
            self.assertEqual(
                run(GPUCR, "help", *command.split()).stdout,
                run(GPUCR, *command.split(), "--help").stdout,
            )
        self.assertEqual(run(GPUCR, "help").stdout, run(GPUCR, "--help").stdout)

    def test_help_needs_nothing_else(self):
        self.expect(run(GPUCR, "checkpoint", "--help", "no", "such", "thing"), 0)

    def test_version_is_one_line(self):
        self.assertRegex(run(GPUCR, "--version").stdout, r"\Agpucr \d+\.\d+\.\d+\n\Z")
        self.assertRegex(self.document(run(GPUCR, "--json", "--version"))["gpucr"], r"^\d+\.\d+")


class UsageErrors(Case):
    WRONG = (
        ((), "say what to do"),
        (("suspned", "1"), 'did you mean "suspend"?'),
        (("suspend",), "needs a process"),
        (("suspend", "1", "--ouptut", "x"), "has no option --ouptut"),
        (("checkpoint", "1", "--ouptut", "x"), "did you mean --output?"),
        (("checkpoint", "1"), "needs the image folder"),
        (("checkpoint", "x", "-o", "y"), "not a process id"),
        (("checkpoint", "1", "-o", "y", "--ghost-limit", "1Q"), "not a size"),
        (("restore", "x", "--timeout", "never"), "not a duration"),
        (("image",), "image inspect DIR"),
        (("help", "nothing"), "there is no command"),
    )

    def test_say_what_is_wrong_on_stderr(self):
        for arguments, message in self.WRONG:
            with self.subTest(arguments=arguments):
                self.expect(run(GPUCR, *arguments), 1, stdout="", stderr=message)

    def test_json_even_then(self):
        for arguments, message in self.WRONG:
            with self.subTest(arguments=arguments):
                result = run(GPUCR, *arguments, "--json")
                self.expect(result, 1)
                document = self.document(result)
                self.assertEqual(document["exit_status"], 1)
                self.assertEqual(document["error"]["code_name"], "usage")
                self.assertIn(message, document["error"]["text"])


class Images(Case):
    def test_missing_image_is_refused(self):
        path = os.path.join(scratch(self), "none")
        for verb in ("inspect", "verify"):
            self.expect(run(GPUCR, "image", verb, path), 2, stdout="", stderr=path)
            result = run(GPUCR, "image", verb, path, "--json")
            self.expect(result, 2)
            self.assertEqual(self.document(result)["command"], f"image {verb}")

    def test_folder_that_is_no_image_is_refused(self):
        folder = scratch(self)
        self.expect(run(GPUCR, "image", "inspect", folder), 2, stdout="", stderr="manifest")


class Output(Case):
    def test_full_disk_is_an_error(self):
        for arguments in (("--help",), ("--version",), ("help", "list")):
            with open("/dev/full", "w") as full:
                result = run(GPUCR, *arguments, stdout=full)
            self.assertEqual(result.returncode, 5)
            self.assertIn("No space left on device", result.stderr)

    def test_closed_stdout_is_an_error(self):
        for closing in ("exec \"$0\" --version >&-", "exec \"$0\" --version <&- >&-"):
            result = run("/bin/sh", "-c", closing, GPUCR)
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertIn("could not be written", result.stderr)

    def test_closed_pipe_is_an_error_not_a_signal(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = run(GPUCR, "--help", stdout=writer)
        os.close(writer)
        self.assertEqual(result.returncode, 5)

    def test_usage_error_keeps_its_status(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(run(GPUCR, "--json", "nonsense", stdout=full).returncode, 1)


class LogFile(Case):
    def test_is_private_and_appended_to(self):
        path = os.path.join(scratch(self), "log")
        for _ in range(2):
            run(GPUCR, "image", "inspect", "/nonexistent", "--log", path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path) as f:
            lines = f.read().split("\n")
        starts = [line for line in lines if "image inspect /nonexistent --log" in line]
        self.assertEqual(len(starts), 2)
        for line in lines[:-1]:
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \d+ \w+ +\S")
        self.assertIn("exit status 2", lines[-2])

    def test_that_cannot_be_opened_refuses(self):
        result = run(GPUCR, "suspend", "1", "--log", "/nonexistent/log")
        self.expect(result, 2, stdout="", stderr="/nonexistent/log: No such file")


if __name__ == "__main__":
    main()
