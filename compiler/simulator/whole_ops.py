"""Whole results of a program's ops, each computed once, from which calls store their boxes (SIM-1).

A call computes a box of its op's result from boxes of its operands. The whole op has all these boxes in one result. A
call may store its box of that in place of computing it, if

- what it reads, at the addresses and boxes that it binds, equals bit for bit its boxes of the whole operands, and so
  do the words of the address tables that it reads through, and
- one call of its *kind* has run its kernel, which agreed with the whole result within rounding. Calls of one kind
  have the step, the table, the lengths of all boxes, the ends of tensors that these reach, and the phase of their
  results in common (`_periods`). Of a kind with many calls in a window, the last one runs its kernel too.

Every other call runs its kernel: with a wrong address, box, wait or halo it reads something else. So do parts of sums;
the call that ends a sum stores the box of the whole result where its own agrees with it.

Whole operands are what the program has: regions that it is given, copies of other regions, whole results of its group.
If these are incomplete or wrong, calls read something else, which is safe. The whole op is that of the unit, with its
attributes and the whole shapes of its table. The graph only names the operands of a step.

Whole results are kept for one group at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, lcm, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.table import ENTRY_BYTES
from compiler.errors import TesseraError
from compiler.ir.box import Ints
from compiler.ir.graph import Graph
from compiler.ir.layout import memory_order, strides_of
from compiler.ops import ALL_KINDS, call_of, definition
from compiler.ops.base import OpClass
from compiler.ops.slab import Box
from compiler.program.addressed import Addressed
from compiler.program.calls import HOSTILE, TableGeometry, call_of_unit
from compiler.program.fields import is_call
from compiler.program.pieces import Pieces
from compiler.program.program import Opcode, Program, Region, Role
from compiler.program.strided import Flags
from compiler.simulator.calls import Commands, scale_of
from compiler.simulator.compare import agree_within_rounding
from compiler.simulator.kernels import Action
from compiler.simulator.moves import Boxes, together
from compiler.units import element_bytes, numpy_dtype

# Limit on a group's whole results, which are kept together. Calls of a group beyond that all run their kernels.
_LARGEST_BYTES: Final = 1 << 28
# Limit on the result and the operands of one whole op, as float64: a product converts them all, also weights and inputs
# that are not kept. Calls of an op beyond that run their kernels.
_LARGEST_OP_BYTES: Final = 1 << 27
_COMPUTED_BYTES: Final = 8
# Where no access says how a result's starts matter, they are told apart modulo 2, 3 and 4, so that kinds stay few.
_PERIOD_OF_THE_REST: Final = 12
# A window's last call of a kind runs its kernel if the kind has as many calls there: at most so small a part of them.
_MANY_CALLS: Final = 16
_ALIGNMENT: Final = 64
_NO_USE: Final = -1
# What is known of a kind: nothing, that kernel and whole result agree, that they do not.
_UNKNOWN, _AGREES, _DIFFERS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """Where a whole tensor lies: in the chip's memories if it `is_given` to the program, else in those of WholeOps."""

    name: str
    is_given: bool
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A table as a step calls it: the group, and the whole tensors of result and operands (None: omitted)."""

    group: str
    table: int
    result: _Whole
    operands: tuple[_Whole | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """The calls of a window's commands: `uses` (-1: none), `kinds` of their tiles, and which of them `asks` always.

    `boxes`: what those with a use compare and store.
    """

    uses: Ints
    kinds: Ints
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
        self._program, self._graph, self._memory, self._view_of, self._dram = program, graph, memory, region, dram
        self._regions = {region.name: region for region in program.regions}
        calling = np.flatnonzero(is_call(program.commands["opcode"]))
        tables = program.calls["table"][program.commands["call"][calling]]
        self._keys, first = np.unique(self._key(program.commands["step"][calling], tables), return_index=True)
        self._commands = calling[first]
        self._uses: list[_Use | None] = [None] * len(self._keys)
        # by group: the use that makes a tensor, and where whole tensors lie
        self._made: dict[str, dict[str, int]] = {}
        self._slots: dict[str, dict[str, _Whole | None]] = {}
        self.size_bytes = 0
        for group, uses in self._by_group().items():
            self._place(group, uses)
        self.size_bytes += -self.size_bytes % _ALIGNMENT
        self.bytes = np.zeros(self.size_bytes, dtype=np.uint8)
        self._group = ""
        self._passed: set[str] = set()
        self._filled: dict[str, bool] = {}
        self._kinds: dict[tuple[int, bytes], int] = {}
        # by kind, what is known of it
        self.settled: Ints = np.zeros(0, dtype=np.int64)

    # --- which whole tensors there are, and where -----------------------------------------------------------------

    def _key(self, steps: Any, tables: Any) -> Ints:
        found: Ints = steps.astype(np.int64) * (len(self._program.tables) + 1) + tables
        return found

    def _by_group(self) -> dict[str, list[int]]:
        """The uses of each group, in the order of its steps."""
        found: dict[str, list[int]] = {}
        for use, command in enumerate(self._commands.tolist()):
            step = int(self._program.commands["step"][command])
            if 0 <= step < len(self._program.steps):
                found.setdefault(self._program.steps[step].group, []).append(use)
        return found

    def _place(self, group: str, uses: list[int]) -> None:
        """Places whole results, and copies of regions, of one group; they lie where those of other groups do."""
        program, commands = self._program, self._program.commands
        tensors = {use: program.steps[int(commands["step"][self._commands[use]])].tensor for use in uses}
        made: dict[str, int] = {}
        for use, tensor in tensors.items():
            made.setdefault(tensor, use)
        slots: dict[str, _Whole | None] = {}
        end = 0

        def slot(name: str, shape: tuple[int, ...], dtype: str, order: tuple[int, ...]) -> _Whole:
            nonlocal end
            strides = strides_of(shape, order, element_bytes(dtype))
            whole = _Whole(name=name, is_given=False, offset=end, shape=shape, strides=strides, dtype=dtype)
            size = prod(shape) * element_bytes(dtype)
            end += size + -size % _ALIGNMENT
            slots[name] = whole
            return whole

        def whole(name: str) -> _Whole | None:
            if name in slots:
                return slots[name]
            slots[name] = None
            region = self._regions.get(name)
            if name in made:
                table = program.tables[self._table(made[name])]
                output = program.units[table.unit].output
                return slot(name, tuple(table.shape), output.dtype, memory_order(output.axes, self._graph.layout))
            if region is not None:
                if region.role not in (Role.INPUT, Role.WEIGHT):
                    return slot(name, region.shape, region.dtype, region.order)
                at, strides = self._dram + region.address, region.strides
                slots[name] = _Whole(
                    name=name, is_given=True, offset=at, shape=region.shape, strides=strides, dtype=region.dtype
                )
                return slots[name]
            producer = self._graph.producer.get(name)
            if producer is None:
                return None
            op = self._graph.ops[producer]
            if definition(op).op_class is not OpClass.VIEW or whole(op.inputs[0]) is None:
                return None
            tensor = self._graph.tensors[name]
            return slot(name, tensor.shape, tensor.dtype, memory_order(tensor.axes, self._graph.layout))

        # several tables of a step may make one tensor: with one op
        alike = {use: self._op(use) == self._op(made[tensor]) for use, tensor in tensors.items()}
        found = {use: self._use(group, use, tensor, whole) for use, tensor in tensors.items() if alike[use]}
        if end <= _LARGEST_BYTES:
            self._made[group], self._slots[group] = made, slots
            self.size_bytes = max(self.size_bytes, end)
            for use, one in found.items():
                self._uses[use] = one

    def _op(self, use: int) -> tuple[object, ...]:
        """What the unit of a use computes of whole tensors."""
        table = self._program.tables[self._table(use)]
        unit = self._program.units[table.unit]
        types = (unit.kind, unit.attributes, unit.opset, unit.operands, unit.output)
        return (*types, table.operand_shapes, table.shape)

    def _table(self, use: int) -> int:
        return int(self._program.calls["table"][self._program.commands["call"][self._commands[use]]])

    def _use(self, group: str, use: int, tensor: str, whole: Callable[[str], _Whole | None]) -> _Use | None:
        """A use, if all whole tensors that its table asks for are to be had, and are not too large."""
        program, producer = self._program, self._graph.producer.get(tensor)
        table = program.tables[self._table(use)]
        unit = program.units[table.unit]
        if sum(map(prod, (table.shape, *table.operand_shapes))) * _COMPUTED_BYTES > _LARGEST_OP_BYTES:
            return None
        if producer is None or len(self._graph.ops[producer].inputs) != len(unit.operands):
            return None
        operands: list[_Whole | None] = []
        for name, operand, shape in zip(
            self._graph.ops[producer].inputs, unit.operands, table.operand_shapes, strict=True
        ):
            found = whole(name) if operand is not None else None
            if operand is not None and (
                found is None or (found.shape, found.dtype) != (tuple(shape), operand.stored_dtype)
            ):
                return None
            operands.append(found)
        result = whole(tensor)
        if result is None or (result.shape, result.dtype) != (tuple(table.shape), unit.output.dtype):
            return None
        if not all(result.shape):
            return None
        return _Use(group=group, table=self._table(use), result=result, operands=tuple(operands))

    # --- their values ---------------------------------------------------------------------------------------------

    def is_ready(self, use: int) -> bool:
        """Computes what a use needs; False if it cannot be had, or if its group is over."""
        found = self._uses[use] if use >= 0 else None
        if found is None or found.group in self._passed:
            return False
        if found.group != self._group:
            # another group's results take the memory
            self._passed.add(self._group)
            self._group = found.group
            self._filled.clear()
            self.settled[self.settled == _AGREES] = _UNKNOWN
        wholes = (*found.operands, found.result)
        return all(one is None or self._is_filled(one) for one in wholes)

    def _box(self, use: int, box: Box) -> NDArray[Any]:
        """The values of a box of a use's whole result."""
        found = self._uses[use]
        assert found is not None
        return self._view(found.result)[tuple(slice(*along) for along in box)]

    def _view(self, whole: _Whole) -> NDArray[Any]:
        memory = self._memory() if whole.is_given else self.bytes
        return np.ndarray(whole.shape, numpy_dtype(whole.dtype), memory, whole.offset, whole.strides)

    def _is_filled(self, whole: _Whole) -> bool:
        if whole.is_given or whole.name in self._filled:
            return whole.is_given or self._filled[whole.name]
        self._filled[whole.name] = False
        values = self._values(whole)
        if values is not None and (values.shape, values.dtype) == (whole.shape, numpy_dtype(whole.dtype)):
            self._view(whole)[...] = values
            self._filled[whole.name] = True
        return self._filled[whole.name]

    def _values(self, whole: _Whole) -> NDArray[Any] | None:
        """The values of a whole tensor: of its op, or else of its region; None if they cannot be had."""
        made = self._made[self._group].get(whole.name)
        try:
            if made is not None:
                return self._result(made)
            region = self._regions.get(whole.name)
            if region is not None:
                return self._view_of(region)
            op = self._graph.ops[self._graph.producer[whole.name]]
            source = self._slots[self._group].get(op.inputs[0])
            if source is None or not self._is_filled(source):
                return None
            return definition(op).evaluate(call_of(self._graph, op), (self._view(source),))
        except (TesseraError, *HOSTILE):
            return None

    def _result(self, use: int) -> NDArray[Any] | None:
        """The whole result of a unit's op, from its whole operands."""
        found = self._uses[use]
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
        return kind.evaluate(replace(call, values=known), tuple(arrays))

    # --- calls ----------------------------------------------------------------------------------------------------

    def take(self, window: Commands, offsets: Ints) -> Calls:
        """The calls of a window; `offsets`: where each place begins in the chip's memories."""
        program, pieces = window.program, window.pieces
        commands = program.commands
        uses = np.full(len(commands), _NO_USE, dtype=np.int64)
        kinds, sums = np.zeros_like(uses), np.zeros(len(commands), dtype=np.bool_)
        calling = np.flatnonzero(commands["opcode"] == Opcode.COMPUTE)
        if pieces is None or not len(calling):
            return Calls(uses=uses, kinds=kinds, asks=is_call(commands["opcode"]), boxes=None)
        calls = program.calls[commands["call"][calling]]
        keys = self._key(commands["step"][calling], calls["table"])
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_known = np.array([use is not None for use in self._uses])
        uses[calling] = np.where((self._keys[found] == keys) & is_known[found], found, _NO_USE)
        for use in np.unique(uses[uses >= 0]).tolist():
            its = np.flatnonzero(uses == use)
            entries = program.calls["entry"][commands["call"][its]]
            geometry = window.book.geometry(int(program.calls["table"][commands["call"][its[0]]]))
            kinds[its], sums[its] = self._kinds_of(use, geometry, entries), geometry.partial[entries]
        self.settled = np.pad(self.settled, (0, len(self._kinds) - len(self.settled)))
        asks = is_call(commands["opcode"]) & ((uses < 0) | sums)
        asks[_last_of_many(np.flatnonzero((uses >= 0) & ~sums), kinds)] = True
        boxes = [self._compared_and_stored(pieces, uses, sums, offsets)]
        if window.addressed is not None:
            boxes.append(self._words(window.addressed, uses, offsets))
        return Calls(uses=uses, kinds=kinds, asks=asks, boxes=together(boxes))

    def _kinds_of(self, use: int, geometry: TableGeometry, entries: Ints) -> Ints:
        """The kind of tile of some entries of a use's table."""
        starts, stops = geometry.starts[:, entries], geometry.stops[:, entries]
        ends = stops == geometry.shapes[:, None]
        marks = np.concatenate([stops - starts, starts == 0, ends], axis=2).transpose(1, 0, 2).reshape(len(entries), -1)
        periods = _periods(geometry)
        phases = starts[0, :, : len(periods)] % periods
        marks = np.concatenate([marks, geometry.partial[entries][:, None], phases], axis=1)
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

    def _compared_and_stored(self, pieces: Pieces, uses: Ints, sums: Flags, offsets: Ints) -> Boxes:
        """The boxes of operands that calls compare with whole ones, and of results; partial sums are no results."""
        width = pieces.starts.shape[1]
        slots = 1 + max((len(use.operands) for use in self._uses if use is not None), default=0)
        bases, is_given = np.zeros((len(self._uses), slots), np.int64), np.zeros((len(self._uses), slots), np.bool_)
        strides = np.zeros((len(self._uses), slots, width), dtype=np.int64)
        for number, use in enumerate(self._uses):
            for place, whole in enumerate((use.result, *use.operands) if use is not None else ()):
                if whole is not None:
                    bases[number, place], is_given[number, place] = whole.offset, whole.is_given
                    # other windows may have tensors of more axes
                    strides[number, place, : len(whole.strides)] = whole.strides[:width]
        of_pieces = uses[pieces.commands]
        is_result = pieces.slots == 0
        chosen = np.flatnonzero((of_pieces >= 0) & ~(is_result & sums[pieces.commands]))
        of, slot = of_pieces[chosen], pieces.slots[chosen]
        compared = np.where(is_given[of, slot], int(Action.CHECK_GIVEN), int(Action.CHECK))
        of_strides = strides[of, slot]
        return Boxes(
            commands=pieces.commands[chosen],
            actions=np.where(is_result[chosen], int(Action.FILL), compared),
            words=pieces.element_bytes[chosen],
            at=offsets[pieces.places[chosen]] + pieces.addresses[chosen],
            of=bases[of, slot] + (pieces.starts[chosen] * of_strides).sum(axis=1),
            counts=pieces.stops[chosen] - pieces.starts[chosen],
            at_strides=pieces.strides[chosen],
            of_strides=of_strides,
        )

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

    def settle(self, use: int, kind: int, box: Box, values: NDArray[Any]) -> NDArray[Any]:
        """What a call stores that has read the whole operands' boxes and computed `values`.

        The box of the whole result if they agree; from then on calls of this kind need not compute.
        """
        whole = self._box(use, box)
        agrees = agree_within_rounding(values, whole)
        self.settled[kind] = _AGREES if agrees else _DIFFERS
        return whole if agrees else values


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
