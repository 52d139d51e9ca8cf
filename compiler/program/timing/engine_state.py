"""What the event loop knows of engines: it can stop and go on, and compare that with what it was before (SIM-2)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from compiler.machine_code import compiled
from compiler.program.loops.walk import NEVER, NONE
from compiler.program.timing.ticks import Flags, Ints

# Single numbers of the event loop: the tick; how many events wait, how many commands move; when the first of these
# ends; whether who moves has changed; how many queues are on the stack; commands that have ended; rows that are filled;
# whether it has begun. The slowest stream's iteration: the nest, the position behind it, how many streams have not left
# it; how many states were kept; the first that may equal later ones; the statement that last ended what is alike; how
# many statements were looked at for jumps.
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
LOOKED: Final = 15
_CLOCK: Final = 16


class Loads(NamedTuple):
    """What statements take: columns of `Demands`, and by statement its urgency and the number of its section.

    A *section* is a part of the program whose begin and end are asked for.
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
    are queues whose commands move over shared resources, at `rates` since `since`, when `rest` was left, until `due`.
    shared to used: scratch. stack: queues that may be able to do something. By stream: whether its head is blocked, and
    then until which target is passed, which is counted from its own position or not (`target_moves`), and the next one
    that waits for the same stream; `watchers`: the first one that waits for it; `last_ends`: the position of what its
    head waited for last. `busy`: ticks of finished commands. `section_begins`: when
    the first command of each section was issued (NEVER: none was); `section_ends`: the last end of each.
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
    section_begins: Ints
    section_ends: Ints


def engines_of(queue_of_stream: Ints, queue_count: int, resource_count: int, section_count: int) -> Engines:
    """The engines of a chip before they begin; streams are in the order of their queues."""

    def numbers(count: int, value: int = 0) -> Ints:
        return np.full(count, value, dtype=np.int64)

    streams, queues = len(queue_of_stream), queue_count
    clock = numbers(_CLOCK)
    clock[SOONEST] = NEVER
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
        section_begins=numbers(section_count, NEVER),
        section_ends=numbers(section_count),
    )


@compiled(allocates=False)
def look(walk: Any, cursors: Any, engines: Any, stream: int) -> None:
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
