"""Lowering of one segment to a program: its groups, one nest each (PROG-5, PROG-7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.address.stored import AddressTables
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Machine, machine_of
from compiler.program.fields import DEFAULT_LIMITS
from compiler.program.loops.loops import Loops
from compiler.program.program import Program, Resident, Role, Step
from compiler.program.residents import place_residents, resident_parts
from compiler.program.segment import PlannedGroup, lowering_of
from compiler.program.steps.action import Numbers, Steps
from compiler.program.steps.assemble import GroupStatements, OrderedGroup, Waits, assemble, loops_of
from compiler.program.steps.commands import SLOTS, Commands, Kinds, Nodes, first_iterations
from compiler.program.steps.conflicts import Conflicts, conflicts_of, walked
from compiler.program.steps.equal_groups import EqualGroups, SegmentGroup, Setting
from compiler.program.steps.group_steps import GroupSteps, recorder_of
from compiler.program.steps.loop_rows import loop_rows_of, single_rows
from compiler.program.steps.order import Phases, Turns, turns_of
from compiler.program.steps.phases import phases_of, waits_of
from compiler.program.steps.rows import CommandRows, rows_of
from compiler.program.steps.statements import Statement
from compiler.program.steps.waits import (
    Inside,
    NoCommonOrderError,
    inside_of,
    ordered_by,
    waits_before,
    waits_inside,
    waits_listed,
)
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.order import fastest, ready_first
from compiler.program.timing.ticks import Flags, Ints
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of

# Groups of at most so many commands are listed one by one. Of MobileNet, ResNet-18 and FSRCNN on four chips 47 groups
# are that small: listed they take 0.99 of the unrolled cycles (worst 1.06) and 1.3 of its lowering time, looped 0.99
# (worst 1.11) and 2.1. Beyond it loops are about as fast as lists and much shorter.
LISTED_MAX: Final = 4096
# A group is listed, too, where loops leave it a statement for fewer than so many commands. Of ResNet-18 on manycore2x64
# eleven groups have 2.4 to 5.8 commands a statement: looped they take 1.00 to 1.40 of the cycles that they take listed,
# and twice the lowering time. Three have 6.7 to 8.8: they take 0.91 to 1.00. Those of MobileNet on edge4 have 8 to 160.
SHORTENED_MIN: Final = 6
# The simulation that finds phases ends with the first iteration after which it has had so many commands and iterations.
_COMMANDS_MIN: Final = 4096
_ITERATIONS_MIN: Final = 16
# As many commands as a group may have that is listed: more are not proved.
LISTED_ALL: Final = DEFAULT_LIMITS.commands


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    """What is found out about a group: its first commands, and those that are walked through for conflicts.

    `statements`: None where the first commands are all that it has, and are listed one by one.
    """

    group: SegmentGroup
    steps: Steps
    first: Commands
    walked: Commands
    statements: Sequence[Statement] | None


class SegmentSteps:
    """The groups of a segment as steps, and what a program of theirs consists of."""

    def __init__(
        self,
        facts: GraphFacts,
        profile: Profile,
        name: str,
        groups: Sequence[PlannedGroup],
        outputs: frozenset[str],
        resident_bytes: int = 0,
        decoders: Decoders | None = None,
        address_tables: AddressTables | None = None,
        equal_groups: EqualGroups | None = None,
    ) -> None:
        """`outputs` are the segment's tensors that others read; stationary weights take `resident_bytes`.

        `equal_groups`: groups of segments lowered before, which this one's may be like. Raises LimitError where the
        plan does not hold what it says.
        """
        self._machine: Machine = machine_of(profile)
        self._profile, self._name = profile, name
        ops = sorted(op for group in groups for op in group.ops)
        made = frozenset(facts.graph.ops[op].output for op in ops)
        self._context = context = Context(facts, self._machine, made, outputs, decoders, address_tables)
        recorder = recorder_of(context)
        self._residents: list[Resident] = []
        if profile.is_stationary:
            parts = resident_parts(context, profile, ops, resident_bytes)
            self._residents = place_residents(context, profile, parts)
        beside = profile.beside(resident_bytes)
        self._steps: list[Step] = []
        self.groups: list[SegmentGroup] = []
        equals = EqualGroups() if equal_groups is None else equal_groups
        for planned in groups:
            numbers: dict[int, int] = {}
            setting = Setting.of(context, planned.ops, len(self._steps))
            for op in sorted(planned.ops):
                numbers[op] = len(self._steps)
                node = facts.graph.ops[op]
                self._steps.append(Step(group=planned.name, nodes=node.origin, tensor=node.output))
            found = equals.like(setting, planned.tiling, resident_bytes)
            if found is None:
                group = group_of(GroupGeometry(facts, planned.ops), beside, planned.tiling)
                its = GroupSteps(lowering_of(context, group, numbers), recorder)
                found = equals.enter(setting, planned.tiling, resident_bytes, its)
            self.groups.append(found)

    def lowered(self, listed_max: int = LISTED_MAX) -> Program:
        """The program; of the orders that each group may have the one in which the group alone is fastest.

        Groups of at most `listed_max` commands do not loop, nor do those that loops hardly shorten (0: all loop, but
        for those of one iteration), nor those without an order that all iterations have.
        """
        limits = [listed_max] * len(self.groups)
        while True:
            try:
                return self._lowered(limits)
            except NoCommonOrderError as error:
                if limits[error.group] == LISTED_ALL:
                    raise
                limits[error.group] = LISTED_ALL

    def _lowered(self, limits: Sequence[int]) -> Program:
        kinds = Kinds()
        found = [_found(group, kinds, limit) for group, limit in zip(self.groups, limits, strict=True)]
        regions = [
            (region.address, region.address + region.size_bytes)
            for region in self._context.region_list
            if region.role in (Role.INTERMEDIATE, Role.OUTPUT)
        ]
        nodes = Nodes.of((number, *columns) for number, its in enumerate(found) for columns in _columns_of(its))
        iterations = [group.steps.iterations for group in self.groups]
        conflicts = conflicts_of(nodes, [its.walked for its in found], iterations, regions)
        groups = [self._statements(number, its, nodes, kinds) for number, its in enumerate(found)]
        program = self._program(self._rows(kinds, np.arange(len(kinds.first)), [its for _, its in kinds.first]))
        orders = _Orders(program, demands_of(program, self._profile), conflicts)
        ordered, waits = [], []
        begin = 0
        for its, group in zip(found, groups, strict=True):
            chosen, inside = orders.listed(group, its) if group.is_listed else orders.looped(group, its)
            ordered.append(chosen)
            waits.append(Waits(inside.owners + begin, inside.names + begin, inside.distances))
            begin += len(group.kinds)
        waits.append(waits_before(ordered, conflicts))
        assembled = assemble(ordered, Waits(*(np.concatenate(columns) for columns in zip(*waits, strict=True))))
        return replace(
            self._program(assembled.rows),
            wait_offsets=assembled.wait_offsets,
            waits=assembled.waits,
            loops=assembled.loops,
        )

    def _statements(self, number: int, found: _Found, nodes: Nodes, kinds: Kinds) -> GroupStatements:
        """A group's statements as rows."""
        commands, statements = found.first, found.statements
        if statements is None:
            numbers = [action.numbers for action in commands.actions]
            kind_of, loops = commands.kinds, single_rows(len(numbers))
            steps, queues, places, ranks = commands.steps, commands.queues, commands.ranks, commands.ranks
        else:
            numbers = [statement.base for statement in statements]
            kind_of = kinds.of((statement.key, statement.base) for statement in statements)
            steps = np.array([statement.step for statement in statements], dtype=np.int64)
            queues = np.array([statement.queue for statement in statements], dtype=np.int64)
            places = np.array([statement.place for statement in statements], dtype=np.int64)
            ranks = np.array([statement.rank for statement in statements], dtype=np.int64)
            loops = loop_rows_of(statements)
        return GroupStatements(
            number=number,
            rows=self._rows(kinds, kind_of, numbers),
            kinds=kind_of,
            loops=loops,
            nodes=nodes.numbers(number, steps, queues),
            places=places,
            ranks=ranks,
            iterations=found.steps.iterations,
            is_listed=statements is None,
        )

    def _rows(self, kinds: Kinds, kind_of: Ints, numbers: Sequence[Numbers]) -> CommandRows:
        def entry_of(table: int, box: tuple[tuple[int, int], ...], rest: Numbers) -> int:
            start, stop, begins, ends = rest
            return self._context.entry(table, box, (start, stop), begins=bool(begins), ends=bool(ends))

        return rows_of(kinds, kind_of, numbers, entry_of)

    def _program(self, rows: CommandRows) -> Program:
        """A program of these rows, each done once, without waits."""
        tables, units = self._context.finished()
        return Program(
            name=self._name,
            places=self._machine.places,
            queues=self._machine.queues,
            steps=tuple(self._steps),
            commands=rows.commands,
            wait_offsets=np.zeros(len(rows.commands) + 1, dtype=np.int32),
            waits=np.zeros(0, dtype=np.int32),
            loops=Loops.one_iteration(len(rows.commands), 0),
            calls=rows.calls,
            bindings=rows.bindings,
            units=units,
            tables=tables,
            regions=tuple(self._context.region_list),
            residents=tuple(self._residents),
            addresses=tuple(self._context.addresses),
        )


def _found(group: SegmentGroup, kinds: Kinds, listed_max: int) -> _Found:
    steps = group.steps
    first, is_all = first_iterations(steps, kinds, max(_COMMANDS_MIN, listed_max + 1), _ITERATIONS_MIN)
    # what has one iteration has as many statements as commands
    if is_all and (len(first.actions) <= listed_max or steps.iterations == 1):
        steps.forget()
        return _Found(group=group, steps=steps, first=first, walked=first, statements=None)
    statements: Sequence[Statement] | None
    if is_all and listed_max and len(first.actions) < LISTED_ALL:
        # all commands are known: statements are sought up to where the group is listed
        statements = group.statements_up_to(len(first.actions) // SHORTENED_MIN, _least_behind(first, len(steps.once)))
    else:
        statements = group.statements
    cells = group.cells
    count = len(first.actions) if statements is None else sum(its.tiles for its in statements)
    if statements is None or (listed_max and count < min(SHORTENED_MIN * len(statements), LISTED_ALL)):
        if not is_all:
            first, is_all = first_iterations(steps, kinds, count, steps.iterations)
        assert is_all
        found = _Found(group=group, steps=steps, first=first, walked=first, statements=None)
    else:
        found = _Found(group=group, steps=steps, first=first, walked=walked(cells, kinds), statements=statements)
    cells.forget()
    steps.forget()
    return found


def _least_behind(commands: Commands, step_count: int) -> list[int]:
    """By step how many statements the steps behind it have at least: one for each kind and number of their commands."""
    different = np.unique(commands.steps * SLOTS + commands.slots)
    counts = np.bincount(different // SLOTS, minlength=step_count)
    found: list[int] = (counts.sum() - np.cumsum(counts)).tolist()
    return found


def _columns_of(found: _Found) -> Iterator[tuple[Ints, Ints]]:
    """Steps and engines of all that a group has."""
    yield found.first.steps, found.first.queues
    yield found.walked.steps, found.walked.queues
    if found.statements is not None:
        pairs = [(statement.step, statement.queue) for statement in found.statements]
        steps, queues = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        yield steps, queues


@dataclass(frozen=True, slots=True, eq=False)
class _Orders:
    """Tries orders of single groups. `program`: a command of each kind, `demands` theirs."""

    program: Program
    demands: Demands
    conflicts: Conflicts

    def listed(self, group: GroupStatements, found: _Found) -> tuple[OrderedGroup, Waits]:
        """A group of single commands in the fastest of some orders; of one that is like another, in that one's."""
        order = found.group.order
        if order is None:
            order = self._fastest(group, found)
        found.group.order = order
        stages = np.zeros(len(order), dtype=np.int64)
        chosen = OrderedGroup(group=group, order=order, stages=stages)
        return chosen, waits_listed(chosen, self.conflicts)

    def _fastest(self, group: GroupStatements, found: _Found) -> Ints:
        conflicts, count, commands = self.conflicts, len(group.kinds), found.first
        _, names, owners = conflicts.of_group(group.number)
        sizes = np.bincount(owners, minlength=count)
        program = self.program.once(
            self.program.commands[group.kinds],
            np.append(0, np.cumsum(sizes)).astype(np.int32),
            names[np.lexsort((names, owners))].astype(np.int32),
        )
        demands, its = self.demands.ordered(group.kinds), conflicts.nodes.slice(group.number)
        nodes = group.nodes - its.start
        # those of loops, too: a loop that lets loads go less far ahead may be faster than what is ready first
        orders = []
        ready = ready_first(program, demands, commands.steps)
        for phases in phases_of(commands, nodes, program, ready, its.stop - its.start):
            turns = self._turns(found, its, phases)
            at = np.where(commands.iterations < 0, -int(turns.stages.max()), commands.iterations - turns.stages[nodes])
            orders.append(np.lexsort((np.arange(count), turns.places[nodes], at)).astype(np.int64))
        order, _ = fastest(program, demands, ready, orders)
        return order

    def looped(self, group: GroupStatements, found: _Found) -> tuple[OrderedGroup, Waits]:
        """A group in the fastest order of those that its nodes' phases give.

        Of a group that is like another one the phases are those that were chosen there.
        """
        # imported where it is used alone: it brings a compiler with it
        from compiler.program.loops.time import time_under

        its, inside = self.conflicts.nodes.slice(group.number), inside_of(group, self.conflicts)
        best: tuple[int, Phases, OrderedGroup, Waits] | None = None
        known = set()
        chosen = found.group.phases
        for phases in self._phases(group, found, inside) if chosen is None else [chosen]:
            ordered = ordered_by(group, inside.levels, self._turns(found, its, phases), its.start)
            key = ordered.order.tobytes() + ordered.stages.tobytes()
            if key in known:
                continue
            known.add(key)
            waits = waits_inside(ordered, inside)
            if chosen is not None:
                best = 0, phases, ordered, waits
                break
            offsets, names, loops = loops_of([ordered], waits)
            of_order = group.kinds[ordered.order]
            commands = self.program.commands[of_order]
            program = replace(self.program, commands=commands, wait_offsets=offsets, waits=names, loops=loops)
            ticks = time_under(program, self.demands.ordered(of_order)).ticks
            if best is None or ticks < best[0]:
                best = ticks, phases, ordered, waits
        assert best is not None
        _, found.group.phases, ordered, waits = best
        return ordered, waits

    def _turns(self, found: _Found, its: slice, phases: Phases) -> Turns:
        """The turns of a group's nodes that have these phases; `its`: their numbers."""
        steps, pairs = self.conflicts.nodes.steps[its], self.conflicts.pairs
        once: Flags = np.array(found.steps.once, dtype=np.bool_)[steps]
        inside = pairs.chosen((pairs.before >= its.start) & (pairs.after < its.stop))
        inside = inside._replace(before=inside.before - its.start, after=inside.after - its.start)
        return turns_of(steps, once, inside, phases)

    def _phases(self, group: GroupStatements, found: _Found, inside: Inside) -> Iterator[Phases]:
        """Phases of a group's nodes: as its steps stand, and as engines come to them that take what is ready first."""
        its = self.conflicts.nodes.slice(group.number)
        yield np.zeros(its.stop - its.start)
        commands = found.first
        nodes = self.conflicts.nodes.numbers(group.number, commands.steps, commands.queues)
        offsets, waits = waits_of(commands, inside.of_commands(group, commands, nodes), inside.pairs)
        rows, demands = self.program.commands[commands.kinds], self.demands.ordered(commands.kinds)
        program = self.program.once(rows, offsets, waits)
        ready = ready_first(program, demands, commands.steps)
        yield from phases_of(commands, nodes - its.start, program, ready, its.stop - its.start)
