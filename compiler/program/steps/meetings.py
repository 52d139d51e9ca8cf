"""Which commands touch common bytes of a memory, one of them writing.

A shadow of each memory keeps its last writer, and who has read since; not byte by byte: bytes that belong to the same
touched boxes have the same history, and are one *atom*.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.machine_code import compiled
from compiler.program.timing.ticks import Ints

_NOBODY: Final = -1


def meetings_of(touches: Any, forms: Any, node_of: Ints, group_of: Ints) -> tuple[Ints, Ints]:
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
            for its in (its_command.ravel(), local.ravel(), mine["is_write"], box_of.ravel(), group_of[commands])
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
            pairs = known[key] = _meetings_in(offsets, atoms, count, *columns)
        found.append((commands[pairs[0]], commands[pairs[1]]))
    return np.concatenate([its for its, _ in found]), np.concatenate([its for _, its in found])


def _meetings_in(
    offsets: Ints, atoms: Ints, count: int, commands: Ints, nodes: Ints, writes: Ints, boxes: Ints, groups: Ints
) -> tuple[Ints, Ints]:
    """Pairs of commands that meet in one memory; `nodes` and `groups`: by command, the rest as `meet` has it.

    Boxes of all groups together cut a memory into many atoms, those of one group into few. So commands of one group are
    sought on its own atoms, and those of different groups among what others see: touches before which its group has not
    written all of the bytes, and each node's last of a box.
    """
    box_count, node_count = len(offsets) - 1, int(nodes.max()) + 1
    own, own_of = np.unique(groups[commands] * box_count + boxes, return_inverse=True)
    own_groups, own_boxes = np.divmod(own, box_count)
    own_offsets, own_atoms, own_count = _own_atoms(own_groups, own_boxes, offsets, atoms, count)
    before, after, is_first = meet(commands, nodes, writes, own_of, own_offsets, own_atoms, own_count, node_count)
    # from behind, each node's last touch of a box comes first
    alike = (own_of * node_count + nodes[commands]) * 2 + writes
    is_first[len(alike) - 1 - np.unique(alike[::-1], return_index=True)[1]] = True
    seen = [np.ascontiguousarray(its[is_first]) for its in (commands, writes, boxes)]
    one, other, _ = meet(seen[0], nodes, *seen[1:], offsets, atoms, count, node_count)
    apart = groups[one] != groups[other]
    return np.concatenate([before, one[apart]]), np.concatenate([after, other[apart]])


@compiled("Tuple((int64[::1], int64[::1], int64))(int64[::1], int64[::1], int64[::1], int64[::1], int64)")
def _own_atoms(groups: Any, boxes: Any, offsets: Any, atoms: Any, count: int) -> Any:
    """The atoms of each group's boxes: as `atoms_of` has them, with each box of a group as one; groups ascend."""
    total = 0
    for box in boxes:
        total += offsets[box + 1] - offsets[box]
    # each box splits the parts that it has bytes of; a part is an atom when all boxes of the group have done so
    part_of, parts = np.zeros(count, dtype=np.int64), np.int64(0)
    split_by = np.full(total + len(boxes), _NOBODY, dtype=np.int64)
    split_to = np.empty(total + len(boxes), dtype=np.int64)
    found_offsets, found, filled = (
        np.zeros(len(boxes) + 1, dtype=np.int64),
        np.empty(total, dtype=np.int64),
        np.int64(0),
    )
    begin = 0
    while begin < len(boxes):
        end = begin
        part_of[:] = parts
        parts += 1
        while end < len(boxes) and groups[end] == groups[begin]:
            for a in range(offsets[boxes[end]], offsets[boxes[end] + 1]):
                part = part_of[atoms[a]]
                if split_by[part] != end:
                    split_by[part], split_to[part] = end, parts
                    parts += 1
                part_of[atoms[a]] = split_to[part]
            end += 1
        for own in range(begin, end):
            for a in range(offsets[boxes[own]], offsets[boxes[own] + 1]):
                part = part_of[atoms[a]]
                # parts that are left are split by nobody
                if split_by[part] != -2 - own:
                    split_by[part] = -2 - own
                    found[filled] = part
                    filled += 1
            found_offsets[own + 1] = filled
        begin = end
    return found_offsets, found[:filled].copy(), parts


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
        for d in range(counts.shape[1]):
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
        for d in range(counts.shape[1] - 1, -1, -1):
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
    "Tuple((int64[::1], int64[::1], boolean[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64, int64)"
)
def meet(
    commands: Any, nodes: Any, writes: Any, boxes: Any, offsets: Any, atoms: Any, atom_count: int, node_count: int
) -> Any:
    """Pairs of commands (before, after) that meet in one memory: of each node before the last one; and by touch whether
    it has bytes that nobody wrote before.

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
    is_first = np.zeros(len(commands), dtype=np.bool_)
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
            is_first[i] |= writer[atom] == _NOBODY
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
    return before[:filled].copy(), after[:filled].copy(), is_first
