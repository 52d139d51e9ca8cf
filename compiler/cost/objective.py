"""Objectives: what a plan is chosen for (SPEC section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from compiler.cost.model import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """DRAM bytes, cycles and energy of several groups run one after another; numbers, or arrays over candidates."""

    dram_bytes: Any = 0
    cycles: Any = 0
    energy_pj: Any = 0.0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            dram_bytes=self.dram_bytes + other.dram_bytes,
            cycles=self.cycles + other.cycles,
            energy_pj=self.energy_pj + other.energy_pj,
        )

    def __sub__(self, other: Totals) -> Totals:
        return Totals(
            dram_bytes=self.dram_bytes - other.dram_bytes,
            cycles=self.cycles - other.cycles,
            energy_pj=self.energy_pj - other.energy_pj,
        )

    @classmethod
    def of(cls, costs: Iterable[Cost]) -> Totals:
        """The sum over groups."""
        dram = cycles = 0
        energy = 0.0
        for cost in costs:
            dram += cost.dram_bytes
            cycles += cost.cycles
            energy += cost.energy_pj
        return cls(dram_bytes=dram, cycles=cycles, energy_pj=energy)


NO_TOTALS: Final = Totals()

_VALUES: Final[Mapping[str, Callable[[Totals], Any]]] = MappingProxyType(
    {
        "latency": lambda totals: totals.cycles,
        "dram_bytes": lambda totals: totals.dram_bytes,
        "energy": lambda totals: totals.energy_pj,
        "edp": lambda totals: totals.energy_pj * totals.cycles,
    }
)


def objective_value(objective: str, totals: Totals) -> Any:
    """The value to minimise: cycles, bytes, pJ, or pJ × cycles."""
    return _VALUES[objective](totals)


def ranking(objective: str, totals: Totals) -> tuple[Any, ...]:
    """The order among tilings of one group: the objective, then what it leaves open."""
    return (objective_value(objective, totals), totals.cycles, totals.dram_bytes, totals.energy_pj)
