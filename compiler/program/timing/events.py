"""The event loop of the timed simulator, compiled to machine code (SIM-2).

Every engine runs its commands in the order of the program. A command is issued once all that it waits for has ended and
the one before it in its queue has begun to move: an engine prepares one transfer while it moves another. Then its
start-up passes, and its amount moves as soon as the engine is free. What moves at once shares the resources that it
passes max-min fair: nobody's rate can grow without that of one who has no more shrinking. Times are cycles, as
floating-point numbers; all functions are deterministic to the bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled

NONE: Final = -1
# Rates that differ by no more than this, relatively, are equal; so are times.
_ROUNDING: Final = 1e-9
_SAME_TIME: Final = 1e-12


@compiled()
def _push(times: Any, keys: Any, count: int, time: float, key: int) -> int:
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
) -> None:
    """Max-min fair rates of `count` who move: who can have least is settled first, then the others share the rest."""
    for i in range(count):
        for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
            left[resources[k]] = capacities[resources[k]]
            users[resources[k]] = 0.0
    for i in range(count):
        for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
            users[resources[k]] += weights[k]
    possible, unsettled, open_count = np.empty(count), np.arange(count), count
    while open_count:
        least = np.inf
        for j in range(open_count):
            # its own rate, or its even part of what is left of a resource
            i = unsettled[j]
            rate = own[i]
            for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
                rate = min(rate, left[resources[k]] / users[resources[k]])
            possible[j] = rate
            least = min(least, rate)
        limit, kept = least * (1 + _ROUNDING), 0
        for j in range(open_count):
            i = unsettled[j]
            if possible[j] > limit:
                unsettled[kept] = i
                kept += 1
                continue
            rates[i] = least
            for k in range(offsets[kinds[i]], offsets[kinds[i] + 1]):
                number = resources[k]
                left[number] = max(0.0, left[number] - least * weights[k])
                users[number] -= weights[k]
        open_count = kept


@compiled(
    "Tuple((float64[::1], float64[::1], float64[::1], int64[::1]))("
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], int64[::1], int64[::1], int64[::1], "
    "float64[::1], float64[::1], float64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1])"
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
    amounts: Any,
    own_rates: Any,
    kinds: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> Any:
    """Per command when it was issued, when it began and ended to move, and which it waited for last (NONE: none).

    queues, streams: each command's engine and stream; an engine's streams are stream_offsets[q] to stream_offsets[q +
    1]. A stream keeps its order; of streams whose next command is ready an engine takes the one of least `urgency`, of
    equal ones the first in the program. heads: each stream's first command, following: the next one of the same stream
    (NONE: none). wait_counts: how many commands each waits for; after[after_offsets[c]:after_offsets[c + 1]] wait for
    command c. The rest are columns of `Demands`. Commands that never become ready keep no end: what waits in a circle.
    """
    count, queue_count = len(queues), len(stream_offsets) - 1
    issues, begins, ends = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)
    last = np.full(count, NONE, dtype=np.int64)
    open_waits, head = wait_counts.copy(), heads.copy()
    issued = np.full(queue_count, NONE, dtype=np.int64)
    active = np.full(queue_count, NONE, dtype=np.int64)
    # events of a queue: 2 q, a start-up has passed; 2 q + 1, its command ends
    times, keys, events = np.empty(2 * queue_count + 2), np.empty(2 * queue_count + 2, dtype=np.int64), 0
    # who moves over shared resources
    moving, moving_kinds = np.empty(queue_count, dtype=np.int64), np.empty(queue_count, dtype=np.int64)
    moving_own, rest, rates, moving_count = np.empty(queue_count), np.empty(queue_count), np.empty(queue_count), 0
    due, left, users = np.empty(queue_count), np.empty(len(capacities)), np.empty(len(capacities))
    since, soonest, is_new = 0.0, np.inf, False
    # queues that may be able to do something
    stack, stacked, depth = np.empty(queue_count, dtype=np.int64), np.ones(queue_count, dtype=np.bool_), 0
    for queue in range(queue_count):
        stack[depth] = queue
        depth += 1
    ended = np.empty(queue_count, dtype=np.int64)
    now, done = 0.0, 0
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
                    if offsets[kind + 1] == offsets[kind] or amounts[c] == 0.0:
                        events = _push(times, keys, events, now + amounts[c] / own_rates[c], 2 * queue + 1)
                    else:
                        if not is_new:
                            for i in range(moving_count):
                                rest[i] -= rates[i] * (now - since)
                            since, is_new = now, True
                        moving[moving_count], moving_kinds[moving_count] = c, kind
                        moving_own[moving_count], rest[moving_count] = own_rates[c], amounts[c]
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
                        if startups[c] > 0.0:
                            events = _push(times, keys, events, now + startups[c], 2 * queue)
        if is_new:
            share(moving_kinds, moving_own, moving_count, rates, offsets, resources, weights, capacities, left, users)
            soonest = np.inf
            for i in range(moving_count):
                due[i] = now + max(0.0, rest[i]) / rates[i]
                soonest = min(soonest, due[i])
            is_new = False
        if soonest == np.inf and not events:
            break
        now = soonest if not events else min(soonest, times[0])
        ending = 0
        while events and times[0] <= now:
            queue = keys[0] >> 1
            if keys[0] & 1:
                ended[ending] = active[queue]
                ending += 1
            elif not stacked[queue]:
                stacked[queue] = True
                stack[depth] = queue
                depth += 1
            events = _drop(times, keys, events)
        if soonest <= now:
            kept = 0
            for i in range(moving_count):
                # told by time: what is left of an amount late in a long program may be all rounding
                if due[i] <= now * (1 + _SAME_TIME):
                    ended[ending] = moving[i]
                    ending += 1
                else:
                    moving[kept], moving_kinds[kept], moving_own[kept] = moving[i], moving_kinds[i], moving_own[i]
                    rest[kept], rates[kept] = rest[i] - rates[i] * (now - since), rates[i]
                    kept += 1
            moving_count, since, is_new = kept, now, True
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
    "float64[:, ::1](float64[::1], int64[::1], float64, int64, int64, "
    "int64[::1], float64[::1], int64[::1], int64[::1], float64[::1], float64[::1])"
)
def run_flows(
    times: Any,
    events: Any,
    slice_cycles: float,
    slice_count: int,
    engines: int,
    kinds: Any,
    own_rates: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> Any:
    """Amounts through each resource in each slice; shape (resources, slices).

    The event loop keeps when moves begin and end, not how fast they were in between. Between two such times the rates
    are the max-min fair shares of those who move, so that the same function gives them again.

    times, events: ascending; event 2 c + 1 says that command c begins to move, 2 c that it has ended, which is later.
    `engines`: how many may move at once. The rest are columns of `Demands`.
    """
    flows = np.zeros((len(capacities), slice_count))
    places = np.full(len(kinds), NONE, dtype=np.int64)
    moving, moving_kinds = np.empty(engines, dtype=np.int64), np.empty(engines, dtype=np.int64)
    moving_own, rates, count = np.empty(engines), np.empty(engines), 0
    left, users = np.empty(len(capacities)), np.empty(len(capacities))
    i = 0
    while i < len(times):
        now = times[i]
        while i < len(times) and times[i] == now:
            c = events[i] >> 1
            if events[i] & 1:
                places[c], moving[count], moving_kinds[count], moving_own[count] = count, c, kinds[c], own_rates[c]
                count += 1
            else:
                place, count = places[c], count - 1
                moving[place], moving_kinds[place] = moving[count], moving_kinds[count]
                moving_own[place] = moving_own[count]
                places[moving[place]] = place
            i += 1
        if i == len(times) or not count:
            continue
        share(moving_kinds, moving_own, count, rates, offsets, resources, weights, capacities, left, users)
        first = min(slice_count - 1, int(now / slice_cycles))
        last = min(slice_count - 1, int(times[i] / slice_cycles))
        for number in range(first, last + 1):
            begin, end = max(now, number * slice_cycles), times[i]
            if number < last:
                end = min(end, (number + 1) * slice_cycles)
            for j in range(count):
                for k in range(offsets[moving_kinds[j]], offsets[moving_kinds[j] + 1]):
                    flows[resources[k], number] += rates[j] * weights[k] * max(0.0, end - begin)
    return flows


@compiled("float64[::1](float64[::1], int64[::1], int64[::1], int64[::1])")
def longest_to_end(durations: Any, wait_offsets: Any, waits: Any, following: Any) -> Any:
    """Per command the longest way from its begin to the end: through what waits for it, and what follows in its stream.

    Commands wait for earlier ones only; `following` is the next one of the same stream (NONE: none).
    """
    count = len(durations)
    found = np.zeros(count)
    for i in range(count):
        c = count - 1 - i
        after = following[c]
        longest = durations[c] + max(found[c], found[after] if after != NONE else 0.0)
        found[c] = longest
        for k in range(wait_offsets[c], wait_offsets[c + 1]):
            found[waits[k]] = max(found[waits[k]], longest)
    return found
