"""How engines go through a program: their next commands, where they wait, and how long that repeats (PROG-6).

A *position* numbers what a program may do: iteration x statements + statement. Iterations are counted through all
nests, and before each nest as many are left out as it has, so that "d iterations before" never names one of the nest
before. Positions ascend as an engine works; a program has no more of them than 2⁶², or LimitError is raised.

A *stream* keeps its order: usually it is an engine. The commands of a stream are found without listing tiles: each
statement steps through its own tiles, and a heap of those that have begun gives the next of all. What has one tile only
never enters the heap, so that a program without loops is gone through in linear time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from compiler.errors import LimitError
from compiler.machine_code import compiled
from compiler.program.loops.loops import Loops
from compiler.program.program import Program
from compiler.program.timing.heap import drop, push, replace_first
from compiler.program.timing.ticks import Flags, Ints

NONE: Final = -1
# Behind all positions.
NEVER: Final = np.iinfo(np.int64).max
MAX_POSITIONS: Final = 1 << 62


class Walk(NamedTuple):
    """What is walked. By statement: its nest, its stream, the positions of its first and of its last tile, and that
    which it would have where all counters are 0 (`origins`).

    Of statement s, `run_offsets[s]` to `run_offsets[s + 1]` are its runs: `run_firsts`, `run_steps` and `run_counts`
    are values of the counter, `run_strides` iterations from one value to the next; `run_leaps` are positions from one
    tile to the next if that run goes on and all behind it begin anew. `listed[listed_offsets[t]:listed_offsets[t + 1]]`
    are the statements of stream t by first position. For each w in `wait_offsets[s]` to `wait_offsets[s + 1]` statement
    s waits until stream `wait_streams[w]` has gone past position `wait_targets[w]`; if `wait_moves[w]`, that is counted
    from its own position. Nest n has the positions `nest_offsets[2 n]` to `nest_offsets[2 n + 1]` and the statements
    `nest_statements[n]` to `nest_statements[n + 1]`.
    """

    statements: int
    nests: Ints
    streams: Ints
    firsts: Ints
    lasts: Ints
    origins: Ints
    run_offsets: Ints
    run_firsts: Ints
    run_steps: Ints
    run_counts: Ints
    run_strides: Ints
    run_leaps: Ints
    listed_offsets: Ints
    listed: Ints
    heap_offsets: Ints
    wait_offsets: Ints
    wait_streams: Ints
    wait_targets: Ints
    wait_moves: Flags
    nest_offsets: Ints
    nest_statements: Ints


class Cursors(NamedTuple):
    """Where streams are. By stream: position and statement of its next command (`heads`, `head_statements`), the first
    position that has not ended (`progress`), which of its listed statements comes next, its heap of statements that
    have begun; by run the place in it of its statement's next tile.
    """

    heads: Ints
    head_statements: Ints
    progress: Ints
    following: Ints
    heap_counts: Ints
    heap_positions: Ints
    heap_statements: Ints
    places: Ints


def instances_of(loops: Loops) -> Ints:
    """For how many tiles each statement holds."""
    counts = loops.runs["count"].astype(np.int64)
    found: Ints = np.ones(len(loops.statements), dtype=np.int64)
    np.multiply.at(found, _owners(loops.run_offsets), counts)
    return found


def walk_of(program: Program, streams: Ints, stream_count: int) -> Walk:
    """The walk of a program whose statements are in these streams.

    Raises LimitError for more positions than are counted.
    """
    loops = program.loops
    count = len(loops.statements)
    spaces = loops.statements["space"].astype(np.int64)
    nests = loops.spaces["nest"].astype(np.int64)[spaces]
    run_offsets = loops.run_offsets.astype(np.int64)
    owners = _owners(run_offsets)
    steps, counts = loops.runs["step"].astype(np.int64), loops.runs["count"].astype(np.int64)
    run_firsts = loops.runs["first"].astype(np.int64)
    strides = loops.spaces["strides"][spaces[owners], np.arange(len(owners)) - run_offsets[owners]]
    # iterations of tiles, counted in the nest
    origins = loops.spaces["base"][spaces] - loops.statements["stage"]
    firsts, spans = origins.copy(), (counts - 1) * steps * strides
    np.add.at(firsts, owners, run_firsts * strides)
    lasts = firsts.copy()
    np.add.at(lasts, owners, spans)
    offsets, shifts, lengths = _nests(nests, firsts, lasts)
    if offsets[-1:].sum() * float(count) > MAX_POSITIONS:
        raise LimitError(
            "the program has more iterations than can be simulated",
            stage="simulate",
            actual=f"{offsets[-1]:.3g} iterations of {count} statements",
            limit=f"{MAX_POSITIONS:.3g} iterations times statements",
        )
    numbers = np.arange(count, dtype=np.int64)
    origins, firsts, lasts = ((its + shifts[nests]) * count + numbers for its in (origins, firsts, lasts))
    behind = np.append(0, np.cumsum(spans))
    listed = np.lexsort((firsts, streams))
    loop_counts = np.bincount(streams[lasts > firsts], minlength=stream_count)
    wait_streams, targets, moves = _waits(program, nests, streams, firsts, lasts, lengths)
    return Walk(
        statements=count,
        nests=nests,
        streams=streams,
        firsts=firsts,
        lasts=lasts,
        origins=origins,
        run_offsets=run_offsets,
        run_firsts=run_firsts,
        run_steps=steps,
        run_counts=counts,
        run_strides=strides,
        run_leaps=(steps * strides - (behind[run_offsets[1:]][owners] - behind[1:])) * count,
        listed_offsets=_offsets(np.bincount(streams[listed], minlength=stream_count)),
        listed=listed,
        heap_offsets=_offsets(loop_counts),
        wait_offsets=program.wait_offsets.astype(np.int64),
        wait_streams=wait_streams,
        wait_targets=targets,
        wait_moves=moves,
        nest_offsets=offsets * count,
        nest_statements=_offsets(np.bincount(nests, minlength=len(shifts))),
    )


def cursors_of(walk: Walk) -> Cursors:
    """The cursors of streams that have not begun."""
    streams, size = len(walk.listed_offsets) - 1, int(walk.heap_offsets[-1])
    return Cursors(
        heads=np.full(streams, NEVER),
        head_statements=np.full(streams, NONE),
        progress=np.full(streams, NEVER),
        following=walk.listed_offsets[:-1].copy(),
        heap_counts=np.zeros(streams, dtype=np.int64),
        heap_positions=np.zeros(size, dtype=np.int64),
        heap_statements=np.zeros(size, dtype=np.int64),
        places=np.zeros(len(walk.run_firsts), dtype=np.int64),
    )


def _owners(offsets: Ints) -> Ints:
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def _offsets(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts)).astype(np.int64)


def _nests(nests: Ints, firsts: Ints, lasts: Ints) -> tuple[Ints, Ints, Ints]:
    """Where each nest's iterations begin and end, what to add to those counted in the nest, and how many each has."""
    count = int(nests.max(initial=-1)) + 1
    low, high = np.full(count, NEVER), np.full(count, -NEVER)
    np.minimum.at(low, nests, firsts)
    np.maximum.at(high, nests, lasts)
    is_empty = low > high
    low[is_empty], high[is_empty] = 0, -1
    lengths = high - low + 1
    begins = 2 * np.cumsum(lengths) - lengths
    return np.stack([begins, begins + lengths], axis=1).reshape(-1), begins - low, lengths


def _waits(
    program: Program, nests: Ints, streams: Ints, firsts: Ints, lasts: Ints, lengths: Ints
) -> tuple[Ints, Ints, Flags]:
    """By wait its stream, its target, and whether that is from its own position."""
    loops, count = program.loops, len(nests)
    owners, waits = _owners(program.wait_offsets), program.waits.astype(np.int64)
    # from so far back on all that a nest has lies ahead
    distances = np.minimum(loops.distances, lengths[nests[waits]]) * count
    has_counters = loops.spaces["counters"][loops.statements["space"]][waits] > 0
    inside = nests[owners] == nests[waits]
    moves = inside & has_counters
    targets = np.where(moves, waits - owners - distances, np.where(inside, firsts[waits], lasts[waits] - distances))
    return streams[waits], targets, moves


# --- machine code -----------------------------------------------------------------------------------------------------


@compiled(allocates=False)
def next_tile(walk: Any, places: Any, base: int, statement: int, position: int) -> Any:
    """Move a statement's places, from `base` on, to its next tile; its position, or NEVER behind the last."""
    first, end = walk.run_offsets[statement], walk.run_offsets[statement + 1]
    for run in range(end - 1, first - 1, -1):
        at = base + run - first
        if places[at] + 1 < walk.run_counts[run]:
            places[at] += 1
            return position + walk.run_leaps[run]
        places[at] = 0
    return NEVER


@compiled(allocates=False)
def seek(walk: Any, places: Any, base: int, statement: int, position: int) -> Any:
    """Move a statement's places, from `base` on, to its first tile from a position on; its position, or NEVER."""
    first, end = walk.run_offsets[statement], walk.run_offsets[statement + 1]
    # iterations from where all counters are 0
    rest = -((walk.origins[statement] - position) // walk.statements)
    for run in range(first, end):
        places[base + run - first] = 0
    run, carries = first, False
    while run < end:
        value = rest // walk.run_strides[run] if rest > 0 else 0
        place = max(0, -((walk.run_firsts[run] - value) // walk.run_steps[run]))
        if place >= walk.run_counts[run]:
            carries = True
            break
        places[base + run - first] = place
        rest -= (walk.run_firsts[run] + place * walk.run_steps[run]) * walk.run_strides[run]
        run += 1
        if walk.run_firsts[run - 1] + place * walk.run_steps[run - 1] > value:
            # it is behind the position whatever the inner counters are
            run = end
    if carries or rest > 0:
        run -= 1
        while run >= first and places[base + run - first] + 1 >= walk.run_counts[run]:
            places[base + run - first] = 0
            run -= 1
        if run < first:
            return NEVER
        places[base + run - first] += 1
    found = walk.origins[statement]
    for run in range(first, end):
        value = walk.run_firsts[run] + places[base + run - first] * walk.run_steps[run]
        found += value * walk.run_strides[run] * walk.statements
    return found


@compiled(allocates=False)
def advance(walk: Any, cursors: Any, stream: int) -> None:
    """Make a stream's next command its head; NEVER and NONE behind the last."""
    base, count = walk.heap_offsets[stream], cursors.heap_counts[stream]
    at = cursors.following[stream]
    statement, position = NONE, NEVER
    if at < walk.listed_offsets[stream + 1]:
        statement = walk.listed[at]
        position = walk.firsts[statement]
    if count and cursors.heap_positions[base] < position:
        statement, position = cursors.heap_statements[base], cursors.heap_positions[base]
        after = next_tile(walk, cursors.places, walk.run_offsets[statement], statement, position)
        if after == NEVER:
            cursors.heap_counts[stream] = drop(cursors.heap_positions, cursors.heap_statements, base, count)
        else:
            replace_first(cursors.heap_positions, cursors.heap_statements, base, count, after, statement)
    elif statement != NONE:
        cursors.following[stream] += 1
        after = next_tile(walk, cursors.places, walk.run_offsets[statement], statement, position)
        if after != NEVER:
            cursors.heap_counts[stream] = push(
                cursors.heap_positions, cursors.heap_statements, base, count, after, statement
            )
    cursors.heads[stream], cursors.head_statements[stream] = position, statement


@compiled(allocates=False)
def move_on(walk: Any, cursors: Any, stream: int, position: int, nest_begin: int) -> None:
    """Make the stream's first command from a position of the same nest on its head."""
    base, count = walk.heap_offsets[stream], 0
    at = cursors.following[stream]
    while at > walk.listed_offsets[stream] and walk.firsts[walk.listed[at - 1]] >= nest_begin:
        at -= 1
    while at < walk.listed_offsets[stream + 1] and walk.firsts[walk.listed[at]] < position:
        statement = walk.listed[at]
        its = seek(walk, cursors.places, walk.run_offsets[statement], statement, position)
        if its != NEVER:
            count = push(cursors.heap_positions, cursors.heap_statements, base, count, its, statement)
        at += 1
    cursors.following[stream], cursors.heap_counts[stream] = at, count
    advance(walk, cursors, stream)


@compiled(allocates=False)
def alike_until(walk: Any, statement: int, position: int, shift: int, here: Any, there: Any) -> Any:
    """The first position from one on at which a statement holds and `shift` positions later does not, or the reverse.

    NEVER if there is none. here, there: scratch of MAX_COUNTERS elements each.
    """
    first, end = walk.run_offsets[statement], walk.run_offsets[statement + 1]
    size = walk.statements
    one = seek(walk, here, 0, statement, position)
    other = seek(walk, there, 0, statement, position + shift)
    while one != NEVER and other != NEVER and other - one == shift:
        # both take the same steps until one of them leaves the innermost run in which they differ
        level = end - first - 1
        while level >= 0 and here[level] == there[level]:
            level -= 1
        if level < 0:
            return one
        run = first + level
        room = walk.run_counts[run] - 1 - max(here[level], there[level])
        leap = room * walk.run_steps[run] * walk.run_strides[run]
        here[level] += room
        there[level] += room
        for inner in range(level + 1, end - first):
            run = first + inner
            to_end = walk.run_counts[run] - 1 - here[inner]
            leap += to_end * walk.run_steps[run] * walk.run_strides[run]
            here[inner] += to_end
            there[inner] += to_end
        one += leap * size
        one = next_tile(walk, here, 0, statement, one)
        other = next_tile(walk, there, 0, statement, other + leap * size)
    if one == NEVER and other == NEVER:
        return NEVER
    if other == NEVER:
        return one
    if one == NEVER:
        return other - shift
    return min(one, other - shift)


@compiled(allocates=False)
def alike_in_nest(
    walk: Any, nest: int, position: int, shift: int, least: int, suspect: int, here: Any, there: Any
) -> Any:
    """Up to which position from one on a nest holds the same statements as `shift` positions later.

    Also the statement that ends it, and how many were asked. One before `least` is as good as another: `suspect`, a
    statement that is likely to end it, is asked first, and the search ends at once.
    """
    found, by, asked = walk.nest_offsets[2 * nest + 1] - shift, suspect, 1
    its = walk.nests[suspect]
    if its == nest:
        found = min(found, alike_until(walk, suspect, position, shift, here, there))
    for statement in range(walk.nest_statements[nest], walk.nest_statements[nest + 1]):
        if found < least:
            break
        until = alike_until(walk, statement, position, shift, here, there)
        asked += 1
        if until < found:
            found, by = until, statement
    return found, by, asked
