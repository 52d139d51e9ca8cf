"""Strategies side by side as a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from rich.console import Console

from app.cli.comparing import FIGURES, Comparison, StrategyRow
from app.printing.plan_table import print_headline
from app.printing.text_table import Column, print_table
from compiler.amounts import bytes_text, si_text
from compiler.errors import printable
from compiler.report.headline import Line, host_text

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
    figures = (f"{_NAMES.get(name, name)}{'*' if name == comparison.objective else ''}" for name in FIGURES)
    columns = [Column("strategy", "words"), *map(Column, ("groups", *figures, "× minimum", "planned in"))]
    yardsticks = comparison.yardsticks
    minimum = bytes_text(yardsticks.floor_dram_bytes), si_text(yardsticks.bound_latency_s, "s")
    rows = [row for strategy in comparison.strategies for row in _rows(strategy)]
    rows += [["reference", "", bytes_text(yardsticks.reference_dram_bytes)], ["minimum", "", *minimum]]
    title = f"{printable(comparison.model.name, 60)} on {printable(comparison.profile.name, 60)}"
    print_table(columns, rows, console, title=title)
    console.print()
    names = ", ".join(row.strategy for row in comparison.strategies)
    lines = (
        Line("*", "the objective"),
        Line("Figures", f"estimated; below each its ratio to the best of {names}; edp is energy × latency"),
        Line("reference", "each input, weight and output moved once per group, layer by layer"),
        Line("minimum", "what no plan can avoid: the DRAM traffic, and the physical bound of the latency"),
        Line("Host", host_text(comparison.native)),
    )
    print_headline(lines, console)


def _rows(row: StrategyRow) -> Iterator[list[str]]:
    above = "" if row.above_floor_percent is None else f"{1 + row.above_floor_percent / 100:.2f}"
    planned = "" if row.planning_s is None else si_text(row.planning_s, "s")
    figures = [_WORDS[name](getattr(row.figures, name)) for name in FIGURES]
    yield [row.strategy, str(row.groups), *figures, above, planned]
    yield ["", "", *(f"{getattr(row.ratios, name):.3f}" for name in FIGURES)]
