"""What a matrix product or a vector op does inside one core: array cycles, operand re-reads, registers.

The matrix unit is an array of lanes over output channels (k), input channels (c), output columns (ox) and rows (oy).
One *step* covers k·c·ox·oy products. Two loop orders are priced and the cheaper taken: *output-stationary* (the
partial sums of as many positions as the output buffer holds stay in the array, weights pass) and *weight-stationary*
(as many weights as the weight buffer holds stay, partial sums pass through the core's memory). An array of blocks is
priced under each arrangement of its blocks. docs/cost-model.md derives each formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import ceil, prod, sqrt
from typing import NamedTuple

from compiler.cost.levels import LevelBytes
from compiler.errors import ModelError
from compiler.ops.base import MatrixShape
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Array, Memory, Profile
from compiler.units import ceil_div


class Dataflow(StrEnum):
    """What stays in the matrix unit while the rest passes; `vector` runs on the vector lanes."""

    OUTPUT_STATIONARY = "output-stationary"
    WEIGHT_STATIONARY = "weight-stationary"
    VECTOR = "vector"


class CoreWork(NamedTuple):
    """One op as one core works on it, summed over its tiles.

    steps: array steps of output positions, Σ over tiles of ⌈columns / ox⌉ · ⌈rows / oy⌉ · other positions, under each
    arrangement of the array (`arranged_lanes`). positions: output positions. channels: output channels that this core
    makes of each. pieces: separate executions.
    sums: in how many parts, one after another, what is summed over is multiplied.
    """

    steps: tuple[int, ...]
    positions: int
    channels: int
    pieces: int
    sums: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """What an op costs inside a core: cycles, bytes by memory, cycles of each memory port.

    input_bytes, partial_bytes: read from NRAM as operands; partial sums that pass through it, each way.
    weight_bytes: read from the weight memory. output_bytes: results written to NRAM. weight_register,
    output_register, input_register, result_register: bytes through the array's own storage. steps_cycles: array cycles;
    vector_cycles: cycles of the vector unit.
    """

    dataflow: Dataflow
    array_cycles: int
    vector_cycles: int
    input_bytes: int
    partial_bytes: int
    weight_bytes: int
    output_bytes: int
    weight_register: LevelBytes
    output_register: LevelBytes
    input_register: LevelBytes
    result_register: LevelBytes
    read_port_cycles: int
    write_port_cycles: int
    weight_port_cycles: int

    @property
    def cycles(self) -> int:
        """Cycles of the core's units: the vector unit works after the array."""
        return self.array_cycles + self.vector_cycles

    @property
    def call_cycles(self) -> int:
        """The same, or more where the ports of the core's memories give and take no faster."""
        return max(self.cycles, self.read_port_cycles, self.write_port_cycles, self.weight_port_cycles)


def array_of(op: OpFacts, profile: Profile) -> Array:
    """The matrix unit's array for the op's element type; raises ModelError if there is none."""
    array = profile.matrix.arrays.get(op.dtype)
    if array is None:
        raise ModelError(
            f"the profile has no matrix array for element type {op.dtype}",
            code="no_array_for_dtype",
            stage="plan",
            op_type=op.kind,
            actual=op.dtype,
            limit=", ".join(sorted(profile.matrix.arrays)),
            hint="Use a profile with an array for this type, or a quantised model where the profile has one for int8."
            " A what-if such as precision=int8 gives a plan, whose programs cannot be run",
        )
    return array


class Lanes(NamedTuple):
    """An arrangement of an array's blocks: lanes of the whole array by axis, and blocks side by side.

    rows, columns: of blocks that work on input channels, and on output channels. copies: blocks that use the same
    weights on other positions.
    """

    k: int
    c: int
    ox: int
    oy: int
    rows: int = 1
    columns: int = 1
    copies: int = 1


def arrangements(array: Array) -> tuple[Lanes, ...]:
    """All arrangements of an array: rows of its blocks on input channels or output rows, columns on output channels or
    output columns. One if it is a single block.
    """
    k, c, ox, oy = array.k, array.c, array.ox, array.oy
    rows, columns = array.block_rows, array.block_columns
    if rows == columns == 1:
        return (Lanes(k, c, ox, oy),)
    found = (
        Lanes(k, c, ox, oy, rows, columns),
        Lanes(k, c // rows, ox, oy * rows, 1, columns, rows),
        Lanes(k // columns, c, ox * columns, oy, rows, 1, columns),
        Lanes(k // columns, c // rows, ox * columns, oy * rows, 1, 1, rows * columns),
    )
    return tuple(dict.fromkeys(found))


def array_lanes(op: OpFacts, profile: Profile) -> tuple[int, int]:
    """Lanes over output columns and rows where blocks work on channels; (1, 1) for what is no product."""
    if op.matrix is None:
        return 1, 1
    array = array_of(op, profile)
    return array.ox, array.oy


def arranged_lanes(op: OpFacts, profile: Profile) -> tuple[tuple[int, int], ...]:
    """Lanes over output columns and rows, for each arrangement; (1, 1) for what is no product."""
    if op.matrix is None:
        return ((1, 1),)
    return tuple((lanes.ox, lanes.oy) for lanes in arrangements(array_of(op, profile)))


def spatial_lanes(ops: Iterable[OpFacts], profile: Profile) -> dict[str, int]:
    """The array's lanes along rows (H) and columns (W), where it has more than one for the products among ops.

    Lanes that blocks may have under another arrangement do not count: where they do not fit, blocks work on channels.
    """
    found: dict[str, int] = {}
    for op in ops:
        for axis, lanes in zip(("W", "H"), array_lanes(op, profile), strict=True):
            if lanes > 1:
                found[axis] = max(lanes, found.get(axis, 1))
    return found


def work_on_box(op: OpFacts, axes: Sequence[str | None], box: Sequence[int], profile: Profile) -> CoreWork:
    """One box of an op's result, of so many elements along each of its axes, as a core works on it at once."""
    lengths = [(axis, n) for number, (axis, n) in enumerate(zip(axes, box, strict=True)) if number != op.channel_axis]
    lanes = [{"W": ox, "H": oy} for ox, oy in arranged_lanes(op, profile)]
    return CoreWork(
        steps=tuple([prod(ceil_div(n, its.get(axis or "", 1)) for axis, n in lengths) for its in lanes]),
        positions=prod(n for _, n in lengths),
        channels=1 if op.channel_axis is None else box[op.channel_axis],
        pieces=1,
    )


def array_passes(op: OpFacts, channels: int, profile: Profile) -> int:
    """How often the array goes over the same positions for so many output channels; 0 for what it does not make."""
    if op.matrix is None or op.dtype not in profile.matrix.arrays:
        return 0
    groups, per_group = _by_groups(op.matrix, channels)
    return groups * ceil_div(per_group, array_of(op, profile).k)


def _by_groups(shape: MatrixShape, channels: int) -> tuple[int, int]:
    """Groups of a product that so many output channels are of, and the channels of one."""
    groups = min(shape.groups, ceil_div(channels, shape.out_channels))
    return groups, min(shape.out_channels, ceil_div(channels, groups))


def depth_passes(shape: MatrixShape, sums: int, lanes: int) -> int:
    """How often an array of so many lanes over input channels goes over a sum that is made in parts, all taps."""
    return sums * ceil_div(ceil_div(shape.in_channels, sums), lanes) * shape.taps


def core_use(op: OpFacts, work: CoreWork, sizes: ElementSizes, profile: Profile) -> CoreUse:
    """What the op costs in one core: the arrangement of the array by cycles, then the loop order by energy."""
    if work.positions == 0 or work.channels == 0:
        return _nothing()
    if op.matrix is None:
        return _vector_use(op, work, sizes, profile)
    shape = op.matrix
    arranged = _quickest([*zip(arrangements(array_of(op, profile)), work.steps, strict=True)], shape, work)
    options = [
        use for lanes, steps in arranged for use in _arranged_uses(op, shape, work, steps, lanes, sizes, profile)
    ]
    lanes = vector_cycles_of(op.macs, work, profile, times=2)
    on_array = min(option.array_cycles for option in options)
    if lanes < on_array:
        # a depthwise convolution uses few lanes of the array; multiply and add on the vector lanes are then faster
        return _on_lanes(op, work, sizes, profile)
    return min(options, key=lambda use: (core_energy_pj(use, profile), use.cycles))


def least_core_energy_pj(op: OpFacts, work: CoreWork, sizes: ElementSizes, profile: Profile) -> float:
    """pJ of the op's operands and results at least, whichever loop order or unit is taken; arithmetic apart."""
    if op.matrix is None or op.dtype not in profile.matrix.arrays:
        return core_energy_pj(_vector_use(op, work, sizes, profile), profile)
    # a second factor that is computed lies with the activations, whatever memory there is for weights
    weights = profile.wram if any(operand.constant for operand in op.operands) else None
    uses = [_on_lanes(op, work, sizes, profile)]
    for lanes, steps in zip(arrangements(profile.matrix.arrays[op.dtype]), work.steps, strict=True):
        uses += _arranged_uses(op, op.matrix, work, steps, lanes, sizes, profile)
    return min(_operands_pj(use, profile, weights or profile.nram) for use in uses)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementSizes:
    """Bytes per element of an op's input, weights and result, and how many activation elements a result reads."""

    input: int
    weight: int
    output: int
    operands: int


def core_energy_pj(use: CoreUse, profile: Profile) -> float:
    """Energy of the op's operands in the core's memories and registers, arithmetic apart."""
    return _operands_pj(use, profile, profile.wram or profile.nram)


def _operands_pj(use: CoreUse, profile: Profile, weights: Memory) -> float:
    """The same with the second factor read from a given memory."""
    energy = use.input_bytes * profile.nram.read_pj_per_byte
    energy += use.partial_bytes * (profile.nram.read_pj_per_byte + profile.nram.write_pj_per_byte)
    energy += use.output_bytes * profile.nram.write_pj_per_byte
    energy += use.weight_bytes * weights.read_pj_per_byte
    return energy + register_energy_pj(use, profile)


def register_energy_pj(use: CoreUse, profile: Profile) -> float:
    """Energy of the array's own storage; nothing where the profile states none."""
    buffers = profile.matrix.buffers
    energy = 0.0
    for buffer, level in (
        (buffers.weight, use.weight_register),
        (buffers.output, use.output_register),
        (buffers.input, use.input_register),
        (buffers.result, use.result_register),
    ):
        if buffer is not None:
            energy += level.read * buffer.read_pj_per_byte + level.written * buffer.write_pj_per_byte
    return energy


def vector_cycles_of(per_element: Fraction, work: CoreWork, profile: Profile, *, times: int = 1) -> int:
    """Cycles of the vector lanes for so many operations per result."""
    operations = per_element.numerator * times * work.positions * work.channels
    return ceil_div(operations, per_element.denominator * profile.vector.lanes)


def _nothing() -> CoreUse:
    none = LevelBytes()
    return CoreUse(
        dataflow=Dataflow.VECTOR,
        array_cycles=0,
        vector_cycles=0,
        input_bytes=0,
        partial_bytes=0,
        weight_bytes=0,
        output_bytes=0,
        weight_register=none,
        output_register=none,
        input_register=none,
        result_register=none,
        read_port_cycles=0,
        write_port_cycles=0,
        weight_port_cycles=0,
    )


def _vector_use(op: OpFacts, work: CoreWork, sizes: ElementSizes, profile: Profile) -> CoreUse:
    """An op of the vector unit: every operand read once per result, every result written once."""
    elements = work.positions * work.channels
    read, written = elements * sizes.operands * sizes.input, elements * sizes.output
    return _streaming(profile, Dataflow.VECTOR, vector_cycles_of(op.vector_ops, work, profile), read, written)


def _on_lanes(op: OpFacts, work: CoreWork, sizes: ElementSizes, profile: Profile) -> CoreUse:
    """Products on the vector lanes: every product reads its operand, sums stay in the lane.

    The lanes work on positions side by side, so that one reading of a weight serves as many of them.
    """
    elements = work.positions * work.channels
    products = elements * float(op.macs)
    cycles = vector_cycles_of(2 * op.macs + op.vector_ops, work, profile)
    use = _streaming(profile, Dataflow.VECTOR, cycles, ceil(products * sizes.input), elements * sizes.output)
    rounds = max(work.pieces, ceil_div(work.positions, profile.vector.lanes))
    weights = ceil(work.channels * float(op.macs) * sizes.weight * rounds)
    return replace(
        use, weight_bytes=weights, weight_port_cycles=port_cycles(profile.wram or profile.nram, weights, 0)[0]
    )


def _streaming(profile: Profile, dataflow: Dataflow, cycles: int, read: int, written: int) -> CoreUse:
    reading, writing = port_cycles(profile.nram, read, written)
    none = LevelBytes()
    return CoreUse(
        dataflow=dataflow,
        array_cycles=0,
        vector_cycles=cycles,
        input_bytes=read,
        partial_bytes=0,
        weight_bytes=0,
        output_bytes=written,
        weight_register=none,
        output_register=none,
        input_register=none,
        result_register=none,
        read_port_cycles=reading,
        write_port_cycles=writing,
        weight_port_cycles=0,
    )


def port_cycles(memory: Memory, read: float, written: float) -> tuple[int, int]:
    """Cycles that so many bytes keep the read and the write port; a shared port is kept by both together."""
    if memory.bytes_per_cycle is None:
        return 0, 0
    reading, writing = ceil(read / memory.bytes_per_cycle), ceil(written / memory.bytes_per_cycle)
    return (reading, writing) if memory.ports == "separate" else (reading + writing, reading + writing)


def _quickest(arranged: Sequence[tuple[Lanes, int]], shape: MatrixShape, work: CoreWork) -> list[tuple[Lanes, int]]:
    """The arrangements, each with its steps, in which the array takes the fewest cycles."""
    if len(arranged) == 1:
        return [*arranged]
    cycles = [_cycles(shape, work, steps, lanes) for lanes, steps in arranged]
    fewest = min(cycles)
    return [entry for entry, count in zip(arranged, cycles, strict=True) if count == fewest]


def _cycles(shape: MatrixShape, work: CoreWork, steps: int, lanes: Lanes) -> int:
    """Cycles of the array in so many steps of an arrangement."""
    groups, per_group = _by_groups(shape, work.channels)
    return steps * groups * ceil_div(per_group, lanes.k) * depth_passes(shape, work.sums, lanes.c)


def _arranged_uses(
    op: OpFacts, shape: MatrixShape, work: CoreWork, steps: int, lanes: Lanes, sizes: ElementSizes, profile: Profile
) -> Iterator[CoreUse]:
    """The op under either loop order, in so many steps of the array as it is arranged."""
    groups, per_group = _by_groups(shape, work.channels)
    passes_k = ceil_div(per_group, lanes.k)
    k_steps, c_steps = groups * passes_k, depth_passes(shape, work.sums, lanes.c)
    cycles = _cycles(shape, work, steps, lanes)
    depth = shape.in_channels * shape.taps
    buffers, sum_bytes = profile.matrix.buffers, profile.partial_sum_bytes
    memory_w = profile.wram or profile.nram
    # bytes that one step takes from each memory, in whole accesses
    step_w = min(per_group, lanes.k) * min(shape.in_channels, lanes.c) * sizes.weight
    step_i = min(shape.in_channels, lanes.c) * lanes.ox * lanes.oy * sizes.input
    step_o = min(per_group, lanes.k) * lanes.ox * lanes.oy * sizes.output
    grain_w, grain_i, grain_o = _grain(memory_w, step_w), _grain(profile.nram, step_i), _grain(profile.nram, step_o)
    every_weight = work.channels * depth * sizes.weight
    results = work.positions * work.channels
    operands = ceil(work.positions * depth * k_steps * sizes.input)
    # lanes of a block: its buffers serve these
    block_k, block_c, block_positions = (
        lanes.k // lanes.columns,
        lanes.c // lanes.rows,
        lanes.ox * lanes.oy // lanes.copies,
    )
    lanes_o = block_k * block_positions * sum_bytes
    held_positions = max(1, buffers.output.capacity_bytes // lanes_o) if buffers.output is not None else 1
    lanes_w = block_k * block_c * sizes.weight
    held_weights = max(1, buffers.weight.capacity_bytes // lanes_w) if buffers.weight is not None else 1
    once, is_held = _inputs(op, operands, lanes, sizes, profile)
    # every row of blocks keeps sums of its own, and what all of them sum up to is read once more
    register_o = results * c_steps * lanes.rows * sum_bytes
    finished = 0 if buffers.result is None else results
    held_passes = held_weights // c_steps
    orders = [(Dataflow.OUTPUT_STATIONARY, False), (Dataflow.WEIGHT_STATIONARY, False)]
    if is_held and held_passes:
        orders.append((Dataflow.OUTPUT_STATIONARY, True))
    for dataflow, in_buffers in orders:
        from_nram = once
        if in_buffers:
            # weights of some passes over output channels stay in their buffer while all positions pass
            tile = min(held_positions, _held_inputs(op, shape, lanes, sizes, profile))
            loads, passes = work.pieces, work.sums
            from_weights = max(work.pieces, ceil_div(steps, tile))
            from_nram = ceil(once * ceil_div(passes_k, held_passes) / passes_k)
        elif dataflow is Dataflow.OUTPUT_STATIONARY:
            loads, passes = max(work.pieces, ceil(steps / held_positions)), work.sums
            # a buffer of several weights per lane gives each to its lane, which keeps it for the positions held
            from_weights = loads if held_weights > 1 else steps
        else:
            loads, passes, from_weights = work.pieces, work.sums * ceil_div(c_steps // work.sums, held_weights), steps
        weight_bytes = ceil(every_weight * loads * grain_w)
        # between parts of a sum they pass the core's memory in any case
        partial = ceil(results * (passes - work.sums) * sum_bytes * grain_o)
        read_i, read_o = port_cycles(profile.nram, from_nram, 0)[0], port_cycles(profile.nram, partial, 0)[0]
        if buffers.input is None and profile.nram.bytes_per_cycle is not None:
            # operands come straight from the memory in every cycle, and keep its port for whole cycles
            read_i = cycles * ceil(step_i * grain_i / profile.nram.bytes_per_cycle)
        write_o = port_cycles(profile.nram, 0, partial + results * sizes.output * grain_o)[1]
        if profile.nram.ports == "shared":
            read_i = write_o = read_i + write_o
        copied = every_weight * lanes.copies
        yield CoreUse(
            dataflow=dataflow,
            array_cycles=cycles,
            vector_cycles=vector_cycles_of(op.vector_ops + op.joining * (work.sums - 1), work, profile),
            input_bytes=ceil(from_nram * grain_i),
            partial_bytes=partial,
            weight_bytes=weight_bytes,
            output_bytes=ceil(results * sizes.output * grain_o),
            weight_register=LevelBytes(read=copied * from_weights, written=copied * loads),
            output_register=LevelBytes(read=register_o + finished * lanes.rows * sum_bytes, written=register_o),
            input_register=_input_register(operands, from_nram, lanes, profile),
            result_register=LevelBytes(read=finished * sizes.output, written=finished * sizes.output),
            read_port_cycles=read_i + read_o,
            write_port_cycles=write_o,
            weight_port_cycles=port_cycles(memory_w, weight_bytes, 0)[0],
        )


def _input_register(operands: int, from_nram: int, lanes: Lanes, profile: Profile) -> LevelBytes:
    """Bytes through the input buffers: every column of blocks has the inputs for itself."""
    if profile.matrix.buffers.input is None:
        return LevelBytes()
    return LevelBytes(read=operands * lanes.columns, written=from_nram * lanes.columns)


def _inputs(op: OpFacts, operands: int, lanes: Lanes, sizes: ElementSizes, profile: Profile) -> tuple[int, bool]:
    """Operand bytes read from NRAM, and whether the array's input buffer holds a window.

    It then serves the taps of the window, so that NRAM gives each input element once per pass over output channels.
    """
    shape, buffer = op.matrix, profile.matrix.buffers.input
    if shape is None or buffer is None:
        return operands, False
    window = ceil_div(shape.in_channels, lanes.rows) * shape.taps * sizes.input
    is_held = window <= buffer.capacity_bytes
    if not is_held or shape.taps == 1:
        return operands, is_held
    return ceil(operands / shape.taps * _stride_share(op)), True


def _held_inputs(op: OpFacts, shape: MatrixShape, lanes: Lanes, sizes: ElementSizes, profile: Profile) -> int:
    """Output positions, of a square, whose windows lie in a block's input buffer."""
    buffer = profile.matrix.buffers.input
    if buffer is None:
        return 1
    share = _stride_share(op)
    if not share:
        # all positions read one window: as many as a buffer has bytes, more than any output buffer holds
        return buffer.capacity_bytes
    inputs = buffer.capacity_bytes / (ceil_div(shape.in_channels, lanes.rows) * sizes.input)
    return max(1, int(((sqrt(inputs) - sqrt(shape.taps)) / sqrt(share) + 1) ** 2))


def _stride_share(op: OpFacts) -> float:
    """Input positions per output position, at most the taps of the window."""
    for operand in op.operands:
        if not operand.constant:
            share = 1.0
            for axis_map in operand.access:
                if axis_map.axis is not None and not axis_map.is_identity:
                    share *= min(axis_map.scale, axis_map.high - axis_map.low + 1) / axis_map.divisor
            return share
    return 1.0


def _grain(memory: Memory, step_bytes: int) -> float:
    """By how much whole accesses exceed the bytes that a step needs."""
    if step_bytes <= 0:
        return 1.0
    return ceil_div(step_bytes, memory.access_bytes) * memory.access_bytes / step_bytes
