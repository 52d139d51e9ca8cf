"""The event loop of the timed simulator, compiled to machine code (SIM-2).

Every engine runs its commands in the order of the program. A command is issued once all that it waits for has ended and
the one before it in its queue has begun to move: an engine prepares one transfer while it moves another. Then its
start-up passes, and its amount moves as soon as the engine is free. What moves at once shares the resources that it
passes max-min fair: nobody's rate can grow without that of one who has no more shrinking.

Times, rates and amounts are whole numbers (`ticks.py`), so that the same commands take the same time whenever they
begin. Ties have one order: at a tick all that ends ends first, in the order of the program; then each engine, whose
choice depends on nothing that another one does at that tick, begins what has been prepared, and issues, of its streams'
next commands that are ready, the one of least urgency, of equal ones the first in the program.

Programs loop; one without loops is one iteration. When the slowest stream enters an iteration, the state relative to it
is compared with earlier ones (PROG-6). Where it is that of an earlier iteration, and the iterations that follow hold the
same statements as those one period before, all repeats: then time goes on behind them at once. A stream that waits for
something far off is in the same state where it has not moved at all; it says how far the others may go.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from compiler.machine_code import compiled, types_of
from compiler.program.loops.loops import MAX_COUNTERS
from compiler.program.loops.walk import NEVER, NONE, Cursors, Walk, advance, alike_in_nest, move_on
from compiler.program.timing.heap import drop, push
from compiler.program.timing.ticks import Flags, Ints

# Numbers of a row.
ROW: Final = 5
# Single numbers of the event loop: the tick; how many events wait, how many move; when the first of these ends; whether
# who moves has changed; how many queues are on the stack; commands that have ended; rows that are filled; whether it has
# begun. The slowest stream's iteration: the nest, the position behind it, how many streams have not left it; how many
# states were kept; the first that may be equal to others; the statement that last ended what is alike.
NOW: Final = 0
EVENTS: Final = 1
MOVING: Final = 2
SOONEST: Final = 3
IS_NEW: Final = 4
DEPTH: Final = 5
COMMANDS: Final = 6
FILLED: Final = 7
HAS_BEGUN: Final = 8
NEST: Final = 9
BOUNDARY: Final = 10
BEHIND: Final = 11
KEPT: Final = 12
EPOCH: Final = 13
SUSPECT: Final = 14
_CLOCK: Final = 15
# Numbers of what a queue has in flight: the position of what it prepares and for how long it has been; the position of
# what moves, and for how long it has, or what is left of it where it shares resources. NONE where there is nothing.
IN_FLIGHT: Final = 4
STATES_BYTES: Final = 1 << 24
# Of how many earlier iterations in the same state the period is tried.
_CANDIDATES: Final = 64
# FNV's, for digests of 64 bits.
_PRIME: Final = 1099511628211
# Later than every event; more than every rate.
_NEVER: Final = np.iinfo(np.int64).max
# A quotient of whole numbers whose sum is below 2⁵³ is never rounded up to the next whole number, so that division of
# floating-point numbers, several times as fast, gives its whole part exactly.
_EXACT: Final = 1 << 52


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


class Loads(NamedTuple):
    """What statements take: columns of `Demands`, and by statement its urgency and the number of its section.

    A *section* is a part of the program whose end is asked for.
    """

    startups: Ints
    durations: Ints
    amounts: Ints
    shifts: Ints
    rates: Ints
    kinds: Ints
    offsets: Ints
    resources: Ints
    weights: Ints
    capacities: Ints
    urgency: Ints
    sections: Ints


class Engines(NamedTuple):
    """All that the event loop knows, so that it can stop and go on; numbers of the chip are by queue.

    `clock`: single numbers, see NOW to FILLED. Stream t is one of queue `queues[t]`, which has the streams
    `stream_offsets[q]` to `stream_offsets[q + 1]`. issued, active: statements that are prepared and that move (NONE:
    none), with their positions, when they were issued and begun, and the position that each waited for last.

    Events of a queue: 2 q, a start-up has passed; 2 q + 1, its command ends. moving to due: the first `clock[MOVING]`
    are the queues whose commands move over shared resources, at `rates` since `since`, when `rest` was left, until `due`.
    stack: queues that may be able to do something. By stream: whether its head is blocked, and then by which target,
    which is counted from its own position or not, and the next one that waits for the same stream; `watchers`: the first
    one that waits for it. `busy`: ticks of finished commands. `section_ends`: the last end of each section.
    """

    clock: Ints
    queues: Ints
    stream_offsets: Ints
    issued: Ints
    issued_positions: Ints
    issued_at: Ints
    issued_last: Ints
    active: Ints
    active_positions: Ints
    active_issued: Ints
    active_begun: Ints
    active_last: Ints
    times: Ints
    keys: Ints
    moving: Ints
    moving_kinds: Ints
    moving_own: Ints
    moving_shifts: Ints
    rest: Ints
    rates: Ints
    since: Ints
    due: Ints
    shared: Ints
    unsettled: Ints
    possible: Ints
    left: Ints
    users: Ints
    levels: Ints
    used: Ints
    stack: Ints
    stacked: Flags
    ended: Ints
    blocked: Flags
    targets: Ints
    target_moves: Flags
    watchers: Ints
    next_watchers: Ints
    last_ends: Ints
    busy: Ints
    section_ends: Ints


class States(NamedTuple):
    """States at which the slowest stream entered an iteration, the latest `len(times)` of them; none: no jumps.

    A state's number is how many were kept before it; it lies at that number modulo how many are kept. Of each: the tick,
    the iteration, the heads of all streams, of all queues what is in flight (`IN_FLIGHT` numbers) and `busy`. `buckets`
    and `links` are a hash table of states that may be equal. By nest: iterations that were jumped over, and the one of
    the nest at which the first jump was made (NONE: none).
    """

    times: Ints
    iterations: Ints
    heads: Ints
    in_flight: Ints
    busy: Ints
    buckets: Ints
    links: Ints
    jumped: Ints
    first_jumps: Ints
    here: Ints
    there: Ints


def engines_of(queue_of_stream: Ints, queue_count: int, resource_count: int, section_count: int) -> Engines:
    """The engines of a chip before they begin; streams are in the order of their queues."""

    def numbers(count: int, value: int = 0) -> Ints:
        return np.full(count, value, dtype=np.int64)

    streams, queues = len(queue_of_stream), queue_count
    clock = numbers(_CLOCK)
    clock[SOONEST] = _NEVER
    return Engines(
        clock=clock,
        queues=queue_of_stream,
        stream_offsets=np.searchsorted(queue_of_stream, np.arange(queues + 1)).astype(np.int64),
        issued=numbers(queues, NONE),
        issued_positions=numbers(queues),
        issued_at=numbers(queues),
        issued_last=numbers(queues),
        active=numbers(queues, NONE),
        active_positions=numbers(queues),
        active_issued=numbers(queues),
        active_begun=numbers(queues),
        active_last=numbers(queues),
        times=numbers(2 * queues + 2),
        keys=numbers(2 * queues + 2),
        moving=numbers(queues),
        moving_kinds=numbers(queues),
        moving_own=numbers(queues),
        moving_shifts=numbers(queues),
        rest=numbers(queues),
        rates=numbers(queues),
        since=numbers(queues),
        due=numbers(queues),
        shared=numbers(queues),
        unsettled=numbers(queues),
        possible=numbers(queues),
        left=numbers(resource_count),
        users=numbers(resource_count),
        levels=numbers(resource_count),
        used=numbers(resource_count),
        stack=numbers(queues),
        stacked=np.zeros(queues, dtype=np.bool_),
        ended=numbers(queues),
        blocked=np.zeros(streams, dtype=np.bool_),
        targets=numbers(streams),
        target_moves=np.zeros(streams, dtype=np.bool_),
        watchers=numbers(streams, NONE),
        next_watchers=numbers(streams, NONE),
        last_ends=numbers(streams, NONE),
        busy=numbers(queues),
        section_ends=numbers(section_count),
    )


def states_of(walk: Walk, queue_count: int, *, jumps: bool) -> States:
    """Room for as many states as STATES_BYTES hold, none if `jumps` is not asked for."""
    streams, nests = len(walk.listed_offsets) - 1, len(walk.nest_statements) - 1
    size = streams + (IN_FLIGHT + 1) * queue_count + 4
    longest = int((walk.nest_offsets[1::2] - walk.nest_offsets[::2]).max(initial=0)) // max(1, walk.statements)
    # a jump needs an iteration, one like it, and one more to jump over
    count = min(STATES_BYTES // (8 * size), longest) if jumps and longest > 2 else 0
    return States(
        times=np.zeros(count, dtype=np.int64),
        iterations=np.zeros(count, dtype=np.int64),
        heads=np.zeros(count * streams, dtype=np.int64),
        in_flight=np.zeros(count * queue_count * IN_FLIGHT, dtype=np.int64),
        busy=np.zeros(count * queue_count, dtype=np.int64),
        buckets=np.full(1 << count.bit_length(), NONE, dtype=np.int64),
        links=np.zeros(count, dtype=np.int64),
        jumped=np.zeros(nests, dtype=np.int64),
        first_jumps=np.full(nests, NONE, dtype=np.int64),
        here=np.zeros(MAX_COUNTERS, dtype=np.int64),
        there=np.zeros(MAX_COUNTERS, dtype=np.int64),
    )


@compiled()
def _look(walk: Any, cursors: Any, engines: Any, stream: int) -> None:
    """Let a stream's head wait for the first of its waits that has not ended, if there is one."""
    statement = cursors.head_statements[stream]
    engines.blocked[stream] = False
    if statement == NONE:
        return
    for k in range(walk.wait_offsets[statement], walk.wait_offsets[statement + 1]):
        other, target = walk.wait_streams[k], walk.wait_targets[k]
        if walk.wait_moves[k]:
            target += cursors.heads[stream]
        if cursors.progress[other] <= target:
            engines.blocked[stream] = True
            engines.targets[stream] = target
            engines.target_moves[stream] = walk.wait_moves[k]
            engines.next_watchers[stream] = engines.watchers[other]
            engines.watchers[other] = stream
            return


@compiled()
def _begin(walk: Any, cursors: Any, engines: Any) -> None:
    """Let all streams have their first commands as heads."""
    clock = engines.clock
    clock[HAS_BEGUN], clock[EPOCH] = 1, 0
    for stream in range(len(engines.queues)):
        advance(walk, cursors, stream)
        cursors.progress[stream] = cursors.heads[stream]
    for stream in range(len(engines.queues)):
        _look(walk, cursors, engines, stream)
    for queue in range(len(engines.issued)):
        engines.stack[queue], engines.stacked[queue] = queue, True
    clock[DEPTH] = len(engines.issued)


@compiled()
def _go_on(walk: Any, cursors: Any, loads: Any, engines: Any) -> None:
    """Let the engines on the stack begin what is prepared, and issue what is ready."""
    clock = engines.clock
    now, depth = clock[NOW], clock[DEPTH]
    while depth:
        depth -= 1
        queue = engines.stack[depth]
        engines.stacked[queue] = False
        again = True
        while again:
            again = False
            c = engines.issued[queue]
            if c != NONE and engines.active[queue] == NONE and engines.issued_at[queue] + loads.startups[c] <= now:
                engines.issued[queue], engines.active[queue] = NONE, c
                engines.active_positions[queue] = engines.issued_positions[queue]
                engines.active_issued[queue], engines.active_begun[queue] = engines.issued_at[queue], now
                engines.active_last[queue] = engines.issued_last[queue]
                again = True
                kind = loads.kinds[c]
                if loads.offsets[kind + 1] == loads.offsets[kind] or loads.amounts[c] == 0:
                    time = now + loads.durations[c]
                    clock[EVENTS] = push(engines.times, engines.keys, 0, clock[EVENTS], time, 2 * queue + 1)
                else:
                    at = clock[MOVING]
                    engines.moving[at], engines.moving_kinds[at] = queue, kind
                    engines.moving_own[at], engines.moving_shifts[at] = loads.rates[c], loads.shifts[c]
                    engines.rest[at], engines.rates[at], engines.since[at] = loads.amounts[c], 0, now
                    clock[MOVING], clock[IS_NEW] = at + 1, 1
            if engines.issued[queue] == NONE:
                chosen, c = NONE, NONE
                for stream in range(engines.stream_offsets[queue], engines.stream_offsets[queue + 1]):
                    first = cursors.head_statements[stream]
                    if first == NONE or engines.blocked[stream]:
                        continue
                    if (
                        chosen == NONE
                        or loads.urgency[first] < loads.urgency[c]
                        or (loads.urgency[first] == loads.urgency[c] and cursors.heads[stream] < cursors.heads[chosen])
                    ):
                        chosen, c = stream, first
                if chosen != NONE:
                    again = True
                    engines.issued[queue], engines.issued_positions[queue] = c, cursors.heads[chosen]
                    engines.issued_at[queue], engines.issued_last[queue] = now, engines.last_ends[chosen]
                    if loads.startups[c] > 0:
                        time = now + loads.startups[c]
                        clock[EVENTS] = push(engines.times, engines.keys, 0, clock[EVENTS], time, 2 * queue)
                    advance(walk, cursors, chosen)
                    engines.last_ends[chosen] = NONE
                    _look(walk, cursors, engines, chosen)
    clock[DEPTH] = 0


@compiled()
def _share_anew(loads: Any, engines: Any) -> None:
    """Share the resources among those who move now, and say when each of them ends."""
    clock = engines.clock
    now, count = clock[NOW], clock[MOVING]
    share(
        engines.moving_kinds,
        engines.moving_own,
        count,
        engines.shared,
        loads.offsets,
        loads.resources,
        loads.weights,
        loads.capacities,
        engines.left,
        engines.users,
        engines.levels,
        engines.used,
        engines.unsettled,
        engines.possible,
    )
    soonest = _NEVER
    for i in range(count):
        rate = max(1, engines.shared[i] >> engines.moving_shifts[i])
        # at the rate that it had it ends when it would have ended
        if rate != engines.rates[i]:
            engines.rest[i] -= engines.rates[i] * (now - engines.since[i])
            engines.rates[i], engines.since[i] = rate, now
            engines.due[i] = now + _ticks_of(engines.rest[i], rate)
        soonest = min(soonest, engines.due[i])
    clock[SOONEST], clock[IS_NEW] = soonest, 0


@compiled()
def _stack(engines: Any, queue: int) -> None:
    if not engines.stacked[queue]:
        engines.stacked[queue] = True
        engines.stack[engines.clock[DEPTH]] = queue
        engines.clock[DEPTH] += 1


@compiled()
def _ending(engines: Any) -> int:
    """How many queues' commands end now; they are `ended`, in the order of the program."""
    clock, ending = engines.clock, 0
    now, events = clock[NOW], clock[EVENTS]
    while events and engines.times[0] == now:
        queue = engines.keys[0] >> 1
        if engines.keys[0] & 1:
            engines.ended[ending] = queue
            ending += 1
        else:
            _stack(engines, queue)
        events = drop(engines.times, engines.keys, 0, events)
    clock[EVENTS] = events
    if clock[SOONEST] == now:
        kept = 0
        for i in range(clock[MOVING]):
            if engines.due[i] == now:
                engines.ended[ending] = engines.moving[i]
                ending += 1
                continue
            if kept != i:
                engines.moving[kept], engines.moving_kinds[kept] = engines.moving[i], engines.moving_kinds[i]
                engines.moving_own[kept], engines.moving_shifts[kept] = engines.moving_own[i], engines.moving_shifts[i]
                engines.rest[kept], engines.rates[kept] = engines.rest[i], engines.rates[i]
                engines.since[kept], engines.due[kept] = engines.since[i], engines.due[i]
            kept += 1
        clock[MOVING], clock[SOONEST], clock[IS_NEW] = kept, _NEVER, 1
    for i in range(1, ending):
        queue, place = engines.ended[i], i
        while place and engines.active_positions[engines.ended[place - 1]] > engines.active_positions[queue]:
            engines.ended[place] = engines.ended[place - 1]
            place -= 1
        engines.ended[place] = queue
    return ending


@compiled()
def _end(walk: Any, cursors: Any, loads: Any, engines: Any, queue: int) -> None:
    """End an engine's command, and let go on who waited for it."""
    clock, c, position = engines.clock, engines.active[queue], engines.active_positions[queue]
    stream = walk.streams[c]
    engines.active[queue] = NONE
    engines.busy[queue] += clock[NOW] - engines.active_begun[queue]
    engines.section_ends[loads.sections[c]] = clock[NOW]
    clock[COMMANDS] += 1
    _stack(engines, queue)
    first = cursors.heads[stream]
    if engines.issued[queue] != NONE and walk.streams[engines.issued[queue]] == stream:
        first = engines.issued_positions[queue]
    cursors.progress[stream] = first
    if position < clock[BOUNDARY] <= first:
        clock[BEHIND] -= 1
    waiter = engines.watchers[stream]
    engines.watchers[stream] = NONE
    while waiter != NONE:
        following = engines.next_watchers[waiter]
        if engines.targets[waiter] >= first:
            engines.next_watchers[waiter], engines.watchers[stream] = engines.watchers[stream], waiter
        else:
            if not engines.target_moves[waiter]:
                # what is done once has decided something: nothing before is like what comes
                clock[EPOCH] = clock[KEPT]
            _look(walk, cursors, engines, waiter)
            if not engines.blocked[waiter]:
                engines.last_ends[waiter] = position
                _stack(engines, engines.queues[waiter])
        waiter = following


@compiled()
def _enter_iteration(walk: Any, cursors: Any, loads: Any, engines: Any, states: Any) -> None:
    """The slowest stream has entered an iteration: jump if the state was met before, and keep it."""
    clock, size = engines.clock, walk.statements
    least = _NEVER
    for stream in range(len(engines.queues)):
        least = min(least, cursors.progress[stream])
    if least == _NEVER:
        clock[BEHIND] = NONE
        return
    while walk.nest_offsets[2 * clock[NEST] + 1] <= least:
        clock[NEST] += 1
        clock[EPOCH] = clock[KEPT]
    iteration = least // size
    boundary, behind = (iteration + 1) * size, 0
    for stream in range(len(engines.queues)):
        behind += cursors.progress[stream] < boundary
    clock[BOUNDARY], clock[BEHIND] = boundary, behind
    number, kept = clock[KEPT], len(states.times)
    bucket = _write_state(cursors, loads, engines, states, number % kept, iteration)
    shift, before = _farthest(walk, cursors, engines, states, iteration, states.buckets[bucket])
    states.links[number % kept], states.buckets[bucket] = states.buckets[bucket], number
    clock[KEPT] = number + 1
    if shift:
        _jump(walk, cursors, engines, states, shift, before)


@compiled()
def _write_state(cursors: Any, loads: Any, engines: Any, states: Any, slot: int, iteration: int) -> int:
    """Keep the present state; its bucket, which tells statements and what is left of them, but no iterations."""
    clock, streams, queues = engines.clock, len(engines.queues), len(engines.issued)
    now, digest = clock[NOW], 0
    states.times[slot], states.iterations[slot] = now, iteration
    for stream in range(streams):
        states.heads[slot * streams + stream] = cursors.heads[stream]
        digest = (digest ^ cursors.head_statements[stream]) * _PRIME
    first = slot * queues * IN_FLIGHT
    for queue in range(queues):
        at = first + queue * IN_FLIGHT
        for k in range(IN_FLIGHT):
            states.in_flight[at + k] = NONE
        states.busy[slot * queues + queue] = engines.busy[queue]
        c = engines.issued[queue]
        if c != NONE:
            states.in_flight[at] = engines.issued_positions[queue]
            states.in_flight[at + 1] = min(loads.startups[c], now - engines.issued_at[queue])
        if engines.active[queue] != NONE:
            passed = now - engines.active_begun[queue]
            states.in_flight[at + 2], states.in_flight[at + 3] = engines.active_positions[queue], passed
            states.busy[slot * queues + queue] += passed
    for i in range(clock[MOVING]):
        # of what shares resources, the time since it began does not tell what is left
        rest = engines.rest[i] - engines.rates[i] * (now - engines.since[i])
        states.in_flight[first + engines.moving[i] * IN_FLIGHT + 3] = rest
    for at in range(first, first + queues * IN_FLIGHT, 2):
        digest = (digest ^ states.in_flight[at + 1]) * _PRIME
    return (digest ^ (digest >> 32)) & (len(states.buckets) - 1)


@compiled()
def _ahead(walk: Any, cursors: Any, engines: Any, states: Any, nest: int, slot: int, before: int, shift: int) -> int:
    """One past the last position that moving streams have as heads, if a state is `shift` positions before the present.

    NONE if it is not: then some stream has neither moved so far nor stood still, or has something else in flight.
    """
    streams, queues = len(engines.queues), len(engines.issued)
    found = 0
    for stream in range(streams):
        head, then = cursors.heads[stream], states.heads[before * streams + stream]
        if head == then:
            continue
        if head - then != shift or head >= walk.nest_offsets[2 * nest + 1]:
            return NONE
        found = max(found, head + 1)
    for queue in range(queues):
        at, then = (slot * queues + queue) * IN_FLIGHT, (before * queues + queue) * IN_FLIGHT
        for k in range(0, IN_FLIGHT, 2):
            position = states.in_flight[at + k]
            moved = 0 if position == NONE else shift
            if position - states.in_flight[then + k] != moved:
                return NONE
            if states.in_flight[at + k + 1] != states.in_flight[then + k + 1]:
                return NONE
    return found if found else NONE


@compiled()
def _standing(walk: Any, cursors: Any, engines: Any, states: Any, nest: int, before: int, ahead: int) -> int:
    """How many positions moving streams may go on so that all that stand still since a state go on standing.

    They stand as long as one of the streams that they wait for is not far enough; and nobody who moves may come so far
    as to wait for them.
    """
    streams, found = len(engines.queues), _NEVER
    for stream in range(streams):
        head = cursors.heads[stream]
        if head == NEVER or head != states.heads[before * streams + stream]:
            continue
        if head < walk.nest_offsets[2 * nest + 1]:
            found = min(found, head - ahead)
        room, c = 0, cursors.head_statements[stream]
        for k in range(walk.wait_offsets[c], walk.wait_offsets[c + 1]):
            other, target = walk.wait_streams[k], walk.wait_targets[k]
            if walk.wait_moves[k]:
                target += head
            if cursors.progress[other] <= target:
                stands = cursors.heads[other] == states.heads[before * streams + other]
                room = max(room, _NEVER if stands else target - cursors.progress[other])
        found = min(found, room)
    return found


@compiled()
def _farthest(walk: Any, cursors: Any, engines: Any, states: Any, iteration: int, number: int) -> Any:
    """Over how many iterations all does what it did since an earlier state, and the slot of that state; 0: over none.

    number: the last state that may be equal to the present one. From an earlier iteration on as many have to hold the
    same statements as those one period later as are jumped over, and so many more as streams are ahead.
    """
    clock, size, nest = engines.clock, walk.statements, engines.clock[NEST]
    kept = len(states.times)
    best, best_slot = 0, 0
    tried = 0
    while number >= max(clock[EPOCH], clock[KEPT] - kept + 1) and tried < _CANDIDATES:
        slot = number % kept
        begin = states.iterations[slot] * size
        shift = iteration * size - begin
        ahead = _ahead(walk, cursors, engines, states, nest, clock[KEPT] % kept, slot, shift)
        if ahead != NONE:
            tried += 1
            room = _standing(walk, cursors, engines, states, nest, slot, ahead) // size
            # the first iteration behind those that moving streams have looked at
            beyond = (ahead - 1) // size + 1 - iteration
            period = iteration - states.iterations[slot]
            if room // period * period > best:
                least = begin + (beyond + max(period, best + 1)) * size
                until, clock[SUSPECT] = alike_in_nest(
                    walk, nest, begin, shift, least, clock[SUSPECT], states.here, states.there
                )
                alike = until // size - states.iterations[slot]
                count = min((alike - beyond) // period, room // period)
                if count * period > best:
                    best, best_slot = count * period, slot
        number = states.links[slot]
    return best, best_slot


@compiled()
def _jump(walk: Any, cursors: Any, engines: Any, states: Any, iterations: int, before: int) -> None:
    """Go on behind so many iterations, which repeat those since an earlier state."""
    clock, size, streams = engines.clock, walk.statements, len(engines.queues)
    slot = (clock[KEPT] - 1) % len(states.times)
    begin = states.times[before]
    count = iterations // (states.iterations[slot] - states.iterations[before])
    ticks, shift = count * (clock[NOW] - begin), iterations * size
    nest_begin = walk.nest_offsets[2 * clock[NEST]]
    for stream in range(streams):
        head = cursors.heads[stream]
        if head != states.heads[before * streams + stream]:
            move_on(walk, cursors, stream, head + shift, nest_begin)
            cursors.progress[stream] += shift
    for queue in range(len(engines.issued)):
        engines.issued_positions[queue] += shift
        engines.active_positions[queue] += shift
        engines.issued_at[queue] += ticks
        engines.active_issued[queue] += ticks
        engines.active_begun[queue] += ticks
        at = slot * len(engines.issued) + queue
        engines.busy[queue] += count * (states.busy[at] - states.busy[before * len(engines.issued) + queue])
    for event in range(clock[EVENTS]):
        engines.times[event] += ticks
    for i in range(clock[MOVING]):
        engines.since[i] += ticks
        engines.due[i] += ticks
    for section in range(len(engines.section_ends)):
        if engines.section_ends[section] > begin:
            engines.section_ends[section] += ticks
    clock[NOW] += ticks
    clock[BOUNDARY] += shift
    if clock[SOONEST] != _NEVER:
        clock[SOONEST] += ticks
    for stream in range(streams):
        engines.watchers[stream] = NONE
    for stream in range(streams):
        _look(walk, cursors, engines, stream)
    if states.first_jumps[clock[NEST]] == NONE:
        states.first_jumps[clock[NEST]] = states.iterations[slot] - nest_begin // size
    states.jumped[clock[NEST]] += iterations


@compiled(types_of(Walk, Cursors, Loads, Engines, States, Ints))
def run_events(walk: Any, cursors: Any, loads: Any, engines: Any, states: Any, rows: Any) -> bool:
    """Run all commands; False: `rows` are full, and it has to be called again.

    Commands that never become ready are left: what waits in a circle. rows: empty, or room for at least as many rows as
    there are queues; for every command, in the order of their ends, ROW numbers: its position, the ticks at which it was
    issued, began and ended to move, and the position of what it waited for last when it was the next of its stream (NONE:
    it did not wait). `clock[FILLED]` rows are filled; who calls again has read them. Who jumps writes no rows.
    """
    clock = engines.clock
    clock[FILLED] = 0
    room = len(rows) // ROW
    if not clock[HAS_BEGUN]:
        _begin(walk, cursors, engines)
    while True:
        _go_on(walk, cursors, loads, engines)
        if clock[BEHIND] == 0 and len(states.times):
            _enter_iteration(walk, cursors, loads, engines, states)
        if clock[IS_NEW]:
            _share_anew(loads, engines)
        if clock[SOONEST] == _NEVER and not clock[EVENTS]:
            return True
        if room and clock[FILLED] + len(engines.issued) > room:
            return False
        clock[NOW] = clock[SOONEST] if not clock[EVENTS] else min(clock[SOONEST], engines.times[0])
        for i in range(_ending(engines)):
            queue = engines.ended[i]
            if room:
                at = clock[FILLED] * ROW
                rows[at] = engines.active_positions[queue]
                rows[at + 1], rows[at + 2] = engines.active_issued[queue], engines.active_begun[queue]
                rows[at + 3], rows[at + 4] = clock[NOW], engines.active_last[queue]
                clock[FILLED] += 1
            _end(walk, cursors, loads, engines, queue)


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
