"""A plan as tables for a terminal; takes the plan document as plain values, from here or from a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from compiler.errors import printable

_COLUMNS: Final[tuple[tuple[str, Literal["left", "right"]], ...]] = (
    ("group", "left"),
    ("ONNX nodes", "left"),
    ("tile /tiles", "left"),
    ("DRAM", "right"),
    ("latency", "right"),
    ("energy", "right"),
    ("bound", "left"),
)
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_plan(plan: Mapping[str, Any], console: Console) -> None:
    """Print the groups and the totals, no wider than the terminal."""
    model, profile = plan["model"], plan["profile"]
    rows = list(_group_rows(plan))
    table = Table(
        title=Text(f"{printable(model['name'], 60)} on {printable(profile['name'], 60)}"),
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
        row_styles=("", "dim"),
    )
    # Figures keep their width; the node names give way on a narrow terminal.
    for index, (heading, justify) in enumerate(_COLUMNS):
        width = max([len(heading), *(len(row[index]) for row in rows)])
        if heading == "ONNX nodes":
            table.add_column(heading, ratio=1, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(heading, justify=justify, no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()
    console.print(_totals(plan))


def _group_rows(plan: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row of text per group; a host segment is one row."""
    groups = [group for segment in plan["segments"] for group in segment["groups"]]
    cycles = sum(group["cycles"] for group in groups)
    cycle_s = plan["totals"]["latency_s"] / cycles if cycles else 0.0
    for segment in plan["segments"]:
        if segment["kind"] == "host":
            yield (segment["id"], _nodes(segment["nodes"]), "host", "", "", "", "")
        for group in segment["groups"]:
            tiling = group["tiling"]
            yield (
                group["id"],
                _nodes(group["nodes"]),
                "×".join(map(str, tiling["tile"])) + (f" /{tiling['tiles']}" if tiling["tiles"] > 1 else ""),
                quantity_bytes(group["dram_bytes"]),
                quantity_si(group["cycles"] * cycle_s, "s"),
                quantity_si(group["energy_j"], "J"),
                str(group["bound_by"]),
            )


def _totals(plan: Mapping[str, Any]) -> Table:
    totals, baseline = plan["totals"], plan["baseline"]
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in ("", "this plan", "layer by layer", "ratio", "floor", "above floor"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    floor = totals["dram_bytes_floor"]
    table.add_row(
        "DRAM",
        quantity_bytes(totals["dram_bytes"]),
        quantity_bytes(baseline["dram_bytes"]),
        _ratio(totals["dram_bytes"], baseline["dram_bytes"]),
        quantity_bytes(floor),
        f"{100 * (totals['dram_bytes'] / floor - 1):.1f} %" if floor else "",
    )
    for label, key, unit in (("latency", "latency_s", "s"), ("energy", "energy_j", "J")):
        table.add_row(
            label,
            quantity_si(totals[key], unit),
            quantity_si(baseline[key], unit),
            _ratio(totals[key], baseline[key]),
            "",
            "",
        )
    return table


def quantity_bytes(value: float) -> str:
    """Bytes with a binary unit."""
    unit = 0
    while abs(value) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.2f} {_BYTE_UNITS[unit]}"


def quantity_si(value: float, unit: str) -> str:
    """A quantity with three digits and a prefix."""
    for factor, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e-12:.3g} p{unit}"


def _nodes(nodes: Sequence[str]) -> str:
    """The nodes of a group in short: the first and the last, and how many there are."""
    names = [printable(name, 60) for name in nodes]
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"


def _ratio(value: float, other: float) -> str:
    return f"{value / other:.3f}" if other else ""
