"""What fusion makes of a segment: groups with their tilings, prices and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from compiler.cost.objective import Totals
from compiler.ops.op_facts import GraphFacts
from compiler.partition.segments import PartitionedGraph, Segment
from compiler.tiling.figures import Check
from compiler.tiling.finished import Choice

if TYPE_CHECKING:
    from compiler.fusion.rivals import Rivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A fusion group: ops in execution order, the chosen tiling and its price, and the rules' verdicts.

    `bound`: ids of the rules and memory checks that decided it (`fusion/bound.py`), whether or not they have a verdict.
    """

    ops: tuple[int, ...]
    choice: Choice
    checks: tuple[Check, ...]
    bound: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Why a consumer of a group's output is outside: the first failing rule, or both objectives."""

    tensor: str
    consumer: int | None
    rule: str | None
    actual: float | None
    limit: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What strategy `search` knows of a segment's partitions into single-output groups with the largest tiles that fit.

    `value` is the objective of the least one found, before tiles by cost and groups that are joined, and no other
    has one below `bound`; None where that is not known, or where the objective is no sum over segments. `is_least`:
    none has a lower objective, beside the other segments as they then were. `candidates` groups were tried, of which
    `priced` were priced.
    """

    candidates: int
    priced: int
    value: float
    bound: float | None
    is_least: bool


Origin = Literal["price", "simulation", "rules", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlan:
    """A plan of a segment whose whole program was simulated: how it was found, its price, and what it takes.

    `origin`: `price` (the least by price), `simulation` (tilings and groups that take less when simulated), or the
    strategy `rules` or `none`.
    """

    origin: Origin
    groups: int
    estimated: Totals
    simulated: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The plans of a segment that were compared by simulation (SCHED-7), the one that was taken first.

    `tilings`: groups with a tiling that were simulated by themselves. `excluded`: strategies whose plan was not
    simulated whole: a sample of its groups takes more, it is several times as long, or it has no program.
    """

    plans: tuple[SimulatedPlan, ...]
    tilings: int
    excluded: tuple[Literal["rules", "none"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSegment:
    """A segment and its groups in execution order, each with the reasons at its boundary.

    `search` is what strategy `search` knows of it, `simulated` what was simulated of it; None under other strategies
    and on the host.
    """

    segment: Segment
    groups: tuple[Group, ...]
    boundaries: tuple[tuple[Boundary, ...], ...]
    search: Searched | None = None
    simulated: Simulated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGraph:
    """A partitioned graph with every segment grouped, and the groups of strategy `none` as the baseline.

    `rivals`: by number of the segment, what else than its groups might be chosen; empty once that is decided.
    """

    partitioned: PartitionedGraph
    facts: GraphFacts
    segments: tuple[FusedSegment, ...]
    baseline: tuple[FusedSegment, ...]
    rivals: Mapping[int, Rivals] = field(default_factory=dict, repr=False, compare=False)
