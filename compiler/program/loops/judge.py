"""The judge of accesses, iteration by iteration, in machine code (PROG-4, PROG-6).

A *mark* is the number of the last command of an engine that read, or wrote, just a window (`windows.py`). Any two
commands that touch a common byte, one of them writing, have to be ordered. That all marks are ordered suffices: an
engine runs in order, so who comes after its last command at a window comes after all those before.

Numbers of commands count from 1 by engine; 0 stands for what is there before the program runs. A *clock* says by
engine the number of its last command that has surely ended.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled
from compiler.program.accesses import Kind
from compiler.program.loops.dram_order import is_late
from compiler.program.loops.history import place_up_to
from compiler.program.loops.windows import NONE, RESIDENT, WRITTEN, meet, touch

_READ: Final = int(Kind.READ)
_WRITE: Final = int(Kind.WRITE)
_LATE: Final = int(Kind.LATE)

# What is wrong with a command.
SAFE: Final = 0
UNWRITTEN: Final = 1
READ_ONLY: Final = 2
UNORDERED_WRITER: Final = 3
UNORDERED_READER: Final = 4
OVERLAP: Final = 5
TWICE: Final = 6

# Columns of what a judged iteration tells: the fault, its statement, access and the other statement; commands judged;
# the last iteration in which a read of the DRAM had to look at single tiles.
FAULT, FAULT_STATEMENT, FAULT_ACCESS, FAULT_OTHER, JUDGED, LATE_READ = range(6)
REPORT_SIZE: Final = 6
# Columns of how many there are of what grows: windows, marks, rows of clocks.
WINDOWS, MARKS, ROWS = range(3)


# --- tables of what was seen ------------------------------------------------------------------------------------------


@compiled(allocates=False)
def _hash(one: int, other: int, size: int) -> Any:
    mixed = np.uint64(one * 0x1F123BB5 + other) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(size - 1))


@compiled(allocates=False)
def _find(one: int, other: int, slots: Any, ones: Any, others: Any) -> Any:
    """The place in `slots` of a row of two columns, or where it would come."""
    size = len(slots)
    at = _hash(one, other, size)
    while slots[at] != NONE and (ones[slots[at]] != one or others[slots[at]] != other):
        at = (at + 1) & (size - 1)
    return at


@compiled("void(int64[::1], int64[::1], int64[::1], int64)")
def hash_rows(slots: Any, ones: Any, others: Any, count: int) -> None:
    """Enter so many rows of two columns into `slots`, which are empty, a power of two, and more than twice as many."""
    for row in range(count):
        slots[_find(ones[row], others[row], slots, ones, others)] = row


# --- one command ------------------------------------------------------------------------------------------------------


@compiled(allocates=False)
def _has_tile(iteration: int, group: int, count: int, origins: Any, columns: Any, counters: Any) -> Any:
    """True if a space has a tile in an iteration, at a stage; notes its counters."""
    extents, strides = columns
    left = iteration - origins[group]
    is_there = left >= 0
    for counter in range(count):
        value = 0
        if extents[group, counter] > 1:
            value = left // strides[group, counter]
            is_there = is_there and value < extents[group, counter]
            left -= value * strides[group, counter]
        counters[group, counter] = value
    return is_there and left == 0


@compiled(allocates=False)
def _tile_of(statement: int, group: int, runs: Any, counters: Any, places: Any) -> Any:
    """The number of a statement's tile whose counters are known, NONE if it does not hold there; notes its places."""
    run_offsets, firsts, steps, run_counts, _ = runs
    begin, index = run_offsets[statement], 0
    for run in range(begin, run_offsets[statement + 1]):
        ahead = counters[group, run - begin] - firsts[run]
        if ahead < 0 or ahead % steps[run] or ahead >= run_counts[run] * steps[run]:
            return NONE
        places[run - begin] = ahead // steps[run]
        index = index * run_counts[run] + places[run - begin]
    return index


@compiled(allocates=False)
def _wait(
    statement: int,
    iteration: int,
    statements: Any,
    waits: Any,
    targets: Any,
    target_clocks: Any,
    history: Any,
    done: Any,
    clocks: Any,
    clock_rows: Any,
) -> bool:
    """Enter in the clock of a statement's engine what has ended when it starts; True if that is more than before."""
    _, queues, _, _, _, last_iterations, last_numbers, _ = statements
    wait_offsets, wait_statements, wait_distances, wait_targets = waits
    _, target_iterations, target_known, target_numbers = targets
    offsets, lengths, iterations, of_statement, rows = history
    queue, is_new = queues[statement], False
    for wait in range(wait_offsets[statement], wait_offsets[statement + 1]):
        other, target = wait_statements[wait], wait_targets[wait]
        its_queue = queues[other]
        if its_queue == queue:
            continue
        if target != NONE and target_known[target]:
            number = target_numbers[target]
            if clocks[queue, its_queue] < number:
                is_new = True
                for engine in range(len(done)):
                    clocks[queue, engine] = max(clocks[queue, engine], target_clocks[target, engine])
                clocks[queue, its_queue] = number
            continue
        at = target_iterations[target] if target != NONE else iteration - wait_distances[wait]
        end = offsets[its_queue] + lengths[its_queue]
        if last_iterations[other] == at:
            place = end - 1 - (done[its_queue] - last_numbers[other])
        else:
            place = place_up_to(its_queue, at, other, offsets, lengths, iterations, of_statement)
            if place == NONE:
                continue
        number = done[its_queue] - (end - 1 - place)
        if clocks[queue, its_queue] < number:
            is_new = True
            for engine in range(len(done)):
                clocks[queue, engine] = max(clocks[queue, engine], clock_rows[rows[place], engine])
            clocks[queue, its_queue] = number
    return is_new


@compiled(allocates=False)
def _record(statement: int, iteration: int, row: int, statements: Any, history: Any, done: Any) -> None:
    """Enter a command, which is done, in the history of its engine; `row`: that of its clock."""
    _, queues, _, _, _, last_iterations, last_numbers, _ = statements
    offsets, lengths, iterations, of_statement, rows = history
    queue = queues[statement]
    place = offsets[queue] + lengths[queue]
    iterations[place], of_statement[place], rows[place] = iteration, statement, row
    lengths[queue] += 1
    last_iterations[statement], last_numbers[statement] = iteration, done[queue]


# --- one access -------------------------------------------------------------------------------------------------------


@compiled(allocates=False)
def _low_of(access: int, count: int, accesses: Any, columns: Any, places: Any) -> Any:
    """Where an access begins at places of so many counters."""
    _, _, _, _, _, base_lows, ring_moduli, ring_sizes, ring_bases = accesses
    slopes, ring_slopes = columns
    low, turn = base_lows[access], ring_bases[access]
    for counter in range(count):
        low += slopes[access, counter] * places[counter]
        turn += ring_slopes[access, counter] * places[counter]
    return low + ring_sizes[access] * (turn % ring_moduli[access])


@compiled(allocates=False)
def _late_writer(
    low: int,
    shape: int,
    area: int,
    queue: int,
    iteration: int,
    late: Any,
    pieces: Any,
    tiles: Any,
    order: Any,
    origins: Any,
    runs: Any,
    shapes: Any,
    shape_columns: Any,
    done: Any,
    clocks: Any,
    report: Any,
) -> Any:
    """A statement that writes what an engine reads of the DRAM, and may not have ended; NONE without any."""
    late_offsets, late_queues, late_starts, late_pieces, late_last = late
    counts, strides = shape_columns
    other = NONE
    for entry in range(late_offsets[area], late_offsets[area + 1]):
        its_queue = late_queues[entry]
        bound = done[queue] if its_queue == queue else clocks[queue, its_queue]
        for at in range(late_starts[entry], late_starts[entry + 1]):
            if late_last[at] <= bound:
                break
            report[LATE_READ] = iteration
            piece = late_pieces[at]
            if is_late(low, shape, piece, bound, pieces, tiles, order, origins, runs, shapes, counts, strides):
                other = pieces[2][piece]
    return other


@compiled(allocates=False)
def _window_of(low: int, shape: int, seen: Any, sizes: Any) -> Any:
    """The number of a window, a new one if it was not met before."""
    lows, window_shapes, states, slots, _, _, _, _, _, _, _, _ = seen
    slot = _find(shape, low, slots, window_shapes, lows)
    if slots[slot] == NONE:
        window = slots[slot] = sizes[WINDOWS]
        window_shapes[window], lows[window], states[window] = shape, low, 0
        sizes[WINDOWS] += 1
    return slots[slot]


@compiled(allocates=False)
def _meet(one: int, other: int, seen: Any, shapes: Any, shape_columns: Any, pairs: Any) -> bool:
    """True if two windows of a memory have a byte in common; notes shapes that have none so far from each other."""
    lows, its, reaches = seen[0], seen[1], shapes[2]
    ahead = lows[other] - lows[one]
    if ahead >= reaches[its[one]] or -ahead >= reaches[its[other]]:
        return False
    alike, distances, classes = pairs
    key = classes[its[one]] << 32 | classes[its[other]]
    pair = _hash(key, ahead, len(alike))
    if alike[pair] == key and distances[pair] == ahead:
        return False
    counts, strides = shape_columns
    if meet(lows[other], its[other], lows[one], its[one], shapes, counts, strides):
        return True
    alike[pair], distances[pair] = key, ahead
    return False


@compiled(allocates=False)
def _fault_of_state(
    window: int, is_write: bool, memory: int, memories: Any, written: Any, seen: Any, shapes: Any, shape_columns: Any
) -> Any:
    """What is wrong with reading or writing a window, whoever waits; notes what it holds then."""
    lows, its, states = seen[0], seen[1], seen[2]
    if states[window]:
        return READ_ONLY if is_write and states[window] == RESIDENT else SAFE
    begins, words, bases = memories
    counts, strides = shape_columns
    state = touch(
        lows[window],
        its[window],
        begins[memory],
        words[memory],
        written,
        bases[memory],
        shapes,
        counts,
        strides,
        WRITTEN if is_write else 0,
    )
    if not is_write and state >> 2 == 0:
        return UNWRITTEN
    if is_write and state & 3 == RESIDENT:
        return READ_ONLY
    states[window] = WRITTEN if is_write or state & 3 == WRITTEN else RESIDENT
    return SAFE


@compiled(allocates=False)
def _unordered(
    window: int,
    is_write: bool,
    queue: int,
    memory: int,
    logs: Any,
    seen: Any,
    shapes: Any,
    shape_columns: Any,
    clocks: Any,
    pairs: Any,
) -> Any:
    """The fault of a command that may not come after another one that touched its window, and the other's statement."""
    log_queues, log_writes, log_offsets = logs
    _, _, _, _, mark_windows, _, mark_numbers, mark_statements, mark_next, _, _, heads = seen
    fault, other = SAFE, NONE
    for log in range(log_offsets[memory], log_offsets[memory + 1]):
        its_queue = log_queues[log]
        if its_queue == queue or not (is_write or log_writes[log]):
            continue
        bound, mark = clocks[queue, its_queue], heads[log]
        while mark != NONE and mark_numbers[mark] > bound:
            its = mark_windows[mark]
            if its == window or _meet(its, window, seen, shapes, shape_columns, pairs):
                fault = UNORDERED_WRITER if log_writes[log] else UNORDERED_READER
                other = mark_statements[mark]
            mark = mark_next[mark]
    return fault, other


@compiled(allocates=False)
def _own_fault(
    access: int,
    first: int,
    is_call: int,
    accesses: Any,
    windows: Any,
    seen: Any,
    shapes: Any,
    shape_columns: Any,
    pairs: Any,
) -> Any:
    """What is wrong with a command's result beside its accesses from `first` on: operands and other results."""
    kinds, of_memory = accesses[1], accesses[2]
    fault, window = SAFE, windows[access - first]
    for before in range(first, access):
        is_read = kinds[before] == _READ and is_call
        if of_memory[before] != of_memory[access] or not (is_read or kinds[before] == _WRITE):
            continue
        its = windows[before - first]
        if its == window or _meet(its, window, seen, shapes, shape_columns, pairs):
            fault = OVERLAP if is_read else TWICE
    return fault


@compiled(allocates=False)
def _fault_on_chip(
    access: int,
    first: int,
    low: int,
    queue: int,
    is_call: int,
    accesses: Any,
    windows: Any,
    logs: Any,
    memories: Any,
    written: Any,
    seen: Any,
    sizes: Any,
    shapes: Any,
    shape_columns: Any,
    clocks: Any,
    pairs: Any,
) -> Any:
    """What is wrong with an access on the chip, and the other statement, NONE without one; notes its window."""
    _, kinds, of_memory, of_shape, _, _, _, _, _ = accesses
    memory, is_write = of_memory[access], kinds[access] == _WRITE
    window = windows[access - first] = _window_of(low, of_shape[access], seen, sizes)
    fault, other = SAFE, NONE
    if kinds[access] != _LATE:
        fault = _fault_of_state(window, is_write, memory, memories, written, seen, shapes, shape_columns)
        order, other = _unordered(window, is_write, queue, memory, logs, seen, shapes, shape_columns, clocks, pairs)
        fault = fault if order == SAFE else order
    if is_write:
        own = _own_fault(access, first, is_call, accesses, windows, seen, shapes, shape_columns, pairs)
        fault = fault if own == SAFE else own
    return fault, other


@compiled(allocates=False)
def _mark(window: int, log: int, statement: int, number: int, seen: Any, sizes: Any) -> None:
    """Leave a mark: the latest of its log, at the window."""
    _, _, _, _, windows, logs, numbers, statements, following, before, slots, heads = seen
    slot = _find(window, log, slots, windows, logs)
    mark = slots[slot]
    if mark == NONE:
        mark = slots[slot] = sizes[MARKS]
        windows[mark], logs[mark] = window, log
        sizes[MARKS] += 1
    elif heads[log] != mark:
        # out of the list of its log, which begins with the latest
        following[before[mark]] = following[mark]
        if following[mark] != NONE:
            before[following[mark]] = before[mark]
    numbers[mark], statements[mark] = number, statement
    if heads[log] == mark:
        return
    following[mark], before[mark] = heads[log], NONE
    if heads[log] != NONE:
        before[heads[log]] = mark
    heads[log] = mark


# --- one iteration ----------------------------------------------------------------------------------------------------


@compiled(
    "void(int64, int64, int64, UniTuple(int64[::1], 8), UniTuple(int64[::1], 5), UniTuple(int64[::1], 5), int64[::1], "
    "UniTuple(int64[:, ::1], 2), UniTuple(int64[::1], 4), UniTuple(int64[::1], 4), int64[:, ::1], "
    "UniTuple(int64[::1], 9), UniTuple(int64[:, ::1], 2), UniTuple(int64[::1], 5), UniTuple(int64[:, ::1], 2), "
    "UniTuple(int64[::1], 3), UniTuple(int64[::1], 3), uint8[::1], UniTuple(int64[::1], 5), UniTuple(int64[::1], 6), "
    "UniTuple(int64[:, ::1], 4), UniTuple(int64[::1], 12), UniTuple(int64[::1], 5), int64[::1], int64[:, ::1], "
    "int64[:, ::1], int64[::1], int64[:, ::1], UniTuple(int64[::1], 7), int64[::1])",
    allocates=False,
)
def judge_iteration(
    iteration: int,
    begin: int,
    stop: int,
    statements: Any,
    runs: Any,
    order: Any,
    group_origins: Any,
    group_columns: Any,
    waits: Any,
    targets: Any,
    target_clocks: Any,
    accesses: Any,
    access_columns: Any,
    shapes: Any,
    shape_columns: Any,
    logs: Any,
    memories: Any,
    written: Any,
    late: Any,
    pieces: Any,
    tiles: Any,
    seen: Any,
    history: Any,
    done: Any,
    clocks: Any,
    clock_rows: Any,
    sizes: Any,
    counters: Any,
    scratch: Any,
    report: Any,
) -> None:
    """Judge the commands that the statements begin to stop make in an iteration of their nest, and leave their marks.

    Stops at the first command that is not safe and tells in `report` which and why. `judge_tables.py` and
    `chip_judge.py` have the columns.
    """
    groups, queues, first_parts, are_apart, are_calls, _, _, origins = statements
    run_offsets = runs[0]
    part_offsets, _, of_memory, of_shape, of_log, base_lows, _, _, _ = accesses
    places, windows, holds, latest_rows = scratch[:4]
    pairs = scratch[4:]
    for group in range(len(group_origins)):
        holds[group] = NONE
    for statement in range(begin, stop):
        group, queue = groups[statement], queues[statement]
        count = run_offsets[statement + 1] - run_offsets[statement]
        if holds[group] == NONE:
            holds[group] = _has_tile(iteration, group, count, group_origins, group_columns, counters)
        index = _tile_of(statement, group, runs, counters, places) if holds[group] else NONE
        if index == NONE:
            continue
        is_new = latest_rows[queue] == NONE
        if _wait(statement, iteration, statements, waits, targets, target_clocks, history, done, clocks, clock_rows):
            is_new = True
        is_apart = are_apart[statement]
        part = first_parts[statement] + (index if is_apart else 0)
        first, last = part_offsets[part], part_offsets[part + 1]
        for access in range(first, last):
            low = base_lows[access] if is_apart else _low_of(access, count, accesses, access_columns, places)
            if of_memory[access] < 0:
                other = _late_writer(
                    low,
                    of_shape[access],
                    -1 - of_memory[access],
                    queue,
                    iteration,
                    late,
                    pieces,
                    tiles,
                    order,
                    origins,
                    runs,
                    shapes,
                    shape_columns,
                    done,
                    clocks,
                    report,
                )
                fault = SAFE if other == NONE else UNORDERED_WRITER
            else:
                fault, other = _fault_on_chip(
                    access,
                    first,
                    low,
                    queue,
                    are_calls[statement],
                    accesses,
                    windows,
                    logs,
                    memories,
                    written,
                    seen,
                    sizes,
                    shapes,
                    shape_columns,
                    clocks,
                    pairs,
                )
            if fault != SAFE:
                report[FAULT], report[FAULT_STATEMENT], report[FAULT_ACCESS] = fault, statement, access
                report[FAULT_OTHER] = other
                return
        done[queue] += 1
        clocks[queue, queue] = done[queue]
        for access in range(first, last):
            if of_log[access] != NONE:
                _mark(windows[access - first], of_log[access], statement, done[queue], seen, sizes)
        if is_new:
            latest_rows[queue] = sizes[ROWS]
            for engine in range(len(done)):
                clock_rows[sizes[ROWS], engine] = clocks[queue, engine]
            sizes[ROWS] += 1
        _record(statement, iteration, latest_rows[queue], statements, history, done)
        report[JUDGED] += 1
