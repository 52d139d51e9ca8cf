"""How long one thing takes and what it costs: the only place where profile rates are turned into cycles."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from compiler.errors import ModelError
from compiler.ops.facts import OpFacts
from compiler.profile.schema import Profile
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreWork:
    """What one core does of one op: output elements, and the output channels they span."""

    elements: int
    channels: int


def op_cycles(op: OpFacts, work: CoreWork, profile: Profile) -> int:
    """Cycles of one core for its part of an op: the faster of matrix and vector unit, then the vector work."""
    if work.elements == 0:
        return 0
    vector = _vector_cycles(op.vector_ops, work.elements, profile)
    if op.matrix is None:
        return vector
    array = profile.matrix.arrays.get(op.dtype)
    if array is None:
        raise ModelError(
            f"the profile has no matrix array for element type {op.dtype}",
            code="no_array_for_dtype",
            stage="plan",
            op_type=op.kind,
            actual=op.dtype,
            limit=", ".join(sorted(profile.matrix.arrays)),
            hint="Use a profile with an array for this type",
        )
    shape = op.matrix
    pixels = ceil_div(work.elements, work.channels)
    groups = min(shape.groups, ceil_div(work.channels, shape.out_channels))
    per_group = min(shape.out_channels, ceil_div(work.channels, groups))
    matrix = groups * ceil_div(per_group, array.k) * ceil_div(shape.in_channels, array.c) * shape.taps * pixels
    # a depthwise convolution uses one lane of the array; multiply and add on the vector lanes are then faster
    lanes = _vector_cycles(op.macs, 2 * work.elements, profile)
    return min(matrix, lanes) + vector


def _vector_cycles(per_element: Fraction, elements: int, profile: Profile) -> int:
    return -(-per_element.numerator * elements // (per_element.denominator * profile.vector.lanes))


def mac_energy_pj(op: OpFacts, profile: Profile) -> float:
    """Energy of one multiply-accumulate of the op's element type, in pJ."""
    return profile.matrix.pj_per_mac.get(op.dtype, 0.0)


def reads_are_shared(profile: Profile) -> bool:
    """True if what one unit reads from DRAM can reach the others on chip: DRAM multicast, CDMA or core links."""
    return profile.dram.multicast or units_are_connected(profile)


def units_are_connected(profile: Profile) -> bool:
    """True if data can pass between the units that hold tiles: over CDMA, or without SRAM over core links."""
    if profile.sram is not None:
        return profile.engines.cdma is not None or profile.clusters_per_chip == 1
    return profile.engines.link is not None or profile.cores == 1


def dram_startup_cycles(profile: Profile) -> float:
    """Start-up of one DRAM transfer in cycles."""
    engine = profile.engines.gdma if profile.sram is not None else profile.engines.iodma
    startup = engine.startup_ns if engine is not None else profile.dram.startup_ns
    return max(startup, profile.dram.startup_ns) * profile.clock_hz / 1e9


def dram_port_bytes_per_cycle(profile: Profile, units: int) -> float:
    """Bytes per cycle between DRAM and `units` units: the engines' sum, at most the DRAM's bandwidth."""
    engine = profile.engines.gdma if profile.sram is not None else profile.engines.iodma
    engines = engine.bytes_per_cycle * units if engine is not None else profile.dram_bytes_per_cycle
    return min(profile.dram_bytes_per_cycle, engines)
