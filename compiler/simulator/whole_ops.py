"""Whole results of a program's ops, each computed once, from which calls store their boxes (SIM-1).

A call computes a box of its op's result from boxes of its operands. The whole op has all these boxes in one result. A
call may store its box of that in place of computing it, if

- what it reads, at the addresses and boxes that it binds, equals bit for bit its boxes of the whole operands, and so
  do the words of the address tables that it reads through, and
- one call of its *kind* has run its kernel, which agreed with the whole result within rounding. Calls of one kind
  have the step, the table, the lengths of all boxes, the ends of tensors that these reach, and the phase of their
  results in common (`_periods`). Of a kind with many calls in a window, the last one runs its kernel too.

Every other call runs its kernel: with a wrong address, box, wait or halo it reads something else.

A call that makes a part of a sum stores its box of the whole *partial sums*: those of the whole op up to where its part
ends, added part by part as calls do. If it does not begin the sum, the sums that it reads have to equal their box of
those up to where its part begins. The call that ends a sum stores its box of the whole result.

Whole operands are what the program has: regions that it is given, copies of other regions, whole results of its group,
and of earlier groups where a tensor stays on the chip. If these are incomplete or wrong, calls read something else,
which is safe. The whole op is that of the unit, with its attributes and the whole shapes of its table. The graph only
names the operands of a step.

Whole results are kept for one group at a time, but for those that later groups read on the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from math import gcd, lcm, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.table import ENTRY_BYTES
from compiler.errors import TesseraError
from compiler.ir.box import Ints
from compiler.ir.graph import Graph
from compiler.ops import ALL_KINDS, call_of, definition
from compiler.ops.base import Call
from compiler.ops.contraction import Product
from compiler.ops.slab import Box, Slab
from compiler.program.addressed import Addressed
from compiler.program.calls import HOSTILE, TableGeometry, call_of_unit
from compiler.program.fields import is_call
from compiler.program.pieces import Pieces
from compiler.program.program import Opcode, Program, Region
from compiler.program.strided import Flags
from compiler.simulator.calls import Commands, scale_of
from compiler.simulator.compare import agree_within_rounding
from compiler.simulator.kernels import Action
from compiler.simulator.moves import Boxes, together
from compiler.simulator.whole_tensors import NO_USE, Use, Whole, WholeTensors
from compiler.units import numpy_dtype

# Where no access says how a result's starts matter, they are told apart modulo 2, 3 and 4, so that kinds stay few.
_PERIOD_OF_THE_REST: Final = 12
# A window's last call of a kind runs its kernel if the kind has as many calls there: at most so small a part of them.
_MANY_CALLS: Final = 16
# Elements of which sums in parts are made together: as float64 they take half of a core's second cache of 1 MiB.
_CACHED: Final = 1 << 16
# No whole tensor.
_NONE: Final = -1
# What is known of a kind: nothing, that kernel and whole result agree, that they do not.
_UNKNOWN, _AGREES, _DIFFERS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """The calls of a window's commands: `uses` (-1: none), `kinds` of their tiles, and which of them `asks` always.

    `ends`: where the partial sums end that a call stores; 0: it stores results. `boxes`: what those with a use compare
    and store.
    """

    uses: Ints
    kinds: Ints
    ends: Ints
    asks: Flags
    boxes: Boxes | None


class WholeOps:
    """The whole results of one program's ops.

    `memory`: the chip's memories; `region` gives a region's view there, and `dram` is where the DRAM begins in them.
    """

    def __init__(
        self,
        program: Program,
        graph: Graph,
        memory: Callable[[], NDArray[np.uint8]],
        region: Callable[[Region], NDArray[Any]],
        dram: int,
    ) -> None:
        self._program, self._graph, self._memory, self._view_of = program, graph, memory, region
        self._regions = {region.name: region for region in program.regions}
        self._tensors = WholeTensors(program, graph, dram)
        self._dram = dram
        self.bytes = np.zeros(self._tensors.size_bytes, dtype=np.uint8)
        self._group = ""
        self._passed: set[str] = set()
        self._filled: dict[str, bool] = {}
        self._kinds: dict[tuple[int, bytes], int] = {}
        # by kind, what is known of it
        self.settled: Ints = np.zeros(0, dtype=np.int64)

    # --- their values ---------------------------------------------------------------------------------------------

    def is_ready(self, use: int) -> bool:
        """Computes what a use needs; False if it cannot be had, or if its group is over."""
        found = self._tensors.uses[use] if use >= 0 else None
        if found is None or found.group in self._passed:
            return False
        if found.group != self._group:
            # another group's results take the memory
            self._passed.add(self._group)
            self._group = found.group
            self._filled = {name: had for name, had in self._filled.items() if name in self._tensors.kept}
            self.settled[self.settled == _AGREES] = _UNKNOWN
        wholes = (*found.operands, found.result)
        return all(one is None or self._is_filled(one) for one in wholes)

    def _view(self, whole: Whole) -> NDArray[Any]:
        memory = self._memory() if whole.is_given else self.bytes
        return np.ndarray(whole.shape, numpy_dtype(whole.dtype), memory, whole.offset, whole.strides)

    def _is_filled(self, whole: Whole) -> bool:
        if whole.is_given or whole.name in self._filled:
            return whole.is_given or self._filled[whole.name]
        self._filled[whole.name] = False
        values = self._values(whole)
        if values is not None and (values.shape, values.dtype) == (whole.shape, numpy_dtype(whole.dtype)):
            self._view(whole)[...] = values
            self._filled[whole.name] = True
        return self._filled[whole.name]

    def _values(self, whole: Whole) -> NDArray[Any] | None:
        """The values of a whole tensor: of its op, or else of its region; None if they cannot be had."""
        made = self._tensors.made[self._group].get(whole.name)
        try:
            if made is not None:
                return self._result(made)
            region = self._regions.get(whole.name)
            if region is not None:
                return self._view_of(region)
            if not self._tensors.is_view(whole.name):
                return None
            op = self._graph.ops[self._graph.producer[whole.name]]
            source = self._tensors.slots[self._group].get(op.inputs[0])
            if source is None or not self._is_filled(source):
                return None
            return definition(op).evaluate(call_of(self._graph, op), (self._view(source),))
        except (TesseraError, *HOSTILE):
            return None

    def _result(self, use: int) -> NDArray[Any] | None:
        """The whole result of a unit's op, from its whole operands; its whole sums are filled as well."""
        found = self._tensors.uses[use]
        if found is None or not all(one is None or self._is_filled(one) for one in found.operands):
            return None
        table = self._program.tables[found.table]
        unit = self._program.units[table.unit]
        call = call_of_unit(unit, table, f"table {found.table}")
        arrays: list[Any] = []
        for one, operand in zip(found.operands, unit.operands, strict=True):
            values = None if one is None else self._view(one)
            if values is not None and operand is not None and operand.decode is not None:
                values = scale_of(operand.decode, operand, values.ndim)(values, (slice(None),) * values.ndim)
            arrays.append(values)
        kind = ALL_KINDS[unit.kind]
        known = {number: arrays[number] for number in kind.constant_inputs if number < len(arrays)}
        call = replace(call, values=known)
        if not found.sums:
            return kind.evaluate(call, tuple(arrays))
        assert isinstance(kind, Product)
        return self._in_parts(found, kind, replace(call, maps=kind.access(call)), arrays)

    def _in_parts(self, use: Use, kind: Product, call: Call, arrays: list[Any]) -> NDArray[Any]:
        """The whole result of sums that are made in parts, which fills the whole sums; block by block."""
        slabs = [None if array is None else Slab(_all(array.shape), array) for array in arrays]
        axes, result = kind.summed(call) or (), self._view(use.result)
        parts = [
            (
                tuple(slab and _part(slab, axis, start, stop) for slab, axis in zip_longest(slabs, axes)),
                self._view(use.sums[stop]) if stop in use.sums else None,
            )
            for start, stop in pairwise([0, *use.sums, kind.summed_extent(call)])
        ]
        for box in _blocks(use.result.shape):
            index = tuple(slice(*along) for along in box)
            sums: Any = None
            for factors, into in parts:
                added = kind.compute_box(call, box, factors, partial=True)
                sums = added if sums is None else kind.joined(sums, added).astype(added.dtype, copy=False)
                if into is not None:
                    into[index] = sums
            result[index] = kind.finish(call, box, sums, slabs[kind.factors(call) :])
        return result

    # --- calls ----------------------------------------------------------------------------------------------------

    def take(self, window: Commands, offsets: Ints) -> Calls:
        """The calls of a window; `offsets`: where each place begins in the chip's memories."""
        program, pieces = window.program, window.pieces
        commands = program.commands
        uses = np.full(len(commands), NO_USE, dtype=np.int64)
        kinds, ends = np.zeros_like(uses), np.zeros_like(uses)
        calling = np.flatnonzero(commands["opcode"] == Opcode.COMPUTE)
        if pieces is None or not len(calling):
            return Calls(uses=uses, kinds=kinds, ends=ends, asks=is_call(commands["opcode"]), boxes=None)
        called = program.calls["table"][commands["call"][calling]]
        uses[calling] = self._tensors.numbers(commands["step"][calling], called)
        asks = is_call(commands["opcode"]) & (uses < 0)
        read, stored = np.full_like(uses, _NONE), np.full_like(uses, _NONE)
        for number in np.unique(uses[uses >= 0]).tolist():
            use, its = self._tensors.use(number), np.flatnonzero(uses == number)
            entries = program.calls["entry"][commands["call"][its]]
            geometry, rows = window.book.geometry(use.table), program.tables[use.table].entries[entries]
            kinds[its] = self._kinds_of(number, geometry, entries, rows)
            sums = np.array([*use.sums], dtype=np.int64)
            at = np.array([whole.offset for whole in use.sums.values()], dtype=np.int64)
            adds, leaves = (geometry.partial[entries] & (rows[name] == 0) for name in ("begins", "ends"))
            known = (~adds | np.isin(rows["sum_start"], sums)) & (~leaves | np.isin(rows["sum_stop"], sums))
            asks[its[~known]] = True
            uses[its[~known & leaves]] = NO_USE
            stored[its[known | ~leaves]] = use.result.offset
            adds, leaves = adds & known, leaves & known
            read[its[adds]] = at[np.searchsorted(sums, rows["sum_start"][adds])]
            stored[its[leaves]] = at[np.searchsorted(sums, rows["sum_stop"][leaves])]
            ends[its[leaves]] = rows["sum_stop"][leaves]
        self.settled = np.pad(self.settled, (0, len(self._kinds) - len(self.settled)))
        asks[_last_of_many(np.flatnonzero((uses >= 0) & ~asks), kinds)] = True
        boxes = self._boxes(pieces, uses, ends > 0, read, stored, offsets)
        if window.addressed is not None:
            boxes.append(self._words(window.addressed, uses, offsets))
        return Calls(uses=uses, kinds=kinds, ends=ends, asks=asks, boxes=together(boxes))

    def _kinds_of(self, use: int, geometry: TableGeometry, entries: Ints, rows: Any) -> Ints:
        """The kind of tile of some entries (their `rows`) of a use's table."""
        starts, stops = geometry.starts[:, entries], geometry.stops[:, entries]
        # what an entry needs nothing of has the same marks wherever that is
        lengths = np.maximum(stops - starts, 0)
        is_needed = lengths.all(axis=2, keepdims=True)
        edges = ((starts == 0) & is_needed, (stops == geometry.shapes[:, None]) & is_needed)
        marks = np.concatenate([lengths * is_needed, *edges], axis=2).transpose(1, 0, 2).reshape(len(entries), -1)
        periods = _periods(geometry)
        phases = starts[0, :, : len(periods)] % periods
        marks = np.concatenate([marks, rows["begins"][:, None], rows["ends"][:, None], phases], axis=1)
        # few columns vary, and sorting rows by these is quicker than sorting whole rows
        varying = marks[:, (marks != marks[0]).any(axis=0)]
        order = np.lexsort(varying.T) if varying.size else np.arange(len(marks))
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = (marks[order[1:]] != marks[order[:-1]]).any(axis=1)
        rows = marks[order[is_new]]
        numbers = [self._kinds.setdefault((use, row.tobytes()), len(self._kinds)) for row in rows]
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.array(numbers, dtype=np.int64)[np.cumsum(is_new) - 1]
        return found

    def _boxes(self, pieces: Pieces, uses: Ints, sums: Flags, read: Ints, stored: Ints, offsets: Ints) -> list[Boxes]:
        """The boxes that calls compare with whole tensors, and those that they store.

        By command: `sums` is true where it leaves sums; where the sums begin that it is to read, and the whole tensor
        that it stores a box of (_NONE: none).
        """
        width = pieces.starts.shape[1]
        known = self._tensors.uses
        slots = 1 + max((len(use.operands) for use in known if use is not None), default=0)
        bases, is_given = np.zeros((len(known), slots), np.int64), np.zeros((len(known), slots), np.bool_)
        strides = np.zeros((len(known), slots, width), dtype=np.int64)
        for number, use in enumerate(known):
            for place, whole in enumerate((use.result, *use.operands) if use is not None else ()):
                if whole is not None:
                    bases[number, place], is_given[number, place] = whole.offset, whole.is_given
                    # other windows may have tensors of more axes
                    strides[number, place, : len(whole.strides)] = whole.strides[:width]

        def boxes(rows: Ints, actions: Any, bases: Ints, narrower: Any, wider: Any) -> Boxes:
            """Elements in memory are so many times narrower than those of the pieces, whole ones so much wider."""
            of_strides = strides[uses[pieces.commands[rows]], pieces.slots[rows]] * np.reshape(wider, (-1, 1))
            reach = (pieces.addresses[rows] - pieces.bases[rows]) // narrower
            return Boxes(
                commands=pieces.commands[rows],
                actions=np.broadcast_to(actions, len(rows)),
                words=pieces.element_bytes[rows] // narrower,
                at=offsets[pieces.places[rows]] + pieces.bases[rows] + reach,
                of=bases + (pieces.starts[rows] * of_strides).sum(axis=1),
                counts=pieces.stops[rows] - pieces.starts[rows],
                at_strides=pieces.strides[rows] // np.reshape(narrower, (-1, 1)),
                of_strides=of_strides,
            )

        is_result = pieces.slots == 0
        operands = np.flatnonzero((uses[pieces.commands] >= 0) & ~is_result)
        of = uses[pieces.commands[operands]], pieces.slots[operands]
        before = np.flatnonzero(is_result & (read[pieces.commands] >= 0))
        results = np.flatnonzero(is_result & (stored[pieces.commands] >= 0))
        leaves, scales = sums[pieces.commands[results]], pieces.scales[results]
        checks = np.where(is_given[of], int(Action.CHECK_GIVEN), int(Action.CHECK))
        from_sums, from_whole = read[pieces.commands[before]], stored[pieces.commands[results]]
        return [
            boxes(operands, checks, bases[of], 1, 1),
            boxes(before, int(Action.CHECK_SUMS), from_sums, 1, pieces.scales[before]),
            boxes(results, int(Action.FILL), from_whole, np.where(leaves, 1, scales), np.where(leaves, scales, 1)),
        ]

    def _words(self, addressed: Addressed, uses: Ints, offsets: Ints) -> Boxes:
        """The words of address tables that calls read through, compared with those of the tables' regions."""
        regions = [self._program.regions[found.region].address for found in self._program.addresses]
        chosen = np.flatnonzero(uses[addressed.commands] >= 0)
        sizes = np.full((len(chosen), 1), ENTRY_BYTES)
        return Boxes(
            commands=addressed.commands[chosen],
            actions=np.full(len(chosen), int(Action.CHECK_GIVEN)),
            words=sizes[:, 0],
            at=offsets[addressed.places[chosen]] + addressed.addresses[chosen],
            of=self._dram + np.array(regions, dtype=np.int64)[addressed.numbers[chosen]],
            counts=addressed.sizes[chosen][:, None] // ENTRY_BYTES,
            at_strides=sizes,
            of_strides=sizes,
        )

    def may_settle(self, kind: int) -> bool:
        """True unless calls of a kind were found to differ from the whole result."""
        return bool(self.settled[kind] != _DIFFERS)

    def settle(self, use: int, end: int, kind: int, box: Box, values: NDArray[Any]) -> NDArray[Any]:
        """What a call stores that has read the whole operands' boxes and computed `values`: sums to `end`, or results.

        The box of the whole tensor if they agree; from then on calls of this kind need not compute.
        """
        found = self._tensors.use(use)
        whole = self._view(found.sums[end] if end else found.result)[tuple(slice(*along) for along in box)]
        agrees = agree_within_rounding(values, whole)
        self.settled[kind] = _AGREES if agrees else _DIFFERS
        return whole if agrees else values


def _all(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent) for extent in shape)


def _blocks(shape: tuple[int, ...]) -> Iterator[Box]:
    """Boxes of few elements that make up a shape, side by side along the longest axis but the last.

    The last axis stays whole: there attention keeps what belongs to a row in its first elements.
    """
    if len(shape) < 2:
        yield _all(shape)
        return
    axis = max(range(len(shape) - 1), key=lambda at: shape[at])
    step = max(1, shape[axis] * _CACHED // prod(shape))
    for start in range(0, shape[axis], step):
        yield (*_all(shape[:axis]), (start, min(shape[axis], start + step)), *_all(shape[axis + 1 :]))


def _part(slab: Slab, axis: int | None, start: int, stop: int) -> Slab:
    """The part of a slab from `start` to `stop` along an axis."""
    if axis is None:
        return slab
    box = (*slab.ranges[:axis], (start, stop), *slab.ranges[axis + 1 :])
    return Slab(box, slab.cut(box))


def _periods(geometry: TableGeometry) -> Ints:
    """By axis of a table's result, the period of starts after which an access repeats itself.

    A start that moves by the divisor of an axis map moves what is read by a whole number of scales: both are periods,
    in lowest terms. An axis that no operand follows (it has all of it, and the kernel picks) has no map to say so.
    """
    shape = geometry.call.result.shape
    maps = [one for found in geometry.call.maps or () for one in found or () if one.axis is not None]
    found: list[int] = []
    for axis, extent in enumerate(shape):
        steps = [(one.scale, one.divisor) for one in maps if one.axis == axis]
        period = lcm(*(abs(a * b) // gcd(a, b) ** 2 or 1 for a, b in steps)) if steps else _PERIOD_OF_THE_REST
        # starts are below the extent, which may be nothing
        found.append(max(1, min(period, int(extent))))
    return np.array(found, dtype=np.int64)


def _last_of_many(calls: Ints, kinds: Ints) -> Ints:
    """The last calls of the kinds that many of them have."""
    _, last, counts = np.unique(kinds[calls[::-1]], return_index=True, return_counts=True)
    chosen: Ints = calls[::-1][last[counts >= _MANY_CALLS]]
    return chosen
