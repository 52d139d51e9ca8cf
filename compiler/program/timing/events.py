"""The event loop of the timed simulator, compiled to machine code (SIM-2).

Every engine runs its commands in the order of the program. A command is issued once all that it waits for has ended and
the one before it in its queue has begun to move: an engine prepares one transfer while it moves another. Then its
start-up passes, and its amount moves as soon as the engine is free. What moves at once shares the resources that it
passes max-min fair: nobody's rate can grow without that of one who has no more shrinking.

Times, rates and amounts are whole numbers (`ticks.py`), so that the same commands take the same time whenever they
begin. Ties have one order: at a tick all that ends ends first, in the order of the program; then each engine, whose
choice depends on nothing that another one does at that tick, begins what has been prepared, and issues, of its streams'
next commands that are ready, the one of least urgency, of equal ones the first in the program.

Programs loop; one without loops is one iteration. What repeats is jumped over (`loops/time_recurrence.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled, types_of
from compiler.program.loops.time_recurrence import States, enter_iteration
from compiler.program.loops.walk import NEVER, NONE, Cursors, Walk, advance
from compiler.program.timing.engine_state import (
    BEHIND,
    BOUNDARY,
    COMMANDS,
    DEPTH,
    EPOCH,
    EVENTS,
    FILLED,
    HAS_BEGUN,
    IS_NEW,
    KEPT,
    MOVING,
    NOW,
    SOONEST,
    Engines,
    Loads,
    look,
)
from compiler.program.timing.heap import drop, push
from compiler.program.timing.shares import share, ticks_until
from compiler.program.timing.ticks import Ints

# Numbers of a row.
ROW: Final = 5


@compiled(allocates=False)
def _begin(walk: Any, cursors: Any, engines: Any) -> None:
    """Let all streams have their first commands as heads."""
    clock = engines.clock
    clock[HAS_BEGUN], clock[EPOCH] = 1, 0
    for stream in range(len(engines.queues)):
        advance(walk, cursors, stream)
        cursors.progress[stream] = cursors.heads[stream]
    for stream in range(len(engines.queues)):
        look(walk, cursors, engines, stream)
    for queue in range(len(engines.issued)):
        engines.stack[queue], engines.stacked[queue] = queue, True
    clock[DEPTH] = len(engines.issued)


@compiled(allocates=False)
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
                    section = loads.sections[c]
                    engines.section_begins[section] = min(engines.section_begins[section], now)
                    if loads.startups[c] > 0:
                        time = now + loads.startups[c]
                        clock[EVENTS] = push(engines.times, engines.keys, 0, clock[EVENTS], time, 2 * queue)
                    advance(walk, cursors, chosen)
                    engines.last_ends[chosen] = NONE
                    look(walk, cursors, engines, chosen)
    clock[DEPTH] = 0


@compiled(allocates=False)
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
    soonest = NEVER
    for i in range(count):
        rate = max(1, engines.shared[i] >> engines.moving_shifts[i])
        # at the rate that it had it ends when it would have ended
        if rate != engines.rates[i]:
            engines.rest[i] -= engines.rates[i] * (now - engines.since[i])
            engines.rates[i], engines.since[i] = rate, now
            engines.due[i] = now + ticks_until(engines.rest[i], rate)
        soonest = min(soonest, engines.due[i])
    clock[SOONEST], clock[IS_NEW] = soonest, 0


@compiled(allocates=False)
def _stack(engines: Any, queue: int) -> None:
    if not engines.stacked[queue]:
        engines.stacked[queue] = True
        engines.stack[engines.clock[DEPTH]] = queue
        engines.clock[DEPTH] += 1


@compiled(allocates=False)
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
        clock[MOVING], clock[SOONEST], clock[IS_NEW] = kept, NEVER, 1
    for i in range(1, ending):
        queue, place = engines.ended[i], i
        while place and engines.active_positions[engines.ended[place - 1]] > engines.active_positions[queue]:
            engines.ended[place] = engines.ended[place - 1]
            place -= 1
        engines.ended[place] = queue
    return ending


@compiled(allocates=False)
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
            look(walk, cursors, engines, waiter)
            if not engines.blocked[waiter]:
                engines.last_ends[waiter] = position
                _stack(engines, engines.queues[waiter])
        waiter = following


@compiled(types_of(Walk, Cursors, Loads, Engines, States, Ints), allocates=False)
def run_events(walk: Any, cursors: Any, loads: Any, engines: Any, states: Any, rows: Any) -> bool:
    """Run all commands; False: `rows` are full, and it has to be called again.

    Commands that never become ready are left: what waits in a circle. rows: empty, or room for at least as many rows as
    there are queues; for every command, in the order of their ends, ROW numbers: its position, the ticks at which it
    was issued, began and ended to move, and the position of what it waited for last when it was the next of its stream
    (NONE: it did not wait). `clock[FILLED]` rows are filled; who calls again has read them. Who jumps writes no rows.
    """
    clock = engines.clock
    clock[FILLED] = 0
    room = len(rows) // ROW
    if not clock[HAS_BEGUN]:
        _begin(walk, cursors, engines)
    while True:
        _go_on(walk, cursors, loads, engines)
        if clock[BEHIND] == 0 and len(states.times):
            enter_iteration(walk, cursors, loads, engines, states)
        if clock[IS_NEW]:
            _share_anew(loads, engines)
        if clock[SOONEST] == NEVER and not clock[EVENTS]:
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
