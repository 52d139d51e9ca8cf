"""A plan for a terminal: the lines that sum it up and a table of its groups; as CSV for other tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import Final, Literal

from rich.console import Console
from rich.text import Text

from compiler.amounts import bytes_text, count_text, share_text, si_text
from compiler.errors import printable
from compiler.headline import LABEL_WIDTH, Line, headline, title
from compiler.plan import Plan, PlanGroup, PlanSegment, Report

# All columns, and how they are aligned; the first of them are in every table, the others in a wide one.
_COLUMNS: Final[Mapping[str, Literal["left", "right"]]] = MappingProxyType(
    {
        "group": "left",
        "nodes": "right",
        "names": "left",
        "tile": "left",
        "tiles": "right",
        "DRAM": "right",
        "latency": "right",
        "energy": "right",
        "bound": "left",
        "cycles": "right",
        "halo": "left",
        "placement": "left",
        "stalls": "left",
    }
)
_BRIEF: Final = tuple(_COLUMNS)[:9]
_NAMES: Final = "names"
_NAMES_WIDTH: Final = 8
# With less room than this for two names, the last one is shown alone.
_SPAN_WIDTH: Final = 24
_GAP: Final = "  "
_SPAN: Final = " … "
_CSV: Final = (
    *("group", "segment", "chip", "nodes", "first_node", "last_node", "mode", "tile", "tiles", "core_tile"),
    *("halo", "placement", "units", "dram_bytes", "cycles", "latency_s", "energy_j", "bound_by", "stall_cycles"),
)


def print_plan(plan: Plan, report: Report | None, console: Console, *, wide: bool = False) -> None:
    """Print title, table of groups, and the lines that sum the plan up.

    Wide: all columns and whole node names, as when the output goes to a file or a pipe.
    """
    console.print(Text(title(plan), style="bold"), soft_wrap=not console.is_terminal)
    console.print()
    print_groups(plan, console, wide=wide)
    console.print()
    print_headline(headline(plan, report), console)


def print_headline(lines: Sequence[Line], console: Console) -> None:
    """Print lines with their labels; long ones go on below their text."""
    before = ""
    for line in lines:
        room = max(20, console.width - LABEL_WIDTH)
        parts = wrap(line.text, room, break_on_hyphens=False) if console.is_terminal else [line.text]
        for number, part in enumerate(parts or [""]):
            label = line.label if number == 0 and line.label != before else ""
            text = Text(label.ljust(LABEL_WIDTH), style="bold")
            _line(console, text.append(part, style="yellow not bold" if line.label == "Degraded" else "not bold"))
        before = line.label


def print_groups(plan: Plan, console: Console, *, wide: bool = False) -> None:
    """Print a row per group and per host segment; no column is left out for want of width, names are shortened."""
    wide = wide or not console.is_terminal
    rows = list(_rows(plan))
    columns = tuple(_COLUMNS) if wide else _BRIEF
    widths = {name: max([len(name), *(len(row.get(name, "")) for row in rows)]) for name in columns}
    others = sum(width for name, width in widths.items() if name != _NAMES) + len(_GAP) * (len(columns) - 1)
    if not wide:
        widths[_NAMES] = min(widths[_NAMES], max(_NAMES_WIDTH, console.width - others))
    for row in ({name: name for name in columns}, *rows):
        cells = []
        for name in columns:
            cell = row.get(name, "")
            cell = _shortened(cell, widths[name]) if name == _NAMES else cell
            cells.append(cell.rjust(widths[name]) if _COLUMNS[name] == "right" else cell.ljust(widths[name]))
        _line(console, Text(_GAP.join(cells).rstrip(), style="bold" if row.get("group") == "group" else ""))


def groups_csv(plan: Plan) -> str:
    """The groups as comma-separated values with a header: raw numbers, names not shortened.

    A name that a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    cycle_s = _cycle_s(plan)
    for segment in plan.segments:
        for group in segment.groups:
            writer.writerow(_values(segment, group, cycle_s))
        if segment.kind == "host":
            host = [segment.id, segment.id, "host", len(segment.nodes), *_ends_csv(segment.nodes)]
            writer.writerow([*host, *[""] * (len(_CSV) - len(host))])
    return text.getvalue()


class PlanFirst:
    """Prints a plan as soon as it is known, and once all is proved and simulated what that adds."""

    def __init__(self, console: Console, *, wide: bool = False) -> None:
        self._console = console
        self._wide = wide
        self._shown: Plan | None = None

    def show(self, plan: Plan) -> None:
        """Print the plan whose programs are being made; the first, if it is made again after a defect (IMPORT-7)."""
        if self._shown is not None:
            return
        self._shown = plan
        print_plan(plan, None, self._console, wide=self._wide)
        text = "\nThis is the plan. Its programs are now made, proved safe, simulated, and run against the model."
        self._console.print(Text(text if plan.provisional else ""))

    def finish(self, plan: Plan, report: Report | None) -> None:
        """Print the final figures, and the table again if the plan is not the one that was shown."""
        if self._shown is None or _cuts(self._shown) != _cuts(plan):
            if self._shown is not None:
                counts = [sum(len(segment.groups) for segment in one.segments) for one in (self._shown, plan)]
                what = f"{count_text(counts[0], 'group')} became {counts[1]}"
                self._console.print(Text(f"The plan changed while its programs were made: {what}. It is now:\n"))
            print_plan(plan, report, self._console, wide=self._wide)
        elif self._shown.provisional:
            print_headline(headline(plan, report), self._console)


def _cuts(plan: Plan) -> list[tuple[object, ...]]:
    """What a plan does, without what its programs say of it."""
    return [(segment.nodes, segment.chip, segment.groups) for segment in plan.segments]


def _line(console: Console, text: Text) -> None:
    text.plain = printable(text.plain, len(text.plain))  # a saved plan may have been changed
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


def _cycle_s(plan: Plan) -> float:
    cycles = sum(group.cycles for segment in plan.segments for group in segment.groups)
    return plan.totals.latency_s / cycles if cycles else 0.0


def _rows(plan: Plan) -> Iterator[dict[str, str]]:
    """One row of text by column per group; a host segment is one row."""
    cycle_s = _cycle_s(plan)
    for segment in plan.segments:
        if segment.kind == "host":
            named = {"nodes": str(len(segment.nodes)), _NAMES: _span(segment.nodes), "tile": "on host"}
            yield {"group": segment.id, **named}
        for group in segment.groups:
            tiling = group.tiling
            yield {
                "group": group.id,
                "nodes": str(len(group.nodes)),
                _NAMES: _span(group.nodes),
                "tile": "×".join(map(str, tiling.tile)),
                "tiles": f"{tiling.tiles:,}",
                "DRAM": bytes_text(group.dram_bytes),
                "latency": si_text(group.cycles * cycle_s, "s"),
                "energy": si_text(group.energy_j, "J"),
                "bound": "DRAM" if group.bound_by == "dram" else group.bound_by,
                "cycles": f"{group.cycles:,}",
                "halo": _halos(group.halo),
                "placement": _placement(group),
                "stalls": _stalls(group),
            }


def _values(segment: PlanSegment, group: PlanGroup, cycle_s: float) -> list[object]:
    tiling = group.tiling
    tiles = "×".join(map(str, tiling.tile)), tiling.tiles, "×".join(map(str, tiling.core_tile))
    placed = _halos(group.halo), _placement(group), group.placement.units
    costs = group.dram_bytes, group.cycles, group.cycles * cycle_s, group.energy_j, group.bound_by
    named = len(group.nodes), *_ends_csv(group.nodes), group.mode
    return [group.id, segment.id, segment.chip, *named, *tiles, *placed, *costs, sum(group.stalls.values())]


def _halos(halo: Mapping[str, str]) -> str:
    """Halo modes in short: one word where all axes agree."""
    if len(set(halo.values())) == 1:
        return next(iter(halo.values()))
    return " ".join(f"{axis} {mode}" for axis, mode in halo.items())


def _placement(group: PlanGroup) -> str:
    placement = group.placement
    dealt = placement.placement if placement.spread == "bands" else placement.spread
    return f"{placement.units} {dealt}" if placement.units > 1 else "one unit"


def _stalls(group: PlanGroup) -> str:
    """The stalls as a share of the cycles, and the cause of most of them."""
    total = sum(group.stalls.values())
    if not total or not group.cycles:
        return ""
    return f"{share_text(total, group.cycles)} {max(group.stalls, key=lambda cause: group.stalls[cause])}"


def _ends(nodes: Sequence[str]) -> tuple[str, str]:
    return (printable(nodes[0]), printable(nodes[-1])) if nodes else ("", "")


def _ends_csv(nodes: Sequence[str]) -> list[str]:
    return [f"'{name}" if name.startswith(("=", "+", "-", "@")) else name for name in _ends(nodes)]


def _span(nodes: Sequence[str]) -> str:
    """The first and the last node of a group."""
    first, last = _ends(nodes)
    return first if len(nodes) < 2 else f"{first}{_SPAN}{last}"


def _shortened(text: str, width: int) -> str:
    """A span whose names are shortened in the middle, each to its share of the width; the last alone in a small one."""
    if len(text) <= width:
        return text
    names = text.split(_SPAN, 1)[-1 if width < _SPAN_WIDTH else 0 :]
    room = width - len(_SPAN) * (len(names) - 1)
    if len(names) == 1:
        return _middle(names[0], width)
    first = max(min(len(names[0]), room // 2), room - len(names[1]))
    return _SPAN.join((_middle(names[0], first), _middle(names[1], room - first)))


def _middle(name: str, width: int) -> str:
    """A name without its middle: more is kept of its end, which tells layers apart."""
    if len(name) <= width:
        return name
    begin = max(0, (width - 1) // 3)
    return f"{name[:begin]}…{name[len(name) - (width - 1 - begin) :]}" if width > 1 else "…"[:width]
