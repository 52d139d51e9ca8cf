"""Tables and lines of text for a terminal; tables as CSV for other tools. Every command prints through this."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final, Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from compiler.errors import printable

_GAP: Final = "  "
_SPAN: Final = " … "
# Names keep at least this; with less room than `_SPAN_WIDTH` for two names, the last one is shown alone.
_NAMES_WIDTH: Final = 6
_SPAN_WIDTH: Final = 24
# A label and the room before its text.
_LABEL: Final = re.compile(r"[A-Z][a-z]*(?: [A-Za-z]+)? {2,}|\s{8,}|\s*[0-9]+\. ")
# The space between a number and its unit.
_AMOUNT: Final = re.compile(r"(\d) (?=(?:[KMGT]iB|B|[mµnp]?[sJ]|%|×|of \d)(?![A-Za-z]))")


class Column(NamedTuple):
    """A heading, and what stands below it: numbers to the right, words to the left; names may be shortened."""

    heading: str
    holds: Literal["numbers", "words", "names"] = "numbers"


class Remark(str):
    """The last cell of a row that has no others: it may be wider than its column."""

    __slots__ = ()


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console, *, title: str = "", wide: bool = False
) -> None:
    """Prints a title, headings and rows; short rows are filled up, by a remark if they end with one.

    No column is left out. A table wider than the terminal has its names shortened in the middle, the widest first,
    unless it is `wide` or goes to a file or a pipe.
    """
    headings = [column.heading for column in columns]
    remarks = [row[-1] if row and isinstance(row[-1], Remark) else "" for row in (headings, *rows)]
    plain = [row[:-1] if remark else row for row, remark in zip((headings, *rows), remarks, strict=True)]
    filled = ([*row, *[""] * (len(headings) - len(row))] for row in plain)
    cells = [[printable(cell, len(cell)) for cell in row] for row in filled]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    names = [place for place, column in enumerate(columns) if column.holds == "names"]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - console.width
    if console.is_terminal and not wide:
        for _ in range(excess):
            widest = max(names, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= _NAMES_WIDTH:
                break
            widths[widest] -= 1
    if title:
        print_text(title, console, style="bold")
        console.print()
    for number, (row, remark) in enumerate(zip(cells, remarks, strict=True)):
        shown = [
            shortened(cell, width).rjust(width) if column.holds == "numbers" else shortened(cell, width).ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        text = _GAP.join(shown[: len(plain[number])] if remark else shown)
        print_line(Text((text + _GAP + remark if remark else text).rstrip(), style="" if number else "bold"), console)


def print_line(text: Text, console: Console) -> None:
    """Prints one line as it is, without control characters: what is shown may have been changed by others."""
    text.plain = printable(text.plain, len(text.plain))
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


def print_text(text: str, console: Console, *, style: str = "", indent: int = 0) -> None:
    """Prints a sentence or a title; only a terminal has it in several lines, all of them indented."""
    for line in wrapped(text, console.width - indent) if console.is_terminal else [text]:
        print_line(Text(" " * indent + line, style=style), console)


def print_lines(lines: Iterable[str], console: Console) -> None:
    """Prints indented or labelled lines; a terminal shows long ones in several, below their text."""
    for line in lines:
        label = _LABEL.match(line)
        indent = len(label[0]) if label else len(line) - len(line.lstrip()) + 2
        parts = (
            wrapped(line[indent:], console.width - indent) if console.is_terminal and len(line) > console.width else []
        )
        for number, part in enumerate(parts or [line[indent:]]):
            print_line(Text((line[:indent] if number == 0 else " " * indent) + part), console)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of a width, which keep a number and its unit together."""
    joined = _AMOUNT.sub("\\1\N{NO-BREAK SPACE}", text)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrap(joined, width, break_on_hyphens=False)]


def table_csv(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as comma-separated values; short rows are filled up.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    for row in rows:
        writer.writerow([*map(_harmless, row), *[""] * (len(headings) - len(row))])
    return text.getvalue()


def span(nodes: Sequence[str]) -> str:
    """The first and the last of some nodes."""
    return _SPAN.join(nodes if len(nodes) < 2 else (nodes[0], nodes[-1]))


def shortened(text: str, width: int) -> str:
    """A span with names shortened in the middle, each to its share of the width; a small one has the last alone."""
    if len(text) <= width:
        return text
    names = text.split(_SPAN, 1)[-1 if width < _SPAN_WIDTH else 0 :]
    room = width - len(_SPAN) * (len(names) - 1)
    if len(names) == 1:
        if _SPAN not in text:
            return _middle(text, width)
        last = names[0]  # after dots, which stand for the others
        return f"… {last}" if len(last) + 2 <= width else "…"[:width] + last[len(last) + 1 - max(1, width) :]
    first = max(min(len(names[0]), room // 2), room - len(names[1]))
    return _SPAN.join((_middle(names[0], first), _middle(names[1], room - first)))


def _middle(name: str, width: int) -> str:
    """A name without its middle: more is kept of its end, which tells layers apart."""
    if len(name) <= width:
        return name
    begin = max(0, (width - 1) // 3)
    return f"{name[:begin]}…{name[len(name) - (width - 1 - begin) :]}" if width > 1 else "…"[:width]


def _harmless(value: object) -> object:
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("=", "+", "-", "@")) else "") + printable(value, len(value))
