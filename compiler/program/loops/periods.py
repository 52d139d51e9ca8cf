"""How long a loop does the same a period later, in machine code: the same statements hold, and touch the same bytes."""

from __future__ import annotations

from typing import Any, Final

from compiler.machine_code import compiled

# Iterations, and rows of each inner loop, after which a state is looked for again: lowering pads rings to periods of at
# most four tiles. Where a program has longer ones, its iterations are judged one by one.
PERIODS: Final = (1, 2, 3, 4)


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
