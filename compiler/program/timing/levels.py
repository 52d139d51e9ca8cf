"""Bytes that the commands of a program read from and write to each level of memory, and across links (SIM-2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.cost.levels import NO_BYTES, LevelBytes
from compiler.program.fields import is_transfer
from compiler.program.program import Level, Opcode, Place, Program
from compiler.program.timing.demands import Demands
from compiler.program.timing.ticks import Ints
from compiler.units import element_bytes

# The memory of the profile that each kind of place is a part of, under the planner's names.
MEMORY_OF: Final = MappingProxyType(
    {
        Level.DRAM: "dram",
        Level.SRAM: "sram",
        Level.SRAM_WEIGHTS: "sram",
        Level.NRAM: "nram",
        Level.NRAM_WEIGHTS: "nram",
        Level.WRAM: "wram",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What all commands move: bytes by memory (those that the chip has), and bytes times links crossed."""

    memories: dict[str, LevelBytes]
    link_byte_hops: int


def moved_by(program: Program, demands: Demands, times: Ints | None = None) -> Moved:
    """Bytes by memory and direction: transfers and gathers at both ends, calls inside their cores.

    times: how often each command runs, by default once.
    """
    found = {MEMORY_OF[place.level]: NO_BYTES for place in program.places}
    if not len(program.commands):
        return Moved(memories=found, link_byte_hops=0)
    firsts, counts, sums = kinds_of(demands, times)
    rows, names = program.commands[firsts], list(found)
    is_copy = np.array([work is None for work in demands.works], dtype=np.bool_) & is_transfer(rows["opcode"])
    memory_of = np.array([names.index(MEMORY_OF[place.level]) for place in program.places], dtype=np.int64)
    # read once at the source, written in each target
    copies, sizes = rows[is_copy], sums[is_copy]
    targets = np.maximum(1, copies["targets"].astype(np.int64))
    owners = np.repeat(np.arange(len(copies)), targets)
    places = copies["target"][owners] + np.arange(len(owners)) - (np.cumsum(targets) - targets)[owners]
    ends = (memory_of[copies["source"]], sizes), (memory_of[places], sizes[owners])
    read, written = np.zeros((2, len(names)), dtype=np.int64)
    for level, (memories, its_sizes) in zip((read, written), ends, strict=True):
        np.add.at(level, memories, its_sizes)
    hops = int((sums * _links_of_kinds(demands))[is_copy].sum())
    for name, its_read, its_written in zip(names, read.tolist(), written.tolist(), strict=True):
        found[name] = LevelBytes(its_read, its_written)
    for name, its in _by_calls(demands, counts, has_wram="wram" in found):
        found[name] += its
    for command, place, is_result, bytes_each in gathered(program):
        size = bytes_each * (1 if times is None else int(times[command]))
        found[MEMORY_OF[place.level]] += LevelBytes(written=size) if is_result else LevelBytes(read=size)
    return Moved(memories=found, link_byte_hops=hops)


def kinds_of(demands: Demands, times: Ints | None = None) -> tuple[Ints, Ints, Ints]:
    """By kind of command: the first one, how many there are, and the bytes that all of them move to each target.

    times: how often each command runs, by default once.
    """
    each = np.ones(len(demands.kinds), dtype=np.int64) if times is None else times
    firsts, counts, sums = np.zeros((3, len(demands.works)), dtype=np.int64)
    firsts[demands.kinds[::-1]] = np.arange(len(demands.kinds))[::-1]
    np.add.at(counts, demands.kinds, each)
    np.add.at(sums, demands.kinds, demands.moved * each)
    return firsts, counts, sums


def gathered(program: Program) -> Iterator[tuple[int, Place, bool, int]]:
    """What gathers read and write (True): command, memory, and bytes; of a table only the rows that are named."""
    numbers: Ints = np.flatnonzero(program.commands["opcode"] == Opcode.GATHER)
    for command, number in zip(numbers.tolist(), program.commands["call"][numbers].tolist(), strict=True):
        call = program.calls[number]
        table = program.tables[call["table"]]
        unit = program.units[table.unit]
        rows = prod(table.entries[call["entry"]]["lengths"][: len(table.shape)].tolist())
        for binding in program.bindings[call["first"] : call["first"] + call["count"]]:
            operand = int(binding["operand"])
            kind = unit.output if operand < 0 else unit.operands[operand]
            if kind is not None:
                whole = operand == unit.gathers or operand < 0
                elements = rows if whole else prod(binding["lengths"][: len(kind.axes)].tolist())
                place = program.places[binding["place"]]
                yield command, place, operand < 0, elements * element_bytes(kind.stored_dtype)


def _links_of_kinds(demands: Demands) -> Ints:
    """How many links commands of each kind cross."""
    is_link = np.array([resource.name == "link" for resource in demands.names], dtype=np.int64)
    crossed = np.append(0, np.cumsum(is_link[demands.resources]))
    return np.diff(crossed[demands.offsets])


def _by_calls(demands: Demands, counts: Ints, *, has_wram: bool) -> Iterator[tuple[str, LevelBytes]]:
    """Operands, partial sums and results in the activation memory, weights in theirs (as the planner counts them)."""
    read = written = weights = 0
    for work, count in zip(demands.works, counts.tolist(), strict=True):
        if work is None or not count:
            continue
        use, sums = work.use, work.sums
        apart = has_wram and work.has_weights
        read += count * (use.input_bytes + use.partial_bytes + sums.read + (0 if apart else use.weight_bytes))
        written += count * (use.output_bytes + use.partial_bytes + sums.written)
        weights += count * use.weight_bytes if apart else 0
    yield "nram", LevelBytes(read=read, written=written)
    if has_wram:
        yield "wram", LevelBytes(read=weights)
