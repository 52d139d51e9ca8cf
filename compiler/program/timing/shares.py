"""How those who move at one time share the resources that they pass: max-min fair, in whole numbers (SIM-2).

Nobody's rate can grow without that of one who has no more shrinking.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba
import numpy as np

from compiler.machine_code import compiled, types_of
from compiler.program.timing.ticks import Ints

_NONE: Final = -1
# More than every rate.
_NEVER: Final = np.iinfo(np.int64).max
# A quotient of whole numbers whose sum is below 2⁵³ is never rounded up to the next whole number, so that division of
# floating-point numbers, several times as fast, gives its whole part exactly.
_EXACT: Final = 1 << 52


@compiled(allocates=False)
def ticks_until(rest: int, rate: int) -> int:
    """Ticks until so much has moved, rounded up: a floating-point quotient, put right in whole numbers."""
    ticks = int(rest / rate)
    while ticks * rate < rest:
        ticks += 1
    while (ticks - 1) * rate >= rest:
        ticks -= 1
    return ticks


@compiled(allocates=False)
def share(
    kinds: Any,
    own: Any,
    count: int,
    rates: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
    left: Any,
    users: Any,
    levels: Any,
    used: Any,
    unsettled: Any,
    possible: Any,
) -> None:
    """Max-min fair `rates` of `count` who move, in steps; whoever is bounded by its own rate is settled first.

    A resource's level is the even part of what is left of it, rounded down; levels never fall as movers are settled at
    no more than them. So all whose own rate is within the levels of their resources have it; if there are none, those
    with the least level have that. The order of the movers makes no difference. left to possible: scratch, of as many
    elements as there are resources (the first four) and movers; `users` is zero before and after.
    """
    used_count = 0
    for i in range(count):
        unsettled[i] = i
        for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
            number = resources[k]
            if users[number] == 0:
                used[used_count], left[number] = number, capacities[number]
                used_count += 1
            users[number] += weights[k]
    open_count = count
    while open_count:
        kept = 0
        for j in range(used_count):
            number = used[j]
            if users[number]:
                used[kept] = number
                kept += 1
                if left[number] < _EXACT:
                    levels[number] = max(1, int(left[number] / users[number]))
                else:
                    levels[number] = max(1, left[number] // users[number])
        used_count, least, kept = kept, _NEVER, 0
        for j in range(open_count):
            i = unsettled[j]
            level = _NEVER
            for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
                level = min(level, levels[resources[k]])
            if own[i] > level:
                unsettled[kept], possible[kept] = i, level
                kept += 1
                least = min(least, level)
                continue
            rates[i] = own[i]
            for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
                left[resources[k]] = max(0, left[resources[k]] - own[i] * weights[k])
                users[resources[k]] -= weights[k]
        if kept == open_count:
            kept = 0
            for j in range(open_count):
                i = unsettled[j]
                if possible[j] > least:
                    unsettled[kept] = i
                    kept += 1
                    continue
                rates[i] = least
                for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
                    left[resources[k]] = max(0, left[resources[k]] - least * weights[k])
                    users[resources[k]] -= weights[k]
        open_count = kept


class Flows(NamedTuple):
    """What `run_flows` knows between two calls. By queue: its place among those that move. The first `clock[COUNT]`
    of `queues` move commands of the statements `moving` since `clock[SINCE]`, of kinds `moving_kinds`, with their own
    rates `moving_own`; `rest` is left of them. rates to users: scratch.
    """

    clock: Ints
    places: Ints
    queues: Ints
    moving: Ints
    moving_kinds: Ints
    moving_own: Ints
    rest: Ints
    rates: Ints
    unsettled: Ints
    possible: Ints
    left: Ints
    levels: Ints
    used: Ints
    users: Ints


# Numbers of `Flows.clock`.
SINCE: Final = 0
COUNT: Final = 1


def flows_of(queues: int, resources: int) -> Flows:
    """Nothing moves yet."""

    def zeros(count: int) -> Ints:
        return np.zeros(count, dtype=np.int64)

    return Flows(
        clock=zeros(2),
        places=np.full(queues, _NONE),
        queues=zeros(queues),
        moving=zeros(queues),
        moving_kinds=zeros(queues),
        moving_own=zeros(queues),
        rest=zeros(queues),
        rates=zeros(queues),
        unsettled=zeros(queues),
        possible=zeros(queues),
        left=zeros(resources),
        levels=zeros(resources),
        used=zeros(resources),
        users=zeros(resources),
    )


@compiled(
    (*types_of(*[Ints] * 3, Flows), numba.float64[:, ::1], numba.float64, *types_of(*[Ints] * 8)),
    allocates=False,
)
def run_flows(
    times: Any,
    events: Any,
    statements: Any,
    state: Any,
    flows: Any,
    slice_ticks: float,
    amounts: Any,
    shifts: Any,
    kinds: Any,
    own_rates: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> None:
    """Add to `flows` grains times weight through each resource in each slice; shape (resources, slices).

    Who observes the event loop sees when moves begin and end, not how fast they were in between. Between two such times
    the rates are the max-min fair shares of those who move, so that the same function gives them again. The last part
    of a move is what is left of it.

    times, events, statements: the next events, ascending; event 2 q + 1 says that the statement's command begins to
    move on queue q, 2 q that it has ended, which is later. The rest are columns of `Demands`.
    """
    slice_count = flows.shape[1]
    since, count = state.clock[SINCE], state.clock[COUNT]
    i = 0
    while i < len(times):
        now = times[i]
        if count and now > since:
            share(
                state.moving_kinds,
                state.moving_own,
                count,
                state.rates,
                offsets,
                resources,
                weights,
                capacities,
                state.left,
                state.users,
                state.levels,
                state.used,
                state.unsettled,
                state.possible,
            )
            first = min(slice_count - 1, int(since / slice_ticks))
            last = min(slice_count - 1, int(now / slice_ticks))
            for j in range(count):
                shift = shifts[state.moving[j]]
                moved = min(state.rest[j], max(1, state.rates[j] >> shift) * (now - since))
                state.rest[j] -= moved
                per_tick = moved * 2.0**shift / (now - since)
                for number in range(first, last + 1):
                    begin, end = max(float(since), number * slice_ticks), float(now)
                    if number < last:
                        end = min(end, (number + 1) * slice_ticks)
                    passed = per_tick * max(0.0, end - begin)
                    for k in range(offsets[state.moving_kinds[j]], offsets[state.moving_kinds[j] + 1]):
                        flows[resources[k], number] += passed * weights[k]
        while i < len(times) and times[i] == now:
            queue, c = events[i] >> 1, statements[i]
            if events[i] & 1:
                state.places[queue] = count
                state.moving[count], state.moving_kinds[count] = c, kinds[c]
                state.moving_own[count], state.rest[count] = own_rates[c], amounts[c]
                state.queues[count] = queue
                count += 1
            else:
                place, count = state.places[queue], count - 1
                state.moving[place], state.moving_kinds[place] = state.moving[count], state.moving_kinds[count]
                state.moving_own[place], state.rest[place] = state.moving_own[count], state.rest[count]
                state.queues[place] = state.queues[count]
                state.places[state.queues[place]] = place
            i += 1
        since = now
    state.clock[SINCE], state.clock[COUNT] = since, count
