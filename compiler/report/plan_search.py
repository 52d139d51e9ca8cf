"""What `plan.json` says of how a segment's plan was found: by price, and by simulation."""

from __future__ import annotations

from typing import Literal

from compiler.report.execution import Part


class SearchDoc(Part, frozen=True, kw_only=True):
    """What strategy `search` knows of a segment's partitions into single-output groups, in the objective's unit.

    The unit is cycles, bytes, pJ, or pJ x cycles. `value` is the least partition found, each group with the largest
    tile that fits, before tiles by cost and groups that are joined; no other has a value below `bound`. `bound` is
    None where groups were left out of the search, where energy x latency was not proven or has other segments beside.
    `is_least`: no other partition is better. `candidates` groups were tried, `priced` of them priced.
    """

    candidates: int
    priced: int
    value: float
    bound: float | None
    is_least: bool


class SimulatedPlanDoc(Part, frozen=True, kw_only=True):
    """A plan of a segment whose program was simulated whole, by price and by simulation.

    `origin`: `price`, the plan of least price; `simulation`, tilings and groups that took less when each group was
    simulated by itself; or the strategy `rules` or `none`.
    """

    origin: Literal["price", "simulation", "rules", "none"]
    groups: int
    dram_bytes: int
    estimated_cycles: float
    simulated_cycles: float
    estimated_energy_j: float
    simulated_energy_j: float


class SimulatedDoc(Part, frozen=True, kw_only=True):
    """The plans of a segment that were compared by simulation, the one that was taken first.

    `tried`: groups with another tiling, or other groups, that were simulated by themselves. `excluded`: strategies
    whose plan was not simulated whole: a sample of its groups takes more, it is several times as long, or it has no
    program.
    """

    plans: tuple[SimulatedPlanDoc, ...]
    tried: int
    excluded: tuple[Literal["rules", "none"], ...]
