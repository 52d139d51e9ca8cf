"""Groups that are equal: one is lowered, the others have its steps, statements and phases at their own addresses.

Networks say the same thing many times. What a group does depends on the content of its ops and on its tiling, and never
on what was lowered before (SCHED-2). So equal groups differ in three kinds of numbers only: addresses in DRAM, which
are counted from their tensor's region, the numbers of parameter tables, and those of the program's steps.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from compiler.program.context import Context
from compiler.program.program import ADDRESSES, Role
from compiler.program.steps.action import Action, Bound, Call, Copy, Inner, Numbers, Space, Steps
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.cells import Cells
from compiler.program.steps.group_steps import GroupSteps
from compiler.program.steps.order import Phases
from compiler.program.steps.statements import Statement, numbers_at, statements_of
from compiler.program.timing.ticks import Ints
from compiler.tiling.memory import KEPT, STORES, WAITING
from compiler.tiling.tile import Tiling

_DRAM: Final = 0


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

    `order` and `phases`: of its commands, where they are listed, and of its nodes, where they loop, as they were chosen
    for it, or for the group that it is like: orders know no other groups.
    """

    setting: Setting
    steps: Steps
    original: SegmentGroup | None = None
    _order: Ints | None = None
    _phases: Phases | None = None
    _statements: list[Statement] | None = None
    # of statements that were not found to the end: there are more than so many
    _more_than: int = -1

    @property
    def order(self) -> Ints | None:
        """The order of its commands."""
        return self._order if self.original is None or self._order is not None else self.original.order

    @order.setter
    def order(self, order: Ints) -> None:
        self._order = order

    @property
    def phases(self) -> Phases | None:
        """The phases of its nodes."""
        return self._phases if self.original is None or self._phases is not None else self.original.phases

    @phases.setter
    def phases(self, phases: Phases) -> None:
        self._phases = phases

    @cached_property
    def cells(self) -> Cells:
        """What its steps do; products of runs are those of the original."""
        return Cells(self.steps, None if self.original is None else self.original.cells)

    @property
    def statements(self) -> list[Statement]:
        """All its statements."""
        found = self.statements_up_to(sys.maxsize, [0] * len(self.steps.once))
        assert found is not None
        return found

    def statements_up_to(self, most: int, behind: Sequence[int]) -> list[Statement] | None:
        """Its statements: those of the original, moved, or found; None if there are more than `most`.

        `behind`: by step how many statements the steps behind it have at least.
        """
        if self._statements is None and most > self._more_than:
            self._statements = self._new_statements(most, behind)
            if self._statements is None:
                self._more_than = most
        found = self._statements
        return found if found is not None and len(found) <= most else None

    def _new_statements(self, most: int, behind: Sequence[int]) -> list[Statement] | None:
        if isinstance(self.steps, MovedSteps) and self.original is not None:
            theirs = self.original.statements_up_to(most, behind)
            moved = None if theirs is None else self.steps.moved(theirs)
            if theirs is None or moved is not None:
                return moved
        found = list[Statement]()
        for its in statements_of(self.cells):
            found.append(its)
            if len(found) + behind[its.step] > most:
                return None
        return found


class EqualGroups:
    """The groups lowered so far, by content: of one segment, or of all segments of a compilation for one profile."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], SegmentGroup] = {}

    def like(self, setting: Setting, tiling: Tiling, resident_bytes: int) -> SegmentGroup | None:
        """The group as a copy of an equal one; None if none is known. Stationary weights have places of their own."""
        original = self._known.get(self._key(setting, tiling, resident_bytes))
        if original is None or setting.context.residents:
            return None
        steps = original.steps
        assert isinstance(steps, GroupSteps)
        return SegmentGroup(setting, MovedSteps(steps, original.setting, setting), original)

    def enter(self, setting: Setting, tiling: Tiling, resident_bytes: int, steps: GroupSteps) -> SegmentGroup:
        """A group that was lowered: from now on others are like it."""
        found = SegmentGroup(setting, steps)
        if not setting.context.residents:
            self._known[self._key(setting, tiling, resident_bytes)] = found
        return found

    def forget(self, group: SegmentGroup) -> None:
        """Nothing is like this group any more: what is known of it takes memory."""
        self._known = {key: its for key, its in self._known.items() if its is not group}

    def _key(self, setting: Setting, tiling: Tiling, resident_bytes: int) -> tuple[object, ...]:
        return resident_bytes, content_of(setting.context, setting.ops, setting.names, tiling)


@dataclass(eq=False)
class MovedSteps:
    """The steps of a group that is equal to another one: what that does, at its own addresses (protocol `Steps`)."""

    original: GroupSteps
    theirs: Setting
    mine: Setting
    _starts: list[int] = field(default_factory=list)
    _shifts: dict[int, int] = field(default_factory=dict)
    _keys: dict[Copy | Call, Copy | Call] = field(default_factory=dict)
    _known: dict[tuple[int, int], Sequence[Action]] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """As many as the original has."""
        return self.original.iterations

    @property
    def once(self) -> Sequence[bool]:
        """By step, whether it is done once."""
        return self.original.once

    def doing(self, iteration: int) -> Sequence[int]:
        """The steps that may do something in an iteration."""
        return self.original.doing(iteration)

    def spaces(self, step: int) -> Mapping[int, Space]:
        """By unit the counters of its tiles."""
        return self.original.spaces(step)

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        """By counter of a unit's tiles the runs."""
        return self.original.runs(unit)

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        """The loops around a step inside one tile."""
        return self.original.inner(step, unit, counters)

    def unit_of(self, queue: int) -> int:
        """The unit that an engine belongs to."""
        return self.original.unit_of(queue)

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        """What a step does in an iteration."""
        found = self._known.get((step, iteration))
        if found is None:
            found = self._known[step, iteration] = [self._action(its) for its in self.original.at(step, iteration)]
        return found

    def forget(self) -> None:
        """Drop what the original keeps to answer quickly."""
        self.original.forget()

    def moved(self, statements: Sequence[Statement]) -> list[Statement] | None:
        """Statements of the original as this group's; None if one goes from tensor to tensor, which may move apart."""
        regions: set[int] = set()
        for its in statements:
            addresses = _in_dram(its.key)
            for corner in _corners(its) if addresses else ():
                if any(self._region(corner[number]) != self._region(its.base[number]) for number in addresses):
                    return None
            regions.update(self._region(its.base[number]) for number in addresses)
        # regions are made in the order in which the original made them
        for number in sorted(regions):
            self._shift(number)
        return [
            Statement(
                step=its.step,
                place=its.place,
                rank=its.rank,
                space=its.space,
                runs=its.runs,
                key=self._key(its.key),
                base=self._numbers(its.key, its.base),
                rule=its.rule,
            )
            for its in statements
        ]

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _action(self, action: Action) -> Action:
        numbers = self._numbers(action.key, action.numbers)
        return Action(self._key(action.key), numbers)

    def _key(self, key: Copy | Call) -> Copy | Call:
        found = self._keys.get(key)
        if found is None:
            step = key.step - self.theirs.first_step + self.mine.first_step
            if isinstance(key, Copy):
                found = replace(key, step=step)
            else:
                table = self.theirs.context.tables[key.table]
                op = self.mine.ops[self.theirs.ops.index(table.op)]
                bound = tuple([self._bound(its) for its in key.bound])
                found = replace(key, step=step, table=self.mine.context.table(op, table), bound=bound)
            self._keys[key] = found
        return found

    def _bound(self, bound: Bound) -> Bound:
        """What a call has bound, with this program's number of an address table."""
        number = ADDRESSES - bound.operand
        if number < 0:
            return bound
        context = self.mine.context
        name = context.address_table(self.theirs.context.window_read(number))
        return bound._replace(operand=ADDRESSES - context.address_tables[name])

    def _numbers(self, key: Copy | Call, numbers: Numbers) -> Numbers:
        moving = _in_dram(key)
        if not moving:
            return numbers
        found = list(numbers)
        for number in moving:
            found[number] = self._address(found[number])
        return tuple(found)

    def _address(self, address: int) -> int:
        """The address in DRAM at which this group has what the original has at an address."""
        return address + self._shift(self._region(address))

    def _region(self, address: int) -> int:
        """The number of the region of the original's program in which an address lies; regions come one by one."""
        regions = self.theirs.context.region_list
        if len(self._starts) < len(regions):
            self._starts += [region.address for region in regions[len(self._starts) :]]
        return bisect_right(self._starts, address) - 1

    def _shift(self, number: int) -> int:
        """How far behind a region of the original's program this group's own lies."""
        found = self._shifts.get(number)
        if found is None:
            found = self._shifts[number] = self._new_shift(number)
        return found

    def _new_shift(self, number: int) -> int:
        theirs, mine = self.theirs.context, self.mine.context
        region = theirs.region_list[number]
        if region.role is Role.ADDRESSES:
            # address tables are of the read, whoever reads
            name = mine.address_table(theirs.window_read(theirs.address_tables[region.name]))
        else:
            name = self.mine.names[self.theirs.names.index(region.name)]
        return mine.region(name).address - region.address


def _in_dram(key: Copy | Call) -> list[int]:
    """Which of an action's numbers are addresses in DRAM."""
    if isinstance(key, Copy):
        return [number for number, place in enumerate((key.source, key.target)) if place == _DRAM]
    found, at = [], len(key.lengths)
    for bound in key.bound:
        if bound.place == _DRAM:
            found.append(at)
        at += 1 + len(bound.lengths)
    return found


def _corners(statement: Statement) -> list[Numbers]:
    """A statement's numbers at the last value of each counter, and of all: regions are ranges, none is left between."""
    lasts = [run.tiles - 1 for run in statement.runs]
    places = [[last if at == counter else 0 for at in range(len(lasts))] for counter, last in enumerate(lasts) if last]
    return [numbers_at(statement.base, statement.rule, its) for its in ([*places, lasts] if places else [])]


# --- when groups are equal --------------------------------------------------------------------------------------------


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
