"""Which whole tensors calls may be compared with, and where these lie (SIM-1, `whole_ops.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np

from compiler.ir.box import Ints
from compiler.ir.graph import Graph
from compiler.ir.layout import memory_order, strides_of
from compiler.ops import definition
from compiler.ops.base import OpClass
from compiler.program.fields import is_call
from compiler.program.program import Program, Role
from compiler.units import element_bytes

# Limit on a group's whole results, which are kept together. Calls of a group beyond that all run their kernels.
_LARGEST_BYTES: Final = 1 << 28
# Limit on the result and the operands of one whole op, as float64: a product converts them all, also weights and inputs
# that are not kept. Calls of an op beyond that run their kernels.
_LARGEST_OP_BYTES: Final = 1 << 27
_COMPUTED_BYTES: Final = 8
# So small a part of the limit is for results that later groups read, so that each group has room for its own.
_KEPT_PART: Final = 4
_ALIGNMENT: Final = 64
NO_USE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Where a whole tensor lies: in the chip's memories if it `is_given` to the program, else in those of WholeOps."""

    name: str
    is_given: bool
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @classmethod
    def dense(cls, name: str, shape: tuple[int, ...], dtype: str, order: tuple[int, ...], offset: int) -> Whole:
        """One kept by WholeOps, with its axes in `order`."""
        strides = strides_of(shape, order, element_bytes(dtype))
        return cls(name=name, is_given=False, offset=offset, shape=shape, strides=strides, dtype=dtype)

    @property
    def stop(self) -> int:
        """Where the next one may begin."""
        size = prod(self.shape) * element_bytes(self.dtype)
        return self.offset + size + -size % _ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A table as a step calls it: the group, and the whole tensors of result and operands (None: omitted).

    `sums`: the whole partial sums by where they end along the summed axis.
    """

    group: str
    table: int
    result: Whole
    operands: tuple[Whole | None, ...]
    sums: Mapping[int, Whole]


class WholeTensors:
    """The whole tensors of one program's ops, of which `size_bytes` are kept; `dram` is where the DRAM begins."""

    def __init__(self, program: Program, graph: Graph, dram: int) -> None:
        self._program, self._graph, self._dram = program, graph, dram
        self._regions = {region.name: region for region in program.regions}
        calling = np.flatnonzero(is_call(program.commands["opcode"]))
        tables = program.calls["table"][program.commands["call"][calling]]
        self._keys, first = np.unique(self._key(program.commands["step"][calling], tables), return_index=True)
        self._commands = calling[first]
        self.uses: list[Use | None] = [None] * len(self._keys)
        # by group: the use that makes a tensor, and where whole tensors lie
        self.made: dict[str, dict[str, int]] = {}
        self.slots: dict[str, dict[str, Whole | None]] = {}
        # those that later groups read
        self.kept: dict[str, Whole] = {}
        self._kept_bytes = 0
        groups = self._by_group()
        self._keep(groups)
        self.size_bytes = self._kept_bytes
        for group, uses in groups.items():
            self._place(group, uses)

    def numbers(self, steps: Any, tables: Any) -> Ints:
        """The uses of tables by steps, NO_USE where whole tensors are not to be had."""
        keys = self._key(steps, tables)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_known = np.array([use is not None for use in self.uses])
        return np.where((self._keys[found] == keys) & is_known[found], found, NO_USE)

    def use(self, number: int) -> Use:
        """One that is to be had."""
        found = self.uses[number]
        assert found is not None
        return found

    def is_view(self, name: str) -> bool:
        """True for a tensor that is another one's elements in the same order."""
        producer = self._graph.producer.get(name)
        return producer is not None and definition(self._graph.ops[producer]).op_class is OpClass.VIEW

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

    def _tensors(self, uses: list[int]) -> dict[int, str]:
        """The tensor that each use makes."""
        steps = self._program.commands["step"][self._commands[uses]].tolist()
        return {use: self._program.steps[step].tensor for use, step in zip(uses, steps, strict=True)}

    def _keep(self, groups: Mapping[str, list[int]]) -> None:
        """Places the whole results that later groups read on the chip; they keep their places."""
        graph, made = self._graph, dict[str, int]()
        for uses in groups.values():
            own = self._tensors(uses)
            makers = [graph.producer[tensor] for tensor in own.values() if tensor in graph.producer]
            known = self._regions.keys() | own.values()
            for name in (name for producer in makers for name in graph.ops[producer].inputs):
                while name not in known and name not in made and self.is_view(name):
                    name = graph.ops[graph.producer[name]].inputs[0]
                if name in made and name not in known and name not in self.kept:
                    whole = self._of_table(name, made[name], self._kept_bytes)
                    if whole.stop <= _LARGEST_BYTES // _KEPT_PART:
                        self.kept[name], self._kept_bytes = whole, whole.stop
            for use, tensor in own.items():
                made.setdefault(tensor, use)

    def _of_table(self, name: str, use: int, offset: int, *, sums: bool = False) -> Whole:
        """The whole result of a use's table, or whole sums, from this offset on."""
        table = self._program.tables[self._table(use)]
        unit = self._program.units[table.unit]
        dtype = (unit.accumulator_dtype if sums else "") or unit.output.dtype
        order = memory_order(unit.output.axes, self._graph.layout)
        return Whole.dense(name, tuple(table.shape), dtype, order, offset)

    def _place(self, group: str, uses: list[int]) -> None:
        """Places whole results, and copies of regions, of one group; they lie where those of other groups do."""
        tensors = self._tensors(uses)
        made: dict[str, int] = {}
        for use, tensor in tensors.items():
            made.setdefault(tensor, use)
        slots: dict[str, Whole | None] = {}
        end = self._kept_bytes

        def slot(whole: Whole) -> Whole:
            nonlocal end
            end = whole.stop
            slots[whole.name] = whole
            return whole

        def whole(name: str) -> Whole | None:
            if name in slots:
                return slots[name]
            slots[name] = None
            region = self._regions.get(name)
            if name in self.kept and (name in made or region is None):
                slots[name] = self.kept[name]
                return slots[name]
            if name in made:
                return slot(self._of_table(name, made[name], end))
            if region is not None:
                if region.role not in (Role.INPUT, Role.WEIGHT):
                    return slot(Whole.dense(name, region.shape, region.dtype, region.order, end))
                at, strides = self._dram + region.address, region.strides
                slots[name] = Whole(
                    name=name, is_given=True, offset=at, shape=region.shape, strides=strides, dtype=region.dtype
                )
                return slots[name]
            if not self.is_view(name) or whole(self._graph.ops[self._graph.producer[name]].inputs[0]) is None:
                return None
            tensor = self._graph.tensors[name]
            order = memory_order(tensor.axes, self._graph.layout)
            return slot(Whole.dense(name, tensor.shape, tensor.dtype, order, end))

        # several tables of a step may make one tensor: with one op
        alike = {use: self._op(use) == self._op(made[tensor]) for use, tensor in tensors.items()}
        found = {use: self._use(group, use, tensor, whole) for use, tensor in tensors.items() if alike[use]}
        if end > _LARGEST_BYTES:
            return
        self.made[group], self.slots[group] = made, slots
        sums: dict[str, dict[int, Whole]] = {}
        for tensor, first in made.items():
            at, its = end, dict[int, Whole]()
            most = (_LARGEST_BYTES - end) // (self._of_table(tensor, first, 0, sums=True).stop or 1)
            for cut in self._cuts([use for use, of in tensors.items() if of == tensor and found.get(use)], most):
                its[cut] = self._of_table(tensor, first, at, sums=True)
                at = its[cut].stop
            sums[tensor], end = its, at
        self.size_bytes = max(self.size_bytes, end)
        for use, one in found.items():
            self.uses[use] = one and replace(one, sums=sums.get(tensors[use], {}))

    def _cuts(self, uses: list[int], most: int) -> list[int]:
        """Where parts of a tensor's sums meet, in order; none if they are too many, or do not begin at the first.

        A loop has an entry of its first part: those after it are as long, up to where the last one begins.
        """
        entries = [self._program.tables[self._table(use)].entries for use in uses]
        first = [rows["sum_start"][(rows["begins"] == 1) & (rows["ends"] == 0)] for rows in entries]
        later = [rows[["sum_start", "sum_stop"]][rows["begins"] == 0].tolist() for rows in entries]
        parts = sorted(set(chain(*later)))
        if not parts or parts[0][0] <= 0 or any(starts.any() for starts in first):
            return []
        found: set[int] = set()
        for start, stop in parts:
            if start not in found:
                among = range(start, parts[-1][0] + 1, max(1, stop - start))
                if len(found) + len(among) > most:
                    return []
                found.update(among)
        return sorted(found)

    def _op(self, use: int) -> tuple[object, ...]:
        """What the unit of a use computes of whole tensors."""
        table = self._program.tables[self._table(use)]
        unit = self._program.units[table.unit]
        types = (unit.kind, unit.attributes, unit.opset, unit.operands, unit.output)
        return (*types, table.operand_shapes, table.shape)

    def _table(self, use: int) -> int:
        return int(self._program.calls["table"][self._program.commands["call"][self._commands[use]]])

    def _use(self, group: str, use: int, tensor: str, whole: Callable[[str], Whole | None]) -> Use | None:
        """A use, if all whole tensors that its table asks for are to be had, and are not too large."""
        program, producer = self._program, self._graph.producer.get(tensor)
        table = program.tables[self._table(use)]
        unit = program.units[table.unit]
        if sum(map(prod, (table.shape, *table.operand_shapes))) * _COMPUTED_BYTES > _LARGEST_OP_BYTES:
            return None
        if producer is None or len(self._graph.ops[producer].inputs) != len(unit.operands):
            return None
        operands: list[Whole | None] = []
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
        return Use(group=group, table=self._table(use), result=result, operands=tuple(operands), sums={})
