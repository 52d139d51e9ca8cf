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


@compiled()
def _hash(one: int, other: int, size: int) -> Any:
    mixed = np.uint64(one * 0x1F123BB5 + other) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(size - 1))


@compiled()
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


# --- one iteration ----------------------------------------------------------------------------------------------------


@compiled(
    "void(int64, int64, int64, UniTuple(int64[::1], 8), UniTuple(int64[::1], 5), UniTuple(int64[::1], 5), int64[::1], "
    "UniTuple(int64[:, ::1], 2), UniTuple(int64[::1], 4), UniTuple(int64[::1], 4), int64[:, ::1], "
    "UniTuple(int64[::1], 9), UniTuple(int64[:, ::1], 2), UniTuple(int64[::1], 5), UniTuple(int64[:, ::1], 2), "
    "UniTuple(int64[::1], 3), UniTuple(int64[::1], 3), uint8[::1], UniTuple(int64[::1], 5), UniTuple(int64[::1], 6), "
    "UniTuple(int64[:, ::1], 4), UniTuple(int64[::1], 12), UniTuple(int64[::1], 5), int64[::1], int64[:, ::1], "
    "int64[:, ::1], int64[::1], int64[:, ::1], UniTuple(int64[::1], 6), int64[::1])"
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
    groups, queues, first_parts, are_apart, are_calls, last_iterations, last_numbers, origins = statements
    run_offsets, firsts, steps, run_counts, _ = runs
    group_extents, group_strides = group_columns
    wait_offsets, wait_statements, wait_distances, wait_targets = waits
    _, target_iterations, target_known, target_numbers = targets
    part_offsets, kinds, of_memory, of_shape, of_log, base_lows, ring_moduli, ring_sizes, ring_bases = accesses
    slopes, ring_slopes = access_columns
    counts, strides = shape_columns
    log_queues, log_writes, log_offsets = logs
    memory_begins, memory_words, memory_bases = memories
    late_offsets, late_queues, late_starts, late_pieces, late_last = late
    (
        window_lows,
        window_shapes,
        window_states,
        window_slots,
        mark_windows,
        mark_logs,
        mark_numbers,
        mark_statements,
        mark_next,
        mark_before,
        mark_slots,
        heads,
    ) = seen
    offsets, lengths, iterations, of_statement, rows = history
    places, lows, windows, holds, latest_rows, pairs = scratch
    for group in range(len(group_origins)):
        holds[group] = NONE
    for statement in range(begin, stop):
        # whether it holds
        group = groups[statement]
        count = run_offsets[statement + 1] - run_offsets[statement]
        if holds[group] == NONE:
            left = iteration - group_origins[group]
            is_there = left >= 0
            for counter in range(count):
                value = 0
                if group_extents[group, counter] > 1:
                    value = left // group_strides[group, counter]
                    is_there = is_there and value < group_extents[group, counter]
                    left -= value * group_strides[group, counter]
                counters[group, counter] = value
            holds[group] = 1 if is_there and left == 0 else 0
        is_there, index = holds[group] == 1, 0
        for counter in range(count):
            run = run_offsets[statement] + counter
            ahead = counters[group, counter] - firsts[run]
            if not is_there or ahead < 0 or ahead % steps[run] or ahead >= run_counts[run] * steps[run]:
                is_there = False
                break
            places[counter] = ahead // steps[run]
            index = index * run_counts[run] + places[counter]
        if not is_there:
            continue
        # what has ended when it starts
        queue, is_new = queues[statement], latest_rows[queues[statement]] == NONE
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
        # what it touches
        part = first_parts[statement] + (index if are_apart[statement] else 0)
        first, last = part_offsets[part], part_offsets[part + 1]
        for access in range(first, last):
            kind, shape, memory = kinds[access], of_shape[access], of_memory[access]
            low = base_lows[access]
            if not are_apart[statement]:
                turn = ring_bases[access]
                for counter in range(count):
                    low += slopes[access, counter] * places[counter]
                    turn += ring_slopes[access, counter] * places[counter]
                low += ring_sizes[access] * (turn % ring_moduli[access])
            lows[access - first] = low
            fault, other = SAFE, NONE
            if memory < 0:
                for entry in range(late_offsets[-1 - memory], late_offsets[-memory]):
                    its_queue = late_queues[entry]
                    bound = done[queue] if its_queue == queue else clocks[queue, its_queue]
                    for at in range(late_starts[entry], late_starts[entry + 1]):
                        if late_last[at] <= bound:
                            break
                        report[LATE_READ] = iteration
                        if is_late(
                            low,
                            shape,
                            late_pieces[at],
                            bound,
                            pieces,
                            tiles,
                            order,
                            origins,
                            runs,
                            shapes,
                            counts,
                            strides,
                        ):
                            fault, other = UNORDERED_WRITER, pieces[2][late_pieces[at]]
            else:
                slot = _find(shape, low, window_slots, window_shapes, window_lows)
                window = window_slots[slot]
                if window == NONE:
                    window = window_slots[slot] = sizes[WINDOWS]
                    window_shapes[window], window_lows[window], window_states[window] = shape, low, 0
                    sizes[WINDOWS] += 1
                windows[access - first] = window
                is_write = kind == _WRITE
                if kind != _LATE:
                    if not window_states[window]:
                        state = touch(
                            low,
                            shape,
                            memory_begins[memory],
                            memory_words[memory],
                            written,
                            memory_bases[memory],
                            shapes,
                            counts,
                            strides,
                            WRITTEN if is_write else 0,
                        )
                        if not is_write and state >> 2 == 0:
                            fault = UNWRITTEN
                        elif is_write and state & 3 == RESIDENT:
                            fault = READ_ONLY
                        else:
                            window_states[window] = WRITTEN if is_write or state & 3 == WRITTEN else RESIDENT
                    elif is_write and window_states[window] == RESIDENT:
                        fault = READ_ONLY
                    for log in range(log_offsets[memory], log_offsets[memory + 1]):
                        its_queue = log_queues[log]
                        if its_queue == queue or not (is_write or log_writes[log]):
                            continue
                        bound, mark = clocks[queue, its_queue], heads[log]
                        while mark != NONE and mark_numbers[mark] > bound:
                            its = mark_windows[mark]
                            is_met = its == window
                            if not is_met:
                                its_low, its_shape = window_lows[its], window_shapes[its]
                                reaches = shapes[2]
                                if its_low < low + reaches[shape] and low < its_low + reaches[its_shape]:
                                    key = its << 32 | window
                                    pair = _hash(its, window, len(pairs))
                                    if pairs[pair] != key:
                                        is_met = meet(low, shape, its_low, its_shape, shapes, counts, strides)
                                        if not is_met:
                                            pairs[pair] = key
                            if is_met:
                                fault = UNORDERED_WRITER if log_writes[log] else UNORDERED_READER
                                other = mark_statements[mark]
                            mark = mark_next[mark]
                if is_write:
                    for before in range(first, access):
                        is_read = kinds[before] == _READ and are_calls[statement]
                        if of_memory[before] != memory or not (is_read or kinds[before] == _WRITE):
                            continue
                        its = windows[before - first]
                        is_met = its == window
                        if not is_met:
                            pair = _hash(its, window, len(pairs))
                            if pairs[pair] != its << 32 | window:
                                is_met = meet(
                                    low, shape, lows[before - first], of_shape[before], shapes, counts, strides
                                )
                                if not is_met:
                                    pairs[pair] = its << 32 | window
                        if is_met:
                            fault = OVERLAP if is_read else TWICE
            if fault != SAFE:
                report[FAULT], report[FAULT_STATEMENT], report[FAULT_ACCESS] = fault, statement, access
                report[FAULT_OTHER] = other
                return
        # its marks
        done[queue] += 1
        clocks[queue, queue] = done[queue]
        for access in range(first, last):
            log = of_log[access]
            if log == NONE:
                continue
            window = windows[access - first]
            slot = _find(window, log, mark_slots, mark_windows, mark_logs)
            mark = mark_slots[slot]
            if mark == NONE:
                mark = mark_slots[slot] = sizes[MARKS]
                mark_windows[mark], mark_logs[mark] = window, log
                mark_before[mark] = mark_next[mark] = NONE
                sizes[MARKS] += 1
            elif heads[log] == mark:
                mark_numbers[mark], mark_statements[mark] = done[queue], statement
                continue
            else:
                # out of the list of its log, which begins with the latest
                before, after = mark_before[mark], mark_next[mark]
                mark_next[before] = after
                if after != NONE:
                    mark_before[after] = before
            mark_numbers[mark], mark_statements[mark] = done[queue], statement
            after = heads[log]
            mark_next[mark], mark_before[mark] = after, NONE
            if after != NONE:
                mark_before[after] = mark
            heads[log] = mark
        # its place in the history
        if is_new:
            latest_rows[queue] = sizes[ROWS]
            clock_rows[sizes[ROWS]] = clocks[queue]
            sizes[ROWS] += 1
        place = offsets[queue] + lengths[queue]
        iterations[place], of_statement[place], rows[place] = iteration, statement, latest_rows[queue]
        lengths[queue] += 1
        last_iterations[statement], last_numbers[statement] = iteration, done[queue]
        report[JUDGED] += 1
