# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules that other programs check: headers that compile alone, layout, scripts, spelling."""
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

# Words that codespell takes for others.
SPELLED = "ot,ans,fo,crate,nd,te,hist,ro,fpr,inout,trun,ths"


def check_tree(tree, breaks):
    check_headers_alone(tree, breaks)
    check_layout(tree, breaks)
    check_shell(tree, breaks)
    check_python(tree, breaks)
    check_spelling(tree, breaks)


def has(program, purpose, breaks):
    if shutil.which(program):
        return True
    breaks.append(f"{program} is missing, which checks {purpose}: scripts/install-deps --for check")
    return False


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def generate(tree, folder, breaks):
    """C of the message descriptions, for the headers that include it."""
    for source in [n for n in tree.names if n.startswith("src/") and n.endswith(".proto")]:
        full = os.path.join(tree.root, source)
        made = run(["protoc-c", f"--c_out={folder}", f"--proto_path={os.path.dirname(full)}", full])
        if made.returncode:
            breaks.append(f"{source}: {made.stderr.strip()}")


def check_headers_alone(tree, breaks):
    headers = [n for n in tree.names if n.endswith(".h") and n.startswith(("include/", "src/"))]
    if not headers or not has("gcc", "the headers", breaks):
        return

    def compile_one(header):
        return header, run(
            ["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall",
             "-Werror", "-fsyntax-only", f"-I{tree.root}/include", f"-I{tree.root}/src",
             f"-isystem{folder}", "-x", "c", os.path.join(tree.root, header)])

    with tempfile.TemporaryDirectory() as folder:
        if any(n.startswith("src/") and n.endswith(".proto") for n in tree.names):
            if not has("protoc-c", "the headers with generated parts", breaks):
                return
            generate(tree, folder, breaks)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for header, done in pool.map(compile_one, headers):
                if done.returncode:
                    lines = [x for x in done.stderr.splitlines() if "error:" in x] or ["?"]
                    breaks.append(f"{header}: does not compile alone: {lines[0]}")


def check_layout(tree, breaks):
    """By clang-format 14: other versions lay some lines out differently."""
    if not os.path.exists(os.path.join(tree.root, ".clang-format")):
        return
    program = shutil.which("clang-format-14") or "clang-format"
    if not has(program, "the layout of C", breaks):
        return
    if "version 14." not in run([program, "--version"]).stdout:
        return
    names = [s.name for s in tree.texts() if s.is_c]
    done = run([program, "--dry-run", "-Werror", "--ferror-limit=1", *names], cwd=tree.root)
    for line in done.stderr.splitlines():
        m = re.match(r"(\S+?):(\d+):\d+: error:", line)
        if m:
            breaks.append(f"{m.group(1)}:{m.group(2)}: not laid out: clang-format -i {m.group(1)}")


def check_shell(tree, breaks):
    names = [s.name for s in tree.texts() if s.is_shell and not s.name.startswith("completions/")]
    for source in tree.texts():
        if source.lines[0].startswith("#!") and not os.access(source.path, os.X_OK):
            breaks.append(f"{source.name}: a script that cannot be executed")
    if not names or not has("shellcheck", "the scripts", breaks):
        return
    done = run(["shellcheck", "-x", "-f", "gcc", *names], cwd=tree.root)
    breaks += done.stdout.splitlines()
    if done.returncode and not done.stdout:
        breaks.append(f"shellcheck: {done.stderr.strip()}")


def check_python(tree, breaks):
    for source in tree.texts():
        if source.is_python:
            try:
                compile(source.text, source.name, "exec")
            except SyntaxError as e:
                breaks.append(f"{source.name}:{e.lineno}: {e.msg}")


def check_spelling(tree, breaks):
    names = [s.name for s in tree.texts() if not s.name.startswith("LICENSES/")]
    if not names or not has("codespell", "the spelling", breaks):
        return
    done = run(["codespell", "-L", SPELLED, *names], cwd=tree.root)
    breaks += done.stdout.splitlines()
