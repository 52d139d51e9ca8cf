"""The event loop of the timed simulator, compiled to machine code (SIM-2).

Every engine runs its commands in the order of the program. A command is issued once all that it waits for has ended and
the one before it in its queue has begun to move: an engine prepares one transfer while it moves another. Then its
start-up passes, and its amount moves as soon as the engine is free. What moves at once shares the resources that it
passes max-min fair: nobody's rate can grow without that of one who has no more shrinking.

Times, rates and amounts are whole numbers (`ticks.py`), so that the same commands take the same time whenever they
begin. Ties have one order: at a tick all that ends ends first, in the order of the program; then each engine, whose
choice depends on nothing that another one does at that tick, begins what has been prepared, and issues, of its streams'
next commands that are ready, the one of least urgency, of equal ones the first in the program.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled

NONE: Final = -1
# Later than every event; more than every rate.
_NEVER: Final = np.iinfo(np.int64).max
# A quotient of whole numbers whose sum is below 2⁵³ is never rounded up to the next whole number, so that division of
# floating-point numbers, several times as fast, gives its whole part exactly.
_EXACT: Final = 1 << 52


@compiled()
def _push(times: Any, keys: Any, count: int, time: int, key: int) -> int:
    """Put an event on a heap of `count`, ordered by time and then by key; the new count."""
    place = count
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] < time or (times[parent] == time and keys[parent] <= key):
            break
        times[place], keys[place] = times[parent], keys[parent]
        place = parent
    times[place], keys[place] = time, key
    return count + 1


@compiled()
def _drop(times: Any, keys: Any, count: int) -> int:
    """Take the first event off the heap; the new count."""
    count -= 1
    time, key = times[count], keys[count]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (
            times[other] < times[child] or (times[other] == times[child] and keys[other] < keys[child])
        ):
            child = other
        if time < times[child] or (time == times[child] and key <= keys[child]):
            break
        times[place], keys[place] = times[child], keys[child]
        place = child
    times[place], keys[place] = time, key
    return count


@compiled()
def _ticks_of(rest: int, rate: int) -> int:
    """Ticks until so much has moved, rounded up: a floating-point quotient, put right in whole numbers."""
    ticks = int(rest / rate)
    while ticks * rate < rest:
        ticks += 1
    while (ticks - 1) * rate >= rest:
        ticks -= 1
    return ticks


@compiled()
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
    "Tuple((int64[::1], int64[::1], int64[::1], int64[::1]))("
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1])"
)
def run_events(
    queues: Any,
    streams: Any,
    stream_offsets: Any,
    heads: Any,
    following: Any,
    urgency: Any,
    wait_counts: Any,
    after_offsets: Any,
    after: Any,
    startups: Any,
    durations: Any,
    amounts: Any,
    shifts: Any,
    own_rates: Any,
    kinds: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> Any:
    """Per command the ticks at which it was issued, began and ended to move, and which it waited for last (or NONE).

    queues, streams: each command's engine and stream; an engine's streams are stream_offsets[q] to stream_offsets[q +
    1]. A stream keeps its order; of streams whose next command is ready an engine takes the one of least `urgency`, of
    equal ones the first in the program. heads: each stream's first command, following: the next one of the same stream
    (NONE: none). wait_counts: how many commands each waits for; after[after_offsets[c]:after_offsets[c + 1]] wait for
    command c. The rest are columns of `Demands`. Commands that never become ready end at NONE: what waits in a circle.
    """
    count, queue_count, resource_count = len(queues), len(stream_offsets) - 1, len(capacities)
    issues, begins, ends = np.full(count, NONE), np.full(count, NONE), np.full(count, NONE)
    last = np.full(count, NONE)
    open_waits, head = wait_counts.copy(), heads.copy()
    issued, active = np.full(queue_count, NONE), np.full(queue_count, NONE)
    # events of a queue: 2 q, a start-up has passed; 2 q + 1, its command ends
    times, keys = np.empty(2 * queue_count + 2, dtype=np.int64), np.empty(2 * queue_count + 2, dtype=np.int64)
    events = 0
    # who moves over shared resources: at `rates` since `since`, when `rest` was left, until `due`
    moving, moving_kinds = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    moving_own, moving_shifts = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    rest, rates = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    since, due = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    moving_count, soonest, is_new = 0, _NEVER, False
    shared, unsettled = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    possible = np.empty(queue_count, dtype=np.int64)
    left, users = np.empty(resource_count, dtype=np.int64), np.zeros(resource_count, dtype=np.int64)
    levels, used = np.empty(resource_count, dtype=np.int64), np.empty(resource_count, dtype=np.int64)
    # queues that may be able to do something
    stack, stacked, depth = np.empty(queue_count, dtype=np.int64), np.ones(queue_count, dtype=np.bool_), 0
    for queue in range(queue_count):
        stack[depth] = queue
        depth += 1
    ended = np.empty(queue_count, dtype=np.int64)
    now, done = 0, 0
    while done < count:
        while depth:
            depth -= 1
            queue = stack[depth]
            stacked[queue] = False
            again = True
            while again:
                again = False
                c = issued[queue]
                if c != NONE and active[queue] == NONE and issues[c] + startups[c] <= now:
                    issued[queue] = NONE
                    active[queue] = c
                    begins[c] = now
                    again = True
                    kind = kinds[c]
                    if offsets[kind + 1] == offsets[kind] or amounts[c] == 0:
                        events = _push(times, keys, events, now + durations[c], 2 * queue + 1)
                    else:
                        is_new = True
                        moving[moving_count], moving_kinds[moving_count] = c, kind
                        moving_own[moving_count], moving_shifts[moving_count] = own_rates[c], shifts[c]
                        rest[moving_count], rates[moving_count], since[moving_count] = amounts[c], 0, now
                        moving_count += 1
                if issued[queue] == NONE:
                    c = NONE
                    for stream in range(stream_offsets[queue], stream_offsets[queue + 1]):
                        first = head[stream]
                        if first == NONE or open_waits[first]:
                            continue
                        if c == NONE or urgency[first] < urgency[c] or (urgency[first] == urgency[c] and first < c):
                            c = first
                    if c != NONE:
                        issued[queue] = c
                        issues[c] = now
                        head[streams[c]] = following[c]
                        again = True
                        if startups[c] > 0:
                            events = _push(times, keys, events, now + startups[c], 2 * queue)
        if is_new:
            share(
                moving_kinds,
                moving_own,
                moving_count,
                shared,
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
            soonest = _NEVER
            for i in range(moving_count):
                rate = max(1, shared[i] >> moving_shifts[i])
                # at the rate that it had it ends when it would have ended
                if rate != rates[i]:
                    rest[i] -= rates[i] * (now - since[i])
                    rates[i], since[i] = rate, now
                    due[i] = now + _ticks_of(rest[i], rate)
                soonest = min(soonest, due[i])
            is_new = False
        if soonest == _NEVER and not events:
            break
        now = soonest if not events else min(soonest, times[0])
        ending = 0
        while events and times[0] == now:
            queue = keys[0] >> 1
            if keys[0] & 1:
                ended[ending] = active[queue]
                ending += 1
            elif not stacked[queue]:
                stacked[queue] = True
                stack[depth] = queue
                depth += 1
            events = _drop(times, keys, events)
        if soonest == now:
            kept, is_new = 0, True
            for i in range(moving_count):
                if due[i] == now:
                    ended[ending] = moving[i]
                    ending += 1
                elif kept == i:
                    kept += 1
                else:
                    moving[kept], moving_kinds[kept] = moving[i], moving_kinds[i]
                    moving_own[kept], moving_shifts[kept] = moving_own[i], moving_shifts[i]
                    rest[kept], rates[kept], since[kept], due[kept] = rest[i], rates[i], since[i], due[i]
                    kept += 1
            moving_count, soonest = kept, _NEVER
        for i in range(1, ending):
            c, place = ended[i], i
            while place and ended[place - 1] > c:
                ended[place] = ended[place - 1]
                place -= 1
            ended[place] = c
        for i in range(ending):
            c = ended[i]
            ends[c] = now
            done += 1
            queue = queues[c]
            active[queue] = NONE
            if not stacked[queue]:
                stacked[queue] = True
                stack[depth] = queue
                depth += 1
            for k in range(after_offsets[c], after_offsets[c + 1]):
                waiter = after[k]
                open_waits[waiter] -= 1
                if open_waits[waiter] == 0:
                    last[waiter] = c
                    other = queues[waiter]
                    if head[streams[waiter]] == waiter and not stacked[other]:
                        stacked[other] = True
                        stack[depth] = other
                        depth += 1
    return issues, begins, ends, last


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
    places = np.full(len(kinds), NONE)
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


@compiled("int64[::1](int64[::1], int64[::1], int64[::1], int64[::1])")
def longest_to_end(durations: Any, wait_offsets: Any, waits: Any, following: Any) -> Any:
    """Per command the longest way from its begin to the end, in ticks: through what waits for it, and what follows.

    Commands wait for earlier ones only; `following` is the next one of the same stream (NONE: none). durations: ticks.
    """
    count = len(durations)
    found = np.zeros(count, dtype=np.int64)
    for i in range(count):
        c = count - 1 - i
        after = following[c]
        longest = durations[c] + max(found[c], found[after] if after != NONE else 0)
        found[c] = longest
        for k in range(wait_offsets[c], wait_offsets[c + 1]):
            found[waits[k]] = max(found[waits[k]], longest)
    return found
