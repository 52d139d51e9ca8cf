"""Lowering of one segment to a program: its groups, one nest each, or several listed ones (PROG-5, PROG-7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from compiler.address.stored import AddressTables
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Machine, machine_of
from compiler.program.loops.loops import Loops
from compiler.program.program import Program, Resident, Role, Step
from compiler.program.residents import place_residents, resident_parts
from compiler.program.segment import PlannedGroup, lowering_of
from compiler.program.steps.action import Numbers
from compiler.program.steps.assemble import GroupStatements, OrderedGroup, OrderedSegment, Waits, assemble, loops_of
from compiler.program.steps.commands import Lists, Nodes
from compiler.program.steps.conflicts import Conflicts, Pairs, conflicts_of
from compiler.program.steps.equal_groups import EqualGroups, SegmentGroup, Setting
from compiler.program.steps.group_columns import LISTED_ALL, LISTED_MAX, GroupColumns
from compiler.program.steps.group_steps import GroupSteps, TooManyActionsError, recorder_of
from compiler.program.steps.interleaved import interleaved
from compiler.program.steps.key_rows import KeyRows
from compiler.program.steps.order import Phases, Turns, turns_of
from compiler.program.steps.phases import phases_of, waits_of
from compiler.program.steps.rows import CommandRows, joined, rows_of
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
from compiler.program.timing.ticks import Ints
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of


class Emitted(NamedTuple):
    """A program, what its commands demand, and by group the ticks that it takes by itself in the order best for it."""

    program: Program
    demands: Demands
    alone: tuple[int, ...]


class _Found(NamedTuple):
    """A group and what it comes to."""

    group: SegmentGroup
    columns: GroupColumns


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
        segment_ops: Sequence[int] | None = None,
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
            parts = resident_parts(context, profile, ops if segment_ops is None else segment_ops, resident_bytes)
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

            def lowered(planned: PlannedGroup = planned, numbers: Mapping[int, int] = numbers) -> GroupSteps:
                group = group_of(GroupGeometry(facts, planned.ops), beside, planned.tiling)
                return GroupSteps(lowering_of(context, group, numbers), recorder)

            self.groups.append(equals.group(setting, planned.tiling, resident_bytes, lowered))

    @property
    def actions(self) -> int:
        """How many actions lowering the groups took, equal ones once, whenever they were lowered."""
        return sum(group.actions for group in dict.fromkeys(group.original or group for group in self.groups))

    def lowered(self, listed_max: int = LISTED_MAX, actions_max: float = inf) -> Program:
        """The program of `emitted`."""
        return self.emitted(listed_max, actions_max).program

    def emitted(self, listed_max: int = LISTED_MAX, actions_max: float = inf) -> Emitted:
        """The program and what is known of it; groups have the order in which they are fastest, alone or together.

        Groups of at most `listed_max` commands do not loop, nor do those that loops hardly shorten (0: all loop, but
        for those of one iteration), nor those without an order that all iterations have. Raises TooManyActionsError
        where it takes more than `actions_max` actions.
        """
        limits = [listed_max] * len(self.groups)
        while True:
            try:
                return self._lowered(limits, actions_max)
            except NoCommonOrderError as error:
                if limits[error.group] == LISTED_ALL:
                    raise
                limits[error.group] = LISTED_ALL

    def _lowered(self, limits: Sequence[int], actions_max: float) -> Emitted:
        found: list[_Found] = []
        left, met = actions_max, set[SegmentGroup]()
        for lowered, limit in zip(self.groups, limits, strict=True):
            found.append(_Found(lowered, lowered.columns(limit, left)))
            original = lowered.original or lowered
            left -= 0 if original in met else lowered.actions
            met.add(original)
            if left < 0:
                raise TooManyActionsError(
                    "a program takes longer to make than it is worth", stage="lower", limit=actions_max
                )
        columns = [its.columns for its in found]
        first_kinds = [0, *accumulate(len(its.keys) for its in columns)]
        regions = [
            (region.address, region.address + region.size_bytes)
            for region in self._context.region_list
            if region.role in (Role.INTERMEDIATE, Role.OUTPUT)
        ]
        nodes = Nodes.of((number, *its) for number, one in enumerate(columns) for its in _nodes_of(one))
        iterations = [its.iterations for its in columns]
        conflicts = conflicts_of(
            nodes, [its.walked for its in columns], [its.keys for its in columns], iterations, regions
        )
        groups = [self._statements(number, its, nodes, first_kinds[number]) for number, its in enumerate(columns)]
        program = self._program(
            joined([self._rows(its.keys, np.arange(len(its.keys)), its.samples) for its in columns])
        )
        demands = demands_of(program, self._profile)
        orders = _Orders(program, demands, conflicts)
        ordered, alone, inside = [], list[int](), list[Waits | None]()
        for its, group in zip(found, groups, strict=True):
            waits = None
            if group.is_listed:
                chosen, ticks = orders.listed(group, its)
            else:
                chosen, ticks, waits = orders.looped(group, its)
            ordered.append(chosen)
            alone.append(ticks)
            inside.append(waits)
        segment = interleaved(ordered, program, demands, conflicts)
        all_waits = [waits_before(segment, conflicts)]
        for first, chosen, waits in zip(segment.firsts.tolist(), segment.groups, inside, strict=False):
            owners, names, distances = waits or waits_listed(chosen, conflicts)
            all_waits.append(Waits(segment.places[first + owners], segment.places[first + names], distances))
        assembled = assemble(segment, Waits(*(np.concatenate(its) for its in zip(*all_waits, strict=True))))
        program = replace(
            self._program(assembled.rows),
            wait_offsets=assembled.wait_offsets,
            waits=assembled.waits,
            loops=assembled.loops,
        )
        # statements of one kind demand the same
        return Emitted(program, demands.ordered(segment.samples), tuple(alone))

    def _statements(self, number: int, found: GroupColumns, nodes: Nodes, first_kind: int) -> GroupStatements:
        """A group's statements as rows."""
        its = found.statements
        return GroupStatements(
            number=number,
            rows=self._rows(found.keys, its.kinds, its.numbers),
            kinds=its.kinds,
            first_kind=first_kind,
            loops=its.loops,
            nodes=nodes.numbers(number, its.steps, its.queues),
            places=its.places,
            ranks=its.ranks,
            iterations=found.iterations,
            is_listed=found.is_listed,
        )

    def _rows(self, keys: KeyRows, kind_of: Ints, numbers: Lists) -> CommandRows:
        def entry_of(table: int, box: tuple[tuple[int, int], ...], rest: Numbers) -> int:
            start, stop, begins, ends = rest
            return self._context.entry(table, box, (start, stop), begins=bool(begins), ends=bool(ends))

        return rows_of(keys, kind_of, numbers, entry_of)

    def _program(self, rows: CommandRows) -> Program:
        """A program of these rows, each done once, without waits."""
        tables, units, calls = self._context.finished(rows.calls)
        return Program(
            name=self._name,
            places=self._machine.places,
            queues=self._machine.queues,
            steps=tuple(self._steps),
            commands=rows.commands,
            wait_offsets=np.zeros(len(rows.commands) + 1, dtype=np.int32),
            waits=np.zeros(0, dtype=np.int32),
            loops=Loops.one_iteration(len(rows.commands), 0),
            calls=calls,
            bindings=rows.bindings,
            units=units,
            tables=tables,
            regions=tuple(self._context.region_list),
            residents=tuple(self._residents),
            addresses=tuple(self._context.addresses),
        )


def _nodes_of(found: GroupColumns) -> Iterator[tuple[Ints, Ints]]:
    """Steps and engines of all that a group has."""
    for its in (found.first, found.walked, found.statements):
        yield its.steps, its.queues


@dataclass(frozen=True, slots=True, eq=False)
class _Orders:
    """Tries orders of single groups. `program`: a command of each kind, `demands` theirs."""

    program: Program
    demands: Demands
    conflicts: Conflicts

    def listed(self, group: GroupStatements, found: _Found) -> tuple[OrderedGroup, int]:
        """A group of single commands in the fastest of some orders, and its ticks; of one that is like another, in that
        one's.
        """
        found.group.order = order, ticks = found.group.order or self._fastest(group, found)
        stages = np.zeros(len(order), dtype=np.int64)
        return OrderedGroup(group=group, order=order, stages=stages), ticks

    def _fastest(self, group: GroupStatements, found: _Found) -> tuple[Ints, int]:
        conflicts, count, commands = self.conflicts, len(group.kinds), found.columns.first
        _, names, owners = conflicts.of_group(group.number)
        sizes = np.bincount(owners, minlength=count)
        program = self.program.once(
            self.program.commands[group.samples],
            np.append(0, np.cumsum(sizes)).astype(np.int32),
            names[np.lexsort((names, owners))].astype(np.int32),
        )
        demands, its = self.demands.ordered(group.samples), conflicts.nodes.slice(group.number)
        nodes = group.nodes - its.start
        # those of loops, too: a loop that lets loads go less far ahead may be faster than what is ready first
        orders, pairs, node_count = [], self._pairs(its), its.stop - its.start
        ready = ready_first(program, demands, commands.steps)
        for phases in phases_of(commands, nodes, program, ready, pairs, node_count):
            turns = self._turns(found.columns, its, pairs, phases)
            at = np.where(commands.iterations < 0, -int(turns.stages.max()), commands.iterations - turns.stages[nodes])
            orders.append(np.lexsort((np.arange(count), turns.places[nodes], at)).astype(np.int64))
        return fastest(program, demands, ready, orders)

    def looped(self, group: GroupStatements, found: _Found) -> tuple[OrderedGroup, int, Waits]:
        """A group in the fastest order of those that its nodes' phases give, its ticks, and its waits.

        Of a group that is like another one the phases are those that were chosen there.
        """
        # imported where it is used alone: it brings a compiler with it
        from compiler.program.loops.time import time_under

        its, inside = self.conflicts.nodes.slice(group.number), inside_of(group, self.conflicts)
        best: tuple[int, Phases, OrderedGroup, Waits] | None = None
        known = set()
        chosen, pairs = found.group.phases, self._pairs(its)
        for phases in self._phases(group, found, inside, pairs) if chosen is None else chosen[:1]:
            ordered = ordered_by(group, inside.levels, self._turns(found.columns, its, pairs, phases), its.start)
            key = ordered.order.tobytes() + ordered.stages.tobytes()
            if key in known:
                continue
            known.add(key)
            waits = waits_inside(ordered, inside)
            if chosen is not None:
                best = chosen[1], phases, ordered, waits
                break
            offsets, names, loops = loops_of(OrderedSegment.of(ordered), waits)
            of_order = group.samples[ordered.order]
            commands = self.program.commands[of_order]
            program = replace(self.program, commands=commands, wait_offsets=offsets, waits=names, loops=loops)
            ticks = time_under(program, self.demands.ordered(of_order)).ticks
            if best is None or ticks < best[0]:
                best = ticks, phases, ordered, waits
        assert best is not None
        ticks, phases, ordered, waits = best
        found.group.phases = phases, ticks
        return ordered, ticks, waits

    def _pairs(self, its: slice) -> Pairs:
        """The pairs of a group's nodes, by their numbers in the group; `its`: those in the segment."""
        pairs = self.conflicts.pairs
        inside = pairs.chosen((pairs.before >= its.start) & (pairs.after < its.stop))
        return inside._replace(before=inside.before - its.start, after=inside.after - its.start)

    def _turns(self, found: GroupColumns, its: slice, pairs: Pairs, phases: Phases) -> Turns:
        """The turns of a group's nodes that have these phases; `its`: their numbers; `pairs`: of them."""
        steps = self.conflicts.nodes.steps[its]
        return turns_of(steps, found.once[steps], pairs, phases)

    def _phases(self, group: GroupStatements, found: _Found, inside: Inside, pairs: Pairs) -> Iterator[Phases]:
        """Phases that a group's nodes may have, from engines that take what is ready first."""
        its = self.conflicts.nodes.slice(group.number)
        commands = found.columns.first
        nodes = self.conflicts.nodes.numbers(group.number, commands.steps, commands.queues)
        offsets, waits = waits_of(commands, inside.of_commands(group, commands, nodes), inside.pairs)
        samples = commands.kinds + group.first_kind
        rows, demands = self.program.commands[samples], self.demands.ordered(samples)
        program = self.program.once(rows, offsets, waits)
        ready = ready_first(program, demands, commands.steps)
        return phases_of(commands, nodes - its.start, program, ready, pairs, its.stop - its.start)
