"""What a matrix product or a vector op does inside one core: array cycles, operand re-reads, registers.

The matrix unit is an array of lanes over output channels (k), input channels (c), output columns (ox) and rows (oy).
One *step* covers k·c·ox·oy products. Two loop orders are priced and the cheaper taken: *output-stationary* (the
partial sums of as many positions as the output buffer holds stay in the array, weights pass) and *weight-stationary*
(as many weights as the weight buffer holds stay, partial sums pass through the core's memory). docs/cost-model.md
derives each formula.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import ceil
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

    steps: array steps of output positions, Σ over tiles of ⌈columns / ox⌉ · ⌈rows / oy⌉ · other positions.
    positions: output positions. channels: output channels that this core makes of each. pieces: separate executions.
    sums: in how many parts, one after another, what is summed over is multiplied.
    """

    steps: int
    positions: int
    channels: int
    pieces: int
    sums: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """What an op costs inside a core: cycles, bytes by memory, cycles of each memory port.

    input_bytes, partial_bytes: read from NRAM as operands; partial sums that pass through it, each way.
    weight_bytes: read from the weight memory. output_bytes: results written to NRAM. weight_register,
    output_register, input_register: bytes through the array's own storage. steps_cycles: array cycles;
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
    read_port_cycles: int
    write_port_cycles: int
    weight_port_cycles: int

    @property
    def cycles(self) -> int:
        """Cycles of the core's units: the vector unit works after the array."""
        return self.array_cycles + self.vector_cycles


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
            hint="Use a profile with an array for this type; products of quantised models are computed in floats too."
            " A what-if such as precision=int8 gives a plan, whose programs cannot be run",
        )
    return array


def array_lanes(op: OpFacts, profile: Profile) -> tuple[int, int]:
    """Lanes over output columns and rows; (1, 1) for what does not run on the matrix unit."""
    if op.matrix is None:
        return 1, 1
    array = array_of(op, profile)
    return array.ox, array.oy


def spatial_lanes(ops: Iterable[OpFacts], profile: Profile) -> dict[str, int]:
    """The array's lanes along rows (H) and columns (W), where it has more than one for the products among ops."""
    found: dict[str, int] = {}
    for op in ops:
        for axis, lanes in zip(("W", "H"), array_lanes(op, profile), strict=True):
            if lanes > 1:
                found[axis] = max(lanes, found.get(axis, 1))
    return found


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
    """What the op costs in one core: the cheapest loop order by energy, then by cycles."""
    if work.positions == 0 or work.channels == 0:
        return _nothing()
    if op.matrix is None:
        return _vector_use(op, work, sizes, profile)
    options = [*_matrix_uses(op, work, sizes, profile)]
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
    uses = (*_matrix_uses(op, work, sizes, profile), _on_lanes(op, work, sizes, profile))
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


def _matrix_uses(op: OpFacts, work: CoreWork, sizes: ElementSizes, profile: Profile) -> tuple[CoreUse, ...]:
    """The op on the matrix unit under either loop order."""
    shape, array = op.matrix, array_of(op, profile)
    if shape is None:
        return ()
    per_group, k_steps = _by_groups(shape, work.channels)[1], array_passes(op, work.channels, profile)
    c_steps = depth_passes(shape, work.sums, array.c)
    cycles = work.steps * k_steps * c_steps
    depth = shape.in_channels * shape.taps
    buffers, sum_bytes = profile.matrix.buffers, profile.partial_sum_bytes
    memory_w = profile.wram or profile.nram
    # bytes that one step takes from each memory, in whole accesses
    step_w = min(per_group, array.k) * min(shape.in_channels, array.c) * sizes.weight
    step_i = min(shape.in_channels, array.c) * array.ox * array.oy * sizes.input
    step_o = min(per_group, array.k) * array.ox * array.oy * sizes.output
    grain_w, grain_i, grain_o = _grain(memory_w, step_w), _grain(profile.nram, step_i), _grain(profile.nram, step_o)
    every_weight = work.channels * depth * sizes.weight
    results = work.positions * work.channels
    operands = ceil(work.positions * depth * k_steps * sizes.input)
    lanes_o = array.k * array.ox * array.oy * sum_bytes
    held_positions = max(1, buffers.output.capacity_bytes // lanes_o) if buffers.output is not None else 1
    lanes_w = array.k * array.c * sizes.weight
    held_weights = max(1, buffers.weight.capacity_bytes // lanes_w) if buffers.weight is not None else 1
    from_nram, from_buffer = _inputs(op, operands, sizes, profile)
    register_o = results * c_steps * sum_bytes
    uses = []
    for dataflow in (Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY):
        if dataflow is Dataflow.OUTPUT_STATIONARY:
            loads, passes = max(work.pieces, ceil(work.steps / held_positions)), work.sums
        else:
            loads, passes = work.pieces, work.sums * ceil_div(c_steps // work.sums, held_weights)
        weight_bytes = ceil(every_weight * loads * grain_w)
        # a buffer of several weights per lane gives each to its lane, which keeps it for the positions held
        from_weights = loads if dataflow is Dataflow.OUTPUT_STATIONARY and held_weights > 1 else work.steps
        # between parts of a sum they pass the core's memory in any case
        partial = ceil(results * (passes - work.sums) * sum_bytes * grain_o)
        read_i, read_o = port_cycles(profile.nram, from_nram, 0)[0], port_cycles(profile.nram, partial, 0)[0]
        if from_buffer == 0 and profile.nram.bytes_per_cycle is not None:
            # operands come straight from the memory in every cycle, and keep its port for whole cycles
            read_i = cycles * ceil(step_i * grain_i / profile.nram.bytes_per_cycle)
        write_o = port_cycles(profile.nram, 0, partial + results * sizes.output * grain_o)[1]
        if profile.nram.ports == "shared":
            read_i = write_o = read_i + write_o
        uses.append(
            CoreUse(
                dataflow=dataflow,
                array_cycles=cycles,
                vector_cycles=vector_cycles_of(op.vector_ops, work, profile),
                input_bytes=ceil(from_nram * grain_i),
                partial_bytes=partial,
                weight_bytes=weight_bytes,
                output_bytes=ceil(results * sizes.output * grain_o),
                weight_register=LevelBytes(read=every_weight * from_weights, written=every_weight * loads),
                output_register=LevelBytes(read=register_o, written=register_o),
                input_register=LevelBytes(read=from_buffer, written=from_nram if from_buffer else 0),
                read_port_cycles=read_i + read_o,
                write_port_cycles=write_o,
                weight_port_cycles=port_cycles(memory_w, weight_bytes, 0)[0],
            )
        )
    return tuple(uses)


def _inputs(op: OpFacts, operands: int, sizes: ElementSizes, profile: Profile) -> tuple[int, int]:
    """Operand bytes read from NRAM and from the array's input buffer, if there is one.

    A buffer serves the taps of a window, so that NRAM gives each input element once per pass over output channels.
    """
    shape, buffer = op.matrix, profile.matrix.buffers.input
    if shape is None or buffer is None:
        return operands, 0
    window = shape.in_channels * shape.taps * sizes.input
    if window > buffer.capacity_bytes or shape.taps == 1:
        return operands, operands
    return ceil(operands / shape.taps * _stride_share(op)), operands


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
