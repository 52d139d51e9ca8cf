"""The geometry of a group: its boxes, projected from output tiles back to its inputs (TILE-1).

A tile grid is one list of ranges per axis of the group's output. Projection goes axis by axis, so a tensor's box for
tile (n, c, h, w) is the product of its ranges for n, c, h and w, and bytes summed over all tiles are products of
sums. Candidate tile sizes of an axis are projected in one pass, side by side in one flat array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.unit import largest_table_bytes
from compiler.ir.box import Ints
from compiler.lazy import lazy
from compiler.ops.base import OpClass, Window
from compiler.ops.op_facts import GraphFacts, Operand, OpFacts, TensorFacts
from compiler.tiling.projection import Box, Projection, Projections, Reading, TensorBoxes
from compiler.tiling.runs import Run, runs_of
from compiler.units import ceil_div

# Tensors with the first and the last step at which each is held.
Lifetimes = tuple[tuple[str, ...], Ints, Ints]

# Up to so many entries a table of tensors held per step is cheap.
_SMALL: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Candidate tilings of one axis: for each size, the ranges that cover the axis, clipped at its end.

    `starts` and `stops` hold the ranges of all candidates one after another; `offsets` is where each begins.
    """

    extent: int
    sizes: Ints
    starts: Ints
    stops: Ints
    offsets: Ints

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Where each candidate's ranges begin."""
        result = np.zeros(len(self.starts), dtype=np.bool_)
        result[self.offsets] = True
        return result

    @property
    def counts(self) -> Ints:
        """Number of ranges of each candidate that hold anything."""
        return np.asarray(np.add.reduceat((self.stops > self.starts).astype(np.int64), self.offsets))

    @classmethod
    def of_sizes(cls, extent: int, sizes: Ints) -> Grid:
        """Every axis of `extent` cut into ranges of each size; each position is covered once."""
        counts = -(-extent // sizes)
        offsets = np.concatenate(([0], np.cumsum(counts)[:-1]))
        step = np.repeat(sizes, counts)
        starts = (np.arange(int(counts.sum())) - np.repeat(offsets, counts)) * step
        return cls(
            extent=extent,
            sizes=sizes,
            starts=starts,
            stops=np.minimum(starts + step, extent),
            offsets=offsets,
        )

    @classmethod
    def nested(cls, extent: int, tile: int, sizes: Ints) -> Grid:
        """Tiles of size `tile`, each cut again into ranges of each size that stop at the tile's end."""
        per_tile = -(-min(tile, extent) // sizes)
        tiles = -(-extent // tile)
        counts = per_tile * tiles
        offsets = np.concatenate(([0], np.cumsum(counts)[:-1]))
        position = np.arange(int(counts.sum())) - np.repeat(offsets, counts)
        size, pieces = np.repeat(sizes, counts), np.repeat(per_tile, counts)
        begin = position // pieces * tile
        starts = begin + position % pieces * size
        stops = np.minimum(starts + size, np.minimum(begin + tile, extent))
        # the last tile may be shorter than the others: pieces beyond its end are empty
        starts = np.minimum(starts, stops)
        return cls(extent=extent, sizes=sizes, starts=starts, stops=stops, offsets=offsets)


class GroupGeometry:
    """The ops of a group, in execution order, and the tensors that enter, stay and leave."""

    def __init__(self, facts: GraphFacts, ops: Sequence[int], projections: Projections | None = None) -> None:
        """`projections`: what groups of these facts share; None: nothing is shared."""
        self.facts = facts
        self.projections = Projections() if projections is None else projections
        # the frustums of this group, by their tiles
        self.known: dict[Projection, Any] = {}
        # by number of parts of the channels, as `sharing.py` works them out
        self.passed_parts: dict[int, Mapping[int, float]] = {}
        # figures of the group under any of its tilings, by what decides them
        self.worked_out: dict[tuple[object, ...], Any] = {}
        self.indices = tuple(sorted(ops))
        self.ops: tuple[OpFacts, ...] = tuple(facts.ops[index] for index in self.indices)
        members = set(self.indices)
        graph = facts.graph
        outputs = set(graph.outputs)
        self.made = tuple(op.output for op in self.ops)
        self.outputs = tuple(
            name
            for name in self.made
            if name in outputs or any(user not in members for user in graph.consumers.get(name, ()))
        )
        made = set(self.made)
        self.inputs = tuple(
            dict.fromkeys(
                operand.tensor
                for op in self.ops
                for operand in op.operands
                if not operand.constant and operand.tensor not in made
            )
        )
        self.weights = tuple(
            dict.fromkeys(operand.tensor for op in self.ops for operand in op.operands if operand.constant)
        )
        # The last output gives the tile grid; a result that nobody reads still has to be made.
        self.primary = (self.outputs or self.made)[-1]

    def forget_frustums(self) -> None:
        """Forget the frustums of tilings that are chosen or given up: they know the geometry, a reference cycle."""
        self.known.clear()

    @property
    def output(self) -> TensorFacts:
        """The tensor whose axes are tiled."""
        return self.facts.tensors[self.primary]

    @lazy
    def lifetimes(self) -> Lifetimes:
        """Activation tensors with the first and the last step at which each is held.

        Inputs are held all the time, since the next tile's come into a buffer of their own beside them; results until
        their last reader has run, outputs until the end. An op that may work in place takes over the space of an
        operand that dies with it.
        """
        names = (*self.inputs, *self.made)
        last = {name: step for name, step in self._last_readers.items() if name not in self.inputs}
        first = dict.fromkeys(self.inputs, 0)
        for name in (*self.inputs, *self.outputs):
            last[name] = len(self.ops)
        for step, op in enumerate(self.ops):
            source = self.takes_over.get(op.output)
            first[op.output] = step if source is None else step + 1
            if source is not None:
                last[source] = step
            last[op.output] = max(last.get(op.output, -1), step)
        over = {source: name for name, source in self.takes_over.items()}
        for name in self.inputs:
            # the next tile's input comes where this one's was, whatever has been written over that
            while name in over:
                name = over[name]
            last[name] = len(self.ops)
        return (
            names,
            np.array([first[name] for name in names], dtype=np.int64),
            np.array([last[name] for name in names], dtype=np.int64),
        )

    @lazy
    def read(self) -> tuple[tuple[str, ...], ...]:
        """Per op the activations that it reads, each once."""
        return tuple(tuple(dict.fromkeys(o.tensor for o in op.operands if not o.constant)) for op in self.ops)

    @lazy
    def _last_readers(self) -> Mapping[str, int]:
        """The last step that reads each activation."""
        return {o.tensor: step for step, op in enumerate(self.ops) for o in op.operands if not o.constant}

    @lazy
    def takes_over(self) -> Mapping[str, str]:
        """Results that are written over an operand, position by position, and that operand.

        The operand is of equal size, and only this op reads it, position by position: then its boxes are the result's.
        """
        found: dict[str, str] = {}
        readers: dict[str, int] = {}
        for op in self.ops:
            for name in {o.tensor for o in op.operands}:
                readers[name] = readers.get(name, 0) + 1
        for op in self.ops:
            if not op.in_place or op.op_class is OpClass.VIEW:
                continue
            for operand in op.operands:
                name = operand.tensor
                alone = not operand.constant and readers[name] == 1 and name not in self.outputs
                exact = operand.is_positionwise(self._rank(op))
                if alone and exact and self._same_size(name, op.output):
                    found[op.output] = name
                    break
        return found

    @lazy
    def is_in_place(self) -> bool:
        """True if the group's result may overwrite its input: position by position, one output of equal size."""
        aligned = all(
            operand.is_positionwise(self._rank(op))
            for op in self.ops
            for operand in op.operands
            if not operand.constant and self._same_size(operand.tensor, op.output)
        )
        return (
            aligned
            and all(op.in_place and op.op_class is not OpClass.VIEW for op in self.ops)
            and len(self.outputs) == 1
            and any(self._same_size(name, self.outputs[0]) for name in self.inputs)
        )

    @lazy
    def runs(self) -> tuple[Run, ...]:
        """The ops that a core takes together piece by piece, breadth-first under an SRAM."""
        return runs_of(self.facts, self.ops, frozenset(self.outputs))

    @lazy
    def _over_runs(self) -> tuple[Lifetimes, Lifetimes]:
        """Lifetimes in an SRAM over which cores pass run by run, as `lifetimes` and as `sliced_lifetimes`.

        What a run reads or makes is held for all of it: other pieces still read what its first op reads when the
        results of its last op come. A result written over an operand comes after it even so, and what is made and read
        in one run only passes there.
        """
        names = self.lifetimes[0]
        end = len(self.ops)
        begins, ends = (np.full(end + 1, end) for _ in range(2))
        for run in self.runs:
            begins[list(run.steps)], ends[list(run.steps)] = run.steps[0], run.steps[-1]
        outside = {name for run in self.runs for name in (*run.inputs, *run.results)}
        groups = (self.takes_over.keys(), self.takes_over.values(), outside)
        over, under, other = (np.array([name in found for name in names], dtype=np.bool_) for found in groups)
        early, late = ~over & (other | under), ~under & (other | over)
        plain, sliced = (
            (names, np.where(early, begins[first], first), np.where(late, ends[last], last))
            for _, first, last in (self.lifetimes, self.sliced_lifetimes)
        )
        return plain, sliced

    def _held_when(self, sliced: bool, by_runs: bool) -> Lifetimes:
        if by_runs:
            return self._over_runs[sliced]
        return self.sliced_lifetimes if sliced else self.lifetimes

    @lazy
    def _held(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """1 where a tensor is held at a step, by ops and by runs; for small groups, where matrix products are fast."""
        if len(self.ops) * len(self.lifetimes[0]) > _SMALL:
            return None
        steps = np.arange(len(self.ops))[:, None]
        ops, runs = (
            ((first <= steps) & (steps <= last)).astype(np.float64)
            for _, first, last in (self.lifetimes, self._over_runs[0])
        )
        return ops, runs

    @lazy
    def sliced_lifetimes(self) -> Lifetimes:
        """As `lifetimes`, where slices of the channels follow one another: what they share is held until the end.

        What is written over is not needed again: what takes its place is shared too.
        """
        names, first, last = self.lifetimes
        boxes, over = self.channel_boxes, set(self.takes_over.values())
        shared = np.array([name not in over and not any(a == "C" for a, _, _ in boxes[name]) for name in names])
        return names, first, np.where(shared, len(self.ops), last)

    def peak(self, volumes: NDArray[np.float64], *, sliced: bool = False, by_runs: bool = False) -> NDArray[np.float64]:
        """The most bytes held at any step; `volumes` are bytes [tensor, candidate] in the order of `lifetimes`.

        by_runs: in an SRAM over which cores pass run by run.
        """
        if self._held is not None and not sliced:
            return np.asarray((self._held[by_runs] @ volumes).max(axis=0))
        _, first, last = self._held_when(sliced, by_runs)
        change = np.zeros((len(self.ops) + 2, volumes.shape[1]))
        np.add.at(change, first, volumes)
        np.subtract.at(change, last + 1, volumes)
        return np.asarray(np.cumsum(change[:-2], axis=0).max(axis=0))

    def peak_of(
        self,
        sizes: Mapping[str, int],
        *,
        sliced: bool = False,
        by_runs: bool = False,
        over: Mapping[str, str] | None = None,
    ) -> int:
        """As `peak`, for bytes by tensor.

        `over`: what of `takes_over` comes true. Its space keeps the operand's size; other results are there beside
        their operands in the step that writes them.
        """
        names, first, last = self._held_when(sliced, by_runs)
        apart = () if over is None else self.takes_over.keys() - over.keys()
        if over:
            sizes = dict(sizes)
            for op in self.ops:
                if op.output in over:
                    sizes[op.output] = sizes[over[op.output]]
        change = [0] * (len(self.ops) + 2)
        for name, begin, end in zip(names, first.tolist(), last.tolist(), strict=True):
            change[begin - (name in apart)] += sizes[name]
            change[end + 1] -= sizes[name]
        most = live = 0
        for difference in change[: len(self.ops)]:
            live += difference
            most = max(most, live)
        return most

    @lazy
    def channel_boxes(self) -> Mapping[str, Box]:
        """Every activation's box for the first channel of the output, or whole boxes if that has no channels."""
        if "C" not in self.output.axes:
            return self.whole_boxes
        projection = self.projections.known.get(("first channel",))
        if not isinstance(projection, Projection):
            projection = Projection({}, {"C": (np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))})
            self.projections.known["first channel",] = projection
        return {name: boxes.ranges for name, boxes in self.boxes_under(projection).items()}

    @property
    def whole_boxes(self) -> Mapping[str, Box]:
        """What is needed of every activation for the whole output."""
        return {name: boxes.ranges for name, boxes in self.boxes_under(self.projections.of({})).items()}

    @lazy
    def channels_follow(self) -> bool:
        """True if every op's channels follow those of the group's output, so that a slice can be made alone."""
        return self.channels_follow_in(self.channel_boxes)

    def channels_follow_in(self, boxes: Mapping[str, Box]) -> bool:
        """True if in these boxes every op's channels are those of the group's output, one to one, and follow alone."""
        if "C" not in self.output.axes or not all(op.channels_apart for op in self.ops):
            return False
        channel = self.output.axes.index("C")
        extent, (_, starts, stops) = self.output.shape[channel], boxes[self.primary][channel]
        for op in self.ops:
            following = [number for number, (axis, _, _) in enumerate(boxes[op.output]) if axis == "C"]
            if op.channel_axis is None or following != [op.channel_axis]:
                return False
            _, begin, end = boxes[op.output][op.channel_axis]
            same = np.array_equal(begin, starts) and np.array_equal(end, stops)
            if self.facts.tensors[op.output].shape[op.channel_axis] != extent or not same:
                return False
        return True

    @lazy
    def first_readers(self) -> Mapping[int, tuple[str, ...]]:
        """The group's inputs by the op (its index) that reads each of them first."""
        found: dict[int, list[str]] = {}
        seen: set[str] = set()
        for op in self.ops:
            for operand in op.operands:
                if operand.tensor in self.inputs and operand.tensor not in seen:
                    seen.add(operand.tensor)
                    found.setdefault(op.index, []).append(operand.tensor)
        return {index: tuple(names) for index, names in found.items()}

    @lazy
    def largest_element_bytes(self) -> int:
        """Bytes of the widest element of all tensors."""
        names = {operand.tensor for op in self.ops for operand in op.operands}.union(self.made)
        return max(self.facts.tensors[name].element_bytes for name in names)

    @lazy
    def table_bytes(self) -> tuple[int, ...]:
        """Per op the bytes of its largest address table; 0 if it has no window, or one too wide for a table."""
        known, found = self.projections.known, []
        for op in self.ops:
            size = known.get(("table", op.index))
            if not isinstance(size, int):
                size = 0 if op.window is None else self._largest_table_bytes(op, op.window)
                known["table", op.index] = size
            found.append(size)
        return tuple(found)

    def _largest_table_bytes(self, op: OpFacts, window: Window) -> int:
        output, data = (self.facts.tensors[name] for name in (op.output, op.operands[0].tensor))
        return largest_table_bytes(window, output.shape, data.shape, data.order)

    @lazy
    def output_bytes(self) -> int:
        """Bytes of the outputs."""
        return sum(map(self.facts.tensor_bytes, self.outputs))

    @lazy
    def input_bytes(self) -> int:
        """Bytes of the inputs."""
        return sum(map(self.facts.tensor_bytes, self.inputs))

    @lazy
    def weight_bytes(self) -> int:
        """Bytes of the weights of all ops."""
        return sum(op.weight_bytes for op in self.ops)

    @lazy
    def needed_inputs(self) -> dict[str, int]:
        """Per input the bytes of the part that the outputs need, once."""
        boxes = self.whole_boxes
        return {
            name: prod(max(0, int(stops[0] - starts[0])) for _, starts, stops in boxes[name])
            * self.facts.tensors[name].element_bytes
            for name in self.inputs
        }

    @lazy
    def needed_input_bytes(self) -> int:
        """The same of all inputs."""
        return sum(self.needed_inputs.values())

    @lazy
    def product(self) -> OpFacts | None:
        """The group's only product, if it can be summed in parts.

        It is the first op; what it reads no other op does, nor it twice; all after it goes position by position.
        """
        first = self.ops[0]
        if first.matrix is None or not first.sums_in_parts or first.matrix.in_channels == 1:
            return None
        names = [operand.tensor for operand in first.operands if not operand.constant]
        read = set(names)
        if len(read) < len(names):
            return None
        for op in self.ops[1:]:
            if op.matrix is not None or any(operand.tensor in read for operand in op.operands):
                return None
            if not all(o.is_positionwise(self._rank(op)) for o in op.operands if not o.constant):
                return None
        return first

    @property
    def summed_extent(self) -> int:
        """Positions of the axis that the group's product sums over, taps apart; 1 if it has none."""
        return 1 if self.product is None or self.product.matrix is None else self.product.matrix.in_channels

    def _rank(self, op: OpFacts) -> int:
        return len(self.facts.tensors[op.output].shape)

    def _same_size(self, a: str, b: str) -> bool:
        left, right = self.facts.tensors[a], self.facts.tensors[b]
        return left.element_bytes == right.element_bytes and prod(left.shape) == prod(right.shape)

    def project(self, grids: Mapping[str, tuple[Ints, Ints]]) -> dict[str, Box]:
        """Boxes of every tensor of the group for ranges of the output's axes, by axis name (TILE-1).

        Axes without ranges are whole. Boxes are the smallest that contain what all readers inside the group need to
        make their own boxes.
        """
        found = self.boxes_under(Projection({}, grids), constants=True)
        return {name: boxes.ranges for name, boxes in found.items()}

    def boxes_under(self, projection: Projection, *, constants: bool = False) -> dict[str, TensorBoxes]:
        """Boxes of every activation of the group under a projection's tiles, with `constants` of these too.

        Where halos are not recomputed, what is needed is needed for what a tile makes anew (TILE-3).
        """
        tensors, primary = self.facts.tensors, self.output
        found = {name: projection.output(tensors[name], primary) for name in self.outputs or (self.primary,)}
        for op, reads in zip(reversed(self.ops), reversed(self._reads), strict=True):
            boxes = found.get(op.output)
            if boxes is None:
                boxes = found[op.output] = projection.output(tensors[op.output], primary, is_cut=False)
            if not projection.is_recomputed:
                boxes = boxes.anew
            for name, reading, constant in reads:
                if constant and not constants:
                    continue
                needed = boxes.needed.get(reading) or boxes.read(reading)
                known = found.get(name)
                found[name] = needed if known is None or known is needed else known.joined(needed)
        return found

    @lazy
    def _reads(self) -> list[list[tuple[str, Reading, bool]]]:
        """Per op what it reads, and how."""
        return [[(o.tensor, self.reading(o), o.constant) for o in op.operands] for op in self.ops]

    def reading(self, operand: Operand) -> Reading:
        """How an op reads an operand."""
        return self.projections.reading(operand.access, self.facts.tensors[operand.tensor].shape)

    def content(self) -> tuple[object, ...]:
        """What decides the group's tiling and cost, without names: equal content, equal cost."""
        number: dict[str, int] = {}
        parts: list[object] = []
        for op in self.ops:
            ids = tuple(number.setdefault(operand.tensor, len(number)) for operand in op.operands)
            number[op.output] = len(number)
            parts.append((self.facts.numbers[op.index], ids, number[op.output], op.output in self.outputs))
        return tuple(parts)


def reads_own_channels(op: OpFacts) -> bool:
    """True if a slice of the op's output channels needs only that slice of its activations."""
    channel = op.channel_axis
    return channel is not None and all(
        any(axis_map.axis == channel for axis_map in operand.access) for operand in op.operands if not operand.constant
    )


def largest_part(extent: int, parts: int) -> Fraction:
    """The largest of `parts` parts of an axis, as a fraction of it."""
    return Fraction(ceil_div(extent, parts), extent)


def share_of_weight(size_bytes: int, channels: int, parts: int) -> int:
    """Bytes of the largest of `parts` parts of a weight, cut by output channels; whole if it does not follow them."""
    return ceil_div(channels, parts) * (size_bytes // channels) if channels > 1 else size_bytes
