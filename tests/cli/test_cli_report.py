#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Reports and exit statuses of every ending of every operation."""
import os
import re

from cli_testlib import OPERATIONS, Case, main, scratch, scripted

STATUSES = {
    "done": 0,
    "usage": 1,
    "refused": 2,
    "not-found": 2,
    "rolled-back": 3,
    "not-rolled-back": 4,
    "internal": 5,
}


class Endings(Case):
    def test_exit_statuses(self):
        for ending, status in STATUSES.items():
            for operation in OPERATIONS:
                with self.subTest(ending=ending, operation=operation):
                    result = scripted(ending, *operation)
                    self.assertEqual(result.returncode, status, result.stderr)
                    if status:
                        self.assertEqual(result.stdout, "")
                        self.assertIn(f"gpucr: {operation[0]} ", result.stderr)

    def test_json_always(self):
        for ending, status in STATUSES.items():
            for operation in OPERATIONS:
                with self.subTest(ending=ending, operation=operation):
                    result = scripted(ending, *operation, "--json")
                    document = self.document(result)
                    self.assertEqual(result.returncode, status)
                    self.assertEqual(document["exit_status"], status)
                    self.assertEqual(document["command"], operation[0])
                    self.assertEqual(document["error"] is None, status == 0)
                    if status:
                        self.assertIn(document["error"]["text"], result.stderr)


class Failure(Case):
    def test_names_each_process_its_cause_and_what_became_of_it(self):
        text = scripted("not-rolled-back", "checkpoint", "4711", "-o", "/x").stderr
        self.assertIn("failed and something is not as it was before", text)
        self.assertIn("process 4711 (trainer), now failed: Checkpoint of process", text)
        self.assertIn("process 4712 (worker), now running: Process 4712 (worker) did not", text)
        self.assertIn("(driver, stage checkpoint, CUDA error 2)", text)
        self.assertIn("  > Can't dump the io_uring of process 4713\n    Dumping FAILED.", text)
        self.assertRegex(text, r"4711 trainer +running -> failed")

    def test_json_has_all_errors(self):
        document = self.document(scripted("rolled-back", "suspend", "4711", "--json"))
        self.assertEqual(document["outcome"], "rolled-back")
        self.assertEqual(document["error"]["driver_code"], 2)
        errors = [p["error"] and p["error"]["code_name"] for p in document["processes"]]
        self.assertEqual(errors, ["driver", "timeout", None])
        self.assertTrue(document["log"][0]["is_cause"])

    def test_refusal_tells_the_remedy_and_the_override(self):
        text = scripted("refused", "suspend", "4711").stderr
        self.assertIn("was refused and nothing was changed", text)
        self.assertIn("to do: Start the program with setsid.", text)
        self.assertIn("--force orphanable-group", text)


class Success(Case):
    def test_suspend_shows_that_memory_fell(self):
        result = scripted("done", "suspend", "4711")
        self.assertIn("Suspended 3 processes; 40.0 GiB of device memory", result.stdout)
        self.assertRegex(result.stdout, r"4711 trainer +running -> suspended +0,1 +20.0 GiB -> 0 B")
        self.assertRegex(result.stdout, r"4713 python3 .* no CUDA state")
        self.assertRegex(result.stdout, r"\ncheckpoint +40.0 GiB +10.000 +4.29\n")
        self.assertIn("warning: orphanable-group", result.stderr)

    def test_checkpoint_says_what_became_of_the_program(self):
        gone = scripted("done", "checkpoint", "4711", "-o", "/x").stdout
        self.assertIn("Checkpointed 3 processes to /x (41.0 GiB); the program is gone.", gone)
        stays = scripted("done", "checkpoint", "4711", "-o", "/x", "-R").stdout
        self.assertIn("; the program goes on.", stays)

    def test_phases_in_json(self):
        phase = self.document(scripted("done", "resume", "4711", "--json"))["phases"][1]
        self.assertEqual(phase["name"], "checkpoint")
        self.assertEqual(phase["bytes"], 40 << 30)
        self.assertAlmostEqual(phase["gb_per_s"], phase["bytes"] / phase["seconds"] / 1e9, 4)

    def test_quiet_says_nothing(self):
        for operation in OPERATIONS[1:]:
            self.expect(scripted("done", *operation, "-q"), 0, stdout="", stderr="")

    def test_lines_fit_the_terminal(self):
        for operation in OPERATIONS:
            for line in scripted("done", *operation).stdout.split("\n"):
                self.assertLessEqual(len(line), 80)


class Lists(Case):
    def test_list_shows_cuda_processes_and_all(self):
        short = scripted("done", "list").stdout.split("\n")
        self.assertEqual(short[0].split(), "PID NAME STATE GPU DEVICE MEM HOST MEM".split())
        self.assertEqual(short[1].split()[:4], ["4711", "trainer", "running", "0,1"])
        self.assertEqual(len(short), 4)
        self.assertRegex(scripted("done", "list", "--all").stdout, "4713 python3 no CUDA state")

    def test_empty_list_says_so(self):
        self.expect(scripted("nothing", "list"), 0, stdout="No process with CUDA state.")
        self.assertEqual(self.document(scripted("nothing", "list", "--json"))["processes"], [])

    def test_check_reports_machine_and_verdict(self):
        result = scripted("done", "check")
        self.expect(result, 0, stdout="This machine is fit.", stderr="")
        for fact in ("580.159.04, CUDA 13.0", "NVIDIA H200, 141.0 GiB", "4.1.1, /usr/sbin/criu"):
            self.assertIn(fact, result.stdout)
        self.expect(scripted("refused", "check", "--pid", "4711"), 2, stdout="tree is not fit")
        document = self.document(scripted("refused", "check", "--json"))
        self.assertEqual(document["machine"]["gpus"][0]["name"], "NVIDIA H200")
        self.assertEqual(document["exit_status"], 2)


class Hostile(Case):
    """A process may call itself anything."""

    def test_no_control_characters_reach_the_terminal(self):
        result = scripted("hostile", "suspend", "4711")
        text = result.stdout + result.stderr
        self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text), text)

    def test_json_is_valid_utf8(self):
        document = self.document(scripted("hostile", "suspend", "4711", "--json"))
        self.assertIn("\x1b[2J", document["processes"][0]["name"])
        self.assertIn("??", document["error"]["text"])

    def test_not_in_the_log_either(self):
        path = os.path.join(scratch(self), "log")
        scripted("hostile", "suspend", "4711", "--log", path)
        scripted("done", "restore", "a\nb", "--log", path)
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")
        self.assertEqual([line for line in lines[:-1] if not line.startswith(b"20")], [])


class Written(Case):
    def test_report_on_a_full_disk_is_an_error(self):
        for extra in ((), ("--json",)):
            with open("/dev/full", "w") as full:
                result = scripted("done", "suspend", "4711", *extra, stdout=full)
            self.assertEqual(result.returncode, 5)
            self.assertIn("No space left on device", result.stderr)

    def test_worse_statuses_stay(self):
        with open("/dev/full", "w") as full:
            result = scripted("not-rolled-back", "suspend", "4711", "--json", stdout=full)
        self.assertEqual(result.returncode, 4)

    def test_log_on_a_full_disk_is_told(self):
        result = scripted("done", "suspend", "4711", "--log", "/dev/full")
        self.expect(result, 0, stderr="the log file is incomplete: No space left")


if __name__ == "__main__":
    main()
