# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules for C: include law, sizes, banned calls, unique names."""
import os
import re

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
PARAMETERS_MAX = 5

# Layer -> layers below it that it may include (its own is always allowed).
LAW = {
    "base": [],
    "proc": ["base"],
    "gpu": ["proc", "base"],
    "image": ["base"],
    "bulk": ["image", "proc", "base"],
    "cdi": ["base"],
    "engine": ["cdi", "bulk", "image", "gpu", "proc", "base"],
    "job": ["engine", "cdi", "bulk", "image", "gpu", "proc", "base"],
}
BANNED = re.compile(
    r"\b(strcpy|strcat|sprintf|vsprintf|atoi|atol|strtol|strtoul|gets|system|popen|alloca|strtok"
    r"|basename|dirname)\s*\(")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|not implemented|stub|for now|dummy)\b", re.I)
OPEN = re.compile(r"(?<![.>\w])(open|openat|fopen|socket|pipe2|accept4|memfd_create|dup3)\s*\(")
ZEROES_STRUCT = re.compile(r"memset\s*\(\s*&\w+\s*,\s*0\s*,\s*sizeof")


def check_tree(tree, breaks):
    for source in tree.texts():
        if source.is_c:
            check(source, breaks)
    check_unique(tree, breaks)


def check(source, breaks):
    code = strip(source.text)
    check_includes(source, breaks)
    check_sizes(source, code, breaks)
    if source.is_product:
        check_calls(source, code, breaks)
        check_words(source, breaks)


def strip(text):
    """Comments and strings as blanks, so that positions stay."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_includes(source, breaks):
    for number, line in enumerate(source.lines, 1):
        m = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not m or source.allows("include", number):
            continue
        why = include_fault(source, m.group(1) == '"', m.group(2))
        if why:
            breaks.append(f"{source.name}:{number}: {why}")


def include_fault(source, quoted, target):
    top = target.split("/")[0]
    if source.name.startswith("src/"):
        layer = source.name.split("/")[1]
        if quoted and "/" in target and top in LAW:
            if top != layer and top not in LAW.get(layer, []):
                return f"{layer}/ may not include {target}"
        elif quoted and not target.endswith(".pb-c.h"):
            return f'include as "layer/file.h", not {target}'
    elif source.name.startswith("cli/"):
        if quoted and "/" in target:
            return "cli/ may include <gpucr/...> and its own headers only"
    elif source.name.startswith("include/") and quoted:
        return "public headers include <gpucr/...> only"
    elif source.name.startswith("sim/") and (top == "gpucr" or (quoted and top in LAW)):
        return "sim/ may not include the product"
    return None


def functions(code):
    """(line, length, head) of each function: the house layout has its brace in column 1."""
    lines = code.split("\n")
    start = None
    for i, line in enumerate(lines):
        if start is None and line == "{":
            head = []
            k = i - 1
            while k >= 0 and lines[k].strip() and not lines[k].rstrip().endswith((";", "}")):
                if lines[k].startswith("#"):
                    break
                head.insert(0, lines[k])
                k -= 1
            start = (i, k + 2, " ".join(head))
        elif start is not None and line.startswith("}"):
            yield start[1], i - start[0], start[2]
            start = None


def parameter_count(head):
    m = re.search(r"\w+\s*\((.*)\)[^)]*$", head)
    if not m:
        return 0
    depth = 0
    count = 1 if m.group(1).strip() not in ("", "void") else 0
    for c in m.group(1):
        depth += c == "("
        depth -= c == ")"
        count += c == "," and depth == 0
    return count


def check_sizes(source, code, breaks):
    name = source.name
    if len(source.lines) - 1 > FILE_LINES_MAX:
        breaks.append(f"{name}: {len(source.lines) - 1} lines, more than {FILE_LINES_MAX}")
    for line, length, head in functions(code):
        if length > FUNCTION_LINES_MAX:
            breaks.append(f"{name}:{line}: function of {length} lines: {head.strip()[:60]}")
        if not source.is_product or "..." in head or source.allows("parameters", line):
            continue
        count = parameter_count(head)
        if count > PARAMETERS_MAX:
            breaks.append(f"{name}:{line}: {count} parameters: {head.strip()[:60]}")


def check_calls(source, code, breaks):
    in_library = source.name.startswith(("src/", "plugin/", "vram/"))
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{source.name}:{number}"
        m = BANNED.search(line)
        if m and not source.allows("call", number):
            breaks.append(f"{where}: {m.group(1)}() is not used here")
        if ZEROES_STRUCT.search(line) and not source.allows("call", number):
            breaks.append(f"{where}: initialise a struct by = {{0}}, not by memset")
        if not in_library:
            continue
        m = OPEN.search(line)
        if m and not closes_on_exec(source, number, m.group(1)) and not source.allows("call", number):
            breaks.append(f"{where}: opens without close-on-exec: {line.strip()[:60]}")
        if re.search(r"\bexit\s*\(", line) and not source.allows("call", number):
            breaks.append(f"{where}: the library does not exit")


def closes_on_exec(source, number, call):
    """Does the statement say so, by its flags or by fopen's mode?"""
    statement = " ".join(source.lines[number - 1 : number + 5]).split(";")[0]
    if call == "fopen":
        return bool(re.search(r'"[rwa][+b]*e[+b]*"', statement))
    return "CLOEXEC" in statement


def check_words(source, breaks):
    for number, line in enumerate(source.lines, 1):
        if UNFINISHED.search(line) and not source.allows("word", number):
            breaks.append(
                f"{source.name}:{number}: unfinished by its own words: {line.strip()[:60]}")


def check_unique(tree, breaks):
    seen = {}
    for source in tree.texts():
        base = os.path.basename(source.name)
        if not source.is_c or not source.name.startswith(("src/", "cli/", "plugin/", "vram/")):
            continue
        if base in seen:
            breaks.append(f"{source.name}: same file name as {seen[base]}")
        seen[base] = source.name
