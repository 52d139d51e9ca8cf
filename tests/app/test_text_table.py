"""Tables of the command line: every column is there, names give way, pipes get everything, CSV is harmless."""

from __future__ import annotations

import csv
import io
from random import Random

import pytest
from rich.console import Console

from app.printing.text_table import Column, Remark, print_lines, print_table, print_text, shortened, table_csv

COLUMNS = (Column("id", "words"), Column("names", "names"), Column("bytes"), Column("other names", "names"))
ROWS = (
    ("s0.g0", "encoder/layer.0/attention/query … encoder/layer.0/output/add", "1,024", "encoder/a/rather/long/name"),
    ("s0.g10", "head", "7"),
)


def printed(width: int, *, terminal: bool = True, wide: bool = False, title: str = "") -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    print_table(COLUMNS, ROWS, console, title=title, wide=wide)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_terminal_gets_every_column_and_shorter_names(width: int) -> None:
    header, first, second = printed(width)
    assert max(map(len, (header, first, second))) <= width
    assert header.split() in (["id", "names", "bytes", "other", "names"], ["id", "names", "bytes", "ot…names"])
    assert (first.split()[0], second.split()) == ("s0.g0", ["s0.g10", "head", "7"])
    assert header.index("bytes") + 5 == first.index("1,024") + 5 == second.index("7") + 1
    assert first.endswith("name")
    assert "…" in first


def test_a_terminal_too_narrow_for_all_columns_loses_none() -> None:
    header, first, _ = printed(20)
    assert header == "id      names   bytes  o…ames"
    assert first == "s0.g0   …t/add  1,024  e…name"


@pytest.mark.parametrize(("terminal", "wide"), [(False, False), (True, True)])
def test_a_pipe_and_a_wide_table_have_whole_names(terminal: bool, wide: bool) -> None:
    header, first, _ = printed(20, terminal=terminal, wide=wide)
    assert header.split() == ["id", "names", "bytes", "other", "names"]
    for cell in ROWS[0]:
        assert cell in first


def test_the_title_stands_above_and_control_characters_are_escaped() -> None:
    lines = printed(80, title="a \x1b[31mtitle")
    assert lines[:2] == ["a \\x1b[31mtitle", ""]
    out = io.StringIO()
    print_table([Column("a\x1b[2J")], [["b\nc"]], Console(file=out))
    assert out.getvalue() == "a\\x1b[2J\n    b\\nc\n"


def test_sentences_are_broken_for_a_terminal_alone() -> None:
    for terminal, lines in ((True, 3), (False, 1)):
        out = io.StringIO()
        print_text("one two three four five six", Console(file=out, width=12, force_terminal=terminal))
        assert len(out.getvalue().splitlines()) == lines


def test_names_keep_both_ends_whatever_the_width() -> None:
    random = Random(1)
    for _ in range(500):
        names = ["".join(random.choices("abc./_", k=random.randint(1, 60))) for _ in range(random.choice((1, 2)))]
        text, width = " … ".join(names), random.randint(5, 130)
        found = shortened(text, width)
        assert len(found) <= width
        assert text[-1] == found[-1]
        if len(text) > width >= 24:
            assert len(found) == width
            assert text[0] == found[0]
        if len(text) <= width:
            assert found == text


def test_csv_has_a_value_per_heading_and_no_formulas() -> None:
    text = table_csv(["name", "bytes", "joules"], [["=cmd()", -5, 0.25], ["a\nb,c"]])
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "bytes", "joules"],
        ["'=cmd()", "-5", "0.25"],
        ["a\\nb,c", "", ""],
    ]


def test_a_remark_takes_the_place_of_the_cells_left_out_and_widens_no_column() -> None:
    out = io.StringIO()
    columns = (Column("id", "words"), Column("bytes"), Column("time"))
    print_table(columns, [("a", "12", "7 s"), ("b", Remark("failed: a_long_code"))], Console(file=out))
    assert out.getvalue().splitlines() == ["id  bytes  time", "a      12   7 s", "b   failed: a_long_code"]


def lines_at(width: int, *lines: str, terminal: bool = True) -> list[str]:
    out = io.StringIO()
    print_lines(lines, Console(file=out, width=width, force_terminal=terminal, color_system=None))
    return out.getvalue().splitlines()


def test_long_lines_go_on_below_their_text_on_a_terminal_and_stay_whole_in_a_pipe() -> None:
    line, item = "Latency      " + "some words " * 6, "  a: " + "other words " * 4
    shown = lines_at(40, line, item)
    assert max(map(len, shown)) <= 40
    assert [text[:13] for text in shown[:3]] == ["Latency      ", " " * 13, " " * 13]
    assert [len(text) - len(text.lstrip()) for text in shown[3:]] == [2, 4]
    assert lines_at(40, line, item, terminal=False) == [line, item]


@pytest.mark.parametrize("amount", ["58 %", "232 µs", "2.25 MiB", "1.04 ×"])
def test_a_number_and_its_unit_are_never_on_two_lines(amount: str) -> None:
    for width in range(24, 60):
        assert any(
            amount in text for text in lines_at(width, f"  words of any length before {amount} minimum and after")
        )
