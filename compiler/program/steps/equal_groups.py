"""Groups that are equal: one is lowered, the others have its steps, statements and phases at their own addresses.

Networks say the same thing many times. What a group does depends on the content of its ops and on its tiling, and never
on what was lowered before (SCHED-2). So equal groups differ in three kinds of numbers only: addresses in DRAM, which
are counted from their tensor's region, the numbers of parameter tables, and those of the program's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from compiler.program.context import Context
from compiler.program.program import ADDRESSES, Role, Rows
from compiler.program.steps.group_columns import GroupColumns, columns_of
from compiler.program.steps.group_steps import GroupSteps, TooManyActionsError
from compiler.program.steps.key_rows import KeyRows
from compiler.program.steps.order import Phases
from compiler.program.timing.ticks import Ints
from compiler.tiling.memory import KEPT, STORES, WAITING
from compiler.tiling.tile import Tiling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """Where a group stands: its ops in order, its tensors, the number of its first step in the program."""

    context: Context
    ops: tuple[int, ...]
    names: tuple[str, ...]
    first_step: int

    @classmethod
    def of(cls, context: Context, ops: Sequence[int], first_step: int) -> Setting:
        """The setting of a group of these ops."""
        ordered = tuple(sorted(ops))
        return cls(context=context, ops=ordered, names=names_of(context, ordered), first_step=first_step)


@dataclass(eq=False)
class SegmentGroup:
    """A group of a segment with what is found about it, each when it is asked for first.

    `make`: lowers it. `actions`: how many it was asked for to be lowered, or the group that it is like, whenever that
    was. `likeness`: equal for groups that take the same time, wherever what they read lies. `order` and
    `phases`: of its commands, where they are listed, and of its nodes, where they loop, each with the ticks that it
    takes by itself: as they were chosen for it, or for the group that it is like, for orders know no other groups.
    """

    setting: Setting
    make: Callable[[], GroupSteps]
    likeness: tuple[object, ...]
    original: SegmentGroup | None = None
    _order: tuple[Ints, int] | None = None
    _phases: tuple[Phases, int] | None = None
    _actions: int = 0
    _columns: dict[int, GroupColumns] = field(default_factory=dict)

    @property
    def order(self) -> tuple[Ints, int] | None:
        """The order of its commands, and its ticks."""
        return self._order if self.original is None or self._order is not None else self.original.order

    @order.setter
    def order(self, order: tuple[Ints, int]) -> None:
        self._order = order

    @property
    def phases(self) -> tuple[Phases, int] | None:
        """The phases of its nodes, and its ticks."""
        return self._phases if self.original is None or self._phases is not None else self.original.phases

    @phases.setter
    def phases(self, phases: tuple[Phases, int]) -> None:
        self._phases = phases

    @cached_property
    def steps(self) -> GroupSteps:
        """Its steps."""
        return self.make()

    @property
    def actions(self) -> int:
        """How many actions lowering it took; 0 before that."""
        return self._actions if self.original is None or self._actions else self.original.actions

    def columns(self, listed_max: int, actions_max: float = inf) -> GroupColumns:
        """What it comes to if it is listed up to so many commands: that of the original, moved, or found anew.

        Raises TooManyActionsError where it is found anew, and that takes more than so many actions.
        """
        found = self._columns.get(listed_max)
        if found is None:
            # a group that loops under a larger limit also loops under a smaller one
            known = (its for most, its in self._columns.items() if most > listed_max and not its.may_loop)
            found = next(known, None) or self._new_columns(listed_max, actions_max)
            self._columns[listed_max] = found
        return found

    def _new_columns(self, listed_max: int, actions_max: float) -> GroupColumns:
        if self.original is not None:
            moves = MovedGroup(self.original.setting, self.setting)
            moved = self.original.columns(listed_max, actions_max).moved(moves)
            if moved is not None:
                return moved
        steps = self.steps
        before = steps.asked
        # what was asked when it was made belongs to the first time
        steps.limit = actions_max + (before if self._actions else 0)
        try:
            found = columns_of(steps, listed_max)
        except TooManyActionsError:
            steps.asked = before
            raise
        finally:
            steps.limit = inf
            steps.forget()
        self._actions = self._actions or steps.asked
        return found


class EqualGroups:
    """The groups lowered so far, by content: of one segment, or of all segments of a compilation for one profile."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], SegmentGroup] = {}

    def group(
        self, setting: Setting, tiling: Tiling, resident_bytes: int, make: Callable[[], GroupSteps]
    ) -> SegmentGroup:
        """A group: a copy of an equal one, or lowered by `make`; from then on others are like it."""
        content = content_of(setting.context, setting.ops, setting.names, tiling)
        parts, addresses = _residents_of(setting)
        likeness = resident_bytes, content, parts
        key = *likeness, addresses
        original = self._known.get(key)
        if original is not None:
            return SegmentGroup(setting, make, likeness, original)
        # what cannot be lowered is refused at once
        steps = make()
        found = self._known[key] = SegmentGroup(setting, lambda: steps, likeness)
        return found

    def forget(self, group: SegmentGroup) -> None:
        """Nothing is like this group any more: what is known of it takes memory."""
        self._known = {key: its for key, its in self._known.items() if its is not group}


@dataclass(eq=False)
class MovedGroup:
    """How a group differs from the one that it is equal to (protocol `Moves`)."""

    theirs: Setting
    mine: Setting
    _shifts: dict[int, int] = field(default_factory=dict)

    def keys(self, keys: KeyRows) -> KeyRows:
        """This group's keys for the other's."""
        commands, calls, bindings = keys.commands.copy(), keys.calls.copy(), keys.bindings.copy()
        commands["step"] += self.mine.first_step - self.theirs.first_step
        calling = commands["call"] >= 0
        calls["table"][calling] = _replaced(calls["table"][calling], self._table)
        bindings["operand"] = _replaced(bindings["operand"], self._operand)
        return replace(keys, commands=commands, calls=calls, bindings=bindings)

    def regions(self, addresses: Ints) -> Ints:
        """The numbers of the other program's regions in which addresses lie; regions come one by one."""
        starts = np.array([region.address for region in self.theirs.context.region_list], dtype=np.int64)
        found: Ints = np.searchsorted(starts, addresses, side="right") - 1
        return found

    def make(self, addresses: Ints) -> None:
        """Make the regions of this group in which it has what the other has at these addresses, in its order."""
        for number in np.unique(self.regions(addresses)).tolist():
            self._shift(number)

    def addresses(self, addresses: Ints) -> Ints:
        """Where this group has what the other has at these addresses."""
        numbers, places = np.unique(self.regions(addresses), return_inverse=True)
        found: Ints = addresses + np.array([self._shift(number) for number in numbers.tolist()], dtype=np.int64)[places]
        return found

    def _shift(self, number: int) -> int:
        """How far behind a region of the other's program this group's own lies."""
        found = self._shifts.get(number)
        if found is None:
            found = self._shifts[number] = self._new_shift(number)
        return found

    def _table(self, number: int) -> int:
        """This program's number of one of the other's parameter tables."""
        table = self.theirs.context.tables[number]
        return self.mine.context.table(self.mine.ops[self.theirs.ops.index(table.op)], table)

    def _operand(self, operand: int) -> int:
        """What a call has bound, with this program's number of an address table."""
        number = ADDRESSES - operand
        if number < 0:
            return operand
        context = self.mine.context
        name = context.address_table(self.theirs.context.window_read(number))
        return ADDRESSES - context.address_tables[name]

    def _new_shift(self, number: int) -> int:
        theirs, mine = self.theirs.context, self.mine.context
        region = theirs.region_list[number]
        if region.role is Role.ADDRESSES:
            # address tables are of the read, whoever reads
            name = mine.address_table(theirs.window_read(theirs.address_tables[region.name]))
        else:
            name = self.mine.names[self.theirs.names.index(region.name)]
        return mine.region(name).address - region.address


def _replaced(values: Rows, by: Callable[[int], int]) -> Rows:
    """Others in place of all values; each is asked for once, as it comes first."""
    _, firsts, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    found = np.empty(len(firsts), dtype=values.dtype)
    found[order] = [by(value) for value in values[firsts[order]].tolist()]
    return found[which]


# --- when groups are equal --------------------------------------------------------------------------------------------


def _residents_of(setting: Setting) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """A group's stationary weights: by tensor the cores and boxes of its parts, and where these lie."""
    residents = setting.context.residents
    if not residents:
        return (), ()
    its = [residents.get(name, ()) for name in setting.names]
    parts = tuple([tuple([(core, held.box, held.strides) for core, held in held_by]) for held_by in its])
    return parts, tuple([tuple([held.address for _, held in held_by]) for held_by in its])


def names_of(context: Context, ops: Sequence[int]) -> tuple[str, ...]:
    """The tensors of a group in the order in which its ops name them; of gathered rows, too."""
    found: dict[str, None] = {}
    for op in ops:
        node = context.graph.ops[op]
        found.update(dict.fromkeys(name for name in node.inputs if name))
        found.update(dict.fromkeys(operand.tensor for operand in context.facts.ops[op].operands))
        found[node.output] = None
    return tuple(found)


def content_of(context: Context, ops: Sequence[int], names: Sequence[str], tiling: Tiling) -> tuple[object, ...]:
    """What decides how a group is lowered: equal for groups that are equal, in one segment or in several."""
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
