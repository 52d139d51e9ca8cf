"""A target of `tessera size`: dram_bytes=1.05xminimum, dram_bytes=12MB, latency=1.2ms, 1.2ms, 12MiB (SIM-5).

The minimum may be called floor, as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.sweeps.figures import Figures
from compiler.amounts import bytes_text, si_text
from compiler.errors import RequestError, printable
from compiler.profile.quantities import quantity

# The figures that a target may name, with their units.
_UNITS: Final[Mapping[str, str]] = MappingProxyType({"dram_bytes": "B", "latency": "s", "energy": "J"})
_WORDS: Final = MappingProxyType({"dram_bytes": "DRAM traffic", "latency": "a latency", "energy": "an energy"})
_OF_FLOOR: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*[x×*]\s*(?:minimum|floor)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An upper limit for a figure: in bytes, seconds or joules, or with `of_floor` as a multiple of its DRAM floor."""

    figure: str
    limit: float
    of_floor: bool

    def value(self, figures: Figures) -> float:
        """The target's figure of a point; latency is simulated if there is a program."""
        values = {"dram_bytes": figures.dram_bytes, "latency": figures.latency_s, "energy": figures.energy_j}
        return values[self.figure]

    @property
    def has_bound(self) -> bool:
        """Whether the limit may be below what the figure can be at least."""
        return not self.of_floor and self.figure != "energy"

    def least(self, figures: Figures) -> float:
        """What the target's figure cannot go below on a point's accelerator; 0 where no bound is known."""
        values = {"dram_bytes": figures.dram_bytes_floor, "latency": figures.latency_bound_s}
        return values.get(self.figure, 0)

    def impossible(self, figures: Figures | None) -> bool:
        """Whether the limit is below what the point's figure can be at least."""
        return figures is not None and self.least(figures) > self.limit_for(figures)

    @property
    def words(self) -> str:
        """The target in the words of the plan's summary."""
        if self.of_floor:
            return f"DRAM traffic of at most {self.limit:g} × the minimum"
        return f"{_WORDS[self.figure]} of at most {self.text(self.limit)}"

    def text(self, value: float) -> str:
        """A value of the target's figure for people."""
        return bytes_text(value) if self.figure == "dram_bytes" else si_text(value, _UNITS[self.figure])

    def limit_for(self, figures: Figures) -> float:
        """The upper limit for a point."""
        return self.limit * figures.dram_bytes_floor if self.of_floor else self.limit

    def reached(self, figures: Figures | None) -> bool:
        """Whether these figures reach the target; missing figures and degraded plans never do."""
        return figures is not None and not figures.degraded and self.value(figures) <= self.limit_for(figures)


def parse_target(text: str) -> Target:
    """Parses `figure=amount`, or an amount whose unit implies the figure; raises RequestError."""
    figure, separator, amount = (part.strip() for part in text.partition("="))
    if not separator:
        figure, amount = _figure_of(figure), figure
    of_floor = _OF_FLOOR.fullmatch(amount)
    if figure not in _UNITS or not amount or (of_floor is not None and figure != "dram_bytes"):
        raise RequestError(
            f"{printable(text, 80)!r} is no target",
            code="invalid_target",
            stage="size",
            actual=printable(text, 80),
            limit=", ".join(_UNITS),
            hint="Aim at dram_bytes=1.05xminimum, dram_bytes=12MiB, latency=1.2ms, or at 12MiB, 1.2ms, 5mJ",
        )
    if of_floor is not None and float(of_floor[1]) < 1:
        raise RequestError(
            "no DRAM traffic is below the minimum",
            code="invalid_target",
            stage="size",
            actual=printable(text, 80),
            limit="at least 1xminimum",
            hint="Aim at 1xminimum or more, such as --target 1.05xminimum",
        )
    if of_floor is not None:
        return Target(figure=figure, limit=float(of_floor[1]), of_floor=True)
    return Target(figure=figure, limit=quantity(amount, _UNITS[figure]), of_floor=False)


def _figure_of(amount: str) -> str:
    """The figure implied by an amount's unit, "" for no figure; a ratio of the floor implies DRAM bytes."""
    if _OF_FLOOR.fullmatch(amount):
        return "dram_bytes"
    return next((figure for figure, unit in _UNITS.items() if amount[:1].isdigit() and amount.endswith(unit)), "")
