"""A plan as tables for a terminal; takes the plan document as plain values, from here or from a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from compiler.errors import printable

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_plan(plan: Mapping[str, Any], console: Console) -> None:
    """Print the groups and the totals, no wider than the terminal."""
    model, profile = plan["model"], plan["profile"]
    table = Table(
        title=Text(f"{printable(model['name'], 60)} on {printable(profile['name'], 60)}"),
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        row_styles=("", "dim"),
    )
    table.add_column("group", no_wrap=True)
    table.add_column("ONNX nodes", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("tile", no_wrap=True)
    table.add_column("tiles", justify="right", no_wrap=True)
    table.add_column("DRAM", justify="right", no_wrap=True)
    table.add_column("cycles", justify="right", no_wrap=True)
    table.add_column("energy", justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for segment in plan["segments"]:
        if segment["kind"] == "host":
            table.add_row(segment["id"], _nodes(segment["nodes"]), "host", "", "", "", "")
        for group in segment["groups"]:
            table.add_row(
                group["id"],
                _nodes(group["nodes"]),
                "×".join(map(str, group["tiling"]["tile"])),
                str(group["tiling"]["tiles"]),
                quantity_bytes(group["dram_bytes"]),
                f"{group['cycles']:,.0f}",
                quantity_si(group["energy_j"], "J"),
                str(group["bound_by"]),
            )
    console.print(table)
    console.print()
    console.print(_totals(plan))


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
