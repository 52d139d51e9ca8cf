"""Breadth-first core work: runs of ops that pass a core piece by piece, and what stays in the core between runs.

A *stage* is a run of ops (`runs.py`) under a tiling. Between stages a result returns to the SRAM, unless one core does
all the work and has room to keep it whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from compiler.ir.box import AxisMap
from compiler.ops.op_facts import Operand, OpFacts
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.runs import Run
from compiler.tiling.tile import Configuration, HaloMode, Spread
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStage:
    """Ops `steps` of a group that pass a core together.

    `inputs` come from outside the stage, `results` leave it. `pieces` pieces of an SRAM tile's box go over the cores,
    `rounds` one after another in each; `extents` of one piece of the stage's last result, `piece_bytes` all that it
    holds. `rereads`: how much more of its inputs the pieces read together than the tile needs, halos between them.
    `staying`: inputs and results that stay in the core, each with the part of it that does not, because it belongs to
    tiles larger than the usual one. `cuts_channels`: its ops make any part of the channels for themselves.
    """

    steps: tuple[int, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    pieces: int
    rounds: int
    extents: tuple[int, ...]
    piece_bytes: int
    rereads: float
    staying: Mapping[str, float]
    staying_bytes: int
    cuts_channels: bool


def core_stages(
    geometry: GroupGeometry,
    frustums: Frustums,
    configuration: Configuration,
    rows: str | None,
    capacity: int,
    lanes: Mapping[str, int],
) -> tuple[CoreStage, ...] | int:
    """The stages of a breadth-first group in order; if some stage has no piece that fits, bytes of its smallest one.

    A tensor that stays in the core is in no stage's inputs or results. Known once they have been asked for: tilings
    that differ in what waits where, or is buffered, have the same ones.
    """
    key = ("stages", rows, capacity, configuration.cores, configuration.core_spread, *lanes.items())
    found: tuple[CoreStage, ...] | int | None = frustums.worked_out.get(key)
    if found is None:
        found = frustums.worked_out[key] = _core_stages(geometry, frustums, configuration, rows, capacity, lanes)
    return found


def _core_stages(
    geometry: GroupGeometry,
    frustums: Frustums,
    configuration: Configuration,
    rows: str | None,
    capacity: int,
    lanes: Mapping[str, int],
) -> tuple[CoreStage, ...] | int:
    runs = geometry.runs
    kept, loads = _staying(geometry, frustums, runs, capacity) if configuration.cores == 1 else ({}, [0] * len(runs))
    place = {name: number for number, name in enumerate(kept)}
    stages = []
    for number, run in enumerate(runs):
        names = sorted((name for name in (*run.inputs, *run.results) if name in kept), key=place.__getitem__)
        staying = {name: kept[name] for name in names}
        held = loads[number]
        stage = _stage(geometry, frustums, configuration, rows, run, staying, capacity - held, lanes, held)
        if isinstance(stage, int) and kept:
            return _all_in_sram(geometry, frustums, configuration, rows, capacity, lanes, runs)
        if isinstance(stage, int):
            return stage
        stages.append(stage)
    return tuple(stages)


def beside_weights(stages: Sequence[CoreStage], passing: Sequence[int]) -> int:
    """What stages take of a core beside weights in the same memory, where the most of these that pass are counted.

    `passing`: bytes of weights that pass the core, by step.
    """
    held = [s.piece_bytes + s.staying_bytes + max(passing[step] for step in s.steps) for s in stages]
    return max(held, default=0) - max(passing)


def _all_in_sram(
    geometry: GroupGeometry,
    frustums: Frustums,
    configuration: Configuration,
    rows: str | None,
    capacity: int,
    lanes: Mapping[str, int],
    runs: tuple[Run, ...],
) -> tuple[CoreStage, ...] | int:
    """As `core_stages`, every result between stages in the SRAM."""
    stages = []
    for run in runs:
        stage = _stage(geometry, frustums, configuration, rows, run, {}, capacity, lanes)
        if isinstance(stage, int):
            return stage
        stages.append(stage)
    return tuple(stages)


def _staying(
    geometry: GroupGeometry, frustums: Frustums, runs: tuple[Run, ...], capacity: int
) -> tuple[dict[str, float], list[int]]:
    """Tensors that one core keeps whole between stages, with the part that exceeds their usual bytes.

    Second: bytes of all that lies in the core while each stage works. The smallest first, so that as many as possible
    stay. A stage that has others to pass piece by piece needs room for that. What other units need of a tensor lies in
    the SRAM, from where it is passed on.
    """
    passes = any(tiles.mode is HaloMode.EXCHANGE for tiles in frustums.tiles.values())
    readers: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        for name in run.inputs:
            readers.setdefault(name, []).append(number)
    found: dict[str, float] = {}
    load = [0] * len(runs)
    made = [(number, name) for number, run in enumerate(runs) for name in run.results]
    sizes = {name: frustums.usual_needed(name) for _, name in made}
    for number, name in sorted(made, key=lambda entry: (sizes[entry[1]][0], entry[0])):
        if name in geometry.outputs or name not in readers or (passes and frustums.kept_along(name)):
            continue
        size, part = sizes[name]
        span = range(number, max(readers[name]) + 1)
        if all(load[i] + size <= capacity * 15 // 16 for i in span):
            found[name] = part
            for i in span:
                load[i] += size
    return found, load


def _stage(
    geometry: GroupGeometry,
    frustums: Frustums,
    configuration: Configuration,
    rows: str | None,
    run: Run,
    kept: Mapping[str, float],
    capacity: int,
    lanes: Mapping[str, int],
    beside: int = 0,
) -> CoreStage | int:
    """The stage with the largest pieces that fit, or bytes of the smallest piece.

    Pieces that follow one another take half of the room, so that one comes and leaves while another is worked on. That
    is so where such pieces fit, have as many channels (parts of these read the same again), and take the array no more
    steps, and where weights of one op at most pass with them: those of several would come again for each piece. Rows
    are cut before columns, images, and output channels last.
    """
    first = geometry.ops[run.steps[0]]
    whole = frustums.lengths(first.output)
    axes = geometry.facts.tensors[first.output].axes
    size = list(whole)
    channel = first.channel_axis
    if configuration.core_spread is Spread.CHANNELS and channel is not None:
        size[channel] = ceil_div(size[channel], configuration.cores)
    order = sorted((a for a in range(len(whole)) if a != channel), key=lambda axis: (axis == 0, axis))
    by_bands = configuration.core_spread is not Spread.CHANNELS and configuration.cores > 1
    band = next((a for a in order if axes[a] == rows), order[0] if order else None)
    if by_bands and band is not None:
        size[band] = ceil_div(size[band], configuration.cores)
    facts = _facts_of(geometry, run)
    if channel is not None and facts.cuts_channels:
        order.append(channel)
    inputs = tuple(name for name in run.inputs if name not in kept)
    results = tuple(name for name in run.results if name not in kept)
    spread = 1 if channel is None or configuration.core_spread is not Spread.CHANNELS else configuration.cores

    def largest(room: int) -> tuple[int, int] | int:
        """Cut `size` down until a piece fits; what it holds and reads, or bytes of the smallest piece."""
        while True:
            held, read = _piece(facts, size, frustums, kept)
            if held <= room:
                return held, read
            # first down to what the array's lanes take along each axis, below that only if nothing else is left to cut
            axis = next((axis for axis in order if size[axis] > lanes.get(axes[axis], 1)), None)
            axis = axis if axis is not None else next((axis for axis in order if size[axis] > 1), None)
            if axis is None:
                return held
            lane = lanes.get(axes[axis], 1)
            smaller = min(size[axis] - 1, max(1, size[axis] * room // held))
            size[axis] = max(lane, smaller // lane * lane) if size[axis] > lane else smaller

    def counted() -> tuple[int, int]:
        """Pieces in all, and how many of them follow one another in a core."""
        counts = [ceil_div(full, part) if full else 0 for full, part in zip(whole, size, strict=True)]
        pieces = prod(counts)
        if spread > 1 and channel is not None:
            counts[channel] = ceil_div(counts[channel], spread)
        return pieces, ceil_div(prod(counts), configuration.cores) if by_bands else prod(counts)

    found = largest(capacity)
    if isinstance(found, int):
        return found
    pieces, rounds = counted()
    if rounds > 1 and facts.weighted <= 1:
        alone, by_lanes = list(size), [lanes.get(axis, 1) for axis in axes]
        halved = largest(capacity // 2)
        is_thinner = channel is not None and size[channel] < alone[channel]
        more = _array_steps(whole, size, by_lanes) > _array_steps(whole, alone, by_lanes)
        if isinstance(halved, int) or is_thinner or more:
            size = alone
        else:
            found = halved
            pieces, rounds = counted()
    held, read = found
    tile_reads = sum([frustums.largest_read(op, o) for op, o in facts.reads if o.tensor in inputs])
    # pieces that differ only in their channels read the same positions again
    rereads = max(1.0, read * pieces / tile_reads / (spread if spread > 1 else 1)) if tile_reads else 1.0
    return CoreStage(
        steps=run.steps,
        inputs=inputs,
        results=results,
        pieces=max(1, pieces),
        rounds=max(1, rounds),
        extents=tuple(size),
        piece_bytes=held,
        rereads=rereads,
        staying=kept,
        staying_bytes=beside,
        cuts_channels=channel is not None and facts.cuts_channels,
    )


def _array_steps(whole: Sequence[int], size: Sequence[int], lanes: Sequence[int]) -> int:
    """Steps of an array with so many lanes along each axis over a box that is cut into pieces."""
    counts = (
        full // part * ceil_div(part, lane) + ceil_div(full % part, lane)
        for full, part, lane in zip(whole, size, lanes, strict=True)
    )
    return prod(counts)


class _RunFacts:
    """What a run's pieces hold, whatever their size.

    `reads`: the operands that come from outside the run; `made`: results that lie beside them, with their bytes per
    position. `gaps`: bytes that narrow elements before wide ones leave. `cuts_channels`: every op makes any part of its
    channels from the same part of the one before. `weighted`: ops with weights.
    """

    def __init__(self, geometry: GroupGeometry, run: Run) -> None:
        ops, tensors = [geometry.ops[step] for step in run.steps], geometry.facts.tensors
        made = {op.output for op in ops}
        width = {
            name: tensors[name].element_bytes for op in ops for name in (op.output, *(o.tensor for o in op.operands))
        }
        widths = set(width.values())
        self.reads = [(op, o) for op in ops for o in op.operands if not o.constant and o.tensor in run.inputs]
        self.made = [(op.output, width[op.output]) for op in ops if op is ops[0] or not _goes_over(op, made, width)]
        self.gaps = max(widths) * len(widths) * len(ops) if len(widths) > 1 else 0
        self.weighted = sum(op.weight_bytes > 0 for op in ops)
        self.cuts_channels = all(
            op.channel_axis is not None
            and all(
                o.access[op.channel_axis].axis == op.channel_axis
                for o in op.operands
                if not o.constant and o.tensor in made
            )
            for op in ops
        )


def _facts_of(geometry: GroupGeometry, run: Run) -> _RunFacts:
    """The facts of a run, worked out once for the group."""
    key = ("run", run.steps)
    found: _RunFacts | None = geometry.worked_out.get(key)
    if found is None:
        found = geometry.worked_out[key] = _RunFacts(geometry, run)
    return found


def _goes_over(op: OpFacts, made: Collection[str], width: Mapping[str, int]) -> bool:
    """True if a result inside a stage is written over what the op reads of the stage: elements of equal size."""
    return op.in_place and any(o.tensor in made and width[o.tensor] == width[op.output] for o in op.operands)


def _piece(facts: _RunFacts, size: Sequence[int], frustums: Frustums, kept: Mapping[str, float]) -> tuple[int, int]:
    """Bytes that a piece holds, and those of them that it reads from the SRAM."""
    read = sum([_operand_bytes(operand, size, frustums) for _, operand in facts.reads if operand.tensor not in kept])
    elements = prod(size)
    return read + sum([elements * width for name, width in facts.made if name not in kept]) + facts.gaps, read


def operand_lengths(tensor: str, access: Sequence[AxisMap], size: Sequence[int], frustums: Frustums) -> tuple[int, ...]:
    """The most that a piece of these extents needs of an operand, along each of its axes."""
    longest = frustums.box_lengths(tensor)
    return tuple(
        length if axis_map.axis is None else min(length, axis_map.longest(size[axis_map.axis]))
        for axis_map, length in zip(access, longest, strict=True)
    )


def _operand_bytes(operand: Operand, size: Sequence[int], frustums: Frustums) -> int:
    lengths = operand_lengths(operand.tensor, operand.access, size, frustums)
    return prod(lengths) * frustums.geometry.facts.tensors[operand.tensor].element_bytes
