# SPDX-License-Identifier: LGPL-2.1-or-later
"""Reading our own pages: tables, and the commands in them."""
import re


def table(text, first_column):
    """Rows of the table whose first heading is FIRST_COLUMN, cells without backticks."""
    rows = []
    inside = False
    for line in text.split("\n"):
        if not line.startswith("|"):
            inside = False
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if inside and not set(line) <= set("|-: "):
            rows.append(cells)
        elif cells[0] == first_column:
            inside = True
    return rows


def plain(cell):
    return cell.replace("`", "")


def commands(text):
    """(line number, command) for code spans and for the lines of code blocks."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif fenced:
            yield number, line.strip()
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span.strip()
