"""Tables for a terminal: a sweep, and the curve of `tessera size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

from app.cli.text_table import Column, print_table, print_text
from app.sweeps.report import PointReport, SweepReport
from app.sweeps.sizing import SizeReport
from compiler.amounts import bytes_text, si_text
from compiler.errors import printable
from compiler.profile.fields import SHORT_NAMES, Value, field_named
from compiler.profile.quantities import amount_text

_MARK: Final = Column("", "words")
_FIGURES: Final = tuple(map(Column, ("latency", "energy", "DRAM", "× minimum", "on chip")))
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
    columns = [_MARK, *named, *(Column(_short(path)) for path in fields), *_FIGURES]
    title = f"{printable(report.model.name, 60)} on {printable(', '.join(profiles), 120)}"
    print_table(columns, rows, console, title=title)
    console.print()
    print_text(_legend(report), console)
    for line in _problems(report.points):
        print_text(line, console)


def print_size(report: SizeReport, console: Console) -> None:
    """Print the curve by rising value, and the smallest value that reaches the target."""
    rows = [
        [
            "*" if point.value == report.smallest else "",
            value_text(report.field, point.value),
            "reached" if point.reached else "missed" if point.row.figures else point.row.state,
            *_figures(point.row, None),
        ]
        for point in report.curve
    ]
    names = f"{printable(report.model.name, 60)} on {printable(report.profile.name, 60)}"
    columns = [_MARK, Column(_short(report.field)), Column("target", "words"), *_FIGURES]
    print_table(columns, rows, console, title=f"{names}: {printable(report.target, 60)}")
    console.print()
    for line in (*_findings(report), *_problems([point.row for point in report.curve])):
        print_text(line, console)


def value_text(path: str, value: Value) -> str:
    """The value of a field with its unit."""
    unit = field_named(path).unit
    if isinstance(value, bool | str) or not unit:
        return printable(str(value), 40)
    return amount_text(value, unit, " ")


def _short(path: str) -> str:
    return _SHORT.get(path, path)


def _figures(point: PointReport, latency: str | None) -> list[str]:
    """The figures of a row in words; for a point without figures, its state."""
    figures = point.figures
    if figures is None:
        return [point.state if point.problem is None else str(point.problem["code"])]
    floor = figures.dram_bytes_floor
    return [
        si_text(figures.estimated_latency_s if latency == "estimated" else figures.latency_s, "s")
        + (" (degraded)" if figures.degraded else ""),
        si_text(figures.energy_j, "J"),
        bytes_text(figures.dram_bytes),
        f"{figures.dram_bytes / floor:.2f}" if floor else "",
        bytes_text(figures.on_chip_bytes),
    ]


def _legend(report: SweepReport) -> str:
    latency = {
        "simulated": "latency by simulation of the commands",
        "estimated": "latency as estimated, for not every point has a program",
        None: "no figures",
    }[report.latency]
    values = "compared with the model's" if report.values_checked else "not executed"
    finished = sum(point.state in ("succeeded", "failed") for point in report.points)
    done = f"{finished} of {report.total} points done"
    if report.state == "cancelled":
        done = f"interrupted: {done}, the others were not begun or not finished"
    return (
        f"{done}; * none is better in latency, energy, DRAM and on-chip bytes at "
        f"once ({len(report.front)}); {latency}; values {values}"
    )


def _findings(report: SizeReport) -> Iterator[str]:
    target, grain = printable(report.target, 60), value_text(report.field, report.granularity)
    if report.state == "cancelled":
        yield f"interrupted: {len(report.curve)} values done, the search is not finished"
    if report.smallest is None and not report.curve:
        return
    if report.smallest is None:
        yield f"none of the {len(report.curve)} values tried reaches {target}"
        if report.best is not None:
            yield f"nearest is {value_text(report.field, report.best)}"
        return
    yield (
        f"{value_text(report.field, report.smallest)} is the smallest of the {len(report.curve)} values tried that "
        f"reaches {target}; values are multiples of {grain}"
    )
    if report.smallest == report.curve[0].value and report.state == "succeeded":
        yield "it is the smallest value of the range: try --from with less"
    if report.larger_misses:
        misses = ", ".join(value_text(report.field, value) for value in report.larger_misses)
        yield f"the curve is not monotone: {misses} would miss it again"


def _problems(points: Sequence[PointReport]) -> Iterator[str]:
    """Each problem once, with the number of points that have it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        if point.problem is not None:
            found.setdefault(str(point.problem["code"]), []).append(point.problem)
    for code, problems in found.items():
        first = problems[0].get("message") or problems[0].get("detail")
        yield f"{code} ({len(problems)}): {printable(str(first), 200)}"
