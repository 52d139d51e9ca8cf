"""What a call of a routine takes, by the functions that price ops and transfers for the planner (SHAPE-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from compiler.cost.array import CoreWork, array_lanes, core_use
from compiler.cost.rates import dram_startup_cycles
from compiler.ops.facts import OpFacts
from compiler.profile.schema import Profile
from compiler.shapes.routine import RoutineGeometry
from compiler.tiling.traffic import element_sizes
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, eq=False)
class CallModel:
    """The cycles of one call in one core, for tiles of the result anywhere in its middle."""

    geometry: RoutineGeometry
    profile: Profile
    _boxes: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def dram_bytes_per_cycle(self) -> float:
        """What a core gets of the DRAM while all cores load: its share, at most what its engine moves."""
        share = self.profile.dram_bytes_per_cycle / self.profile.cores
        engine = self.profile.engines.iodma
        return share if engine is None else min(share, engine.bytes_per_cycle)

    @property
    def loaders(self) -> int:
        """How often what all calls read is read from DRAM: once if it can be passed on, else by each who needs it."""
        engines = self.profile.engines
        if self.profile.dram.multicast:
            return 1
        if self.profile.sram is not None and engines.gdma is not None and engines.bus is not None:
            return self.profile.clusters_per_chip
        return 1 if engines.link is not None else self.profile.cores

    @property
    def startup_cycles(self) -> float:
        """Start-up of one transfer to or from DRAM."""
        return dram_startup_cycles(self.profile)

    def compute_cycles(self, tile: Sequence[int]) -> float:
        """Cycles of the core's units for all ops of the routine, one after another."""
        boxes = self._of(tuple(tile))
        return float(sum(self._op_cycles(op, boxes[op.output]) for op in self.geometry.ops))

    def move_cycles(self, name: str, tile: Sequence[int]) -> float:
        """Cycles that a tensor's box takes between DRAM and the core, start-up apart."""
        box = self._of(tuple(tile))[name]
        return prod(box) * self.geometry.facts.tensors[name].element_bytes / self.dram_bytes_per_cycle

    @property
    def moved(self) -> tuple[str, ...]:
        """The tensors that a call brings or stores."""
        return (*self.geometry.inputs, *self.geometry.weights, self.geometry.result)

    def _of(self, tile: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        found = self._boxes.get(tile)
        if found is None:
            found = self._boxes[tile] = self.geometry.box_of(tile)
        return found

    def _op_cycles(self, op: OpFacts, box: Sequence[int]) -> int:
        lanes = dict(zip(("W", "H"), array_lanes(op, self.profile), strict=True))
        axes = self.geometry.facts.tensors[op.output].axes
        channels = 1 if op.channel_axis is None else box[op.channel_axis]
        steps = positions = 1
        for axis, (name, length) in enumerate(zip(axes, box, strict=True)):
            if axis != op.channel_axis:
                positions *= length
                steps *= ceil_div(length, lanes.get(name, 1))
        work = CoreWork(steps=steps, positions=positions, channels=channels, pieces=1)
        use = core_use(op, work, element_sizes(self.geometry.facts, op), self.profile)
        return max(use.cycles, use.read_port_cycles, use.write_port_cycles, use.weight_port_cycles)


def table_cycles(model: CallModel, tiled: Sequence[int], tile: Sequence[int]) -> float:
    """Cycles of all calls of one tile over the whole result, all cores at work: what ways to divide are compared by.

    What does not follow the axis along which calls go on innermost is brought once for all of them.
    """
    geometry, shape = model.geometry, model.geometry.shape
    counts = {axis: ceil_div(shape[axis], tile[axis]) for axis in tiled}
    calls = prod(counts.values())
    compute = model.compute_cycles(tile)
    common = [name for name in model.moved[:-1] if not set(geometry.follows(name)) & set(tiled)]
    once = sum(model.startup_cycles + model.move_cycles(name, tile) for name in common)
    once *= min(calls, model.loaders) / model.profile.cores
    best: float | None = None
    for inner in (*tiled, None):
        moved = 0.0
        for name in model.moved:
            if name in common:
                continue
            cycles = model.startup_cycles + model.move_cycles(name, tile)
            stays = inner is not None and name != geometry.result and inner not in geometry.follows(name)
            moved += cycles / counts[inner] if stays and inner is not None else cycles
        best = moved if best is None else min(best, moved)
    return once + ceil_div(calls, model.profile.cores) * (compute + (best or 0.0))
