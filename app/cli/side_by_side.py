"""`tessera compare A B`: two compilations side by side, of files here or of jobs on a service (UI-1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from rich.console import Console

from app.cli.saved_results import saved
from app.client.client import Client
from app.comparisons.compare import ComparedGroups, ComparisonDocument, Difference, GroupSum, Side, compare
from app.printing.plan_table import print_headline
from app.printing.text_table import Column, print_table, print_text, span
from compiler.amounts import bytes_text, si_text
from compiler.errors import printable
from compiler.report.headline import Line, host_text

# The figures in the words of the plan's summary.
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dram_bytes": "DRAM traffic",
        "estimated_latency_s": "latency, estimated",
        "simulated_latency_s": "latency, simulated",
        "energy_j": "energy, estimated",
        "stationary_weight_bytes": "weights kept on chip",
        "host_link_bytes": "host link traffic",
    }
)


def compared_here(a: Path, b: Path) -> ComparisonDocument:
    """Two folders of `tessera compile --out`, or two plans; raises RequestError for other paths."""
    return compare(saved(a), saved(b))


def compared_on_server(server: str, a: str, b: str) -> ComparisonDocument:
    """Two jobs of a service."""
    with Client(server) as client:
        return msgspec.json.decode(client.compare(a, b), type=ComparisonDocument)


def print_side_by_side(document: ComparisonDocument, console: Console) -> None:
    """Prints the totals, then groups that cover the same nodes side by side; groups of one side come last."""
    sides = (("a", document.a), ("b", document.b))
    for name, side in sides:
        print_text(f"{name}: {_side(side)}", console)
    for name, side in sides:
        precision = side.options.get("precision", "model")
        if precision != "model":
            print_text(f"{name} is a what-if: float tensors are counted as {precision}, and have no values", console)
    if not document.same_model:
        print_text("these are different models: groups meet where their nodes have equal names", console)
    console.print()
    columns = [Column("", "words"), *map(Column, ("a", "b", "change"))]
    rows = [(_WORDS.get(row.figure, row.figure), *_cells(row)) for row in document.totals]
    print_table(columns, rows, console)
    console.print()
    print_headline([Line(f"Host, {name}", host_text(side.native)) for name, side in sides], console)
    console.print()
    simulated = all(
        side is None or side.simulated_latency_s is not None for pair in document.groups for side in (pair.a, pair.b)
    )
    kind = "simulated" if simulated else "estimated"
    columns = [Column("nodes"), Column("names", "names"), Column("a", "words"), Column("b", "words")]
    columns += map(Column, ("DRAM a", "DRAM b", "latency a", "latency b"))
    print_text(f"Groups that cover the same nodes, latency {kind}:", console)
    print_table(columns, [_group_cells(pair, simulated=simulated) for pair in document.groups], console)


def _side(side: Side) -> str:
    options = ", ".join(f"{name}={value}" for name, value in side.options.items())
    names = f"{printable(side.model.name, 60)} on {printable(side.profile.name, 60)} ({side.profile.digest[:8]})"
    return names + (f", {printable(options, 200)}" if options else "")


def _cells(row: Difference) -> tuple[str, str, str]:
    change = "" if row.change_percent is None else f"{row.change_percent:+.1f} %"
    return _amount(row.a, row.unit), _amount(row.b, row.unit), change


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "B":
        return bytes_text(value)
    return si_text(value, unit) if unit else f"{value:.0f}"


def _group_cells(pair: ComparedGroups, *, simulated: bool) -> list[str]:
    """A row of the table; its latencies are all simulated, or all estimated."""
    sides = (pair.a, pair.b)
    shown = [str(len(pair.nodes)), span(pair.nodes), *("" if side is None else _ids(side) for side in sides)]
    shown += ["" if side is None else bytes_text(side.dram_bytes) for side in sides]
    for side in sides:
        latency_s = None if side is None else side.simulated_latency_s if simulated else side.estimated_latency_s
        shown.append("" if latency_s is None else si_text(latency_s, "s"))
    return shown


def _ids(side: GroupSum) -> str:
    """The groups of a side, the first and the last where there are several."""
    return "…".join(side.groups if len(side.groups) < 2 else (side.groups[0], side.groups[-1]))
