"""The executable of one shape: programs from tables, nothing decided anew (SHAPE-9)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.errors import InternalError, LimitError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource
from compiler.ops.host_form import with_hosts_at
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.build import host_constants, host_segment, stored_weights, value_of
from compiler.program.decode import Decoders
from compiler.program.encoding.sizes import program_sizes
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable, HostSegment
from compiler.program.loops.proof import prove
from compiler.program.lower import handed_out, limit_exceeded
from compiler.program.program import Program
from compiler.program.residents import ResidentPart
from compiler.program.timing.order import as_emitted, in_time
from compiler.shapes.cutting import SegmentTooLargeError, cut
from compiler.shapes.instance import graph_at
from compiler.shapes.lower import Draft, lower_tables
from compiler.shapes.model import ShapeModel
from compiler.shapes.residence import resident_parts_of
from compiler.shapes.routine import Calls, RoutineGeometry
from compiler.shapes.served import has_room, units_with_room
from compiler.shapes.table import ShapeTable
from compiler.version import COMPILER_VERSION

# A program as emitted is so many times as large as in its best order at most, as far as is known: it need not be
# ordered to be too large.
_REORDERED: Final = 1.25


def simple_tables(model: ShapeModel, dims: Mapping[str, int]) -> tuple[ShapeTable | None, ...]:
    """The simple table of every routine at given dimensions; raises RequestError for dimensions at which it is none."""
    model.check(dims)
    known: dict[tuple[int, tuple[int, ...]], ShapeTable | None] = {}
    found = []
    for number, first in enumerate(model.alike):
        problem = model.problem(number, dims)
        key = (first, problem)
        if key not in known:
            known[key] = model.simple_table(number, problem)
        found.append(known[key])
    return tuple(found)


def instantiate(
    model: ShapeModel, dims: Mapping[str, int], tables: Sequence[ShapeTable | None], source: ModelSource
) -> Executable:
    """The model at given dimensions as an executable whose programs are proved like any other.

    `source` is the opened file that the model's constants lie in. Raises RequestError for dimensions out of range.
    """
    model.check(dims)
    profile = profile_from_values(json.loads(model.profile), origin="the units' profile")
    graph = with_hosts_at(graph_at(model.graph, dims, lambda constant: materialise(constant, source)))
    facts = graph_facts(graph)
    segments: list[ChipSegment | HostSegment] = []
    for position, part in enumerate(model.parts):
        name = f"s{position}"
        if part.is_host:
            segments.append(host_segment(graph, name, part.ops))
        else:
            lowering = _Lowering(
                model=model,
                profile=profile,
                facts=facts,
                tables=tables,
                source=source,
                chip=part.chip,
                residents=resident_parts_of(model, profile, part),
            )
            segments += lowering.segments(name, part.routines)
    return Executable(
        compiler_version=COMPILER_VERSION,
        profile=profile,
        model_name=model.model_name,
        model_digest=model.model_digest,
        options_digest="",
        inputs=tuple(value_of(graph, name, name) for name in graph.inputs),
        outputs=tuple(
            value_of(graph, name, tensor) for name, tensor in zip(graph.output_names, graph.output_tensors, strict=True)
        ),
        segments=tuple(segments),
        constants=tuple(host_constants(graph, source)),
        has_values=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lowering:
    """The chip's segments of one part of a model, at one shape."""

    model: ShapeModel
    profile: Profile
    facts: GraphFacts
    tables: Sequence[ShapeTable | None]
    source: ModelSource
    chip: int
    residents: tuple[ResidentPart, ...]

    def segments(self, name: str, routines: Sequence[int]) -> list[ChipSegment]:
        """One segment, or several one after another, where the program of one is too large.

        Raises LimitError where that of a single routine is.
        """
        try:
            return [self._segment(name, routines)]
        except SegmentTooLargeError as error:
            if len(routines) == 1:
                raise error.problem from None
            parts = cut(routines, error)
        return [one for number, part in enumerate(parts) for one in self.segments(f"{name}.{number}", part)]

    def _calls(self, number: int, shape: tuple[int, ...]) -> Calls:
        """The calls of a routine's table; of a simple one of other units where those have no room at this shape.

        Units are laid out for the ends of the ranges. Where positions of operands follow from several extents at once,
        a tile may need more in between, and beyond the ranges one that held a whole map needs a halo.
        """
        library = self.model.libraries[number]
        calls = self.model.calls(number, shape, self.tables[number])
        geometry = RoutineGeometry(self.facts, library.routine.ops)
        if all(has_room(geometry, library, unit) for unit in np.unique(calls.units).tolist()):
            return calls
        units = units_with_room(self.model, number, self.facts)
        table = self.model.simple_table(number, self.model.problem(number, self.facts.graph.dims), units)
        return self.model.calls(number, shape, table)

    def _ops(self, routines: Sequence[int]) -> list[int]:
        return [op for number in routines for op in self.model.libraries[number].routine.ops]

    def _segment(self, name: str, routines: Sequence[int]) -> ChipSegment:
        work = []
        for number in routines:
            library = self.model.libraries[number]
            shape = self.facts.tensors[self.facts.ops[library.routine.ops[-1]].output].shape
            work.append((self._calls(number, shape), library.buffers))
        graph = self.facts.graph
        decoders = Decoders(graph, self.source)
        outputs = handed_out(self.facts, self._ops(routines))
        draft = lower_tables(self.facts, self.profile, name, work, outputs, decoders, self.residents)
        program = self._proved(draft, routines)
        return ChipSegment(
            id=name, chip=self.chip, program=program, weights=stored_weights(graph, self.source, program)
        )

    def _proved(self, draft: Draft, routines: Sequence[int]) -> Program:
        """The program of a draft, in the best order; raises SegmentTooLargeError."""
        self._check_limits(as_emitted(draft.program), routines, _REORDERED)
        program = in_time(draft.program, self.profile, draft.streams).program
        self._check_limits(program, routines)
        try:
            prove(program, shared=self.profile.engines.shared)
        except ProgramError as error:
            if error.violation != "size":
                raise InternalError(
                    "a program of ours is not safe", stage="shapes", node=program.name, actual=str(error)
                ) from error
            raise self._too_large(self._unproved(error, routines), program, routines) from error
        return program

    def _check_limits(self, program: Program, routines: Sequence[int], times: float = 1.0) -> None:
        """Raise SegmentTooLargeError for a program that is more than so many times as large as a limit allows."""
        found = limit_exceeded(self.facts, self.profile, self._ops(routines), program, program_sizes(program))
        if found is not None and _excess(found) > times:
            raise self._too_large(found, program, routines)

    def _unproved(self, error: ProgramError, routines: Sequence[int]) -> LimitError:
        return LimitError(
            "the program of one routine at this shape is too large to be proved safe",
            code="program_too_large",
            stage="shapes",
            node=self.facts.graph.ops[self._ops(routines)[0]].node,
            actual=error.actual,
            limit=error.limit,
            hint="Use smaller extents",
        )

    def _too_large(self, problem: LimitError, program: Program, routines: Sequence[int]) -> SegmentTooLargeError:
        owners = [number for number, routine in enumerate(routines) for _ in self.model.libraries[routine].routine.ops]
        steps = program.commands["step"]
        commands = np.bincount(np.array(owners)[steps[steps >= 0]], minlength=len(routines))
        return SegmentTooLargeError(problem, _excess(problem), commands.tolist())


def _excess(problem: LimitError) -> float:
    """How many times as large as allowed something is; 2 where that is not told in numbers."""
    if isinstance(problem.actual, int | float) and isinstance(problem.limit, int | float):
        return problem.actual / problem.limit
    return 2.0
