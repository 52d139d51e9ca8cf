"""Checks that the loops of a program are well formed, so that what goes through them may rely on it (PROG-4, PROG-5).

Nothing is believed: an executable may have been uploaded. After these checks every statement holds at least once, an
iteration and the numbers of counters name each other, no sum over counters overflows, every field that changes is
there, and no command waits for what comes after it in program order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, is_call, is_transfer, refuse_first
from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    ENTRY_SUM,
    MAX_COUNTERS,
    RING,
    RUN,
    SOURCE_ADDRESS,
    SPACE,
    STATEMENT,
    TARGET_ADDRESS,
    TERM,
    Loops,
)
from compiler.program.program import Program, Rows
from compiler.program.strided import FAR, Ints

# Tiles, iterations, stages and distances are below it: sums of a few of them stay exact.
MAX_POSITION: Final = 1 << 40


def check_loops(program: Program, limits: ProgramLimits = DEFAULT_LIMITS) -> None:
    """Raises ProgramError, naming the statement as the command at fault, unless the loops are well formed.

    Numbers that name calls, tables and bindings have been checked before (`fields.py`, `encoding/check.py`).
    """
    loops = program.loops
    _check_lists(program)
    _check_spaces(loops.spaces)
    _check_statements(loops)
    owners, counters = _check_runs(loops)
    _check_size(loops, owners, limits)
    _check_fields(program)
    _check_rings(loops)
    _check_reach(program, owners, counters)
    _check_waits(program, owners, counters)


def owners_of(offsets: Rows) -> Ints:
    """The statement of each row of a list that offsets cut into one part per statement."""
    starts = offsets.astype(np.int64)
    return np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])


def slots_of(offsets: Rows) -> Ints:
    """The number of each row of a list in its statement's part."""
    starts = offsets.astype(np.int64)
    return np.arange(int(starts[-1])) - np.repeat(starts[:-1], starts[1:] - starts[:-1])


def reach_of(spaces: Rows) -> Any:
    """By space and counter how many tiles its inner counters go through less one; floats, which do not wrap around."""
    spans = (spaces["extents"].astype(np.float64) - 1) * spaces["strides"]
    inner = np.cumsum(spans[:, ::-1], axis=1)[:, ::-1]
    return inner - spans


def _check_lists(program: Program) -> None:
    """All lists are rows of their types, and each statement has its part of runs, terms and rings."""
    loops, count = program.loops, len(program.commands)
    typed = (
        ("spaces", loops.spaces, SPACE),
        ("statements", loops.statements, STATEMENT),
        ("runs", loops.runs, RUN),
        ("terms", loops.terms, TERM),
        ("rings", loops.rings, RING),
    )
    for name, rows, dtype in typed:
        if rows.ndim != 1 or rows.dtype != dtype:
            raise ProgramError(f"the {name} of loops are no rows of their type", violation="tables")
    lists = (
        ("waits", program.wait_offsets, len(program.waits)),
        ("runs", loops.run_offsets, len(loops.runs)),
        ("terms", loops.term_offsets, len(loops.terms)),
        ("rings", loops.ring_offsets, len(loops.rings)),
    )
    for name, offsets, size in lists:
        violation = "waits" if name == "waits" else "loops"
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) != count + 1:
            raise ProgramError(
                f"the offsets of {name} are not one per statement",
                violation=violation,
                actual=len(offsets),
                limit=count + 1,
            )
        if offsets[0] != 0 or offsets[-1] != size or (offsets[1:] < offsets[:-1]).any():
            raise ProgramError(
                f"the offsets of {name} do not cut their list into parts", violation=violation, limit=size
            )
    for name, rows, size in (
        ("statements", loops.statements, count),
        ("distances", loops.distances, len(program.waits)),
    ):
        if rows.ndim != 1 or len(rows) != size:
            raise ProgramError(
                f"the {name} are not as many as the program's", violation="loops", actual=len(rows), limit=size
            )
    if loops.distances.dtype.kind not in "iu" or program.waits.ndim != 1 or program.waits.dtype.kind not in "iu":
        raise ProgramError("waits and distances are no lists of integers", violation="tables")


def _check_spaces(spaces: Rows) -> None:
    """Nests ascend by one; strides nest, so that a tile's number tells its counters."""
    nests = spaces["nest"]
    if len(spaces) and (nests[0] != 0 or ((nests[1:] - nests[:-1]) & ~1).any()):
        raise ProgramError("the nests of spaces do not ascend from 0 by one", violation="space", actual=int(nests[0]))
    _refuse_space((spaces["counters"] < 0) | (spaces["counters"] > MAX_COUNTERS), "counters", spaces, MAX_COUNTERS)
    _refuse_space(np.abs(spaces["base"].astype(np.float64)) >= MAX_POSITION, "base", spaces, MAX_POSITION)
    used = np.arange(MAX_COUNTERS) < spaces["counters"][:, None]
    extents, strides = spaces["extents"], spaces["strides"]
    bad = np.where(used, (extents < 1) | (extents >= MAX_POSITION), extents != 1).any(axis=1)
    _refuse_space(bad, "extents", spaces, MAX_POSITION)
    bad = np.where(used, (strides < 1) | (strides >= MAX_POSITION), strides != 0).any(axis=1)
    _refuse_space(bad, "strides", spaces, MAX_POSITION)
    inner = reach_of(spaces)
    # a counter of one value is always 0
    bad = (used & (extents > 1) & (strides <= inner)).any(axis=1)
    _refuse_space(bad, "strides, which do not nest,", spaces, "more than the inner counters go through")
    whole = inner[:, 0] + (extents[:, 0] - 1) * strides[:, 0].astype(np.float64)
    _refuse_space(whole >= MAX_POSITION, "extents, which make too many tiles,", spaces, MAX_POSITION)


def _refuse_space(bad: Any, what: str, spaces: Rows, limit: object) -> None:
    if bad.any():
        number = int(bad.argmax())
        field = what.split(",")[0]
        raise ProgramError(
            f"space {number} has impossible {what} for a loop",
            violation="space",
            actual=str(spaces[field][number].tolist()),
            limit=limit,
        )


def _check_statements(loops: Loops) -> None:
    spaces, stages = loops.statements["space"], loops.statements["stage"]
    bad = (spaces < 0) | (spaces >= len(loops.spaces))
    refuse_first(bad, None, "a statement's space is not there", "space", spaces, len(loops.spaces) - 1)
    nests = loops.spaces["nest"][spaces]
    fall = np.append(False, nests[1:] < nests[:-1]) if len(nests) else np.zeros(0, dtype=np.bool_)
    refuse_first(fall, None, "the nests of statements do not ascend", "space", nests)
    bad = (stages <= -MAX_POSITION) | (stages >= MAX_POSITION)
    refuse_first(bad, None, "a stage is beyond reason", "stage", stages, MAX_POSITION)


def _check_runs(loops: Loops) -> tuple[Ints, Ints]:
    """One run per counter, inside its extent; the statement and the counter of each run."""
    counters = loops.spaces["counters"][loops.statements["space"]].astype(np.int64)
    sizes = np.diff(loops.run_offsets.astype(np.int64))
    refuse_first(sizes != counters, None, "runs are not one per counter of the space", "run", sizes, counters)
    owners, slots, runs = owners_of(loops.run_offsets), slots_of(loops.run_offsets), loops.runs
    extents = loops.spaces["extents"][loops.statements["space"][owners], slots]
    for name, least in (("first", 0), ("step", 1), ("count", 1)):
        bad = (runs[name] < least) | (runs[name] > MAX_POSITION)
        refuse_first(bad, owners, f"a run's {name} is out of range", "run", runs[name], f"{least} to {MAX_POSITION}")
    last = runs["first"] + runs["step"].astype(np.float64) * (runs["count"] - 1)
    refuse_first(last >= extents, owners, "a run leaves its counter's extent", "run", last, extents)
    return owners, slots


def _check_size(loops: Loops, owners: Ints, limits: ProgramLimits) -> None:
    """The commands that all statements stand for, as many as limits allow."""
    tiles = np.ones(len(loops.statements))
    np.multiply.at(tiles, owners, loops.runs["count"].astype(np.float64))
    if tiles.sum() > limits.looped_commands:
        raise ProgramError(
            "loops make too many commands", violation="size", actual=float(tiles.sum()), limit=limits.looped_commands
        )


def _check_fields(program: Program) -> None:
    """What changes is a field that the command has; one term per field and counter, one ring per field."""
    loops = program.loops
    counters = loops.spaces["counters"][loops.statements["space"]]
    owners = owners_of(loops.term_offsets)
    counter, field = loops.terms["counter"], loops.terms["field"].astype(np.int64)
    bad = (counter < 0) | (counter >= counters[owners])
    refuse_first(bad, owners, "a term's counter is not one of its space", "term", counter, counters[owners])
    _check_field(program, owners, field)
    keys = field * MAX_COUNTERS + counter
    _ascend(keys, owners, "the terms of a statement do not ascend by field and counter", "term")
    owners, field = owners_of(loops.ring_offsets), loops.rings["field"].astype(np.int64)
    _check_field(program, owners, field)
    _ascend(field, owners, "the rings of a statement do not ascend by field", "ring")


def _ascend(keys: Ints, owners: Ints, message: str, violation: str) -> None:
    same = np.append(False, owners[1:] == owners[:-1]) if len(keys) else np.zeros(0, dtype=np.bool_)
    fall = np.append(False, keys[1:] <= keys[:-1]) if len(keys) else same
    refuse_first(same & fall, owners, message, violation)


def _check_field(program: Program, owners: Ints, field: Ints) -> None:
    commands = program.commands[["opcode", "call"]][owners]
    moves, calls = is_transfer(commands["opcode"]), is_call(commands["opcode"])
    has = moves & ((field == SOURCE_ADDRESS) | (field == TARGET_ADDRESS))
    rows = np.flatnonzero(calls & (commands["call"] >= 0))
    called = program.calls[commands["call"][rows]]
    ranks = np.array([len(table.shape) for table in program.tables] or [0])
    entry = field[rows] - ENTRY_START
    has[rows] = ((entry >= 0) & (entry < ranks[called["table"]])) | (field[rows] == ENTRY_SUM)
    bound = (field[rows] - BINDING_ADDRESS) // BINDING_FIELDS
    has[rows] |= (bound >= 0) & (bound < called["count"])
    refuse_first(~has, owners, "changes a field that it does not have", "field", field)


def _check_rings(loops: Loops) -> None:
    rings, owners = loops.rings, owners_of(loops.ring_offsets)
    refuse_first(rings["modulus"] < 1, owners, "a ring has no length", "ring", rings["modulus"], 1)
    spaces = loops.spaces[loops.statements["space"][owners]]
    used = np.arange(MAX_COUNTERS) < spaces["counters"][:, None]
    unused = ((rings["coefficients"] != 0) & ~used).any(axis=1)
    refuse_first(unused, owners, "a ring follows a counter that its space does not have", "ring")
    turns = np.abs(rings["base"].astype(np.float64))
    turns += (np.abs(rings["coefficients"].astype(np.float64)) * (spaces["extents"] - 1.0)).sum(axis=1)
    refuse_first(turns >= FAR, owners, "the turns of a ring are beyond reason", "overflow", turns, FAR)


def _check_reach(program: Program, owners: Ints, slots: Ints) -> None:
    """No field gets so far that sums over counters wrap around."""
    loops = program.loops
    counts = np.ones((len(loops.statements), MAX_COUNTERS if len(owners) else 0))
    counts[owners, slots] = loops.runs["count"]
    of_terms, of_rings = owners_of(loops.term_offsets), owners_of(loops.ring_offsets)
    terms, rings = loops.terms, loops.rings
    by_term = np.abs(terms["coefficient"].astype(np.float64)) * (counts[of_terms, terms["counter"]] - 1)
    by_ring = np.abs(rings["size"].astype(np.float64)) * (rings["modulus"] - 1.0)
    statements = np.concatenate([of_terms, of_rings])
    fields = np.concatenate([terms["field"], rings["field"]]).astype(np.int64)
    # fields are 32 bits wide
    _, first, place = np.unique(statements << 32 | fields, return_index=True, return_inverse=True)
    reach = np.abs(field_bases(program, statements[first], fields[first]).astype(np.float64))
    np.add.at(reach, place, np.concatenate([by_term, by_ring]))
    refuse_first(reach >= FAR, statements[first], "a field that changes gets beyond reason", "overflow", reach, FAR)


def field_bases(program: Program, statements: Ints, fields: Ints) -> Ints:
    """What the rows of statements say of fields that they have."""
    commands = program.commands[statements]
    found = np.where(fields == SOURCE_ADDRESS, commands["source_address"], commands["target_address"])
    rows = np.flatnonzero(fields >= ENTRY_START)
    calls, its = program.calls[commands["call"][rows]], fields[rows]
    sizes = np.array([len(table.entries) for table in program.tables] or [0], dtype=np.int64)
    entries = [np.zeros((0, MAX_AXES + 1), dtype=np.int64)]
    entries += [np.column_stack([its.entries["starts"], its.entries["sum_start"]]) for its in program.tables]
    of_entry = np.flatnonzero(its < BINDING_ADDRESS)
    at = (np.cumsum(sizes) - sizes)[calls["table"]] + calls["entry"]
    found[rows[of_entry]] = np.concatenate(entries)[at[of_entry], its[of_entry] - ENTRY_START]
    of_binding = np.flatnonzero(its >= BINDING_ADDRESS)
    number, part = np.divmod(its[of_binding] - BINDING_ADDRESS, BINDING_FIELDS)
    bound = program.bindings[calls["first"][of_binding] + number]
    starts = bound["starts"][np.arange(len(bound)), np.maximum(part - 1, 0)]
    found[rows[of_binding]] = np.where(part == 0, bound["address"], starts)
    return found


def _check_waits(program: Program, owners: Ints, slots: Ints) -> None:
    """Waits name statements that come before in program order, at their distance (PROG-5)."""
    waiting, named = owners_of(program.wait_offsets), program.waits.astype(np.int64)
    loops, count, distances = program.loops, len(program.commands), program.loops.distances
    bad = (named < 0) | (named >= count)
    refuse_first(bad, waiting, "waits for a command that is not there", "waits", named, count - 1)
    bad = (distances < 0) | (distances >= MAX_POSITION)
    refuse_first(bad, waiting, "a wait's distance is out of range", "waits", distances, MAX_POSITION)
    same = np.append(False, waiting[1:] == waiting[:-1]) if len(named) else np.zeros(0, dtype=np.bool_)
    fall = same & (np.append(False, named[1:] < named[:-1]) if len(named) else same)
    refuse_first(fall, waiting, "the waits of a command do not ascend", "waits", named)
    spaces, of = loops.spaces, loops.statements["space"]
    nests, loop = spaces["nest"][of], (spaces["counters"] > 0)[of]
    # of what is done once all iterations are the first
    first = spaces["base"][of] - loops.statements["stage"]
    np.add.at(first, owners, loops.runs["first"] * spaces["strides"][of[owners], slots])
    here, looping = nests[named] == nests[waiting], loop[named]
    refuse_first(here & ~looping & (distances != 0), waiting, "what is done once has no distance", "waits", distances)
    earlier = np.where(
        looping,
        (distances > 0) | (named < waiting),
        (first[named] < first[waiting]) | ((first[named] == first[waiting]) & (named < waiting)),
    )
    late = (nests[named] > nests[waiting]) | (here & ~earlier)
    refuse_first(late, waiting, "waits for a command that is not before it", "waits", named, waiting - 1)
