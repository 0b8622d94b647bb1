# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules for every text: licence line, layout, words that do not belong, links."""
import os
import re

# Written in two parts: this file is searched for them, too.
FOREIGN = re.compile("|".join([
    r"(?<![\w.])/wo" r"rk/", r"(?<![\w.])/fa" r"rm/", "work" "place", "sub" "agent",
    "helper" " session", r"deb\.deb" r"ian\.org", r"snapshot\.deb" r"ian\.org",
    r"\bissue" r" #?\d"]), re.I)
NO_SPDX = (".json", ".md", ".txt")
NO_SPDX_NAMES = ("COPYING", ".gitignore")
FREE_LAYOUT = ("LICENSES/", "man/", "completions/")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def check_tree(tree, breaks):
    for source in tree.texts():
        check_spdx(source, breaks)
        check_layout(source, breaks)
        check_words(source, breaks)
        if source.name.endswith(".md"):
            check_links(source, tree, breaks)


def check_spdx(source, breaks):
    name = source.name
    if name.startswith("LICENSES/") or name.endswith(NO_SPDX) or not source.text.strip():
        return
    if os.path.basename(name) in NO_SPDX_NAMES:
        return
    if "SPDX-License-Identifier:" not in "\n".join(source.lines[:4]):
        breaks.append(f"{name}: no SPDX line in its first lines")


def check_layout(source, breaks):
    if source.name.startswith(FREE_LAYOUT) or not source.text:
        return
    if not source.text.endswith("\n") or source.text.endswith("\n\n"):
        breaks.append(f"{source.name}: does not end with exactly one newline")
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            breaks.append(f"{source.name}:{number}: white space at the end of the line")
        if "\t" in line and (source.is_c or source.is_python or source.is_shell):
            breaks.append(f"{source.name}:{number}: a tab; this house indents by spaces")


def check_words(source, breaks):
    for number, line in enumerate(source.lines, 1):
        m = FOREIGN.search(line)
        if m:
            breaks.append(f"{source.name}:{number}: does not belong here: {m.group(0)}")


def prose_lines(source):
    """Lines outside of code blocks, with code spans blanked."""
    fenced = False
    for number, line in enumerate(source.lines, 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", lambda m: " " * len(m.group(0)), line)


def anchors(path):
    """Names of the headings of a page, as the usual viewers make them."""
    found = set()
    fenced = False
    with open(path, encoding="utf-8") as f:
        for line in f:
            if re.match(r"\s*(```|~~~)", line):
                fenced = not fenced
            m = re.match(r"#+\s+(.*?)\s*#*$", line)
            if m and not fenced:
                name = re.sub(r"[^\w\- ]", "", m.group(1).lower()).replace(" ", "-")
                found.add(name)
    return found


def check_links(source, tree, breaks):
    for number, line in prose_lines(source):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(source.path), path)) if path \
                else source.path
            if not full.startswith(tree.root) or not os.path.exists(full):
                breaks.append(f"{source.name}:{number}: link to nothing: {target}")
            elif anchor and full.endswith(".md") and anchor not in anchors(full):
                breaks.append(f"{source.name}:{number}: no such heading: {target}")
