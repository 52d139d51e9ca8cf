"""What the statements of a segment wait for once their order is known: of each engine the latest (PROG-5).

Waits name statements by their places, in their group's order or in the program.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.errors import InternalError
from compiler.program.steps.assemble import GroupStatements, OrderedGroup, OrderedSegment, Waits, begin_of
from compiler.program.steps.commands import SIDES, SLOTS, Commands, different, spread
from compiler.program.steps.conflicts import Conflicts, Pairs
from compiler.program.steps.order import Turns
from compiler.program.timing.ticks import Flags, Ints


class NoCommonOrderError(InternalError):
    """No order of a group's statements keeps what its commands wait for in all iterations; `group`: its number."""

    def __init__(self, message: str, group: int) -> None:
        super().__init__(message, stage="lower", actual=group)
        self.group = group


def statements_of_commands(group: GroupStatements, commands: Commands, nodes: Ints) -> Ints:
    """The statement that each of a group's commands is of, -1 where there is none; `nodes`: by command."""
    wanted, slots = nodes * SLOTS + commands.slots, group.nodes * SLOTS + group.slots
    order = np.argsort(slots, kind="stable")
    low, high = (np.searchsorted(slots[order], wanted, side=side) for side in SIDES)
    owners, numbers = spread(high - low)
    statements = order[low[owners] + numbers]
    holds = group.loops.holds(statements, commands.iterations[owners])
    found = np.full(len(wanted), -1, dtype=np.int64)
    found[owners[holds]] = statements[holds]
    return found


class Inside(NamedTuple):
    """What waits inside a group: between statements, or between *slots* of several (a node, a kind and a rank).

    `slot_of`: by statement its number. A statement whose tiles were all walked through has one of its own, for all that
    it meets is known; others share that of their slot. `pairs`: of these numbers; `is_same`: whether both are of one
    step. `levels`: by statement its place in its step, behind all that comes before it there.
    """

    slot_of: Ints
    pairs: Pairs
    is_same: Flags
    levels: Ints

    def of_commands(self, group: GroupStatements, commands: Commands, nodes: Ints) -> Ints:
        """The number of each of some commands; -1 of those that no statement is for."""
        statements = statements_of_commands(group, commands, nodes)
        return np.where(statements >= 0, self.slot_of[statements], -1)


def inside_of(group: GroupStatements, conflicts: Conflicts) -> Inside:
    """What waits inside a group, as its commands show that were walked through."""
    commands = conflicts.commands[group.number]
    first, one, other = conflicts.of_group(group.number)
    nodes = conflicts.node_of[first : first + len(commands)]
    count = len(group.kinds)
    mine = group.nodes * SLOTS + group.slots
    codes, numbers = np.unique(np.append(mine, nodes * SLOTS + commands.slots), return_inverse=True)
    slots, of_commands = numbers[:count], numbers[count:]
    statements = statements_of_commands(group, commands, nodes)
    is_whole = np.bincount(statements[statements >= 0], minlength=count) == group.loops.tiles
    slot_of = np.where(is_whole, len(codes) + np.arange(count), slots)
    gaps = np.where(commands.iterations[one] < 0, 0, commands.iterations[other] - commands.iterations[one])
    its = np.where(statements >= 0, slot_of[statements], of_commands)
    steps = conflicts.nodes.steps[np.append(codes // SLOTS, group.nodes)]
    pairs = _spread_over(slots, slot_of, Pairs(of_commands[one], of_commands[other], gaps).least())
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(pairs, (its[one], its[other], gaps), strict=True)))
    pairs = pairs.least()
    # in one iteration what comes first may differ from statement to statement
    same = (commands.steps[one] == commands.steps[other]) & (gaps == 0)
    same &= (statements[one] >= 0) & (statements[other] >= 0)
    low, high = np.divmod(different(statements[one[same]] * count + statements[other[same]]), max(1, count))
    return Inside(
        slot_of=slot_of,
        pairs=pairs,
        is_same=steps[pairs.before] == steps[pairs.after],
        levels=_levels(group, low, high),
    )


def _spread_over(slots: Ints, slot_of: Ints, pairs: Pairs) -> Pairs:
    """Pairs of slots as pairs of numbers of `Inside.slot_of`.

    A pair of two statements that were both walked through whole is left out: what they meet is known. Any other one may
    meet whatever is in the other slot. `slots`: by statement.
    """
    # the numbers in each slot stand together
    count = int(slot_of.max(initial=0)) + 1
    members = np.stack(np.divmod(different(slots * count + slot_of), count))
    ranges = [[np.searchsorted(members[0], column, side=side) for side in SIDES] for column in pairs[:2]]
    (first, first_end), (second, second_end) = ranges
    owners, numbers = spread((first_end - first) * (second_end - second))
    width = np.maximum(1, second_end - second)[owners]
    before = members[:, first[owners] + numbers // width]
    after = members[:, second[owners] + numbers % width]
    is_open = (before[0] == before[1]) | (after[0] == after[1])
    return Pairs(before[1][is_open], after[1][is_open], pairs.distances[owners][is_open])


def _levels(group: GroupStatements, before: Ints, after: Ints) -> Ints:
    """The places of statements in their step, moved behind those of what comes before them."""
    levels = group.places
    for _ in range(len(levels) + 1):
        found = levels.copy()
        np.maximum.at(found, after, levels[before] + 1)
        if (found == levels).all():
            return levels
        levels = found
    raise NoCommonOrderError("commands of one step wait for each other in a circle", group.number)


def ordered_by(group: GroupStatements, levels: Ints, turns: Turns, first_node: int) -> OrderedGroup:
    """The group's statements in the order of their nodes' turns; inside a step what comes before stands before."""
    nodes = group.nodes - first_node
    order = np.lexsort((group.rows.commands["queue"], levels, turns.places[nodes]))
    return OrderedGroup(group=group, order=order, stages=turns.stages[nodes])


def waits_inside(ordered: OrderedGroup, inside: Inside) -> Waits:
    """What a group's statements wait for in the group: of each engine and kind of space the latest."""
    group, places = ordered.group, ordered.places
    single, queues = group.loops.is_single, group.rows.commands["queue"]
    # by slot its statements, in order
    by_slot = ordered.order[np.argsort(inside.slot_of[ordered.order], kind="stable")]
    ascending = inside.slot_of[by_slot]
    low, high = (np.searchsorted(ascending, inside.pairs.after, side=side) for side in SIDES)
    first, end = (np.searchsorted(ascending, inside.pairs.before, side=side) for side in SIDES)
    owners, numbers = spread(np.where(end > first, high - low, 0))
    statements, last, gaps = by_slot[low[owners] + numbers], end[owners] - 1, inside.pairs.distances[owners]
    # of its own step what stands before it, or else all of the iteration before
    is_own = inside.is_same[owners] & (gaps == 0)
    width = 1 + int(inside.levels.max(initial=0))
    wanted = inside.pairs.before[owners] * width + inside.levels[statements]
    past = np.searchsorted(ascending * width + inside.levels[by_slot], wanted) - 1
    is_past = past >= first[owners]
    names = by_slot[np.where(is_own & is_past, past, last)]
    gaps = gaps + (is_own & ~is_past)
    kept = (queues[names] != queues[statements]) & ~(single[names] & is_own & ~is_past)
    statements, names, gaps = statements[kept], names[kept], gaps[kept]
    looping = ~single[names]
    gaps = np.where(looping, gaps + ordered.stages[names] - ordered.stages[statements], 0)
    if ((gaps < 0) | ((gaps == 0) & looping & (places[names] >= places[statements]))).any():
        raise NoCommonOrderError("a group's order does not keep what waits", group.number)
    bases = np.where(group.loops.is_once, begin_of(ordered), group.loops.lasts)
    positions = np.where(looping, -gaps, bases[names] - ordered.stages[names])
    rows = _latest(statements, queues[names], looping, positions, places[names])
    return Waits(places[statements[rows]], places[names[rows]], gaps[rows])


class _Before(NamedTuple):
    """What statements wait for of groups before; statements by their numbers in the segment, in whatever order.

    `positions`: the iteration in which the one that is waited for runs, or 0 if it is listed.
    """

    owners: Ints
    names: Ints
    distances: Ints
    positions: Ints


def waits_before(segment: OrderedSegment, conflicts: Conflicts) -> Waits:
    """What statements wait for of groups before: of each engine the latest, by places in the program."""
    ordered, firsts = segment.groups, segment.firsts
    group_of = np.repeat(np.arange(len(ordered)), np.diff(firsts))
    nodes = np.concatenate([its.group.nodes for its in ordered])
    places = np.concatenate(
        [segment.places[first + its.places] for first, its in zip(firsts.tolist(), ordered, strict=False)]
    )
    parts = _before_listed(segment, conflicts), _before_ends(segment, conflicts, nodes)
    before = _Before(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    queues, nests = conflicts.nodes.queues[nodes], segment.nests[group_of]
    # in a nest of commands done once an engine's order is enough
    is_told = (queues[before.owners] == queues[before.names]) & (nests[before.owners] == nests[before.names])
    owners, names, distances, positions = (column[~is_told] for column in before)
    kept = _latest(owners, queues[names], nests[names], positions, places[names])
    owners, names, distances = owners[kept], names[kept], distances[kept]
    # the last nest of each engine is enough
    is_new = (owners[1:] != owners[:-1]) | (queues[names[1:]] != queues[names[:-1]])
    is_last = np.append(is_new, True)[: len(owners)]
    return Waits(places[owners[is_last]], places[names[is_last]], distances[is_last])


def _before_listed(segment: OrderedSegment, conflicts: Conflicts) -> _Before:
    """What commands of listed groups wait for of other listed groups: the very commands that they meet."""
    listed = _are_listed(segment)
    of_commands = np.repeat(np.arange(len(segment.groups)), np.diff(conflicts.firsts))
    one, other = of_commands[conflicts.before], of_commands[conflicts.after]
    kept = (one != other) & listed[one] & listed[other]
    # each command of a listed group is a statement
    moves = segment.firsts - conflicts.firsts
    names, owners = conflicts.before[kept] + moves[one[kept]], conflicts.after[kept] + moves[other[kept]]
    none = np.zeros(len(names), dtype=np.int64)
    return _Before(owners, names, none, none)


def _before_ends(segment: OrderedSegment, conflicts: Conflicts, statement_nodes: Ints) -> _Before:
    """What statements wait for of groups that loop, or through the DRAM: all that a node does up to an iteration."""
    ordered, nodes, groups = segment.groups, conflicts.nodes, conflicts.nodes.groups
    firsts, listed = segment.firsts, _are_listed(segment)
    by_node = np.argsort(statement_nodes, kind="stable")
    starts = np.searchsorted(statement_nodes[by_node], np.arange(len(nodes.codes) + 1))
    lasts = np.array([its.group.iterations for its in ordered], dtype=np.int64) - 1
    # pairs of nodes; of listed groups those of commands say more
    one, other, gaps = conflicts.pairs
    kept = (groups[one] != groups[other]) & ~listed[groups[other]]
    one = np.concatenate([one[kept], conflicts.writers])
    other = np.concatenate([other[kept], conflicts.readers])
    gaps = np.concatenate([gaps[kept], np.zeros(len(conflicts.writers), dtype=np.int64)])
    owners, numbers = spread(starts[other + 1] - starts[other])
    rows = [(by_node[starts[other][owners] + numbers], one[owners], gaps[owners])]
    group_of = np.repeat(np.arange(len(ordered)), np.diff(conflicts.firsts))
    iterations = np.concatenate([its.iterations for its in conflicts.commands])
    looping = ~listed[group_of[conflicts.before]] & listed[group_of[conflicts.after]]
    one, other = conflicts.before[looping], conflicts.after[looping]
    gaps = np.where(iterations[one] < 0, 0, lasts[group_of[one]] - iterations[one])
    rows.append((firsts[group_of[other]] + other - conflicts.firsts[group_of[other]], conflicts.node_of[one], gaps))
    owners, one, gaps = (np.concatenate(columns) for columns in zip(*rows, strict=True))
    # what each node and gap is as a statement
    codes, which = np.unique(one << 40 | gaps, return_inverse=True)
    ends = []
    for code in codes.tolist():
        node, gap = code >> 40, code & (1 << 40) - 1
        group = int(groups[node])
        statements = by_node[starts[node] : starts[node + 1]] - firsts[group]
        name, distance, iteration = _end_of(ordered[group], conflicts.commands[group], statements, gap)
        ends.append((firsts[group] + name, distance, iteration))
    names, distances, positions = np.array(ends, dtype=np.int64).reshape(-1, 3)[which.ravel()].T
    return _Before(owners, names, distances, positions)


def _are_listed(segment: OrderedSegment) -> Flags:
    """By group whether it is listed."""
    return np.array([its.group.is_listed for its in segment.groups], dtype=np.bool_)


def waits_listed(ordered: OrderedGroup, conflicts: Conflicts) -> Waits:
    """What the commands of a listed group wait for in the group: of each other engine the latest."""
    _, before, after = conflicts.of_group(ordered.group.number)
    names, owners = ordered.places[before], ordered.places[after]
    queues = ordered.group.rows.commands["queue"][ordered.order]
    other = queues[names] != queues[owners]
    names, owners = names[other], owners[other]
    none = np.zeros(len(names), dtype=np.int64)
    kept = _latest(owners, queues[names], none, none, names)
    return Waits(owners[kept], names[kept], none[kept])


def _end_of(ordered: OrderedGroup, commands: Commands, statements: Ints, gap: int) -> tuple[int, int, int]:
    """Of a node's statements the one to wait for, to have done all up to so many iterations before the group's last
    one; the distance from the statement's own last iteration, and the iteration.
    """
    group = ordered.group
    wanted = group.iterations - 1 - gap
    if group.is_listed:
        statements = statements[commands.iterations[statements] <= wanted]
    order = np.argsort(ordered.places[statements])
    last = int(statements[order[-1]])
    loops, stage = group.loops, int(ordered.stages[last])
    if loops.is_single[last]:
        return last, 0, (begin_of(ordered) if loops.is_once[last] else int(loops.lasts[last])) - stage
    if loops.lasts[last] >= wanted:
        return last, int(loops.lasts[last]) - wanted, wanted - stage
    # the last one of the node ends before: all of it
    last = int(statements[np.lexsort((ordered.places[statements], loops.lasts[statements]))[-1]])
    return last, 0, int(loops.lasts[last]) - stage


def _latest(owners: Ints, queues: Ints, kinds: Ints | Flags, positions: Ints, names: Ints) -> Ints:
    """Of rows of one owner, engine and kind the one of the last position and name; rows ascend by owner and engine."""
    order = np.lexsort((names, positions, kinds, queues, owners))
    alike = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for column in (owners, queues, kinds):
        alike &= column[order][1:] == column[order][:-1]
    found: Ints = order[np.append(~alike, True)[: len(order)]]
    return found
