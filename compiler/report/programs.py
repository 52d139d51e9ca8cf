"""From a checked graph to the report on it: programs, what they move, hold and take, memory maps, the value check."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from compiler.errors import InternalError
from compiler.fusion.groups import FusedSegment, Group
from compiler.ops.op_facts import GraphFacts
from compiler.profile import Profile
from compiler.program.fields import is_call
from compiler.program.loops.time import ProgramTime
from compiler.program.loops.walk import instances_of
from compiler.program.lower import LoweredSegment
from compiler.program.program import Level, Program
from compiler.program.timing.energy import energy_by_level
from compiler.program.timing.levels import gathered
from compiler.program.timing.observed import observe
from compiler.program.timing.ticks import Flags, Ints, seconds_of, whole_cycles
from compiler.report import execution as doc
from compiler.report.execution_time import StreamReport
from compiler.report.times import (
    core_stalls,
    engine_times,
    held_memories,
    roofline_report,
    stream_report,
    usage_report,
)
from compiler.simulator.compare import Comparison
from compiler.simulator.rounding_amplification import Judged, Verdict
from compiler.simulator.value_check import CheckedGraph, ValueCheck
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import memory_of
from compiler.tiling.price import group_of

_TIME = (
    "Cycles, latency and energy of plan and groups are closed-form estimates; what an event simulation of the commands "
    "makes of their cycles stands in `programs`."
)
_UNTIMED = "Cycles, latency and energy are closed-form estimates: there are no commands to be simulated."
_MODEL = (
    "The simulation of commands: each engine runs its own in order and prepares the next transfer (its start-up) while "
    "it moves one; what moves at once shares DRAM, ports and links evenly; bank conflicts, refresh and the issuing of "
    "commands take no time. Simulated energy is that of the bytes that commands move and of what calls compute, at the "
    "profile's prices, and static power for the simulated time."
)
_BYTES = (
    "DRAM bytes of totals and groups are the closed form's; what the commands themselves move stands in `programs`."
)


def execution_assumptions(checked: CheckedGraph) -> tuple[str, ...]:
    """What was made, proved and run of a plan, in words; a plan that was not executed says so (SIM-1)."""
    check = checked.check
    if checked.lowered.reason:
        return (_UNTIMED, f"No program was generated, nothing was executed: {checked.lowered.reason}.")
    made = "Each chip segment has a program that was proved safe"
    if not check.has_run:
        return (_TIME, _MODEL, f"{made}; it was not executed: {check.reason}.", _BYTES)
    return (
        _TIME,
        _MODEL,
        f"{made} and executed on simulated memories, address by address; outputs were compared with {check.judge} on "
        "random inputs.",
        _BYTES,
    )


def values_report(check: ValueCheck) -> doc.ValuesReport:
    """The value check as it stands in the report."""
    worst = check.worst
    return doc.ValuesReport(
        checked=check.has_run,
        reason=None if check.has_run else check.reason,
        judge=check.judge or None,
        seed=check.seed,
        max_error=None if worst is None else _finite(worst.max_error),
        limit=None if worst is None else worst.limit,
        where=None if worst is None else worst.where,
        tensor=None if worst is None else worst.tensor,
        outputs=tuple(output_check(comparison, check.again.get(comparison.tensor)) for comparison in check.comparisons),
        skipped=check.skipped,
        between=None if check.between is None else output_check(check.between),
        undecided=check.undecided,
        nodes=None if check.nodes is None else output_check(check.nodes),
    )


def output_check(comparison: Comparison, judged: Judged | None = None) -> doc.OutputCheck:
    """One comparison as it stands in a document."""
    verdict = Verdict.PLAIN if judged is None else judged.verdict
    return doc.OutputCheck(
        tensor=comparison.tensor,
        max_error=_finite(comparison.max_error),
        limit=comparison.limit,
        where=comparison.where,
        holds=None if verdict is Verdict.UNDECIDED else comparison.holds,
        verdict=verdict.value,
        spread=None if judged is None or judged.spread is None else _finite(judged.spread),
        is_relative=comparison.is_relative,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What the report says of a graph's programs; latency and energy of all of them, None where there are none."""

    programs: tuple[doc.ProgramReport, ...]
    stream: StreamReport | None
    latency_s: float | None
    energy_j: float | None


def execution_of(checked: CheckedGraph, images: int, profile: Profile) -> Execution:
    """The program of every chip segment simulated in time, and how a stream of batches passes them."""
    mapped = checked.lowered.mapped
    programs: list[doc.ProgramReport] = []
    ticks: dict[str, int] = {}
    for found, lowered, chip in zip(mapped.fused.segments, checked.lowered.segments, mapped.chip_of, strict=True):
        if lowered.time is not None:
            ticks[found.segment.id] = lowered.time.ticks
            programs.append(_program_report(found, lowered, chip or 0, lowered.time, profile))
    executable = checked.executable
    return Execution(
        programs=tuple(programs),
        stream=None if executable is None else stream_report(executable, ticks, images, profile),
        latency_s=seconds_of(sum(ticks.values()), profile.clock_hz) if programs else None,
        energy_j=sum(sum(report.energy_by_level.values()) for report in programs) if programs else None,
    )


def memory_maps(
    facts: GraphFacts, profile: Profile, group: Group, resident_bytes_per_core: int
) -> tuple[doc.MemoryMap, ...]:
    """Where each buffer of a group lies, level by level, and when it is live (PROG-2)."""
    geometry = GroupGeometry(facts, group.ops)
    levels = memory_of(group_of(geometry, profile.beside(resident_bytes_per_core), group.choice.tiling))
    return tuple(
        doc.MemoryMap(
            level=level.level,
            capacity_bytes=level.capacity_bytes,
            peak_bytes=level.allocation.peak_bytes,
            steps=max(buffer.end for buffer in level.buffers),
            buffers=tuple(
                doc.BufferReport(
                    name=buffer.name,
                    address=level.allocation.addresses[buffer.name],
                    size_bytes=buffer.size_bytes,
                    begin=buffer.begin,
                    end=buffer.end,
                )
                for buffer in level.buffers
            ),
        )
        for level in levels
    )


def dram_bytes(program: Program) -> tuple[int, int, int]:
    """What a program's commands read from and write to the DRAM, in bytes, and what they read of address tables.

    A multicast is read once. All commands of a statement read of one region.
    """
    commands, instances = program.commands, instances_of(program.loops)
    is_dram = np.array([place.level is Level.DRAM for place in program.places], dtype=np.bool_)
    is_move = (commands["call"] < 0) & (commands["source"] >= 0) & (commands["target"] >= 0)
    moves = commands[is_move]
    sizes = moves["run_bytes"] * moves["counts"].prod(axis=1) * instances[is_move]
    loads = is_dram[moves["source"]]
    of_tables = _read_tables(program, moves["source_address"]) & loads
    tables = int(sizes[of_tables].sum())
    read = int(sizes[loads & ~of_tables].sum())
    written = int((sizes * np.maximum(1, moves["targets"]))[is_dram[moves["target"]]].sum())
    for command, place, is_result, bytes_each in gathered(program):
        if place.level is Level.DRAM:
            size = bytes_each * int(instances[command])
            read, written = (read, written + size) if is_result else (read + size, written)
    return read, written, tables


def _read_tables(program: Program, addresses: Ints) -> Flags:
    """Which addresses in the DRAM lie in an address table: one may be loaded whole, or part by part."""
    regions = [program.regions[found.region] for found in program.addresses]
    tables = sorted((region.address, region.address + region.size_bytes) for region in regions if region.size_bytes)
    begins, ends = np.array([(-1, -1), *tables], dtype=np.int64).T
    number = np.searchsorted(begins, addresses, side="right") - 1
    found: Flags = addresses < ends[number]
    return found


def _program_report(
    found: FusedSegment, lowered: LoweredSegment, chip: int, time: ProgramTime, profile: Profile
) -> doc.ProgramReport:
    program, proof, sizes = time.program, lowered.proof, lowered.sizes
    if proof is None or sizes is None:
        raise InternalError("a program without a proof", stage="describe", actual=found.segment.id)
    read, written, tables = dram_bytes(program)
    costs = [group.choice.cost for group in found.groups]
    planned, estimated = sum(cost.dram_bytes for cost in costs), sum(cost.cycles for cost in costs)
    simulated, observed = whole_cycles(time.ticks), observe(time, profile)
    moved = time.moved()
    energy = {level: pj * 1e-12 for level, pj in energy_by_level(time, profile, moved).items()}
    estimated_j, engines = sum(cost.energy_pj for cost in costs) * 1e-12, engine_times(program.queues, observed.stalls)
    return doc.ProgramReport(
        segment=found.segment.id,
        chip=chip,
        statements=len(program.commands),
        commands=time.commands,
        opcodes={opcode.name.lower(): count for opcode, count in proof.commands},
        calls=int(time.instances[is_call(program.commands["opcode"])].sum()),
        units=len(program.units),
        program_bytes=sizes.program_bytes,
        table_bytes=sizes.table_bytes,
        unit_bytes=sum(sizes.unit_bytes),
        peaks=_peaks(found, program, proof.peak_bytes),
        dram_read_bytes=read,
        dram_write_bytes=written,
        table_read_bytes=tables,
        plan_dram_bytes=planned,
        dram_ratio=(read + written) / planned if planned else 1.0,
        simulated_cycles=simulated,
        simulated_group_cycles={name: whole_cycles(ticks) for name, ticks in time.by_group().items()},
        alone_group_cycles={
            name: whole_cycles(ticks) for name, ticks in zip(program.group_names, lowered.alone, strict=True)
        },
        estimated_cycles=estimated,
        estimate_ratio=_ratio(estimated, simulated),
        stalls=core_stalls(engines),
        engines=engines,
        moved={
            name: doc.LevelTraffic(read_bytes=level.read, written_bytes=level.written)
            for name, level in moved.memories.items()
        },
        energy_by_level=energy,
        estimated_energy_j=estimated_j,
        energy_ratio=_ratio(estimated_j, sum(energy.values())),
        roofline=roofline_report(time, lowered.alone, profile),
        usage=usage_report(observed.usage),
        held=held_memories(observed.occupancies, program.steps),
    )


def _ratio(plan: float, simulation: float) -> float:
    return plan / simulation if simulation else 1.0


def _peaks(found: FusedSegment, program: Program, peak_bytes: tuple[int, ...]) -> dict[str, doc.LevelPeak]:
    planned: dict[str, int] = {}
    for group in found.groups:
        for use in group.choice.tiling.memory:
            planned[use.level] = max(planned.get(use.level, 0), use.peak_bytes)
    found_peaks: dict[str, doc.LevelPeak] = {}
    for place, peak in zip(program.places, peak_bytes, strict=True):
        level = place.level.value
        before = found_peaks[level].used_bytes if level in found_peaks else 0
        found_peaks[level] = doc.LevelPeak(
            used_bytes=max(before, peak), planned_bytes=planned.get(level), capacity_bytes=place.capacity_bytes
        )
    return found_peaks


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
