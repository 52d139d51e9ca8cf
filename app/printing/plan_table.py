"""A plan for a terminal: the lines that sum it up and a table of its groups; as CSV for other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from app.printing.text_table import Column, print_line, print_table, print_text, span, table_csv, wrapped
from compiler.amounts import bytes_text, count_text, share_text, si_text
from compiler.report.headline import LABEL_WIDTH, Line, headline, title
from compiler.report.plan import Plan, PlanGroup, PlanSegment, Report

# All columns; so many of them, the first ones, are in every table, the others in a wide one.
_COLUMNS: Final = (
    Column("group", "words"),
    Column("nodes"),
    Column("names", "names"),
    Column("tile", "words"),
    *map(Column, ("tiles", "DRAM", "latency", "energy")),
    Column("bound", "words"),
    Column("cycles"),
    *(Column(name, "words") for name in ("halo", "placement", "stalls")),
)
_BRIEF: Final = 9
_CSV: Final = (
    *("group", "segment", "chip", "nodes", "first_node", "last_node", "mode", "tile", "tiles", "core_tile"),
    *("halo", "placement", "units", "dram_bytes", "cycles", "latency_s", "energy_j", "bound_by", "stall_cycles"),
)


def print_plan(plan: Plan, report: Report | None, console: Console, *, wide: bool = False) -> None:
    """Print title, a row per group and per host segment, and the lines that sum the plan up.

    Wide: all columns and whole node names, as when the output goes to a file or a pipe.
    """
    shown = None if wide or not console.is_terminal else _BRIEF
    print_table(_COLUMNS[:shown], [row[:shown] for row in _rows(plan)], console, title=title(plan), wide=wide)
    console.print()
    print_headline(headline(plan, report), console)


def print_headline(lines: Sequence[Line], console: Console) -> None:
    """Print lines with their labels; long ones go on below their text."""
    before = ""
    for line in lines:
        room = max(20, console.width - LABEL_WIDTH)
        parts = wrapped(line.text, room) if console.is_terminal else [line.text]
        for number, part in enumerate(parts or [""]):
            label = line.label if number == 0 and line.label != before else ""
            text = Text(label.ljust(LABEL_WIDTH), style="bold")
            print_line(text.append(part, style="yellow not bold" if line.label == "Degraded" else "not bold"), console)
        before = line.label


def groups_csv(plan: Plan) -> str:
    """The groups as comma-separated values with a header: raw numbers, names not shortened."""
    cycle_s = plan.cycle_s
    rows: list[list[object]] = []
    for segment in plan.segments:
        rows += [_values(segment, group, cycle_s) for group in segment.groups]
        if segment.kind == "host":
            rows.append([segment.id, segment.id, "host", len(segment.nodes), *_ends(segment.nodes)])
    return table_csv(_CSV, rows)


class PlanFirst:
    """Prints a plan as soon as it is known, and once all is proved and simulated what that adds."""

    def __init__(self, console: Console, *, wide: bool = False, verifies: bool = True) -> None:
        self._console = console
        self._verifies = verifies
        self._wide = wide
        self._shown: Plan | None = None

    def show(self, plan: Plan) -> None:
        """Print the plan whose programs are being made; the first, if it is made again after a defect (IMPORT-7)."""
        if self._shown is not None:
            return
        self._shown = plan
        print_plan(plan, None, self._console, wide=self._wide)
        self._console.print()
        if plan.provisional:
            steps = (
                "proved safe, simulated, and run against the model" if self._verifies else "proved safe and simulated"
            )
            print_text(f"This is the plan. Its programs are now made, {steps}.", self._console)

    def finish(self, plan: Plan, report: Report | None) -> None:
        """Print the final figures, and the table again if the plan is not the one that was shown."""
        if self._shown is None or _cuts(self._shown) != _cuts(plan):
            if self._shown is not None:
                counts = [sum(len(segment.groups) for segment in one.segments) for one in (self._shown, plan)]
                what = f"{count_text(counts[0], 'group')} became {counts[1]}"
                print_text(f"The plan changed while its programs were made: {what}. It is now:", self._console)
                self._console.print()
            print_plan(plan, report, self._console, wide=self._wide)
        elif self._shown.provisional:
            print_headline(headline(plan, report), self._console)


def _cuts(plan: Plan) -> list[tuple[object, ...]]:
    """What a plan does, without what its programs say of it."""
    return [(segment.nodes, segment.chip, segment.groups) for segment in plan.segments]


def _rows(plan: Plan) -> Iterator[list[str]]:
    """One row of text per group; a host segment is one row."""
    cycle_s = plan.cycle_s
    for segment in plan.segments:
        if segment.kind == "host":
            yield [segment.id, str(len(segment.nodes)), span(segment.nodes), "on host"]
        for group in segment.groups:
            tiling = group.tiling
            yield [
                group.id,
                str(len(group.nodes)),
                span(group.nodes),
                "×".join(map(str, tiling.tile)),
                f"{tiling.tiles:,}",
                bytes_text(group.dram_bytes),
                si_text(group.cycles * cycle_s, "s"),
                si_text(group.energy_j, "J"),
                "DRAM" if group.bound_by == "dram" else group.bound_by,
                f"{group.cycles:,}",
                _halos(group.halo),
                _placement(group),
                _stalls(group),
            ]


def _values(segment: PlanSegment, group: PlanGroup, cycle_s: float) -> list[object]:
    tiling = group.tiling
    tiles = "×".join(map(str, tiling.tile)), tiling.tiles, "×".join(map(str, tiling.core_tile))
    placed = _halos(group.halo), _placement(group), group.placement.units
    costs = group.dram_bytes, group.cycles, group.cycles * cycle_s, group.energy_j, group.bound_by
    named = len(group.nodes), *_ends(group.nodes), group.mode
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
    return (nodes[0], nodes[-1]) if nodes else ("", "")
