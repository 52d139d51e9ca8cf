"""Dependences between commands: which touch common bytes, one of them writing, and how many iterations lie between.

A *node* is a step of a group on an engine. Who meets whom in a memory is found in `meetings.py`. Not all iterations are
walked through, only the first and last values of each run (`walked`): values in between behave as these do. Tiles
next to larger or smaller ones are walked through whole: what is loaded for a smaller tile overwrites a part of a larger
one, which may be read last in any iteration of its inner loops. The proof of the program tells whether that was enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from compiler.program.iteration import PERIOD_MAX
from compiler.program.steps.action import Numbers, Space
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.cells import Cells, Product
from compiler.program.steps.commands import SIDES, Commands, Lists, Nodes, spread
from compiler.program.steps.key_rows import DRAM, FORM, IS_WRITE, LOW, NUMBER, OF_FORM, PLACE, KeyRows
from compiler.program.steps.meetings import meetings_of
from compiler.program.timing.ticks import Ints

# How many values of a run are walked through at its begin (a period, and all uses of two buffers), and at its end.
_AT_BEGIN: Final = PERIOD_MAX + 2
_AT_END: Final = 2


class Pairs(NamedTuple):
    """What comes before what: of nodes, or of statements, what `after` does behind what `before` did `distances`
    iterations earlier.

    Of a group before the distance is counted from its last iteration, and of what is done once it is 0.
    """

    before: Ints
    after: Ints
    distances: Ints

    def chosen(self, which: Any) -> Pairs:
        """Some of the pairs."""
        return Pairs(*(column[which] for column in self))

    def least(self) -> Pairs:
        """Of equal pairs the one with the least distance; ascending by `after` and `before`."""
        if not len(self.before):
            return self
        low, sides = int(self.distances.min()), int(self.before.max()) + 1
        lasts = int(self.distances.max()) - low + 1
        if (int(self.after.max()) + 1) * sides * lasts >= 1 << 63:
            order = np.lexsort((self.distances, self.before, self.after))
            one, other = self.before[order], self.after[order]
            return self.chosen(order[np.append(True, (one[1:] != one[:-1]) | (other[1:] != other[:-1]))])
        # most are met many times: to sort single numbers takes a tenth of the time
        keys = np.sort((self.after * sides + self.before) * lasts + (self.distances - low))
        pairs = keys // lasts
        is_new = np.append(True, pairs[1:] != pairs[:-1])
        keys, pairs = keys[is_new], pairs[is_new]
        after, before = np.divmod(pairs, sides)
        return Pairs(before, after, keys - pairs * lasts + low)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conflicts:
    """What commands of a segment's groups wait for.

    `commands`: by group the commands that were walked through; `firsts`: the number of each group's first command;
    `node_of`: the node of each command. Command `after[i]` waits for command `before[i]` of another node. `pairs`: such
    waits between nodes. Node `readers[i]` reads in DRAM what node `writers[i]` of an earlier group wrote.
    """

    nodes: Nodes
    commands: Sequence[Commands]
    firsts: Ints
    node_of: Ints
    before: Ints
    after: Ints
    pairs: Pairs
    writers: Ints
    readers: Ints

    def of_group(self, group: int) -> tuple[int, Ints, Ints]:
        """The number of a group's first command, and of its pairs of commands the numbers in the group."""
        first, end = (int(its) for its in self.firsts[group : group + 2])
        mine = (self.before >= first) & (self.after < end)
        return first, self.before[mine] - first, self.after[mine] - first


def walked(cells: Cells) -> Ints:
    """The iterations that are walked through, in order: where counters of any step are at ends of runs."""
    found: set[int] = set()
    steps = cells.steps
    ends = cache(_ends)
    for step, is_once in enumerate(steps.once):
        # units mostly have the same products
        units = [] if is_once else [tuple(cells.products(step, unit)) for unit in steps.spaces(step)]
        for products in dict.fromkeys(units):
            beside = _cut_beside(products) if any(len(its.runs) > its.tiles for its in products) else {}
            for space, runs, tiles in products:
                kept = [ends(run, _AT_BEGIN) for run in runs]
                found |= space.iterations(kept)
                inside = [run.values for run in runs[tiles:]]
                for counter in beside.get(runs[:tiles], ()):
                    near = [*kept[:counter], ends(runs[counter], _AT_END), *kept[counter + 1 : tiles]]
                    found |= space.iterations([*near, *inside])
    return np.array([-1, *sorted(found)], dtype=np.int64)


def _ends(run: Run, at_begin: int) -> set[int]:
    """So many values of a run at its begin, and those at its end."""
    return {*run.values[:at_begin], *run.values[-_AT_END:]}


def _cut_beside(products: Sequence[Product]) -> dict[tuple[Run, ...], list[int]]:
    """By runs of tiles the counters along which there are tiles whose inner loops are longer or shorter."""
    times = {its.runs[: its.tiles]: _times(its.space, its.tiles) for its in products}
    along: dict[tuple[int, tuple[Run, ...]], set[Numbers]] = defaultdict(set)
    for runs, its in times.items():
        for counter in range(len(runs)):
            along[counter, (*runs[:counter], *runs[counter + 1 :])].add(its)
    return {
        runs: [at for at in range(len(runs)) if len(along[at, (*runs[:at], *runs[at + 1 :])]) > 1] for runs in times
    }


def _times(space: Space, tiles: int) -> Numbers:
    """How often the loops inside the tiles are gone through; a loop seen as rows and what is in them is one loop."""
    found: list[int] = []
    inner = 0
    for count, stride in reversed([*zip(space.counts[tiles:], space.strides[tiles:], strict=True)]):
        if found and stride == inner:
            found[-1] *= count
        else:
            found.append(count)
        inner = count * stride
    return tuple(found)


def conflicts_of(
    nodes: Nodes,
    groups: Sequence[Commands],
    keys: Sequence[KeyRows],
    iterations: Sequence[int],
    regions: Sequence[tuple[int, int]],
) -> Conflicts:
    """The conflicts of the groups of a segment, which are worked on one after another.

    `keys`: by group those of its commands. `iterations`: how many each group has. `regions`: begin and end of those of
    the DRAM that one group writes and others read; they are waited for whole.
    """
    sizes = [len(its) for its in groups]
    group_of = np.repeat(np.arange(len(groups), dtype=np.int64), sizes)
    node_of = np.concatenate([nodes.numbers(number, its.steps, its.queues) for number, its in enumerate(groups)])
    numbers = np.concatenate([its.iterations for its in groups])
    touches, forms = _touches_of(groups, keys)
    on_chip = int(np.searchsorted(touches["place"], DRAM, side="right"))
    writers, readers = _through_dram(touches[:on_chip], node_of, nodes.groups, regions)
    before, after = meetings_of(touches[on_chip:], forms, node_of, group_of)
    gaps = numbers[after] - numbers[before]
    lasts = np.array(iterations, dtype=np.int64)[group_of] - 1 - numbers
    apart = group_of[after] != group_of[before]
    gaps[apart] = lasts[before[apart]]
    gaps[numbers[before] < 0] = 0
    return Conflicts(
        nodes=nodes,
        commands=groups,
        firsts=np.append(0, np.cumsum(sizes)).astype(np.int64),
        node_of=node_of,
        before=before,
        after=after,
        pairs=Pairs(node_of[before], node_of[after], gaps).least(),
        writers=writers,
        readers=readers,
    )


def _through_dram(touches: Any, node_of: Ints, groups: Ints, regions: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Pairs of nodes of different groups: writers of a DRAM region, and its readers, which wait for all writers."""
    limits = np.array(sorted(regions), dtype=np.int64).reshape(-1, 2)
    region = np.searchsorted(limits[:, 0], touches["address"], side="right") - 1
    is_inside = region >= 0
    is_inside[is_inside] = touches["address"][is_inside] < limits[region[is_inside], 1]
    touches, region = touches[is_inside], region[is_inside]
    keys = region * len(groups) + node_of[touches["command"]]
    writes = touches["is_write"]
    writers, readers = np.unique(keys[writes]), np.unique(keys[~writes])
    # of one region all pairs
    low, high = (np.searchsorted(writers // len(groups), readers // len(groups), side=side) for side in SIDES)
    owners, numbers = spread(high - low)
    one, other = writers[low[owners] + numbers] % len(groups), readers[owners] % len(groups)
    pairs = np.unique((other * len(groups) + one)[groups[one] < groups[other]])
    return pairs % len(groups), pairs // len(groups)


# --- what is touched --------------------------------------------------------------------------------------------------

_TOUCH: Final = np.dtype([("address", "<i8"), ("command", "<i4"), ("place", "<i4"), ("form", "<i4"), ("is_write", "?")])


def _touches_of(groups: Sequence[Commands], keys: Sequence[KeyRows]) -> tuple[Any, Any]:
    """All that commands touch, place by place and command by command, each reads all before it writes; and the forms
    of what is touched.
    """
    known: dict[bytes, int] = {}
    forms = np.concatenate([its.forms for its in keys])
    # by group and number in the group the number of a form
    form_of = np.array([known.setdefault(form.tobytes(), len(known)) for form in forms], dtype=np.int64)
    firsts = np.cumsum([0, *(len(its.forms) for its in keys)])
    parts = [its.touched.ordered(group.kinds) for group, its in zip(groups, keys, strict=True)]
    touched = Lists.joined(parts)
    commands, _ = spread(np.diff(touched.offsets))
    of_groups = np.repeat(firsts[:-1], [len(part.rows) for part in parts])
    numbers = Lists.joined([group.numbers for group in groups])
    rows = np.empty(len(commands), dtype=_TOUCH)
    its = touched.rows.T
    rows["command"], rows["place"], rows["is_write"] = commands, its[PLACE], its[IS_WRITE]
    rows["form"] = form_of[of_groups + its[OF_FORM]]
    rows["address"] = numbers.rows[numbers.offsets[commands] + its[NUMBER]] + its[LOW]
    different = np.frombuffer(b"".join(known), dtype=FORM)
    return rows[np.argsort(rows["place"], kind="stable")], different
