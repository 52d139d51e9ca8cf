"""How those who move at one time share the resources that they pass: max-min fair, in whole numbers (SIM-2).

Nobody's rate can grow without that of one who has no more shrinking.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled

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


@compiled(
    "float64[:, ::1](int64[::1], int64[::1], float64, int64, int64, int64[::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])"
)
def run_flows(
    times: Any,
    events: Any,
    slice_ticks: float,
    slice_count: int,
    engines: int,
    amounts: Any,
    shifts: Any,
    kinds: Any,
    own_rates: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> Any:
    """Grains times weight through each resource in each slice; shape (resources, slices).

    The event loop keeps when moves begin and end, not how fast they were in between. Between two such times the rates
    are the max-min fair shares of those who move, so that the same function gives them again. The last part of a move
    is what is left of it.

    times, events: ascending; event 2 c + 1 says that command c begins to move, 2 c that it has ended, which is later.
    `engines`: how many may move at once. The rest are columns of `Demands`.
    """
    resource_count = len(capacities)
    flows = np.zeros((resource_count, slice_count))
    places = np.full(len(kinds), _NONE)
    moving, moving_kinds = np.empty(engines, dtype=np.int64), np.empty(engines, dtype=np.int64)
    moving_own, rest, rates = np.empty((3, engines), dtype=np.int64)
    unsettled, possible = np.empty((2, engines), dtype=np.int64)
    left, levels, used = np.empty((3, resource_count), dtype=np.int64)
    users = np.zeros(resource_count, dtype=np.int64)
    i = count = 0
    while i < len(times):
        now = times[i]
        while i < len(times) and times[i] == now:
            c = events[i] >> 1
            if events[i] & 1:
                places[c], moving[count], moving_kinds[count] = count, c, kinds[c]
                moving_own[count], rest[count] = own_rates[c], amounts[c]
                count += 1
            else:
                place, count = places[c], count - 1
                moving[place], moving_kinds[place] = moving[count], moving_kinds[count]
                moving_own[place], rest[place] = moving_own[count], rest[count]
                places[moving[place]] = place
            i += 1
        if i == len(times) or not count:
            continue
        share(
            moving_kinds,
            moving_own,
            count,
            rates,
            offsets,
            resources,
            weights,
            capacities,
            left,
            users,
            levels,
            used,
            unsettled,
            possible,
        )
        until = times[i]
        first = min(slice_count - 1, int(now / slice_ticks))
        last = min(slice_count - 1, int(until / slice_ticks))
        for j in range(count):
            shift = shifts[moving[j]]
            moved = min(rest[j], max(1, rates[j] >> shift) * (until - now))
            rest[j] -= moved
            per_tick = moved * 2.0**shift / (until - now)
            for number in range(first, last + 1):
                begin, end = max(float(now), number * slice_ticks), float(until)
                if number < last:
                    end = min(end, (number + 1) * slice_ticks)
                passed = per_tick * max(0.0, end - begin)
                for k in range(offsets[moving_kinds[j]], offsets[moving_kinds[j] + 1]):
                    flows[resources[k], number] += passed * weights[k]
    return flows
