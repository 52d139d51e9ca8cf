"""Core tiles: the part of an SRAM tile that one core works on at once (FUSE-17, TILE-8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.cost.rates import CoreWork
from compiler.ir.box import Ints
from compiler.ops.facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.configurations import channel_share, core_share
from compiler.tiling.geometry import GroupGeometry, Lengths
from compiler.tiling.sizes import SizeTable, stage_sizes, stages
from compiler.tiling.tile import Configuration, Order, Spread
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStep:
    """One op on one core tile: the core's work, its bytes per piece, and the pieces a core does one after another.

    The totals are over all pieces, cores, units and tiles: what is computed and read, halos included, nothing for
    cores that idle or tiles that are cut short.
    """

    work: CoreWork
    input_bytes: int
    output_bytes: int
    pieces: int
    total_elements: int
    total_input_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTile:
    """How an SRAM tile is cut for the cores of its unit.

    `extents` of the group's output per core tile; `count` core tiles per SRAM tile; `peak_bytes` is the most a core
    holds of activations; one step per op.
    """

    extents: Mapping[str, int]
    count: int
    peak_bytes: int
    steps: tuple[CoreStep, ...]


def core_tile_for(
    table: SizeTable, profile: Profile, configuration: Configuration, tile: Mapping[str, int], held: Ints
) -> CoreTile | None:
    """The largest core tile that fits a core's activation memory; None if not even the smallest does.

    `held` are each step's weight bytes in a core: where weights and activations share a memory, they take room.
    """
    if profile.sram is None:
        return _whole_tile(table, configuration, tile)
    capacity = profile.nram.capacity_bytes
    depth_first = configuration.order is Order.DEPTH_FIRST
    if profile.weights_share_activations:
        capacity -= int(held.sum() if depth_first else held.max(initial=0))
    if depth_first:
        return _depth_first(table, configuration, tile, capacity)
    return _per_op(table, configuration, tile, capacity)


def _whole_tile(table: SizeTable, configuration: Configuration, tile: Mapping[str, int]) -> CoreTile:
    """Without SRAM the unit is the core and its tile the core tile."""
    geometry, lengths = table.geometry, table.lengths(tile)
    share = configuration.units if configuration.spread is Spread.CHANNELS and not table.channels_are_free else 1
    steps = tuple(
        _step(geometry, op, lengths, share=share, pieces=1, totals=_totals(table, op, configuration, tile))
        for op in geometry.ops
    )
    volumes = np.array([[_bytes(geometry, name, lengths)] for name in table.names], dtype=np.float64)
    return CoreTile(extents=dict(tile), count=1, peak_bytes=int(geometry.peak(volumes)[0]), steps=steps)


def _bytes(geometry: GroupGeometry, name: str, lengths: Lengths) -> int:
    return prod(lengths[name]) * geometry.facts.tensors[name].element_bytes


def _totals(table: SizeTable, op: OpFacts, configuration: Configuration, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Elements that an op makes and bytes that it reads over all tiles of these sizes.

    An operand that does not follow the output's channels is read by every part that these are cut into.
    """
    at = table.positions(sizes)
    parts = channel_share(configuration)
    if table.channels_are_free:
        parts = ceil_div(table.grids["C"].extent, sizes["C"])
    read = 0
    for operand in op.operands:
        if not operand.constant:
            alone = table.channels_are_free and table.follows(operand.tensor, "C")
            read += table.total(operand.tensor, at) * (1 if alone else parts)
    return table.total(op.output, at) // table.geometry.facts.tensors[op.output].element_bytes, read


def _step(
    geometry: GroupGeometry, op: OpFacts, lengths: Lengths, *, share: int, pieces: int, totals: tuple[int, int]
) -> CoreStep:
    """One op over the box `lengths`; `share` cores divide its output channels among themselves."""
    box = lengths[op.output]
    channels = box[op.channel_axis] if op.channel_axis is not None else 1
    mine = ceil_div(channels, share)
    elements = prod(box) // max(1, channels) * mine
    return CoreStep(
        work=CoreWork(elements=elements, channels=max(1, mine)),
        input_bytes=sum(_bytes(geometry, o.tensor, lengths) for o in op.operands if not o.constant),
        output_bytes=elements * geometry.facts.tensors[op.output].element_bytes,
        pieces=pieces,
        total_elements=totals[0],
        total_input_bytes=totals[1],
    )


def _depth_first(
    table: SizeTable, configuration: Configuration, tile: Mapping[str, int], capacity: int
) -> CoreTile | None:
    """A core tile goes through all ops with its intermediates in NRAM; neighbours recompute their halo (TILE-3)."""
    geometry = table.geometry
    inner = table.inside(tile)
    caps = {axis: tile[axis] for axis in table.axes}
    channels = tile.get("C")
    share = 1 if table.channels_are_free else channel_share(configuration)
    if configuration.core_spread is Spread.CHANNELS:
        if table.channels_are_free and channels is not None:
            channels = ceil_div(channels, configuration.cores)
    elif table.band_axis is not None:
        caps[table.band_axis] = ceil_div(caps[table.band_axis], configuration.cores)
    for stage in stages(inner, caps, channels):
        peaks = geometry.peak(inner.volumes(stage.at, stage.axis, stage.count))
        fitting = np.flatnonzero(peaks <= capacity)
        if len(fitting):
            position = int(fitting[-1])
            extents = stage_sizes(inner, stage, position)
            count = prod(ceil_div(tile[axis], extents[axis]) for axis in table.axes)
            by_bands = core_share(configuration) == 1
            rounds = ceil_div(count, configuration.cores) if by_bands else count
            lengths = inner.lengths(extents)
            return CoreTile(
                extents=extents,
                count=count,
                peak_bytes=int(peaks[position]),
                steps=tuple(
                    _step(
                        geometry,
                        op,
                        lengths,
                        share=share,
                        pieces=rounds,
                        totals=_totals(inner, op, configuration, extents),
                    )
                    for op in geometry.ops
                ),
            )
    return None


def _per_op(table: SizeTable, configuration: Configuration, tile: Mapping[str, int], capacity: int) -> CoreTile | None:
    """Each op is cut for itself: its rows over the cores, then halved until inputs and result fit NRAM."""
    lengths = table.lengths(tile)
    steps: list[CoreStep] = []
    pieces: dict[str, tuple[int, ...]] = {}
    for op in table.geometry.ops:
        totals = _totals(table, op, configuration, tile)
        # free channels are already cut for units in the tile; else every unit makes its part of the channels
        share = core_share(configuration) if table.channels_are_free else channel_share(configuration)
        found = _fit_op(table.geometry, op, lengths, configuration, capacity, totals, share)
        if found is None:
            return None
        steps.append(found[0])
        pieces[op.output] = found[1]
    return CoreTile(
        # the group's output stands for all: every op has a piece of its own size
        extents=dict(zip(table.geometry.output.axes, pieces[table.geometry.primary], strict=True)),
        count=max(step.pieces for step in steps),
        peak_bytes=max(step.input_bytes + step.output_bytes for step in steps),
        steps=tuple(steps),
    )


def _fit_op(
    geometry: GroupGeometry,
    op: OpFacts,
    lengths: Lengths,
    configuration: Configuration,
    capacity: int,
    totals: tuple[int, int],
    share: int,
) -> tuple[CoreStep, tuple[int, ...]] | None:
    """The largest piece of one op's box that fits a core, rows halved before columns, images last."""
    whole = lengths[op.output]
    size = list(whole)
    axes = [axis for axis in range(len(whole)) if axis != op.channel_axis]
    order = sorted(axes, key=lambda axis: (axis == 0, axis))
    by_bands = core_share(configuration) == 1
    if by_bands and order:
        size[order[0]] = ceil_div(size[order[0]], configuration.cores)
    while True:
        boxes = _op_lengths(op, tuple(size), lengths)
        # a tile that reads nothing of this op's result, only padding, has no pieces of it
        count = prod(ceil_div(full, part) if full else 0 for full, part in zip(whole, size, strict=True))
        pieces = ceil_div(count, configuration.cores) if by_bands else count
        # the halo between pieces is read once more from SRAM
        elements, read = totals
        unit_reads = sum(_bytes(geometry, o.tensor, lengths) for o in op.operands if not o.constant)
        piece_reads = sum(_bytes(geometry, o.tensor, boxes) for o in op.operands if not o.constant)
        if unit_reads:
            read = max(read, read * piece_reads * count // unit_reads)
        step = _step(geometry, op, boxes, share=share, pieces=pieces, totals=(elements, read))
        if step.input_bytes + step.output_bytes <= capacity:
            return step, tuple(size)
        axis = next((axis for axis in order if size[axis] > 1), None)
        if axis is None:
            return None
        needed = step.input_bytes + step.output_bytes
        size[axis] = min(size[axis] - 1, max(1, size[axis] * capacity // needed))


def _op_lengths(op: OpFacts, size: tuple[int, ...], lengths: Lengths) -> Lengths:
    """Lengths of an op's inputs for a piece of its output, at most those of the whole tile."""
    boxes: dict[str, tuple[int, ...]] = {op.output: size}
    for operand in op.operands:
        if not operand.constant:
            boxes[operand.tensor] = tuple(
                length if m.axis is None else min(length, m.longest(size[m.axis]))
                for m, length in zip(operand.access, lengths[operand.tensor], strict=True)
            )
    return boxes
