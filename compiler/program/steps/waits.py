"""What the statements of a segment wait for once their order is known: of each engine the latest (PROG-5).

Waits name statements by their places, in their group's order or in the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import InternalError
from compiler.program.steps.assemble import GroupStatements, OrderedGroup, Waits, begin_of
from compiler.program.steps.commands import SIDES, SLOTS, Commands, spread
from compiler.program.steps.conflicts import Conflicts, Pairs
from compiler.program.steps.order import Turns
from compiler.program.timing.ticks import Ints


class NoCommonOrderError(InternalError):
    """No order of a group's statements keeps what its commands wait for in all iterations; `group`: its number."""

    def __init__(self, message: str, group: int) -> None:
        super().__init__(message, stage="lower", actual=group)
        self.group = group


def levels_of(group: GroupStatements, conflicts: Conflicts) -> Ints:
    """By statement the most commands of its step and iteration that come before it, one after another."""
    commands = conflicts.commands[group.number]
    first, one, other = conflicts.of_group(group.number)
    nodes = conflicts.node_of[first : first + len(commands.actions)]
    same = (commands.steps[one] == commands.steps[other]) & (commands.iterations[one] == commands.iterations[other])
    count = 1 + int(max(commands.ranks.max(initial=0), group.ranks.max(initial=0)))
    slots, mine = nodes * count + commands.ranks, group.nodes * count + group.ranks
    its = np.unique(np.concatenate([slots, mine]))
    low, high = np.searchsorted(its, slots[one[same]]), np.searchsorted(its, slots[other[same]])
    # an engine keeps its order, and what it does is numbered from 0
    follows = np.flatnonzero(its % count > 0)
    low, high = np.concatenate([low, follows - 1]), np.concatenate([high, follows])
    levels = its % count
    for _ in range(len(its) + 1):
        found = levels.copy()
        np.maximum.at(found, high, levels[low] + 1)
        if (found == levels).all():
            result: Ints = levels[np.searchsorted(its, mine)]
            return result
        levels = found
    raise NoCommonOrderError("commands of one step wait for each other in a circle", group.number)


def ordered_by(group: GroupStatements, levels: Ints, turns: Turns, first_node: int) -> OrderedGroup:
    """The group's statements in the order of their nodes' turns; inside a step what comes before stands before."""
    nodes = group.nodes - first_node
    order = np.lexsort((group.rows.commands["queue"], levels, turns.places[nodes]))
    return OrderedGroup(group=group, order=order, stages=turns.stages[nodes])


def waits_inside(ordered: OrderedGroup, pairs: Pairs, first_node: int) -> Waits:
    """What a group's statements wait for in the group: of each engine and kind of space the latest.

    `pairs`: of nodes, counted from the group's first.
    """
    group, places = ordered.group, ordered.places
    nodes, single, queues = group.nodes - first_node, group.loops.is_single, group.rows.commands["queue"]
    # by slot its statements, in order
    slots = nodes * SLOTS + group.slots
    by_slot = ordered.order[np.argsort(slots[ordered.order], kind="stable")]
    slots = slots[by_slot]
    low, high = (np.searchsorted(slots, pairs.after * SLOTS + pairs.slots_after, side=side) for side in SIDES)
    owners, numbers = spread(high - low)
    statements = by_slot[low[owners] + numbers]
    wanted = (pairs.before * SLOTS + pairs.slots_before)[owners]
    last = np.maximum(np.searchsorted(slots, wanted, side="right") - 1, 0)
    names = by_slot[last]
    # what walking found and no statement does is not waited for
    kept = (slots[last] == wanted) & (queues[names] != queues[statements])
    statements, names = statements[kept], names[kept]
    gaps = pairs.distances[owners][kept] + ordered.stages[names] - ordered.stages[statements]
    gaps[single[names]] = 0
    looping = ~single[names]
    if ((gaps < 0) | ((gaps == 0) & looping & (places[names] >= places[statements]))).any():
        raise NoCommonOrderError("a group's order does not keep what waits", group.number)
    bases = np.where(group.loops.is_once, begin_of(ordered), group.loops.lasts)
    positions = np.where(looping, -gaps, bases[names] - ordered.stages[names])
    rows = _latest(statements, queues[names], looping, positions, places[names])
    return Waits(places[statements[rows]], places[names[rows]], gaps[rows])


def waits_before(ordered: Sequence[OrderedGroup], conflicts: Conflicts) -> Waits:
    """What statements wait for of groups before: of each engine the latest, by places in the program."""
    nodes, groups = conflicts.nodes, conflicts.nodes.groups
    sizes = [len(its.order) for its in ordered]
    firsts = np.append(0, np.cumsum(sizes)).astype(np.int64)
    statement_nodes = np.concatenate([its.group.nodes for its in ordered])
    by_node = np.argsort(statement_nodes, kind="stable")
    starts = np.searchsorted(statement_nodes[by_node], np.arange(len(nodes.codes) + 1))
    listed = np.array([its.group.is_listed for its in ordered], dtype=np.bool_)
    lasts = np.array([its.group.iterations for its in ordered], dtype=np.int64) - 1
    # pairs of nodes; of listed groups those of commands say more
    pairs = conflicts.pairs.of_nodes()
    one, other, gaps = pairs.before, pairs.after, pairs.distances
    kept = (groups[one] != groups[other]) & ~listed[groups[other]]
    one = np.concatenate([one[kept], conflicts.writers])
    other = np.concatenate([other[kept], conflicts.readers])
    gaps = np.concatenate([gaps[kept], np.zeros(len(conflicts.writers), dtype=np.int64)])
    owners, numbers = spread(starts[other + 1] - starts[other])
    rows = [(by_node[starts[other][owners] + numbers], one[owners], gaps[owners])]
    group_of = np.repeat(np.arange(len(ordered)), np.diff(conflicts.firsts))
    iterations = np.concatenate([its.iterations for its in conflicts.commands])
    apart = (group_of[conflicts.before] != group_of[conflicts.after]) & listed[group_of[conflicts.after]]
    one, other = conflicts.before[apart], conflicts.after[apart]
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
    places = np.concatenate([first + its.places for first, its in zip(firsts.tolist(), ordered, strict=False)])
    kept_rows = _latest(owners, nodes.queues[one], groups[one], positions, places[names])
    owners, names, distances, queues = (column[kept_rows] for column in (owners, names, distances, nodes.queues[one]))
    # the last group of each engine is enough
    is_last = np.append((owners[1:] != owners[:-1]) | (queues[1:] != queues[:-1]), True)[: len(owners)]
    return Waits(places[owners[is_last]], places[names[is_last]], distances[is_last])


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


def _latest(owners: Ints, queues: Ints, kinds: Ints, positions: Ints, names: Ints) -> Ints:
    """Of rows of one owner, engine and kind the one of the last position and name; rows ascend by owner and engine."""
    order = np.lexsort((names, positions, kinds, queues, owners))
    alike = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for column in (owners, queues, kinds):
        alike &= column[order][1:] == column[order][:-1]
    found: Ints = order[np.append(~alike, True)[: len(order)]]
    return found
