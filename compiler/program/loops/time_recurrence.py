"""Jumps over iterations that repeat earlier ones (PROG-6).

When the slowest stream enters an iteration, the state relative to it is compared with earlier ones. Where it is that of
an earlier iteration, and the iterations that follow hold the same statements as those one period before, all repeats:
then time goes on behind them at once. A stream that waits for something far off is in the same state where it has not
moved at all; it says how far the others may go.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from compiler.machine_code import compiled
from compiler.program.loops.loops import MAX_COUNTERS
from compiler.program.loops.walk import NEVER, NONE, Walk, alike_in_nest, move_on
from compiler.program.timing.engine_state import (
    BEHIND,
    BOUNDARY,
    COMMANDS,
    EPOCH,
    EVENTS,
    KEPT,
    LOOKED,
    MOVING,
    NEST,
    NOW,
    SOONEST,
    SUSPECT,
    look,
)
from compiler.program.timing.ticks import Ints

# Numbers of what a queue has in flight: the position of what it prepares and for how long it has been; the position of
# what moves, and for how long it has, or what is left of it where it shares resources. NONE where there is nothing.
IN_FLIGHT: Final = 4
STATES_BYTES: Final = 1 << 24
# Of how many earlier iterations in the same state the period is tried.
_CANDIDATES: Final = 64
# How many statements are looked at in the time of a command: 70 and 140 ns, measured on MC-CNN (N-6). Looks take no
# longer than commands do: of MC-CNN on cluster4x4 those that led to no jump took 16 times as long.
_STATEMENTS: Final = 2
# FNV's, for digests of 64 bits.
_PRIME: Final = 1099511628211


class States(NamedTuple):
    """States at which the slowest stream entered an iteration, the latest `len(times)` of them; none: no jumps.

    A state's number is how many were kept before it; it lies at that number modulo how many are kept. Of each: the
    tick, the iteration, the commands that have ended, the heads of all streams, of all queues what is in flight
    (`IN_FLIGHT` numbers) and `busy`, with what the command that moves has taken so far. `buckets` and `links` are a
    hash table of states that may be equal. By nest `jumped`: iterations that were jumped over. here, there: scratch.
    """

    times: Ints
    iterations: Ints
    commands: Ints
    heads: Ints
    in_flight: Ints
    busy: Ints
    buckets: Ints
    links: Ints
    jumped: Ints
    here: Ints
    there: Ints


def states_of(walk: Walk, queue_count: int, *, jumps: bool) -> States:
    """Room for as many states as STATES_BYTES hold, none if `jumps` is not asked for."""
    streams, nests = len(walk.listed_offsets) - 1, len(walk.nest_statements) - 1
    size = streams + (IN_FLIGHT + 1) * queue_count + 5
    longest = int((walk.nest_offsets[1::2] - walk.nest_offsets[::2]).max(initial=0)) // max(1, walk.statements)
    # a jump needs an iteration, one like it, and one more to jump over
    count = min(STATES_BYTES // (8 * size), longest) if jumps and longest > 2 else 0
    return States(
        times=np.zeros(count, dtype=np.int64),
        iterations=np.zeros(count, dtype=np.int64),
        commands=np.zeros(count, dtype=np.int64),
        heads=np.zeros(count * streams, dtype=np.int64),
        in_flight=np.zeros(count * queue_count * IN_FLIGHT, dtype=np.int64),
        busy=np.zeros(count * queue_count, dtype=np.int64),
        buckets=np.full(1 << count.bit_length(), NONE, dtype=np.int64),
        links=np.zeros(count, dtype=np.int64),
        jumped=np.zeros(nests, dtype=np.int64),
        here=np.zeros(MAX_COUNTERS, dtype=np.int64),
        there=np.zeros(MAX_COUNTERS, dtype=np.int64),
    )


@compiled(allocates=False)
def enter_iteration(walk: Any, cursors: Any, loads: Any, engines: Any, states: Any) -> None:
    """The slowest stream has entered an iteration: jump if the state was met before, and keep it."""
    clock, size = engines.clock, walk.statements
    least = NEVER
    for stream in range(len(engines.queues)):
        least = min(least, cursors.progress[stream])
    if least == NEVER:
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


@compiled(allocates=False)
def _write_state(cursors: Any, loads: Any, engines: Any, states: Any, slot: int, iteration: int) -> int:
    """Keep the present state; its bucket, which tells statements and what is left of them, but no iterations."""
    clock, streams, queues = engines.clock, len(engines.queues), len(engines.issued)
    now, digest = clock[NOW], 0
    states.times[slot], states.iterations[slot], states.commands[slot] = now, iteration, clock[COMMANDS]
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


@compiled(allocates=False)
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


@compiled(allocates=False)
def _standing(walk: Any, cursors: Any, engines: Any, states: Any, nest: int, before: int, ahead: int) -> int:
    """How many positions moving streams may go on so that all that stand still since a state go on standing.

    They stand as long as one of the streams that they wait for is not far enough; and nobody who moves may come so far
    as to wait for them.
    """
    streams, found = len(engines.queues), NEVER
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
                room = max(room, NEVER if stands else target - cursors.progress[other])
        found = min(found, room)
    return found


@compiled(allocates=False)
def _farthest(walk: Any, cursors: Any, engines: Any, states: Any, iteration: int, number: int) -> Any:
    """Over how many iterations all does what it did since an earlier state, and the slot of that state; 0: over none.

    number: the last state that may be equal to the present one. From an earlier iteration on as many have to hold the
    same statements as those one period later as are jumped over, and so many more as streams are ahead.
    """
    clock, size, nest = engines.clock, walk.statements, engines.clock[NEST]
    kept = len(states.times)
    best, best_slot = 0, 0
    tried = 0
    while (
        number >= max(clock[EPOCH], clock[KEPT] - kept + 1)
        and tried < _CANDIDATES
        and clock[LOOKED] <= _STATEMENTS * clock[COMMANDS]
    ):
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
            # a jump looks at all statements of the nest; that has to take less time than the commands that it saves
            statements = walk.nest_statements[nest + 1] - walk.nest_statements[nest]
            worth = statements * period // (_STATEMENTS * max(1, clock[COMMANDS] - states.commands[slot]))
            wanted = max(period, best + 1, worth)
            if room // period * period >= wanted:
                least = begin + (beyond + wanted) * size
                until, clock[SUSPECT], asked = alike_in_nest(
                    walk, nest, begin, shift, least, clock[SUSPECT], states.here, states.there
                )
                clock[LOOKED] += asked
                alike = until // size - states.iterations[slot]
                count = min((alike - beyond) // period, room // period)
                if count * period >= wanted:
                    best, best_slot = count * period, slot
        number = states.links[slot]
    return best, best_slot


@compiled(allocates=False)
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
    if clock[SOONEST] != NEVER:
        clock[SOONEST] += ticks
    for stream in range(streams):
        engines.watchers[stream] = NONE
    for stream in range(streams):
        look(walk, cursors, engines, stream)
    states.jumped[clock[NEST]] += iterations
