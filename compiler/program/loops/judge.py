"""The judge of accesses, iteration by iteration, in machine code (PROG-4, PROG-6).

A *shape* is a set of bytes from an address on: positions along strides, of which each is a run of bytes. A *window* is
a shape at an address of a memory. A *mark* is the number of the last command of an engine that read, or wrote, just a
window. Any two commands that touch a common byte, one of them writing, have to be ordered. That all marks are ordered
suffices: an engine runs in order, so who comes after its last command at a window comes after all those before.

Numbers of commands count from 1 by engine; 0 stands for what is there before the program runs. A *clock* says by
engine the number of its last command that has surely ended.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled
from compiler.program.accesses import Kind

NONE: Final = -1
# A position before all others.
LONG_AGO: Final = -(1 << 60)

_READ: Final = int(Kind.READ)
_OVERWRITTEN: Final = int(Kind.OVERWRITTEN)
_WRITE: Final = int(Kind.WRITE)
_LATE: Final = int(Kind.LATE)

# What a byte on the chip is: never written, written, or a weight that stays.
WRITTEN: Final = 1
RESIDENT: Final = 2

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


# --- shapes -----------------------------------------------------------------------------------------------------------


@compiled()
def _first_from(shape: int, start: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """The first byte of a nested shape from `start` on, counted from the shape's first byte; NONE behind the last."""
    if start <= 0:
        return 0
    found, rest, step = 0, start, NONE
    step_to = 0
    for axis in range(dims[shape]):
        place = rest // strides[shape, axis]
        if place >= counts[shape, axis]:
            place = counts[shape, axis] - 1
        if place + 1 < counts[shape, axis]:
            step, step_to = axis, found + (place + 1) * strides[shape, axis]
        found += place * strides[shape, axis]
        rest -= place * strides[shape, axis]
    if rest < runs[shape]:
        return found + rest
    return step_to if step != NONE else NONE


@compiled()
def _bytes_before(shape: int, stop: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """How many bytes of a nested shape lie before `stop`, counted from its first byte."""
    if stop <= 0:
        return 0
    inner = runs[shape]
    for axis in range(dims[shape]):
        inner *= counts[shape, axis]
    found, rest = 0, stop
    for axis in range(dims[shape]):
        inner //= counts[shape, axis]
        place = rest // strides[shape, axis]
        if place >= counts[shape, axis]:
            return found + counts[shape, axis] * inner
        found += place * inner
        rest -= place * strides[shape, axis]
    return found + min(rest, runs[shape])


@compiled()
def _length(shape: int, modulus: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """How far a shape reaches modulo a number: all axes count whose strides are no multiples of it."""
    found = runs[shape]
    for axis in range(dims[shape]):
        if strides[shape, axis] % modulus:
            found += (counts[shape, axis] - 1) * strides[shape, axis]
    return found


@compiled()
def _pass(
    low: int, shape: int, other_low: int, other: int, modulus: int, dims: Any, runs: Any, counts: Any, strides: Any
) -> Any:
    """True if two windows share no byte modulo a number."""
    ahead = (other_low - low) % modulus
    if ahead < _length(shape, modulus, dims, runs, counts, strides):
        return False
    return modulus - ahead >= _length(other, modulus, dims, runs, counts, strides)


@compiled()
def _gcd(one: int, other: int) -> int:
    while other:
        one, other = other, one % other
    return one


@compiled()
def _meet(low: int, shape: int, other_low: int, other: int, shapes: Any, counts: Any, strides: Any) -> bool:
    """True if two windows of one memory have a byte in common; one of them has to be nested.

    Most are told apart by their ends, or modulo their strides; else the runs of one are looked for in the other.
    """
    dims, runs, reaches, rows, nested = shapes
    if other_low >= low + reaches[shape] or low >= other_low + reaches[other]:
        return False
    if not dims[shape] and not dims[other]:
        return True
    common = 0
    for axis in range(dims[shape]):
        common = _gcd(common, strides[shape, axis])
    for axis in range(dims[other]):
        common = _gcd(common, strides[other, axis])
    if common > 1 and _pass(low, shape, other_low, other, common, dims, runs, counts, strides):
        return False
    for axis in range(dims[shape]):
        if _pass(low, shape, other_low, other, strides[shape, axis], dims, runs, counts, strides):
            return False
    for axis in range(dims[other]):
        if _pass(low, shape, other_low, other, strides[other, axis], dims, runs, counts, strides):
            return False
    if not nested[other] or (nested[shape] and rows[shape] > rows[other]):
        low, shape, other_low, other = other_low, other, low, shape
    places = np.zeros(max(1, dims[shape]), dtype=np.int64)
    at = low - other_low
    while True:
        found = _first_from(other, at, dims, runs, counts, strides)
        if found != NONE and found < at + runs[shape]:
            return True
        axis = dims[shape] - 1
        while axis >= 0 and places[axis] + 1 == counts[shape, axis]:
            at -= places[axis] * strides[shape, axis]
            places[axis] = 0
            axis -= 1
        if axis < 0:
            return False
        places[axis] += 1
        at += strides[shape, axis]


@compiled(
    "boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[:, ::1], "
    "int64[:, ::1])"
)
def meet(lows: Any, its: Any, other_lows: Any, others: Any, shapes: Any, counts: Any, strides: Any) -> Any:
    """Which pairs of windows, given by address and shape, have a byte in common; one of each pair has to be nested.

    shapes: by shape how many axes it has, the bytes of a run, how far it reaches, its runs, and whether it is nested:
    no position is within reach of those before it. counts, strides: (shapes, axes), outermost first.
    """
    found = np.zeros(len(lows), dtype=np.bool_)
    for pair in range(len(lows)):
        found[pair] = _meet(lows[pair], its[pair], other_lows[pair], others[pair], shapes, counts, strides)
    return found


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[:, ::1], int64[:, ::1])"
)
def common_bytes(lows: Any, its: Any, other_lows: Any, others: Any, shapes: Any, counts: Any, strides: Any) -> Any:
    """Of pairs of windows how many bytes of the first, position by position, lie in the second, which is nested."""
    dims, runs, reaches, _, _ = shapes
    result = np.zeros(len(lows), dtype=np.int64)
    for pair in range(len(lows)):
        low, shape, other_low, other = lows[pair], its[pair], other_lows[pair], others[pair]
        if other_low >= low + reaches[shape] or low >= other_low + reaches[other]:
            continue
        places = np.zeros(max(1, dims[shape]), dtype=np.int64)
        at, axis = low - other_low, 0
        while axis >= 0:
            result[pair] += _bytes_before(other, at + runs[shape], dims, runs, counts, strides)
            result[pair] -= _bytes_before(other, at, dims, runs, counts, strides)
            axis = dims[shape] - 1
            while axis >= 0 and places[axis] + 1 == counts[shape, axis]:
                at -= places[axis] * strides[shape, axis]
                places[axis] = 0
                axis -= 1
            if axis >= 0:
                places[axis] += 1
                at += strides[shape, axis]
    return result


@compiled()
def _touch(
    low: int,
    shape: int,
    begin: int,
    word: int,
    written: Any,
    base: int,
    shapes: Any,
    counts: Any,
    strides: Any,
    put: int,
) -> int:
    """Look at all words of a window, and make them `put` if that is not 0; the least and the greatest, 2 bits each."""
    dims, runs, _, _, _ = shapes
    places = np.zeros(max(1, dims[shape]), dtype=np.int64)
    at, words = base + (low - begin) // word, runs[shape] // word
    least, greatest = 3, 0
    while True:
        for byte in range(at, at + words):
            least, greatest = min(least, written[byte]), max(greatest, written[byte])
        if put:
            for byte in range(at, at + words):
                written[byte] = put
        axis = dims[shape] - 1
        while axis >= 0 and places[axis] + 1 == counts[shape, axis]:
            at -= places[axis] * (strides[shape, axis] // word)
            places[axis] = 0
            axis -= 1
        if axis < 0:
            return least << 2 | greatest
        places[axis] += 1
        at += strides[shape, axis] // word


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], "
    "UniTuple(int64[::1], 5), int64[:, ::1], int64[:, ::1], int64)"
)
def touch(
    lows: Any,
    its: Any,
    memories: Any,
    begins: Any,
    words: Any,
    written: Any,
    bases: Any,
    shapes: Any,
    counts: Any,
    strides: Any,
    put: int,
) -> Any:
    """Make all words of some windows `put` if that is not 0, one window after another.

    By window the least and the greatest that was there before, 2 bits each.
    """
    found = np.zeros(len(lows), dtype=np.int64)
    for row in range(len(lows)):
        of = memories[row]
        found[row] = _touch(
            lows[row], its[row], begins[of], words[of], written, bases[of], shapes, counts, strides, put
        )
    return found


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


# --- positions --------------------------------------------------------------------------------------------------------


@compiled()
def _past(
    queue: int, iteration: int, statement: int, offsets: Any, sizes: Any, iterations: Any, statements: Any
) -> Any:
    """The place in the history of an engine of its last command up to a position; NONE before all of them."""
    begin = offsets[queue]
    low, high = 0, sizes[queue]
    while low < high:
        middle = (low + high) >> 1
        at = begin + middle
        if iterations[at] < iteration or (iterations[at] == iteration and statements[at] <= statement):
            low = middle + 1
        else:
            high = middle
    return begin + low - 1 if low else NONE


@compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1])"
)
def capture(
    target_iterations: Any,
    targets: Any,
    target_queues: Any,
    target_statements: Any,
    done: Any,
    offsets: Any,
    sizes: Any,
    iterations: Any,
    statements: Any,
    rows: Any,
    target_numbers: Any,
    is_known: Any,
    target_clocks: Any,
    clock_rows: Any,
) -> None:
    """Keep, for some positions, the last command of their engines up to each, and its clock."""
    for at in range(len(targets)):
        target = targets[at]
        queue = target_queues[target]
        place = _past(queue, target_iterations[at], target_statements[target], offsets, sizes, iterations, statements)
        is_known[target] = 1
        if place == NONE:
            target_numbers[target] = 0
            continue
        target_numbers[target] = done[queue] - (sizes[queue] - 1 - (place - offsets[queue]))
        for engine in range(clock_rows.shape[1]):
            target_clocks[target, engine] = clock_rows[rows[place], engine]


@compiled(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[:, ::1], int64)"
)
def forget(
    begins: Any,
    known: Any,
    done: Any,
    offsets: Any,
    sizes: Any,
    iterations: Any,
    statements: Any,
    rows: Any,
    clock_rows: Any,
    row_count: int,
) -> int:
    """Leave out of each engine's history what nobody waits for any more, and rows of clocks that nobody needs.

    That is all before an iteration, by engine in `begins`, and up to the number in `known`, which whoever waits for the
    engine knows to have ended. The last command stays. How many rows of clocks are left.
    """
    queues = len(sizes)
    moved = np.full(row_count, NONE)
    for queue in range(queues):
        first, size = offsets[queue], sizes[queue]
        low, high = 0, size
        while low < high:
            middle = (low + high) >> 1
            if iterations[first + middle] < begins[queue]:
                low = middle + 1
            else:
                high = middle
        low = min(size, max(low, known[queue] - (done[queue] - size)))
        gone = max(0, low - 1)
        for place in range(size - gone):
            iterations[first + place] = iterations[first + gone + place]
            statements[first + place] = statements[first + gone + place]
            rows[first + place] = rows[first + gone + place]
            moved[rows[first + place]] = 0
        sizes[queue] = size - gone
        if low:
            iterations[first], statements[first] = LONG_AGO, NONE
    kept = 0
    for row in range(row_count):
        if moved[row] != NONE:
            moved[row] = kept
            if kept != row:
                clock_rows[kept] = clock_rows[row]
            kept += 1
    for queue in range(queues):
        for place in range(offsets[queue], offsets[queue] + sizes[queue]):
            rows[place] = moved[rows[place]]
    return kept


@compiled()
def _tiles_before(
    statement: int,
    left: int,
    is_included: bool,
    run_offsets: Any,
    firsts: Any,
    steps: Any,
    run_counts: Any,
    moduli: Any,
) -> Any:
    """How many tiles of a statement come before the tile of a number (or up to it)."""
    inner = 1
    for run in range(run_offsets[statement], run_offsets[statement + 1]):
        inner *= run_counts[run]
    found = 0
    for run in range(run_offsets[statement], run_offsets[statement + 1]):
        inner //= run_counts[run]
        value = left // moduli[run]
        left -= value * moduli[run]
        if value < firsts[run]:
            return found
        place = (value - firsts[run]) // steps[run]
        if place >= run_counts[run]:
            return found + run_counts[run] * inner
        found += place * inner
        if firsts[run] + place * steps[run] != value:
            return found + inner
    if left < 0:
        return found
    return found + 1 if left > 0 or is_included else found


@compiled()
def _number_at(
    iteration: int,
    statement: int,
    part: int,
    order: Any,
    origins: Any,
    run_offsets: Any,
    firsts: Any,
    steps: Any,
    run_counts: Any,
    moduli: Any,
) -> Any:
    """How many commands the statements of a part, those of one engine and nest, make up to a position."""
    loop_offsets, loops, single_offsets, singles, single_iterations = order
    low, high = single_offsets[part], single_offsets[part + 1]
    while low < high:
        middle = (low + high) >> 1
        at = single_iterations[middle]
        if at < iteration or (at == iteration and singles[middle] <= statement):
            low = middle + 1
        else:
            high = middle
    found = low - single_offsets[part]
    for at in range(loop_offsets[part], loop_offsets[part + 1]):
        its = loops[at]
        left = iteration - origins[its]
        found += _tiles_before(its, left, its <= statement, run_offsets, firsts, steps, run_counts, moduli)
    return found


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[::1], UniTuple(int64[::1], 5))"
)
def numbers_at(iterations: Any, its: Any, parts: Any, order: Any, origins: Any, runs: Any) -> Any:
    """For positions (iteration, statement) how many commands the statements of a part make up to each.

    order, runs: columns of `Positions`.
    """
    run_offsets, firsts, steps, run_counts, moduli = runs
    found = np.zeros(len(its), dtype=np.int64)
    for row in range(len(its)):
        found[row] = _number_at(
            iterations[row], its[row], parts[row], order, origins, run_offsets, firsts, steps, run_counts, moduli
        )
    return found


# --- one iteration ----------------------------------------------------------------------------------------------------


@compiled()
def _latest_tile(
    low: int, shape: int, piece: int, pieces: Any, tiles: Any, shapes: Any, counts: Any, strides: Any
) -> Any:
    """The iteration of the last tile of a piece whose bytes meet a window, which those of all its tiles meet together.

    The last row of the shapes is scratch.
    """
    lows, piece_shapes, _, origins, _, _ = pieces
    slopes, spans, axes, leaps = tiles
    dims, runs, reaches, rows, nested = shapes
    scratch, of = len(dims) - 1, piece_shapes[piece]
    dims[scratch], runs[scratch], nested[scratch] = dims[of], runs[of], 1
    for axis in range(dims[of]):
        counts[scratch, axis], strides[scratch, axis] = counts[of, axis], strides[of, axis]
    # where all places are 0
    at, iteration = lows[piece], origins[piece]
    for counter in range(spans.shape[1]):
        at -= min(0, slopes[piece, counter] * (spans[piece, counter] - 1))
    for counter in range(spans.shape[1]):
        axis, span, slope = axes[piece, counter], spans[piece, counter], slopes[piece, counter]
        if axis == NONE:
            continue
        least, most = 0, span - 1
        while least < most:
            middle = (least + most + 1) >> 1
            counts[scratch, axis] = span - middle
            start = at + min(middle * slope, (span - 1) * slope)
            for inner in range(counter + 1, spans.shape[1]):
                start += min(0, slopes[piece, inner] * (spans[piece, inner] - 1))
            reaches[scratch], rows[scratch] = runs[scratch], 1
            for its in range(dims[scratch]):
                reaches[scratch] += (counts[scratch, its] - 1) * strides[scratch, its]
                rows[scratch] *= counts[scratch, its]
            if _meet(low, shape, start, scratch, shapes, counts, strides):
                least = middle
            else:
                most = middle - 1
        counts[scratch, axis] = 1
        at += least * slope
        iteration += least * leaps[piece, counter]
    return iteration


@compiled()
def _is_late(
    low: int,
    shape: int,
    piece: int,
    bound: int,
    pieces: Any,
    tiles: Any,
    order: Any,
    origins: Any,
    runs: Any,
    shapes: Any,
    counts: Any,
    strides: Any,
) -> Any:
    """True if a tile of a piece whose command's number is beyond `bound` meets a window."""
    lows, piece_shapes, owners, _, befores, parts = pieces
    if not _meet(low, shape, lows[piece], piece_shapes[piece], shapes, counts, strides):
        return False
    iteration = _latest_tile(low, shape, piece, pieces, tiles, shapes, counts, strides)
    run_offsets, firsts, steps, run_counts, moduli = runs
    number = befores[piece] + _number_at(
        iteration,
        owners[piece],
        parts[piece],
        order,
        origins,
        run_offsets,
        firsts,
        steps,
        run_counts,
        moduli,
    )
    return number > bound


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

    Stops at the first command that is not safe and tells in `report` which and why. `chip_order.py` has the columns.
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
                place = _past(its_queue, at, other, offsets, lengths, iterations, of_statement)
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
                        if _is_late(
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
                        state = _touch(
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
                                        is_met = _meet(low, shape, its_low, its_shape, shapes, counts, strides)
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
                                is_met = _meet(
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


# --- how long a loop stays alike --------------------------------------------------------------------------------------


@compiled()
def _alike_until(
    iteration: int,
    shift: int,
    begin: int,
    stop: int,
    groups: Any,
    runs: Any,
    group_origins: Any,
    group_columns: Any,
    turns: Any,
) -> int:
    """Up to which iteration from one on a nest's statements do the same as `shift` iterations later.

    The same statements hold, and touch the same bytes on the chip. An iteration too early is no fault: a loop over
    several counters is followed along one of them alone. groups: the space and stage of each statement; turns: by
    statement and counter after how many places the same bytes come again, 0 for never.
    """
    run_offsets, firsts, steps, run_counts, _ = runs
    extents, strides = group_columns
    found = 1 << 60
    for statement in range(begin, stop):
        group, run = groups[statement], run_offsets[statement]
        count = run_offsets[statement + 1] - run
        tile, total = iteration - group_origins[group], 1
        for counter in range(count):
            total += (extents[group, counter] - 1) * strides[group, counter]
        if tile >= total:
            continue
        if tile < 0:
            # until its first tile is near
            found = min(found, iteration + max(0, -shift - tile))
            continue
        level, left, base, holds = 0, tile, 0, True
        while level < count and (extents[group, level] == 1 or shift % strides[group, level]):
            value = 0
            if extents[group, level] > 1:
                value = left // strides[group, level]
                left -= value * strides[group, level]
                base += value * strides[group, level]
            ahead = value - firsts[run + level]
            step = steps[run + level]
            holds = holds and ahead >= 0 and ahead % step == 0 and ahead < run_counts[run + level] * step
            level += 1
        if level == count:
            # done once in the nest, now
            return iteration
        stride, extent = strides[group, level], extents[group, level]
        value, move = left // stride, shift // stride
        until = extent - move
        if until <= value:
            return iteration
        if holds:
            first, step = firsts[run + level], steps[run + level]
            last = first + step * (run_counts[run + level] - 1)
            # its next place, whether or not there is one `move` on
            place = first if value <= first else first - (first - value) // step * step
            if move % step:
                if place <= last:
                    until = min(until, place)
                begins = first - move
                ahead = begins if value <= begins else begins - (begins - value) // step * step
                if ahead <= last - move:
                    until = min(until, ahead)
            else:
                if place <= last:
                    until = min(until, max(place, last - move + step))
                ahead = first - move
                if ahead < value:
                    ahead -= (ahead - value) // step * step
                if ahead < first and ahead <= last - move:
                    until = min(until, ahead)
                turn = turns[statement, level]
                if place <= last and (turn == 0 or move // step % turn):
                    until = min(until, place)
        if until <= value:
            return iteration
        found = min(found, iteration + base + until * stride - tile)
    return found


@compiled(
    "void(int64, int64[::1], int64[::1], int64, int64, int64[::1], UniTuple(int64[::1], 5), int64[::1], "
    "UniTuple(int64[:, ::1], 2), int64[:, ::1])"
)
def look_ahead(
    iteration: int,
    shifts: Any,
    untils: Any,
    begin: int,
    stop: int,
    groups: Any,
    runs: Any,
    group_origins: Any,
    group_columns: Any,
    turns: Any,
) -> None:
    """Find again, by shift, up to which iteration a nest's statements do the same so much later, where that is past."""
    for row in range(len(shifts)):
        if untils[row] <= iteration:
            untils[row] = _alike_until(
                iteration, shifts[row], begin, stop, groups, runs, group_origins, group_columns, turns
            )
