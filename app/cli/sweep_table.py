"""Tables for a terminal: a sweep, and the curve of `tessera size`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

from app.printing.plan_table import print_headline
from app.printing.text_table import Column, Remark, print_table, print_text
from app.sweeps.report import PointReport, SweepReport
from app.sweeps.sizing import SizeReport
from app.sweeps.target import parse_target
from compiler.amounts import bytes_text, count_text, si_text
from compiler.errors import printable
from compiler.profile.fields import SHORT_NAMES, Value, field_named
from compiler.profile.quantities import amount_text
from compiler.report.headline import Line, host_text

_LATENCY: Final[Mapping[str | None, str]] = MappingProxyType(
    {
        "simulated": "simulated",
        "estimated": "estimated, because not every point has a program to simulate",
        None: "no point has figures",
    }
)
_OWNERS: Final = MappingProxyType({"sram": "cluster", "nram": "core", "wram": "core"})
_MARK: Final = Column("", "words")
_FIGURES: Final = tuple(map(Column, ("latency", "energy", "DRAM", "× minimum", "chip memory")))
_SHORT: Final[Mapping[str, str]] = MappingProxyType({path: name for name, path in SHORT_NAMES.items()})


def print_sweep(report: SweepReport, console: Console) -> None:
    """Prints a row per point, marks the points of the front, and explains the figures."""
    profiles = [profile.name for profile in report.profiles]
    fields = [varied.field for varied in report.grid]
    rows = [
        [
            "*" if number in report.front else "",
            *([point.profile] if len(profiles) > 1 else []),
            *(value_text(path, point.values[path]) for path in fields),
            *_figures(point, report.latency),
        ]
        for number, point in enumerate(report.points)
    ]
    named = [Column("profile", "names")] if len(profiles) > 1 else []
    columns = [_MARK, *named, *(Column(short_name(path)) for path in fields), *_FIGURES]
    title = f"{printable(report.model.name, 60)} on {printable(', '.join(profiles), 120)}"
    print_table(columns, rows, console, title=title)
    console.print()
    print_headline(list(_legend(report)), console)
    for line in _problems(report.points):
        print_text(line, console)


def print_size(report: SizeReport, console: Console) -> None:
    """Print the curve by rising value, and the smallest value that reaches the target."""
    rows = [
        [
            "*" if point.value == report.smallest else "",
            value_text(report.field, point.value),
            "reached" if point.reached else "missed" if point.row.figures else "",
            *_figures(point.row, None),
        ]
        for point in report.curve
    ]
    names = f"{printable(report.model.name, 60)} on {printable(report.profile.name, 60)}"
    columns = [_MARK, Column(short_name(report.field)), Column("target", "words"), *_FIGURES]
    aim = parse_target(report.target).words
    print_table(columns, rows, console, title=f"{names}: the smallest {short_name(report.field)} for {aim}")
    console.print()
    points = [point.row for point in report.curve]
    for line in (*_findings(report), *_problems(points)):
        print_text(line, console)
    console.print()
    print_headline(
        [Line("Latency", "simulated where a point has a program, else estimated"), *_common(points, [report.field])],
        console,
    )


def value_text(path: str, value: Value) -> str:
    """The value of a field with its unit."""
    unit = field_named(path).unit
    if isinstance(value, bool | str) or not unit:
        return printable(str(value), 40)
    return amount_text(value, unit, " ")


def is_impossible(report: SizeReport) -> bool:
    """Whether a bound shows for each value tried that it cannot reach the target."""
    target = parse_target(report.target)
    return bool(report.curve) and all(target.impossible(point.row.figures) for point in report.curve)


def short_name(path: str) -> str:
    """The name of a field as users write it."""
    return _SHORT.get(path, path)


def _figures(point: PointReport, latency: str | None) -> list[str]:
    """The figures of a row in words; for a point without figures, its state."""
    figures = point.figures
    if figures is None:
        return [Remark(point.state if point.problem is None else f"{point.state}: {point.problem['code']}")]
    floor = figures.dram_bytes_floor
    return [
        si_text(figures.estimated_latency_s if latency == "estimated" else figures.latency_s, "s")
        + (" (degraded)" if figures.degraded else ""),
        si_text(figures.energy_j, "J"),
        bytes_text(figures.dram_bytes),
        f"{figures.dram_bytes / floor:.2f}" if floor else "",
        bytes_text(figures.on_chip_bytes),
    ]


def _legend(report: SweepReport) -> Iterator[Line]:
    finished = sum(point.state in ("succeeded", "failed") for point in report.points)
    state = "interrupted: " if report.state == "cancelled" else ""
    unfinished = ", the others were not begun or not finished" if state else ""
    yield Line("Points", f"{state}{finished} of {report.total} points done{unfinished}")
    if report.front:
        best = "no other is as good in latency, energy, DRAM traffic and chip memory, and better in one"
        yield Line("Front", f"* marks {count_text(len(report.front), 'point')}: {best}")
    yield Line("Latency", _LATENCY[report.latency])
    yield from _common(report.points, [varied.field for varied in report.grid])
    no = "no: outputs are compared only with --set verify=values"
    yield Line("Verified", "outputs were compared with the model's" if report.values_checked else no)


def _common(points: Sequence[PointReport], fields: Sequence[str]) -> Iterator[Line]:
    """What the columns of sweeps and sizes mean, and what runs on the host."""
    yield Line("Energy", "estimated, by the plan")
    yield Line("chip memory", "SRAM, NRAM and WRAM of all clusters, cores and chips together")
    for path in fields:
        memory = path.partition(".")[0]
        if memory in _OWNERS and path in _SHORT:
            yield Line(short_name(path), f"of each {_OWNERS[memory]}")
    shares = Counter(host_text(point.figures.native) for point in points if point.figures and point.figures.native)
    for text, number in shares.items():
        yield Line("Host", text if len(shares) == 1 else f"in {count_text(number, 'point')}: {text}")


def _findings(report: SizeReport) -> Iterator[str]:
    name, grain = short_name(report.field), value_text(report.field, report.granularity)
    if report.state == "cancelled":
        yield f"Interrupted: {len(report.curve)} values done, the search is not finished."
    if report.smallest is None and not report.curve:
        return
    if is_impossible(report):
        yield "The target is below what any of these values can reach, so no others were tried."
        return
    if report.smallest is None:
        best = "" if report.best is None else f"; {value_text(report.field, report.best)} comes nearest"
        yield f"None of the {len(report.curve)} values tried reaches the target{best}."
        return
    smallest = value_text(report.field, report.smallest)
    yield f"{name} = {smallest} is the smallest of the {len(report.curve)} values tried that reaches the target."
    yield f"Values are multiples of {grain}; a smaller one that was not tried may reach it too."
    if report.smallest == report.curve[0].value and report.state == "succeeded":
        yield "It is the smallest value of the range; --from tries smaller ones."
    if report.larger_misses:
        misses = ", ".join(value_text(report.field, value) for value in report.larger_misses)
        yield f"These larger values miss the target: {misses}."


def _problems(points: Sequence[PointReport]) -> Iterator[str]:
    """Each problem once, with the number of points that have it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        if point.problem is not None:
            found.setdefault(str(point.problem["code"]), []).append(point.problem)
    for code, problems in found.items():
        first = problems[0].get("message") or problems[0].get("detail")
        yield f"{code} ({len(problems)}): {printable(str(first), 200)}"
