"""What a call of a routine takes, by the functions that price ops and transfers for the planner (SHAPE-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from compiler.cost.array import core_use, work_on_box
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.shapes.routine import RoutineGeometry
from compiler.shapes.ways import Way, dram_way, peer_way
from compiler.tiling.traffic import element_sizes
from compiler.units import ceil_div


@dataclass(frozen=True, eq=False)
class CallModel:
    """The cycles of one call in one core, for tiles of the result anywhere in its middle.

    `in_place`: weights that lie whole in every core before the program runs.
    """

    geometry: RoutineGeometry
    profile: Profile
    in_place: frozenset[str] = frozenset()
    _boxes: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = field(default_factory=dict)

    @cached_property
    def from_dram(self) -> Way:
        """How boxes come from DRAM, and go there."""
        return dram_way(self.profile)

    @cached_property
    def _from_peers(self) -> Way:
        """How stationary weights come that are shared out to the cores."""
        return (peer_way(self.profile) if self.profile.is_stationary else None) or self.from_dram

    def way(self, name: str) -> Way:
        """How boxes of a tensor come to a core or leave it."""
        return self._from_peers if name in self.geometry.weights else self.from_dram

    @property
    def loaders(self) -> int:
        """How often what all calls read is read from DRAM."""
        return self.from_dram.readers

    def common_factor(self, name: str) -> float:
        """By what a box's cycles are multiplied where all calls read it, to be those of each of `loaders`."""
        return self.way(name).readers / self.loaders

    def start_cycles(self, name: str) -> float:
        """Start-up of one transfer of a tensor's box."""
        return self.way(name).start_cycles

    def compute_cycles(self, tile: Sequence[int]) -> float:
        """Cycles of the core's units for all ops of the routine, one after another."""
        boxes = self._of(tuple(tile))
        return float(sum(self._op_cycles(op, boxes[op.output]) for op in self.geometry.ops))

    def move_cycles(self, name: str, tile: Sequence[int]) -> float:
        """Cycles that a tensor's box takes on its way to the core or from it, start-up apart."""
        box = self._of(tuple(tile))[name]
        return prod(box) * self.geometry.facts.tensors[name].element_bytes / self.way(name).bytes_per_cycle

    @property
    def moved(self) -> tuple[str, ...]:
        """The tensors that a call brings or stores."""
        weights = (name for name in self.geometry.weights if name not in self.in_place)
        return (*self.geometry.inputs, *weights, self.geometry.result)

    def is_common(self, name: str, tiled: Sequence[int]) -> bool:
        """True if all calls of a table read the same box of a tensor."""
        return name != self.geometry.result and not set(self.geometry.follows(name)) & set(tiled)

    def _of(self, tile: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        found = self._boxes.get(tile)
        if found is None:
            found = self._boxes[tile] = self.geometry.box_of(tile)
        return found

    def _op_cycles(self, op: OpFacts, box: Sequence[int]) -> int:
        work = work_on_box(op, self.geometry.facts.tensors[op.output].axes, box, self.profile)
        use = core_use(op, work, element_sizes(self.geometry.facts, op), self.profile)
        return use.call_cycles


def table_cycles(model: CallModel, tiled: Sequence[int], tile: Sequence[int]) -> float:
    """Cycles of all calls of one tile over the whole result, all cores at work: what ways to divide are compared by.

    What does not follow the axis along which calls go on innermost is brought once for all of them.
    """
    geometry, shape = model.geometry, model.geometry.shape
    counts = {axis: ceil_div(shape[axis], tile[axis]) for axis in tiled}
    calls = prod(counts.values())
    compute = model.compute_cycles(tile)
    common = [name for name in model.moved if model.is_common(name, tiled)]
    once = sum(
        model.common_factor(name) * (model.start_cycles(name) + model.move_cycles(name, tile)) for name in common
    )
    once *= min(calls, model.loaders) / model.profile.cores
    best: float | None = None
    for inner in (*tiled, None):
        moved = 0.0
        for name in model.moved:
            if name in common:
                continue
            cycles = model.start_cycles(name) + model.move_cycles(name, tile)
            stays = inner is not None and name != geometry.result and inner not in geometry.follows(name)
            moved += cycles / counts[inner] if stays and inner is not None else cycles
        best = moved if best is None else min(best, moved)
    return once + ceil_div(calls, model.profile.cores) * (compute + (best or 0.0))
