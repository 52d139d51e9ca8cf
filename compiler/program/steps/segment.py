"""Lowering of one segment to a looped program: its groups, one nest each (PROG-5, PROG-7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.address.stored import AddressTables
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Machine, machine_of
from compiler.program.loops.loops import LoopedProgram
from compiler.program.program import Program, Resident, Role, Rows, Step
from compiler.program.residents import place_residents, resident_parts
from compiler.program.segment import PlannedGroup, lowering_of
from compiler.program.steps.action import Call, Copy, Numbers
from compiler.program.steps.assemble import Assembled, OrderedGroup, assemble
from compiler.program.steps.cells import Cells
from compiler.program.steps.conflicts import Distances, Node, distances_of
from compiler.program.steps.group_steps import GroupSteps, recorder_of
from compiler.program.steps.order import Phases, order_of
from compiler.program.steps.phases import FirstIterations, first_iterations, phases_of, waits_of
from compiler.program.steps.rows import CommandRows, rows_of
from compiler.program.steps.statements import Statement, statements_of
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of

# How long a looped program takes.
TimeOf = Callable[[LoopedProgram], int]


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
    ) -> None:
        """The arguments of `lower_segment`."""
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
        self.groups: list[GroupSteps] = []
        for planned in groups:
            numbers = {}
            for op in sorted(planned.ops):
                numbers[op] = len(self._steps)
                node = facts.graph.ops[op]
                self._steps.append(Step(group=planned.name, nodes=node.origin, tensor=node.output))
            group = group_of(GroupGeometry(facts, planned.ops), beside, planned.tiling)
            self.groups.append(GroupSteps(lowering_of(context, group, numbers, {}), recorder))

    def rows(self, actions: Sequence[tuple[Copy | Call, Numbers]]) -> CommandRows:
        """The rows of what has these keys and numbers."""

        def entry_of(table: int, box: tuple[tuple[int, int], ...], rest: Numbers) -> int:
            start, stop, begins, ends = rest
            return self._context.entry(table, box, (start, stop), begins=bool(begins), ends=bool(ends))

        return rows_of(actions, entry_of)

    def program(self, rows: CommandRows, offsets: Rows, waits: Rows) -> Program:
        """A program of these rows."""
        tables, units = self._context.finished()
        return Program(
            name=self._name,
            places=self._machine.places,
            queues=self._machine.queues,
            steps=tuple(self._steps),
            commands=rows.commands,
            wait_offsets=offsets,
            waits=waits,
            calls=rows.calls,
            bindings=rows.bindings,
            units=units,
            tables=tables,
            regions=tuple(self._context.region_list),
            residents=tuple(self._residents),
            addresses=tuple(self._context.addresses),
        )

    def lowered(self, time_of: TimeOf) -> LoopedProgram:
        """The looped program; of the orders that each group may have the fastest, by `time_of` of the group alone."""
        cells = [Cells(steps) for steps in self.groups]
        statements = [statements_of(its) for its in cells]
        regions = sorted(
            (region.address, region.address + region.size_bytes)
            for region in self._context.region_list
            if region.role in (Role.INTERMEDIATE, Role.OUTPUT)
        )
        distances = distances_of(cells, regions)
        ordered = []
        for number, (steps, its) in enumerate(zip(self.groups, statements, strict=True)):
            tried = []
            for phases in self._phases(number, steps, its, distances):
                nodes = sorted({Node(number, statement.step, statement.queue) for statement in its})
                order = order_of(nodes, steps.once, distances, phases)
                tried.append(OrderedGroup(number=number, steps=steps, statements=its, order=order))
            ordered.append(min(tried, key=lambda group: time_of(self._looped(assemble([group])))))
        return self._looped(assemble(ordered))

    def _looped(self, assembled: Assembled) -> LoopedProgram:
        rows = self.rows([(statement.key, statement.base) for statement in assembled.statements])
        program = self.program(rows, assembled.wait_offsets, assembled.waits)
        return LoopedProgram(program=program, loops=assembled.loops)

    def _phases(
        self, number: int, steps: GroupSteps, statements: Sequence[Statement], distances: Distances
    ) -> list[Phases]:
        """Phases of a group's nodes: as its steps stand, and as engines come to them that take what is ready first."""
        nodes = {Node(number, statement.step, statement.queue) for statement in statements}
        first: FirstIterations = first_iterations(number, steps)
        rows = self.rows([(action.key, action.numbers) for action in first.actions])
        program = self.program(rows, *waits_of(first, distances))
        found = phases_of(first, program, self._profile)
        return [dict.fromkeys(nodes, 0.0), *({node: its.get(node, 0.0) for node in nodes} for its in found)]
