"""Dependences between commands: which touch common bytes, one of them writing, and how many iterations lie between.

A *node* is a step of a group on an engine. A shadow of each memory keeps its last writer, and who has read since; not
byte by byte: bytes that belong to the same touched boxes have the same history, and are one *atom*. Not all iterations
are walked through, only the first and last values of each run (`walked`): values in between behave as these do. Tiles
next to larger or smaller ones are walked through whole: what is loaded for a smaller tile overwrites a part of a larger
one, which may be read last in any iteration of its inner loops. The proof of the program tells whether that was enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.machine_code import compiled
from compiler.program.iteration import PERIOD_MAX
from compiler.program.steps.action import Numbers, touches_of
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.cells import Cells, Product
from compiler.program.steps.commands import SIDES, Commands, Kinds, Lists, Nodes, commands_of, spread
from compiler.program.timing.ticks import Ints

# How many values of a run are walked through at its begin (a period, and all uses of two buffers), and at its end.
_AT_BEGIN: Final = PERIOD_MAX + 2
_AT_END: Final = 2
_NOBODY: Final = -1
# The place that is the DRAM.
_DRAM: Final = 0
# Dimensions of what one command touches.
_DIMS: Final = 6


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
        """Of equal pairs the one with the least distance."""
        found = self._different()
        order = np.lexsort((found.distances, found.before, found.after))
        one, other = found.before[order], found.after[order]
        is_new = np.append(True, (one[1:] != one[:-1]) | (other[1:] != other[:-1]))[: len(order)]
        return found.chosen(order[is_new])

    def _different(self) -> Pairs:
        """Equal ones once: most are met many times. As they are where a pair and its distance do not fit in 64 bits."""
        if not len(self.before):
            return self
        low, sides = int(self.distances.min()), int(self.before.max()) + 1
        lasts = int(self.distances.max()) - low + 1
        if (int(self.after.max()) + 1) * sides * lasts >= 1 << 63:
            return self
        keys = np.unique((self.after * sides + self.before) * lasts + (self.distances - low))
        after, before = np.divmod(keys // lasts, sides)
        return Pairs(before, after, keys % lasts + low)


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


def walked(cells: Cells, kinds: Kinds) -> Commands:
    """The commands that are walked through, in order: where counters of any step are at ends of runs."""
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
    return commands_of(steps, kinds, [-1, *sorted(found)])


def _ends(run: Run, at_begin: int) -> set[int]:
    """So many values of a run at its begin, and those at its end."""
    return {*run.values[:at_begin], *run.values[-_AT_END:]}


def _cut_beside(products: Sequence[Product]) -> dict[tuple[Run, ...], list[int]]:
    """By runs of tiles the counters along which there are tiles whose inner loops are longer or shorter."""
    times = {its.runs[: its.tiles]: its.space.counts[its.tiles :] for its in products}
    along: dict[tuple[int, tuple[Run, ...]], set[Numbers]] = defaultdict(set)
    for runs, its in times.items():
        for counter in range(len(runs)):
            along[counter, (*runs[:counter], *runs[counter + 1 :])].add(its)
    return {
        runs: [at for at in range(len(runs)) if len(along[at, (*runs[:at], *runs[at + 1 :])]) > 1] for runs in times
    }


def conflicts_of(
    nodes: Nodes, groups: Sequence[Commands], iterations: Sequence[int], regions: Sequence[tuple[int, int]]
) -> Conflicts:
    """The conflicts of the groups of a segment, which are worked on one after another.

    `iterations`: how many each group has. `regions`: begin and end of those of the DRAM that one group writes and
    others read; they are waited for whole.
    """
    sizes = [len(its) for its in groups]
    group_of = np.repeat(np.arange(len(groups), dtype=np.int64), sizes)
    node_of = np.concatenate([nodes.numbers(number, its.steps, its.queues) for number, its in enumerate(groups)])
    numbers = np.concatenate([its.iterations for its in groups])
    touches, forms = _touches_of(groups)
    on_chip = int(np.searchsorted(touches["place"], _DRAM, side="right"))
    writers, readers = _through_dram(touches[:on_chip], node_of, nodes.groups, regions)
    before, after = _meetings(touches[on_chip:], forms, node_of)
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
_FORM: Final = np.dtype([("counts", "<i8", (_DIMS,)), ("strides", "<i8", (_DIMS,))])


def _touches_of(groups: Sequence[Commands]) -> tuple[Any, Any]:
    """All that commands touch, place by place and command by command, each reads all before it writes; and the forms
    of what is touched: counts and strides.
    """
    patterns: dict[tuple[Numbers, Numbers], tuple[int, int]] = {}
    forms: dict[tuple[Numbers, Numbers], int] = {}
    of_kinds: list[tuple[int, ...]] = []
    sizes: list[int] = []
    kinds = []
    for group in groups:
        present, local = np.unique(group.kinds, return_inverse=True)
        kinds.append(local + len(sizes))
        for kind in present.tolist():
            its = sorted(touches_of(group.keys[kind]), key=lambda touch: touch.is_write)
            for touch in its:
                pattern = (touch.counts, touch.strides)
                known = patterns.get(pattern)
                if known is None:
                    low, form = _form_of(*pattern)
                    known = patterns[pattern] = low, forms.setdefault(form, len(forms))
                of_kinds.append((touch.place, touch.is_write, touch.number, *known))
            sizes.append(len(its))
    kind_of = np.concatenate(kinds)
    counts = np.array(sizes, dtype=np.int64)
    commands, rest = spread(counts[kind_of])
    place, is_write, number, low, form = (
        np.array(of_kinds, dtype=np.int64).reshape(-1, 5)[(np.cumsum(counts) - counts)[kind_of][commands] + rest].T
    )
    numbers = Lists.joined([group.numbers for group in groups])
    rows = np.empty(len(commands), dtype=_TOUCH)
    rows["command"], rows["place"], rows["is_write"], rows["form"] = commands, place, is_write, form
    rows["address"] = numbers.rows[numbers.offsets[commands] + number] + low
    return rows[np.argsort(place, kind="stable")], np.array(list(forms), dtype=_FORM)


def _form_of(counts: Sequence[int], strides: Sequence[int]) -> tuple[int, tuple[Numbers, Numbers]]:
    """How far before the address the first byte lies, and counts and strides of as many dimensions as a form has.

    Dimensions come by stride, the largest first; those that together are one are one.
    """
    low = sum(min(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
    dims: list[tuple[int, int]] = []
    for stride, count in sorted(
        ((abs(s), c) for c, s in zip(counts, strides, strict=True) if c > 1 and s), reverse=True
    ):
        if dims and dims[-1][1] == count * stride:
            count *= dims.pop()[0]
        dims.append((count, stride))
    while len(dims) > _DIMS:
        # more than a row holds: the innermost two as one that covers both
        (count, stride), (inner, step) = dims[-2:]
        dims[-2:] = [((count - 1) * stride + (inner - 1) * step + 1, 1)]
    rest = _DIMS - len(dims)
    return low, ((*(c for c, _ in dims), *(1,) * rest), (*(s for _, s in dims), *(0,) * rest))


def _meetings(touches: Any, forms: Any, node_of: Ints) -> tuple[Ints, Ints]:
    """Pairs of commands that touch common bytes on the chip (before, after): memory by memory."""
    found: list[tuple[Ints, Ints]] = [(np.zeros(0, dtype=np.int64),) * 2]
    known: dict[bytes, tuple[Ints, Ints]] = {}
    ends = np.flatnonzero(np.append(touches["place"][1:] != touches["place"][:-1], True)[: len(touches)]) + 1
    for begin, end in zip([0, *ends.tolist()], ends.tolist(), strict=False):
        mine = touches[begin:end]
        low = int(mine["address"].min())
        boxes, box_of = np.unique((mine["address"] - low) * len(forms) + mine["form"], return_inverse=True)
        commands, its_command = np.unique(mine["command"].astype(np.int64), return_inverse=True)
        # cores mostly do the same, each with engines of its own: nodes are numbered as they come
        _, first, its_node = np.unique(node_of[commands], return_index=True, return_inverse=True)
        local = np.argsort(np.argsort(first))[its_node]
        columns = [
            np.ascontiguousarray(its, dtype=np.int64)
            for its in (its_command.ravel(), local.ravel(), mine["is_write"], box_of.ravel())
        ]
        # of the content only the digest is kept: hundreds of cores have megabytes of it each
        key = sha256(b"".join(its.tobytes() for its in (*columns, boxes))).digest()
        pairs = known.get(key)
        if pairs is None:
            addresses, form = np.divmod(boxes, len(forms))
            its_counts, strides = forms["counts"][form], forms["strides"][form]
            word, size = _words_of(addresses, its_counts, strides)
            sides = (addresses // word, its_counts, strides)
            runs, starts, lengths = runs_of(*(np.ascontiguousarray(its) for its in sides), word)
            offsets, atoms, count = atoms_of(runs, starts, lengths, size)
            pairs = known[key] = meet(*columns, offsets, atoms, count, len(first))
        found.append((commands[pairs[0]], commands[pairs[1]]))
    return np.concatenate([its for its, _ in found]), np.concatenate([its for _, its in found])


def _words_of(addresses: Ints, counts: Ints, strides: Ints) -> tuple[int, int]:
    """Word size in bytes (every touched range is a multiple of it), and the number of words."""
    size = int((addresses + ((counts - 1) * strides).sum(axis=1)).max()) + 1
    is_run = (strides == 1) & (counts > 1)
    if not is_run.any(axis=1).all():
        return 1, size
    steps = np.where(is_run, counts, strides)[counts > 1]
    word = int(np.gcd(np.gcd.reduce(steps), np.gcd.reduce(addresses)))
    return word, -(-size // word)


@compiled("Tuple((int64[::1], int64[::1], int64[::1]))(int64[::1], int64[:, ::1], int64[:, ::1], int64)")
def runs_of(firsts: Any, counts: Any, strides: Any, word: int) -> Any:
    """The runs of boxes, in words: where each box's begin in the list, their first words, and how long a box's are."""
    boxes = len(firsts)
    offsets, lengths = np.zeros(boxes + 1, dtype=np.int64), np.ones(boxes, dtype=np.int64)
    for box in range(boxes):
        count = np.int64(1)
        for d in range(_DIMS):
            if strides[box, d] == 1 and counts[box, d] > 1:
                lengths[box] = counts[box, d] // word
            else:
                count *= counts[box, d]
        offsets[box + 1] = offsets[box] + count
    starts = np.empty(offsets[boxes], dtype=np.int64)
    for box in range(boxes):
        # each dimension repeats the runs of those inside it
        filled = offsets[box]
        starts[filled] = firsts[box]
        known = np.int64(1)
        for d in range(_DIMS - 1, -1, -1):
            if counts[box, d] > 1 and strides[box, d] != 1:
                for number in range(1, counts[box, d]):
                    for r in range(known):
                        starts[filled + number * known + r] = starts[filled + r] + number * (strides[box, d] // word)
                known *= counts[box, d]
    return offsets, starts, lengths


@compiled("int64[::1](int64[::1], int64)")
def _grown(values: Any, least: int) -> Any:
    """The values with room for at least so many, twice as many as before."""
    found = np.empty(max(least, 2 * len(values)), dtype=np.int64)
    found[: len(values)] = values
    return found


def atoms_of(runs: Ints, starts: Ints, lengths: Ints, size: int) -> tuple[Ints, Ints, int]:
    """The atoms of boxes in a memory of `size` words: where each box's begin in the list, the list, how many there are.

    Of a box: the range of its runs in `starts`, and how long each is. Each box adds a random number of 64 bits to its
    words, so that words of equal sums are of the same boxes.
    """
    marks = _mixed(np.arange(1, len(lengths) + 1, dtype=np.uint64)).view(np.int64)
    words, sums = _intervals(runs, starts, lengths, marks, size)
    _, first = np.unique(sums, return_index=True)
    # a word of each atom tells whether it belongs to a box
    marked = np.zeros(size + 1, dtype=np.int64)
    marked[words[first] + 1] = 1
    return *_contained(runs, starts, lengths, np.cumsum(marked)), len(first)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random, each always the same for the same value (the finisher of SplitMix64)."""
    found = values * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


@compiled("Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], int64)")
def _intervals(runs: Any, starts: Any, lengths: Any, marks: Any, size: int) -> Any:
    """Where words begin that are of the same boxes as their neighbours, and the sum of these boxes' marks."""
    changes = np.zeros(size + 1, dtype=np.int64)
    for box in range(len(lengths)):
        for r in range(runs[box], runs[box + 1]):
            changes[starts[r]] += marks[box]
            changes[starts[r] + lengths[box]] -= marks[box]
    count = np.int64(0)
    for at in range(size):
        count += changes[at] != 0
    words, sums = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    filled, total = np.int64(0), np.int64(0)
    for at in range(size):
        if changes[at]:
            total += changes[at]
            words[filled], sums[filled] = at, total
            filled += 1
    return words, sums


@compiled("Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1])")
def _contained(runs: Any, starts: Any, lengths: Any, before: Any) -> Any:
    """Which of some words each box has: where each box's begin in the list, and the list of their numbers.

    `before`: by word of the memory how many of them lie before it.
    """
    boxes, count = len(lengths), before[-1]
    offsets, found, filled = np.zeros(boxes + 1, dtype=np.int64), np.empty(count, dtype=np.int64), np.int64(0)
    seen_by = np.full(count, _NOBODY, dtype=np.int64)
    for box in range(boxes):
        for r in range(runs[box], runs[box + 1]):
            for number in range(before[starts[r]], before[starts[r] + lengths[box]]):
                if seen_by[number] != box:
                    seen_by[number] = box
                    if filled == len(found):
                        found = _grown(found, filled + 1)
                    found[filled] = number
                    filled += 1
        offsets[box + 1] = filled
    return offsets, found[:filled].copy()


@compiled(
    "Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64, int64)"
)
def meet(
    commands: Any, nodes: Any, writes: Any, boxes: Any, offsets: Any, atoms: Any, atom_count: int, node_count: int
) -> Any:
    """Pairs of commands (before, after) that meet in one memory: of each node before the last one.

    Touches come in order: the command of each, whether it writes, which box; `nodes`: by command. Whoever reads has
    waited for the writer, so a write waits for readers since, and for the writer if there are none.
    """
    writer = np.full(atom_count, _NOBODY, dtype=np.int64)
    # readers since the last write: lists of cells, one for each node
    heads = np.full(atom_count, _NOBODY, dtype=np.int64)
    readers, following = np.empty(64, dtype=np.int64), np.empty(64, dtype=np.int64)
    used, free = np.int64(0), np.int64(_NOBODY)
    latest = np.full(node_count, _NOBODY, dtype=np.int64)
    met, met_count = np.empty(node_count, dtype=np.int64), 0
    before, after, filled = (
        np.empty(len(commands), dtype=np.int64),
        np.empty(len(commands), dtype=np.int64),
        np.int64(0),
    )
    for i in range(len(commands)):
        command = commands[i]
        node = nodes[command]
        for a in range(offsets[boxes[i]], offsets[boxes[i] + 1]):
            atom = atoms[a]
            cell = heads[atom]
            if writes[i] and cell != _NOBODY:
                while True:
                    its = nodes[readers[cell]]
                    if latest[its] == _NOBODY:
                        met[met_count] = its
                        met_count += 1
                    latest[its] = max(latest[its], readers[cell])
                    if following[cell] == _NOBODY:
                        break
                    cell = following[cell]
                following[cell], free = free, heads[atom]
                heads[atom] = _NOBODY
            elif writer[atom] != _NOBODY:
                its = nodes[writer[atom]]
                if latest[its] == _NOBODY:
                    met[met_count] = its
                    met_count += 1
                latest[its] = max(latest[its], writer[atom])
            if writes[i]:
                writer[atom] = command
                continue
            while cell != _NOBODY and nodes[readers[cell]] != node:
                cell = following[cell]
            if cell == _NOBODY:
                cell = free
                if cell == _NOBODY:
                    if used == len(readers):
                        readers, following = _grown(readers, used + 1), _grown(following, used + 1)
                    cell = used
                    used += 1
                else:
                    free = following[cell]
                following[cell], heads[atom] = heads[atom], cell
            readers[cell] = command
        if i + 1 == len(commands) or commands[i + 1] != command:
            for m in range(met_count):
                its = met[m]
                if its != node:
                    if filled == len(before):
                        before, after = _grown(before, filled + 1), _grown(after, filled + 1)
                    before[filled], after[filled] = latest[its], command
                    filled += 1
                latest[its] = _NOBODY
            met_count = 0
    return before[:filled].copy(), after[:filled].copy()
