"""All that the commands of a program read and write, as one list of strided accesses (PROG-4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.program.addressed import Addressed
from compiler.program.engines import Engines, Reach, reach_of
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_transfer, refuse_first
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, SOURCE_ADDRESS, TARGET_ADDRESS
from compiler.program.pieces import Pieces
from compiler.program.program import MAX_COUNTS, Level, Opcode, Program, Role
from compiler.program.strided import Flags, Ints, Normal, normalise, spans


class Kind(IntEnum):
    """In which order a command's accesses are judged: it reads all before it writes.

    OVERWRITTEN is a read of bytes that the command itself then writes; LATE a read that its own writes may meet, and
    that later writes have to wait for.
    """

    READ = 0
    OVERWRITTEN = 1
    WRITE = 2
    LATE = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Areas:
    """The bytes of the DRAM that regions take: disjoint, ascending; regions of equal bytes are one area.

    `is_given`: inputs and weights, there before the program runs and never written. `is_result`: has to be complete.
    """

    starts: Ints
    stops: Ints
    is_given: Flags
    is_result: Flags
    of_region: tuple[int, ...]


def areas_of(program: Program) -> Areas:
    """The areas of a program's regions; raises ProgramError where regions overlap without being the same bytes."""
    found: dict[tuple[int, int], list[int]] = {}
    for index, region in enumerate(program.regions):
        found.setdefault((region.address, region.address + region.size_bytes), []).append(index)
    order = sorted(found)
    for (_, stop), (start, _) in pairwise(order):
        if start < stop:
            raise ProgramError("regions overlap", violation="region", actual=start, limit=stop)
    of_region = [0] * len(program.regions)
    for number, key in enumerate(order):
        for index in found[key]:
            of_region[index] = number
    roles = [{program.regions[index].role for index in found[key]} for key in order]
    return Areas(
        starts=np.array([start for start, _ in order], dtype=np.int64),
        stops=np.array([stop for _, stop in order], dtype=np.int64),
        is_given=np.array([bool(role & {Role.INPUT, Role.WEIGHT, Role.ADDRESSES}) for role in roles], dtype=np.bool_),
        is_result=np.array([Role.OUTPUT in role for role in roles], dtype=np.bool_),
        of_region=tuple(of_region),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accesses:
    """One row per access, by command and within it by Kind; `areas` is -1 on the chip.

    `fields`: the address in the command or its call that says where the access lies (`loops/loops.py`).
    """

    commands: Ints
    fields: Ints
    kinds: Ints
    places: Ints
    areas: Ints
    lows: Ints
    highs: Ints
    normal: Normal


def accesses_of(
    program: Program,
    pieces: Pieces | None,
    addressed: Addressed | None,
    areas: Areas,
    shared: Engines,
    limits: ProgramLimits,
) -> Accesses:
    """The accesses of all commands, each inside its place, its engine's reach and, in the DRAM, one region."""
    axes = max(MAX_COUNTS, 0 if pieces is None else pieces.starts.shape[1])
    parts = [_transfers(program, axes), *([] if pieces is None else [_calls(program, pieces, axes)])]
    parts += [] if addressed is None else [_address_tables(addressed, axes)]
    commands, fields, kinds, places, addresses, counts, strides, runs = (
        np.concatenate([part[column] for part in parts]) for column in range(8)
    )
    # most have few dimensions
    used = np.flatnonzero((counts > 1).any(axis=0))
    counts, strides = counts[:, used], strides[:, used]
    order = np.argsort(commands * len(Kind) + kinds, kind="stable")
    commands, fields, kinds, places = commands[order], fields[order], kinds[order], places[order]
    addresses, counts, strides, runs = addresses[order], counts[order], strides[order], runs[order]
    hull = spans(addresses, counts, strides, runs)
    refuse_first(hull.is_far, commands, "an access is beyond reason", "overflow", addresses)
    capacities = np.array([place.capacity_bytes for place in program.places], dtype=np.int64)
    bad = (hull.low < 0) | (hull.high > capacities[places])
    refuse_first(bad, commands, "an access leaves its memory", "address", hull.high, capacities[places])
    writes = kinds == Kind.WRITE
    _check_engines(program, commands, places, reach_of(program.places, program.queues, shared))
    dram = np.array([place.level == Level.DRAM for place in program.places])[places]
    area = _areas(areas, commands, dram, hull.low, hull.high)
    refuse_first(
        writes & dram & areas.is_given[area] if len(areas.starts) else np.zeros(0, dtype=np.bool_),
        commands,
        "writes an input or a weight",
        "read-only",
    )
    normal = normalise(hull.low, counts, strides, runs)
    bad = writes & (normal.repeats | normal.tangles)
    refuse_first(bad, commands, "writes a byte twice", "twice")
    touched = float(normal.touched_bytes[kinds != Kind.LATE].sum())
    if touched > limits.touched_bytes:
        raise ProgramError(
            "the commands touch too many bytes",
            violation="size",
            actual=touched,
            limit=limits.touched_bytes,
        )
    return Accesses(
        commands=commands,
        fields=fields,
        kinds=kinds,
        places=places,
        areas=np.where(dram, area, -1),
        lows=hull.low,
        highs=hull.high,
        normal=normal,
    )


_Part = tuple[Any, ...]


def _transfers(program: Program, axes: int) -> _Part:
    """What transfers read, and write in each of their targets, as rows of so many axes."""
    moves = np.flatnonzero(is_transfer(program.commands["opcode"]))
    rows = program.commands[moves]
    targets = rows["targets"].astype(np.int64)
    copies = np.repeat(np.arange(len(moves)), targets)
    number = np.arange(len(copies)) - (np.cumsum(targets) - targets)[copies]
    return (
        np.concatenate([moves, moves[copies]]),
        np.concatenate([np.full(len(moves), SOURCE_ADDRESS), np.full(len(copies), TARGET_ADDRESS)]),
        np.concatenate([np.full(len(moves), int(Kind.READ)), np.full(len(copies), int(Kind.WRITE))]),
        np.concatenate([rows["source"].astype(np.int64), rows["target"][copies] + number]),
        np.concatenate([rows["source_address"], rows["target_address"][copies]]),
        _wide(np.concatenate([rows["counts"], rows["counts"][copies]]), axes, 1),
        _wide(np.concatenate([rows["source_strides"], rows["target_strides"][copies]]), axes, 0),
        np.concatenate([rows["run_bytes"], rows["run_bytes"][copies]]),
    )


def _wide(rows: Ints, axes: int, fill: int) -> Ints:
    """Rows of dimensions as rows of so many axes."""
    more = axes - rows.shape[1]
    return np.concatenate([rows, np.full((len(rows), more), fill)], axis=1) if more else rows


def _calls(program: Program, pieces: Pieces, axes: int) -> _Part:
    """What calls read and write, as rows of so many axes; of partial sums also what they add to, and finish."""
    result = pieces.slots == 0
    kinds = np.where(result, int(Kind.WRITE), np.where(pieces.in_place, int(Kind.OVERWRITTEN), int(Kind.READ)))
    continued, finished = continues(program, pieces)
    # of what is finished here, the write is of the result's elements, no longer of sums
    addresses, strides, sizes = final_pieces(pieces, finished)
    again, late = np.flatnonzero(continued), np.flatnonzero(finished & (pieces.scales > 1))
    extra = np.concatenate([again, late])
    counts = pieces.stops - pieces.starts
    return (
        np.concatenate([pieces.commands, pieces.commands[extra]]),
        BINDING_ADDRESS + BINDING_FIELDS * np.concatenate([pieces.bound, pieces.bound[extra]]),
        np.concatenate([kinds, np.full(len(again), int(Kind.OVERWRITTEN)), np.full(len(late), int(Kind.LATE))]),
        np.concatenate([pieces.places, pieces.places[extra]]),
        np.concatenate([addresses, pieces.addresses[extra]]),
        _wide(np.concatenate([counts, counts[extra]]), axes, 1),
        _wide(np.concatenate([strides, pieces.strides[extra]]), axes, 0),
        np.concatenate([sizes, pieces.element_bytes[extra]]),
    )


def _address_tables(addressed: Addressed, axes: int) -> _Part:
    """Calls read the words of the address tables that they bind."""
    count = len(addressed.commands)
    return (
        addressed.commands,
        BINDING_ADDRESS + BINDING_FIELDS * addressed.bound,
        np.full(count, int(Kind.READ)),
        addressed.places,
        addressed.addresses,
        np.ones((count, axes), dtype=np.int64),
        np.zeros((count, axes), dtype=np.int64),
        addressed.sizes,
    )


def continues(program: Program, pieces: Pieces) -> tuple[Flags, Flags]:
    """Which pieces are of results that add to sums made before, and which of those make the result of them."""
    counts = np.array([len(table.entries) for table in program.tables], dtype=np.int64)
    entries = (np.cumsum(counts) - counts)[pieces.tables] + pieces.entries
    begins, ends = (np.concatenate([table.entries[name] for table in program.tables]) for name in ("begins", "ends"))
    continued = (pieces.slots == 0) & (begins[entries] == 0)
    finished = continued & (ends[entries] == 1)
    return continued, finished


def final_pieces(pieces: Pieces, finished: Flags) -> tuple[Ints, Ints, Ints]:
    """Addresses, strides and element bytes of what is written: sums that are finished become the result's elements."""
    scales = np.where(finished, pieces.scales, 1)
    addresses = pieces.bases + (pieces.addresses - pieces.bases) // scales
    return addresses, pieces.strides // scales[:, None], pieces.element_bytes // scales


def _check_engines(program: Program, commands: Ints, places: Ints, reach: Reach) -> None:
    """Every command is one that its engine does, between memories that it serves (PROF-2)."""
    queues, opcodes = program.commands["queue"], program.commands["opcode"]
    refuse_first(~reach.does[queues, opcodes], None, "its engine does not do that", "engine", opcodes)
    mine = queues[commands]
    refuse_first(~reach.reaches[mine, places], commands, "its engine does not reach a memory", "engine", places)
    count = len(opcodes)
    owned = np.bincount(commands, weights=reach.owns[mine, places], minlength=count) > 0
    touches = np.bincount(commands, minlength=count) > 0
    refuse_first(touches & ~owned, None, "none of the memories is its engine's own", "engine", queues)
    _check_routes(program, reach)


def _check_routes(program: Program, reach: Reach) -> None:
    """Every opcode goes where its name says (PROG-1)."""
    moves = np.flatnonzero(is_transfer(program.commands["opcode"]))
    rows = program.commands[moves]
    opcode, source, target = rows["opcode"], rows["source"], rows["target"]
    dram = np.array([place.level == Level.DRAM for place in program.places])
    cluster, core = np.array(reach.clusters), np.array(reach.cores)
    from_dram, to_dram = dram[source], dram[target]
    bad = from_dram != (opcode == Opcode.LOAD)
    refuse_first(bad, moves, "only loads read the DRAM, and they read nothing else", "route", opcode)
    bad = to_dram != (opcode == Opcode.STORE)
    refuse_first(bad, moves, "only stores write the DRAM, and they write nothing else", "route", opcode)
    same_core = (core[source] == core[target]) | (core[source] < 0) | (core[target] < 0)
    bad = (opcode == Opcode.MOVE) & ~((cluster[source] == cluster[target]) & same_core)
    refuse_first(bad, moves, "a move stays with a core or its cluster", "route", target)
    bad = (opcode == Opcode.EXCHANGE) & (cluster[source] == cluster[target]) & same_core
    refuse_first(bad, moves, "an exchange is between cores or between clusters", "route", target)
    several = (opcode == Opcode.LOAD) | (opcode == Opcode.BROADCAST) | (rows["targets"] == 1)
    refuse_first(~several, moves, "only loads and broadcasts have several targets", "route", rows["targets"], 1)
    sent = (opcode != Opcode.BROADCAST) | reach.owns[rows["queue"], source]
    refuse_first(~sent, moves, "a broadcast is sent by the owner of its source", "engine", source)


def _areas(areas: Areas, commands: Ints, dram: Flags, low: Ints, high: Ints) -> Ints:
    """The area of each access of the DRAM; raises ProgramError for one that is not inside one."""
    if not len(areas.starts):
        refuse_first(dram, commands, "touches DRAM that no region takes", "region", low)
        return np.zeros(len(low), dtype=np.int64)
    found = np.searchsorted(areas.starts, low, side="right") - 1
    bad = dram & ((found < 0) | (high > areas.stops[found]))
    refuse_first(bad, commands, "touches DRAM that is not inside one region", "region", low, areas.stops[found])
    result: Ints = np.where(dram, found, 0)
    return result
