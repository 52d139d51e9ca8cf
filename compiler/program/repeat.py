"""Groups that repeat: what the first of equal groups emitted is written again for the others, at their addresses.

Networks say the same thing many times. What a group's commands are depends on the content of its ops, on its tiling, on
which of its tensors have a region already, and on what the groups before it left in the memories: slots with marks.
Marks are only ever compared with each other, so two states are alike if their marks come in the same order. Groups that
are alike in all of this have commands that differ in nothing but numbers: of commands, calls, tables and steps, and the
addresses of their tensors in DRAM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.program.context import Context, Table
from compiler.program.emitter import Excerpt, Position, column_of
from compiler.program.program import Role, Rows
from compiler.program.slots import Slot
from compiler.tiling.memory import KEPT, STORES, WAITING
from compiler.tiling.tile import Tiling

# Slots by place, as a group leaves them to the next.
Slots = dict[int, list[Slot]]
# Marks by queue, as ranks among all commands marked.
_Marks = tuple[tuple[int, int], ...]
# Places with their slots: address, size, whether something was written there, marks of touches, marks of the barrier.
_Shape = tuple[tuple[int, tuple[tuple[int, int, bool, _Marks, _Marks], ...]], ...]
_DRAM: Final = 0
_STEP, _SOURCE, _TARGET, _SOURCE_ADDRESS, _TARGET_ADDRESS, _CALL = (
    column_of("commands", name) for name in ("step", "source", "target", "source_address", "target_address", "call")
)
_TABLE, _FIRST = (column_of("calls", name) for name in ("table", "first"))
_PLACE, _ADDRESS = (column_of("bindings", name) for name in ("place", "address"))


@dataclass(frozen=True, slots=True, eq=False)
class _Left:
    """What groups left in the memories: slots with ranks for marks, and the command of each rank."""

    shape: _Shape
    numbers: Rows

    @classmethod
    def of(cls, slots: Slots) -> _Left:
        """The state of these slots."""
        marked = {
            number
            for of_place in slots.values()
            for slot in of_place
            for marks in (slot.touched, slot.barrier)
            for number in marks.values()
        }
        numbers = sorted(marked)
        rank_of = {number: rank for rank, number in enumerate(numbers)}

        def ranks(marks: dict[int, int]) -> _Marks:
            return tuple(sorted([(queue, rank_of[number]) for queue, number in marks.items()]))

        shape = tuple(
            (
                place,
                tuple(
                    [
                        (slot.address, slot.size_bytes, bool(slot.writers), ranks(slot.touched), ranks(slot.barrier))
                        for slot in of_place
                        if slot.touched or slot.barrier
                    ]
                ),
            )
            for place, of_place in sorted(slots.items())
        )
        return cls(shape, np.array(numbers, dtype=np.int64))

    def slots(self) -> Slots:
        """Slots of this state."""
        numbers = self.numbers.tolist()
        found: Slots = {}
        for place, of_place in self.shape:
            slots = found[place] = []
            for address, size, is_written, touched, barrier in of_place:
                slot = Slot(place, address, size)
                slot.touched = {queue: numbers[rank] for queue, rank in touched}
                slot.barrier = {queue: numbers[rank] for queue, rank in barrier}
                # who wrote is among those who touched, and of it no more is asked than whether there is anybody
                slot.writers = slot.touched if is_written else {}
                slots.append(slot)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Begin:
    """Where a group began, in the emitter and among tables, regions and steps; what decides about it, and old marks."""

    group: int
    position: Position
    tables: int
    regions: int
    step: int
    key: tuple[object, ...]
    numbers: Rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Template:
    """What a group emitted, relative to where it began.

    `excerpt` counts from the group's first command, call, binding, table and step; addresses in DRAM from the begin of
    their region. `owned` says of what tensor of the group that is, for sources, targets and bindings; -1 for addresses
    on the chip. Waits, and the marks (`numbers`) of the state that it left, are -1 - rank for a mark that it found.
    `regions`: tensors that got one, in order. `tables`: ops that got one, by their number in the group, and the table.
    `written`: tensors in DRAM that were, by which queues, and the marks of these.
    """

    excerpt: Excerpt
    owned: tuple[Rows, Rows, Rows]
    regions: tuple[int, ...]
    tables: tuple[tuple[int, Table], ...]
    written: tuple[tuple[int, tuple[int, ...], Rows], ...]
    shape: _Shape
    numbers: Rows


class Repeats:
    """The groups of one segment that are alike, and the state between one group and the next."""

    def __init__(self, context: Context, groups: Sequence[tuple[tuple[int, ...], Tiling]]) -> None:
        """`groups`: the ops and tilings of all groups of the segment, in order."""
        self._context = context
        self._slots: Slots | None = {}
        self._left: _Left | None = None
        self._ops = [sorted(ops) for ops, _ in groups]
        self._names = [_names_of(context, ops) for ops in self._ops]
        numbers: dict[object, int] = {}
        self._contents = [
            numbers.setdefault(_content(context, ops, names, tiling), len(numbers))
            for ops, names, (_, tiling) in zip(self._ops, self._names, groups, strict=True)
        ]
        self._counts = Counter(self._contents)
        self._known: dict[tuple[object, ...], _Template] = {}
        self._begin: _Begin | None = None

    @property
    def slots(self) -> Slots:
        """What the groups so far left, by place."""
        if self._slots is None:
            assert self._left is not None
            self._slots = self._left.slots()
        return self._slots

    def write(self, group: int, step: int) -> bool:
        """Write the commands of a group whose first op has this step; False if none of its like is known.

        It has to be lowered then, and what it leaves be told by `learn`.
        """
        context = self._context
        self._begin = None
        # of stationary weights each tensor has its own places
        if self._counts[self._contents[group]] == 1 or context.residents:
            return False
        if self._left is None:
            assert self._slots is not None
            self._left = _Left.of(self._slots)
        key, numbers = self._state(group, self._left)
        begin = _Begin(
            group=group,
            position=context.emitter.position(),
            tables=len(context.tables),
            regions=len(context.region_list),
            step=step,
            key=key,
            numbers=numbers,
        )
        template = self._known.get(key)
        if template is None:
            self._begin = begin
            return False
        self._slots = None
        self._left = self._repeat(template, begin)
        return True

    def _state(self, group: int, left: _Left) -> tuple[tuple[object, ...], Rows]:
        """What decides about a group's commands, and the commands marked before it: ranks in `left`, then others.

        Tensors in DRAM have marks of those who wrote them, which may be older than all that the memories remember.
        """
        regions = self._context.regions
        written = [
            sorted(regions[name].slot.writers.items()) if name in regions else None for name in self._names[group]
        ]
        known = set(left.numbers.tolist())
        others = sorted({number for marks in written for _, number in marks or () if number not in known})
        numbers = np.concatenate([left.numbers, np.array(others, dtype=np.int64)])
        index_of = {number: index for index, number in enumerate(numbers.tolist())}
        marks = tuple(
            [None if its is None else tuple([(queue, index_of[number]) for queue, number in its]) for its in written]
        )
        order = tuple(np.searchsorted(left.numbers, others).tolist())
        return (self._contents[group], marks, order, left.shape), numbers

    def learn(self, slots: Slots) -> None:
        """Keep what the group that was lowered last has emitted, if others are like it; `slots`: what it left."""
        begin = self._begin
        self._slots, self._left = slots, None
        if begin is not None:
            self._left = _Left.of(slots)
            template = self._template(begin, self._left)
            if template is not None:
                self._known[begin.key] = template

    def _template(self, begin: _Begin, left: _Left) -> _Template | None:
        """What was emitted since a group began; None if it is not the group's alone."""
        context = self._context
        numbers = {name: number for number, name in enumerate(self._names[begin.group])}
        ops = {op: number for number, op in enumerate(self._ops[begin.group])}
        found = context.emitter.since(begin.position)
        tables, regions = context.tables[begin.tables :], context.region_list[begin.regions :]
        # address tables are everybody's, and stay where they are
        regions = [region for region in regions if region.role is not Role.ADDRESSES]
        starts = np.array([region.address for region in context.region_list], dtype=np.int64)
        fixed = ((-1 if region.role is Role.ADDRESSES else -2, region.name) for region in context.region_list)
        # the last row is for addresses before all regions, which are nobody's
        owner = np.array([*(numbers.get(name, otherwise) for otherwise, name in fixed), -2], dtype=np.int64)

        def owners(places: Rows, addresses: Rows) -> Rows:
            return np.where(places == _DRAM, owner[np.searchsorted(starts, addresses, side="right") - 1], -1)

        owned = (
            owners(found.commands[:, _SOURCE], found.commands[:, _SOURCE_ADDRESS]),
            owners(found.commands[:, _TARGET], found.commands[:, _TARGET_ADDRESS]),
            owners(found.bindings[:, _PLACE], found.bindings[:, _ADDRESS]),
        )
        alone = (
            all(bool((its >= -1).all()) for its in owned)
            and all(table.op in ops for table in tables)
            and all(region.name in numbers for region in regions)
            and bool((found.commands[:, _STEP] >= begin.step).all())
            and bool((found.calls[:, _TABLE] >= begin.tables).all())
        )
        if not alone:
            return None
        moved = self._moved(found, begin, owned, -1)
        first = begin.position.commands
        marks = {name: context.regions[name].slot.writers for name in numbers if name in context.regions}
        written = {name: its for name, its in marks.items() if its and max(its.values()) >= first}
        return _Template(
            excerpt=replace(moved, waits=_counted(found.waits, begin)),
            owned=owned,
            regions=tuple(numbers[region.name] for region in regions),
            tables=tuple((ops[table.op], table) for table in tables),
            written=tuple(
                (numbers[name], tuple(its), _counted(np.array(list(its.values())), begin))
                for name, its in written.items()
            ),
            shape=left.shape,
            numbers=_counted(left.numbers, begin),
        )

    def _repeat(self, template: _Template, begin: _Begin) -> _Left:
        """Write a template's commands as those of a group that begins here; what it leaves."""
        context, names, ops = self._context, self._names[begin.group], self._ops[begin.group]
        for number in template.regions:
            context.region(names[number])
        for number, table in template.tables:
            context.add_table(replace(table, op=ops[number]))
        for number, queues, marks in template.written:
            context.regions[names[number]].slot.writers = dict(zip(queues, _named(marks, begin).tolist(), strict=True))
        moved = self._moved(template.excerpt, begin, template.owned, 1)
        context.emitter.append(replace(moved, waits=_named(template.excerpt.waits, begin)))
        return _Left(template.shape, _named(template.numbers, begin))

    def _moved(self, excerpt: Excerpt, begin: _Begin, owned: tuple[Rows, Rows, Rows], sign: int) -> Excerpt:
        """Rows counted from where a group begins (`sign` -1: those of the group), or as they are there (1)."""
        regions = self._context.regions
        # the last row is for what has no address in DRAM
        names = self._names[begin.group]
        bases = np.array([regions[name].address if name in regions else 0 for name in names] + [0], dtype=np.int64)
        commands, calls, bindings = excerpt.commands.copy(), excerpt.calls.copy(), excerpt.bindings.copy()
        sources, targets, bound = owned
        commands[:, _STEP] += sign * begin.step
        commands[:, _SOURCE_ADDRESS] += sign * bases[sources]
        commands[:, _TARGET_ADDRESS] += sign * bases[targets]
        commands[:, _CALL] += sign * begin.position.calls * (commands[:, _CALL] >= 0)
        calls[:, _TABLE] += sign * begin.tables
        calls[:, _FIRST] += sign * begin.position.bindings
        bindings[:, _ADDRESS] += sign * bases[bound]
        return Excerpt(commands, excerpt.waits, excerpt.wait_counts, calls, bindings)


def _counted(commands: Rows, begin: _Begin) -> Rows:
    """Commands as counts from the first of a group, or -1 - rank for those before it that it found marked."""
    first = begin.position.commands
    order = np.argsort(begin.numbers)
    before = commands < first
    found = commands - first
    found[before] = -1 - order[np.searchsorted(begin.numbers, commands[before], sorter=order)]
    return found


def _named(counts: Rows, begin: _Begin) -> Rows:
    """The commands that counts from the first of a group stand for."""
    found = counts + begin.position.commands
    before = counts < 0
    found[before] = begin.numbers[-1 - counts[before]]
    return found


def _names_of(context: Context, ops: Sequence[int]) -> tuple[str, ...]:
    """The tensors of a group in the order in which its ops name them; of gathered rows, too."""
    found: dict[str, None] = {}
    for op in ops:
        node = context.graph.ops[op]
        found.update(dict.fromkeys(name for name in node.inputs if name))
        found.update(dict.fromkeys(operand.tensor for operand in context.facts.ops[op].operands))
        found[node.output] = None
    return tuple(found)


def _content(context: Context, ops: Sequence[int], names: Sequence[str], tiling: Tiling) -> tuple[object, ...]:
    """What decides how a group is lowered, but for the state that it finds: equal for groups that are alike."""
    graph, facts = context.graph, context.facts
    number = {name: position for position, name in enumerate(names)}
    place = {op: position for position, op in enumerate(ops)}
    wiring = tuple(
        (
            facts.numbers[op],
            tuple([number[name] if name else -1 for name in graph.ops[op].inputs]),
            tuple([number[operand.tensor] for operand in facts.ops[op].operands]),
            number[graph.ops[op].output],
        )
        for op in ops
    )
    tensors: list[object] = []
    for name in names:
        tensor = graph.tensors.get(name)
        if tensor is None:
            tensors.append(None)
            continue
        is_constant = tensor.constant is not None
        is_read = name in graph.outputs or any(user not in place for user in graph.consumers.get(name, ()))
        order = context.weight_order(name) if is_constant else ()
        tensors.append((tensor.shape, tensor.axes, tensor.dtype, tensor.stored_dtype, is_constant, is_read, order))
    # the planner's allocation goes by name where nothing else decides
    called = [*names, *(label.removeprefix(KEPT) for label in (STORES, WAITING))]
    order_of_names = tuple(sorted(range(len(called)), key=called.__getitem__))
    configuration = tiling.configuration
    loads = tuple([(place.get(op, -1), kind) for op, kind in configuration.loads])
    choice = (replace(configuration, loads=()), loads, tiling.axes, tiling.tile, tiling.core_tile)
    return wiring, tuple(tensors), order_of_names, choice
