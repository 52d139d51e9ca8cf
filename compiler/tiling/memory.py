"""Where everything of a tiled group lies while it runs: buffers by lifetime, level by level (PROG-2).

One SRAM tile (depth-first in a core: one core tile) is one round of steps, an op each. What waits for later tiles lives
through all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from compiler.address.table import ENTRY_BYTES
from compiler.cost.rates import waiting_sum_bytes
from compiler.memory.allocate import Allocation, Buffer, allocate
from compiler.tiling.figures import Check
from compiler.tiling.tile import LevelUse, WeightHome
from compiler.tiling.tiled import TiledGroup

# What buffers are called; a tensor's name follows where there is one.
TILE: Final = "tile "
KEPT: Final = "kept "
NEXT: Final = "next inputs"
LEAVING: Final = "last results"
PIECE: Final = "piece "
STAYING: Final = "staying "
WEIGHTS: Final = "weights "
PASSING: Final = "passing weights "
PASSING_LINE: Final = "weights passing by lines"
STORES: Final = "kept for later tiles"
WAITING: Final = "kept for later core tiles"


def alignment_bytes(group: TiledGroup) -> int:
    """What every address of a group is a multiple of: bytes of its largest element, activations, weights, tables."""
    product = group.geometry.product
    return max(
        waiting_sum_bytes(product, group.profile) if product is not None and group.input_parts > 1 else 1,
        ENTRY_BYTES if any(w.table_bytes for w in group.weights) else 1,
        group.geometry.largest_element_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMemory:
    """One memory level of one unit or core: its buffers with their addresses, peak and lower bound in bytes."""

    level: str
    capacity_bytes: int
    buffers: tuple[Buffer, ...]
    allocation: Allocation

    @property
    def fits(self) -> bool:
        """True if the allocation stays within the level."""
        return self.allocation.peak_bytes <= self.capacity_bytes


def memory_of(group: TiledGroup) -> tuple[LevelMemory, ...]:
    """The allocation of every level that a group uses: SRAM, its weight part, NRAM and WRAM."""
    profile = group.profile
    levels: list[tuple[str, int, list[Buffer]]] = []
    core_weights, unit_weights = _core_weights(group), _unit_weights(group)
    units = profile.units
    if not group.is_flat:
        activations = _sram_activations(group)
        if units.weight_part_bytes is None:
            activations += unit_weights
        else:
            levels.append(("sram-weights", units.weight_part_bytes, unit_weights))
        levels.insert(0, (units.level, units.memory.capacity_bytes, activations))
        core = _core_activations(group)
    else:
        core = _tile_buffers(group, group.volumes(group.frustums), group.frustums.kept, is_unit=True)
    if profile.weights_share_activations:
        core += core_weights
    elif profile.wram is not None:
        levels.append(("wram", profile.wram.capacity_bytes, core_weights))
    else:
        levels.append(("nram-weights", profile.weight_memory_bytes, core_weights))
    levels.insert(0 if group.is_flat else 1, ("nram", profile.nram.capacity_bytes, core))
    return tuple(
        LevelMemory(
            level=level,
            capacity_bytes=capacity,
            buffers=tuple(buffers),
            allocation=allocate(buffers, capacity),
        )
        for level, capacity, buffers in levels
        if buffers
    )


def allocation_check(levels: Iterable[LevelMemory]) -> Check | None:
    """PROG-2 as a check: the first level whose allocation does not fit it; None if all do."""
    for level in levels:
        if not level.fits:
            return Check(
                rule=f"PROG-2:{level.level}",
                holds=False,
                actual=level.allocation.peak_bytes,
                limit=level.capacity_bytes,
            )
    return None


def allocated_check(use: LevelUse) -> Check:
    """PROG-2 for a level of a chosen tiling: what its allocation takes is within the level."""
    return Check(
        rule=f"PROG-2:{use.level}",
        holds=use.peak_bytes <= use.capacity_bytes,
        actual=use.peak_bytes,
        limit=use.capacity_bytes,
    )


def _tile_buffers(
    group: TiledGroup, sizes: Mapping[str, int], kept: Mapping[str, int], *, is_unit: bool
) -> list[Buffer]:
    """What a tile adds of each tensor, by lifetime; what waits for later tiles, all the time.

    In a unit's memory also the next inputs and the last results, all the time.
    """
    geometry = group.geometry
    names, first, last = geometry.sliced_lifetimes if group.is_sliced else geometry.lifetimes
    steps = len(group.geometry.ops)
    align = alignment_bytes(group)
    over = group.taken_over(sizes)
    buffers = []
    for name, begin, end in zip(names, first.tolist(), last.tolist(), strict=True):
        source = over.get(name)
        # what is written over an operand, or would be if that had room for it, exists from the step that writes it
        begin = begin - 1 if name in geometry.takes_over else begin
        if sizes[name]:
            buffers.append(
                Buffer(
                    name=TILE + name,
                    size_bytes=sizes[name],
                    begin=begin,
                    end=min(end, steps - 1) + 1,
                    alignment_bytes=align,
                    shares=None if source is None else TILE + source,
                )
            )
    buffers += [
        Buffer(name=KEPT + name, size_bytes=size, begin=0, end=steps, alignment_bytes=align)
        for name, size in kept.items()
        if size
    ]
    ends = {NEXT: group.staging_bytes, LEAVING: sum(group.leaving.values())} if is_unit else {}
    buffers += [
        Buffer(name=name, size_bytes=size, begin=0, end=steps, alignment_bytes=align)
        for name, size in ends.items()
        if size
    ]
    return buffers


def _sram_activations(group: TiledGroup) -> list[Buffer]:
    """The SRAM of a unit: breadth-first all maps of the tile, depth-first only what enters and leaves it."""
    kept = group.frustums.kept
    if not group.is_nested:
        return _through_stages(group, _tile_buffers(group, group.volumes(group.frustums), kept, is_unit=True))
    geometry, frustums = group.geometry, group.frustums
    ends = list(geometry.inputs)
    if not geometry.is_in_place:
        ends += geometry.outputs or (geometry.primary,)
    largest = {name: group.held_bytes(frustums, name) for name in ends}
    if geometry.is_in_place:
        # the result takes over the input's space, the larger of the two counts
        name = geometry.inputs[0]
        largest[name] = max(sum(largest.values()), frustums.largest_made(geometry.outputs[0]))
        largest = {name: largest[name]}
    sizes = {TILE + name: size for name, size in largest.items()}
    sizes |= {KEPT + name: size for name, size in kept.items() if name in geometry.inputs}
    sizes |= {WAITING: group.kept_outside_cores_bytes}
    sizes |= {NEXT: group.staging_bytes, LEAVING: sum(group.leaving.values())}
    align = alignment_bytes(group)
    return [
        Buffer(name=name, size_bytes=size, begin=0, end=1, alignment_bytes=align)
        for name, size in sizes.items()
        if size
    ]


def _through_stages(group: TiledGroup, buffers: list[Buffer]) -> list[Buffer]:
    """Buffers of an SRAM over which cores pass stage by stage: what a stage reads or makes is there for all of it.

    Each piece passes all ops of its stage before the next one comes, so other pieces still read what the first op reads
    when the last op's results come. What is made and read in one stage only lies in the cores, if nothing takes over
    its space.
    """
    spans = {step: (stage.steps[0], stage.steps[-1] + 1) for stage in group.stages for step in stage.steps}
    taken = {buffer.shares for buffer in buffers}
    inside = {TILE + name for name in group.geometry.made}.difference(
        TILE + name for stage in group.stages for name in (*stage.inputs, *stage.results, *stage.staying)
    )
    found = []
    for buffer in buffers:
        begin, end = buffer.begin, buffer.end
        if spans and (buffer.name not in inside or buffer.shares is not None or buffer.name in taken):
            begin = spans[begin][0] if buffer.shares is None else begin
            end = spans[end - 1][1] if buffer.name not in taken else end
        is_same = (begin, end) == (buffer.begin, buffer.end)
        found.append(buffer if is_same else replace(buffer, begin=begin, end=end))
    return found


def _core_activations(group: TiledGroup) -> list[Buffer]:
    """The NRAM of a core under a unit with SRAM: depth-first all maps of a core tile, else pieces and what stays."""
    steps, align = len(group.geometry.ops), alignment_bytes(group)
    if group.is_nested:
        buffers = _tile_buffers(group, group.core_volumes, {}, is_unit=False)
    else:
        buffers = [
            Buffer(
                name=f"{PIECE}{number}",
                size_bytes=stage.piece_bytes,
                begin=stage.steps[0],
                end=stage.steps[-1] + 1,
                alignment_bytes=align,
            )
            for number, stage in enumerate(group.stages)
            if stage.piece_bytes
        ]
        buffers += _staying(group)
    if group.core_kept_bytes:
        size = group.core_kept_bytes
        buffers.append(Buffer(name=STORES, size_bytes=size, begin=0, end=steps, alignment_bytes=align))
    return buffers


def _staying(group: TiledGroup) -> list[Buffer]:
    lives: dict[str, list[int]] = {}
    for stage in group.stages:
        for name in stage.staying:
            lives.setdefault(name, []).extend((stage.steps[0], stage.steps[-1] + 1))
    align = alignment_bytes(group)
    return [
        Buffer(name=STAYING + name, size_bytes=size, begin=min(life), end=max(life), alignment_bytes=align)
        for name, life in lives.items()
        if (size := group.frustums.usual_needed(name)[0])
    ]


def _passing_life(group: TiledGroup, step: int) -> tuple[int, int]:
    """The steps during which an op's weights that pass a core lie there: those of its stage, where all have room."""
    found = group.stage_of[step]
    if found is None or not group.stays_together(found[1].steps):
        return step, step + 1
    return found[1].steps[0], found[1].steps[-1] + 1


def _core_weights(group: TiledGroup) -> list[Buffer]:
    """Weights in one core: those that wait there all the time; while an op works, the slices of it that pass."""
    steps, align = len(group.geometry.ops), alignment_bytes(group)
    buffers = []
    for step, (weights, home) in enumerate(zip(group.weights, group.homes, strict=True)):
        size, life = weights.passing_core_bytes, _passing_life(group, step)
        if group.weights_in_place:
            # of stationary weights that lie where they are used nothing comes but the address tables
            size, life = weights.table_bytes, (0, steps)
        elif home is WeightHome.CORE:
            size, life = weights.core_bytes, (0, steps)
        size += group.second_weight_bytes(step) if group.doubles_weights else 0
        if size:
            begin, end = life
            buffers.append(
                Buffer(name=f"{WEIGHTS}{step}", size_bytes=size, begin=begin, end=end, alignment_bytes=align)
            )
    return buffers


def _unit_weights(group: TiledGroup) -> list[Buffer]:
    """Weights that wait in the SRAM, and those on their way through it."""
    steps, align = 1 if group.is_nested else len(group.geometry.ops), alignment_bytes(group)
    passing = [
        Buffer(name=f"{PASSING}{step}", size_bytes=size, begin=step, end=step + 1, alignment_bytes=align)
        for step, size in enumerate(group.passing_unit_bytes)
        if size
    ]
    if group.is_nested and passing:
        # depth-first they all pass while one tile is there, one after another
        passing = [replace(max(passing, key=lambda b: b.size_bytes), name=PASSING, begin=0, end=1)]
    line = group.passing_line_bytes
    lines = [Buffer(name=PASSING_LINE, size_bytes=line, begin=0, end=steps, alignment_bytes=align)] if line else []
    return (
        _through_stages(group, passing)
        + [
            Buffer(name=f"{WEIGHTS}{step}", size_bytes=weights.unit_bytes, begin=0, end=steps, alignment_bytes=align)
            for step, (weights, home) in enumerate(zip(group.weights, group.homes, strict=True))
            if home is WeightHome.SRAM and weights.unit_bytes
        ]
        + lines
    )
