"""Strategies side by side as a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.comparing import FIGURES, Comparison, StrategyRow
from compiler.amounts import bytes_text, si_text
from compiler.errors import printable

_NAMES: Final[Mapping[str, str]] = MappingProxyType({"dram_bytes": "DRAM"})
_WORDS: Final[Mapping[str, Callable[[float], str]]] = MappingProxyType(
    {
        "dram_bytes": bytes_text,
        "latency": lambda value: si_text(value, "s"),
        "energy": lambda value: si_text(value, "J"),
        "edp": lambda value: si_text(value, "Js"),
    }
)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Prints two lines per strategy, its figures and their ratios to the best; then the yardsticks."""
    title = f"{printable(comparison.model.name, 60)} on {printable(comparison.profile.name, 60)}"
    table = Table(
        title=Text(title), title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 1)
    )
    table.add_column("strategy", no_wrap=True)
    table.add_column("groups", justify="right", no_wrap=True)
    for name in FIGURES:
        mark = "*" if name == comparison.objective else ""
        table.add_column(f"{_NAMES.get(name, name)}{mark}", justify="right", no_wrap=True)
    table.add_column("above\nfloor", justify="right", no_wrap=True)
    table.add_column("planned\nin", justify="right", no_wrap=True)
    for row in comparison.strategies:
        table.add_row(*_cells(row))
    yardsticks = comparison.yardsticks
    table.add_row("reference", "", bytes_text(yardsticks.reference_dram_bytes), style="dim")
    floor = bytes_text(yardsticks.floor_dram_bytes), si_text(yardsticks.bound_latency_s, "s")
    table.add_row("floor", "", *floor, style="dim")
    console.print(table)
    console.print()
    console.print(Text(f"* the objective; below each figure its ratio to the best of {_all(comparison)}"))


def _cells(row: StrategyRow) -> list[str]:
    above = "" if row.above_floor_percent is None else f"{row.above_floor_percent:.1f} %"
    figures = [f"{_WORDS[name](getattr(row.figures, name))}\n{getattr(row.ratios, name):.3f}" for name in FIGURES]
    planned = "" if row.planning_s is None else si_text(row.planning_s, "s")
    return [row.strategy, str(row.groups), *figures, above, planned]


def _all(comparison: Comparison) -> str:
    return ", ".join(row.strategy for row in comparison.strategies)
