"""`tessera compare A B`: two compilations side by side, of files here or of jobs on a service (UI-1)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.saved_results import saved
from app.client.client import Client
from app.comparisons.compare import ComparedGroups, ComparisonDocument, Difference, GroupSum, Side, compare
from compiler.amounts import bytes_text, si_text
from compiler.errors import printable

_NODES_WIDTH = 28


def compared_here(a: Path, b: Path) -> ComparisonDocument:
    """Two folders of `tessera compile --out`, or two plans; raises RequestError for other paths."""
    return compare(saved(a), saved(b))


def compared_on_server(server: str, a: str, b: str) -> ComparisonDocument:
    """Two jobs of a service."""
    with Client(server) as client:
        return msgspec.json.decode(client.compare(a, b), type=ComparisonDocument)


def print_side_by_side(document: ComparisonDocument, console: Console) -> None:
    """Prints the totals, then groups that cover the same nodes side by side; groups of one side come last."""
    for name, side in (("a", document.a), ("b", document.b)):
        console.print(Text(f"{name}: {_side(side)}"), soft_wrap=True)
    if not document.same_model:
        console.print(Text("these are different models: groups meet where their nodes have equal names"))
    console.print()
    totals = _table("", "a", "b", "change")
    for row in document.totals:
        totals.add_row(row.figure, *_cells(row))
    console.print(totals)
    console.print()
    groups = _table("ONNX nodes", "a", "b", "DRAM a", "DRAM b", "latency a", "latency b")
    for pair in document.groups:
        groups.add_row(*_group_cells(pair))
    console.print(groups)


def _table(*names: str) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 1))
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return table


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


def _group_cells(pair: ComparedGroups) -> list[str]:
    first, last = printable(pair.nodes[0], 60), printable(pair.nodes[-1], 60)
    nodes = first if len(pair.nodes) == 1 else f"{first} … {last} ({len(pair.nodes)})"
    sides = (pair.a, pair.b)
    shown = [nodes if len(nodes) <= _NODES_WIDTH else f"{nodes[: _NODES_WIDTH - 1]}…"]
    shown += ["" if side is None else _ids(side) for side in sides]
    shown += ["" if side is None else bytes_text(side.dram_bytes) for side in sides]
    return [*shown, *("" if side is None else si_text(_latency_s(side), "s") for side in sides)]


def _ids(side: GroupSum) -> str:
    return side.groups[0] + (f" +{len(side.groups) - 1}" if len(side.groups) > 1 else "")


def _latency_s(side: GroupSum) -> float:
    return side.estimated_latency_s if side.simulated_latency_s is None else side.simulated_latency_s
