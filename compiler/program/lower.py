"""The pass that turns planned groups into programs, proves them, and cuts what exceeds a limit (PROG-1, PART-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import numpy as np

from compiler.address.stored import AddressTables
from compiler.degraded import DEFECTS, DefectError, FailedGroup, failed_group, reason_of
from compiler.errors import InternalError, LimitError, TesseraError
from compiler.frontend.source import ModelSource, opened
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.groups import FusedSegment, Group
from compiler.fusion.map_chips import MappedGraph
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts
from compiler.partition.partition import Refused
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile
from compiler.program.decode import Decoders
from compiler.program.encoding.sizes import ProgramSizes, bytes_by_core, program_sizes
from compiler.program.errors import ProgramError
from compiler.program.loops.proof import ProvedProgram, prove
from compiler.program.loops.time import ProgramTime, time_under
from compiler.program.program import Program
from compiler.program.segment import PlannedGroup
from compiler.program.steps.equal_groups import EqualGroups
from compiler.program.steps.group_columns import LISTED_ALL
from compiler.program.steps.segment import SegmentSteps
from compiler.program.timing.demands import Demands
from compiler.tiling.geometry import GroupGeometry

# What no program of ours may be, whatever the profile allows.
_TOO_LARGE: Final = "program_too_large"


class SegmentTooLongError(LimitError):
    """The programs of some segments exceed limits; the segment compiler knows which, so that a partition cuts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredSegment:
    """A chip segment's program, what its commands demand, how long it takes, what its proof found, and its bytes; all
    None for a host segment.

    `alone`: by group the ticks that it takes by itself, in the order that is best for it. `actions`: how many it was
    lowered from.
    """

    program: Program | None = None
    demands: Demands | None = None
    time: ProgramTime | None = None
    proof: ProvedProgram | None = None
    sizes: ProgramSizes | None = None
    alone: tuple[int, ...] = ()
    actions: int = 0

    @classmethod
    def of(cls, program: Program, demands: Demands, alone: tuple[int, ...]) -> LoweredSegment:
        """A program that is neither proved nor simulated yet."""
        return cls(program=program, demands=demands, sizes=program_sizes(program), alone=alone)

    def timed(self) -> ProgramTime:
        """How long the program takes, simulated if it is not known."""
        if self.time is not None:
            return self.time
        assert self.program is not None
        assert self.demands is not None
        return time_under(self.program, self.demands)


# A segment, why it is refused, by op its part of the limit that the program comes nearest to, and the program.
_Tried = tuple[FusedSegment, Refused | None, dict[int, float], LoweredSegment | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredGraph:
    """A mapped graph with the program of each segment.

    `reason` says why there are no programs, where the profile describes what programs cannot do.
    """

    mapped: MappedGraph
    segments: tuple[LoweredSegment, ...]
    reason: str = ""


@dataclass(slots=True, eq=False)
class Lowered:
    """What was lowered of one graph: segments by their groups and tilings, and groups that others may be like.

    `programs`: of segments that are not proved yet, with their time if they keep the limits of the profile.
    """

    graph: Graph | None = None
    segments: dict[object, LoweredSegment] = field(default_factory=dict)
    groups: EqualGroups = field(default_factory=EqualGroups)
    programs: dict[object, LoweredSegment] = field(default_factory=dict)

    def forget_groups(self) -> None:
        """Forget what groups were found to be."""
        self.groups = EqualGroups()

    def of(self, graph: Graph) -> None:
        """Forget what is of another graph."""
        if graph is not self.graph:
            self.graph, self.segments, self.groups, self.programs = graph, {}, EqualGroups(), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerSegments:
    """Pass: a program for every chip segment. What was lowered is kept for when others are cut, and all comes again."""

    name: str = "program"
    source: ModelSource
    profile: Profile
    compilers: SegmentCompilers = field(repr=False)
    tables: AddressTables = field(default_factory=AddressTables, repr=False)
    lowered: Lowered = field(default_factory=Lowered, repr=False)

    def run(self, mapped: MappedGraph) -> LoweredGraph:
        """Raises SegmentTooLongError where smaller segments are needed, and LimitError naming op, limit and amount
        where a single op's program exceeds a limit (PART-3).
        """
        reason = no_programs(self.profile)
        if reason:
            none = LoweredSegment()
            return LoweredGraph(mapped=mapped, segments=tuple(none for _ in mapped.fused.segments), reason=reason)
        facts, segments = mapped.fused.facts, mapped.fused.segments
        compiler = self.compilers.of(facts)
        self.lowered.of(facts.graph)
        result: list[LoweredSegment] = []
        cut: list[TesseraError] = []
        # what is refused beforehand is cut before others are lowered in vain
        early: list[_Tried] = [
            (found, *why, None) for found in segments if (why := self.exceeds_dram(facts, found)) is not None
        ]
        for found, refused, shares, lowered in early or (self._tried(facts, found) for found in segments):
            compiler.learn(shares)
            if refused is not None:
                if len(found.segment.ops) == 1:
                    raise _last_word(facts, found.segment.ops, refused)
                compiler.refuse(found.segment.ops, refused)
                self.lowered.programs.pop(key_of(found.groups), None)
                cut.append(refused.error)
            elif lowered is not None:
                result.append(lowered)
        if cut:
            first = cut[0]
            raise SegmentTooLongError(
                f"{first.message}, however its segment was cut",
                code=first.code,
                stage=first.stage,
                node=first.node,
                op_type=first.op_type,
                actual=first.actual,
                limit=first.limit,
                hint=first.hint,
            )
        self.tables.keep()
        # what was found out about groups takes memory that values and reports need
        self.lowered.groups, self.lowered.programs = EqualGroups(), {}
        return LoweredGraph(mapped=mapped, segments=tuple(result))

    def _tried(self, facts: GraphFacts, found: FusedSegment) -> _Tried:
        lowered = self._lowered(facts, found)
        if isinstance(lowered, Refused):
            return found, lowered, {}, None
        return found, self.refused(facts, found, lowered), self._shares(found, lowered), lowered

    def _lowered(self, facts: GraphFacts, found: FusedSegment) -> LoweredSegment | Refused:
        if found.segment.kind is SegmentKind.HOST:
            return LoweredSegment()
        try:
            return self.proved(facts, found)
        except DEFECTS as error:
            raise DefectError(
                "the lowering or the proof of a program failed",
                groups=self._at_fault(facts, found),
                stage="lower",
                actual=reason_of(error),
            ) from error

    def proved(self, facts: GraphFacts, found: FusedSegment) -> LoweredSegment | Refused:
        """The program of a segment, proved, or the limit that it exceeds; what is proved is known from then on."""
        known = self.lowered.segments.get(key_of(found.groups))
        if known is not None:
            return _called(known, found.segment.id)
        result = self._proved(facts, found, found.groups)
        if not isinstance(result, Refused):
            self.lowered.segments[key_of(found.groups)] = result
        return result

    def _proved(self, facts: GraphFacts, found: FusedSegment, groups: Sequence[Group]) -> LoweredSegment | Refused:
        """A program of some groups of a segment, proved."""
        ops = tuple(op for group in groups for op in group.ops)
        try:
            return self._safe(lambda: self.steps_of(facts, found, groups), self.lowered.programs.get(key_of(groups)))
        except ProgramError as error:
            if error.violation == "size":
                return self._too_large(facts, ops, error.actual, error.limit)
            raise InternalError(
                "a program of ours is not safe", stage="lower", node=found.segment.id, actual=str(error)
            ) from error

    def steps_of(self, facts: GraphFacts, found: FusedSegment, groups: Sequence[Group]) -> SegmentSteps:
        """Some groups of a segment, in the order in which they run."""
        numbers = {group.ops: number for number, group in enumerate(found.groups)}
        return SegmentSteps(
            facts,
            self.profile,
            found.segment.id,
            [
                PlannedGroup(
                    name=f"{found.segment.id}.g{numbers[group.ops]}", ops=group.ops, tiling=group.choice.tiling
                )
                for group in groups
            ],
            handed_out(facts, (op for group in groups for op in group.ops)),
            self.compilers.of(facts).resident_bytes(found.segment.ops),
            Decoders(facts.graph, opened(facts.graph.source, self.source)),
            self.tables,
            self.lowered.groups,
            found.segment.ops,
        )

    def _safe(self, steps: Callable[[], SegmentSteps], known: LoweredSegment | None) -> LoweredSegment:
        """A segment's program, the `known` one if there is one, proved; ProgramError where it cannot be.

        Statements are found from a few tiles. Should they not hold at others, the segment is listed command by command.
        """
        try:
            lowered = known or self.within_limits(steps)
            # a program over its limits is refused, so it needs no proof
            return lowered if self._exceeds(lowered) else self._with_proof(lowered)
        except ProgramError as error:
            if error.violation == "size":
                raise
            return self._with_proof(LoweredSegment.of(*steps().emitted(LISTED_ALL)))

    def within_limits(self, steps: Callable[[], SegmentSteps], actions_max: float = inf) -> LoweredSegment:
        """A segment's program; as loops throughout if it would exceed what the profile allows otherwise.

        Raises TooManyActionsError where it takes more than so many actions.
        """
        its = steps()
        lowered = replace(LoweredSegment.of(*its.emitted(actions_max=actions_max)), actions=its.actions)
        assert lowered.program is not None
        if self._exceeds(lowered) and not _loops_throughout(lowered.program):
            # what was listed for its speed is shorter as loops
            shorter = steps().emitted(listed_max=0, actions_max=actions_max)
            lowered = replace(LoweredSegment.of(*shorter), actions=its.actions)
        return lowered

    def _exceeds(self, lowered: LoweredSegment) -> bool:
        """True if a program exceeds what the profile allows."""
        assert lowered.program is not None
        assert lowered.sizes is not None
        return any(actual > limit for _, limit, actual in _amounts(self.profile, lowered.program, lowered.sizes))

    def _with_proof(self, lowered: LoweredSegment) -> LoweredSegment:
        program = lowered.program
        assert program is not None
        proof = prove(program, shared=self.profile.engines.shared)
        return replace(lowered, proof=proof, time=lowered.timed())

    def _at_fault(self, facts: GraphFacts, found: FusedSegment) -> list[FailedGroup]:
        """The groups of a segment whose programs fail alone; if none does, those of several ops, or all."""
        failing = []
        for group in found.groups:
            try:
                self._proved(facts, found, (group,))
            except DEFECTS:
                failing.append(group)
        suspects = failing or [group for group in found.groups if len(group.ops) > 1] or list(found.groups)
        return [failed_group(facts, group.ops) for group in suspects]

    def _too_large(
        self,
        facts: GraphFacts,
        ops: Sequence[int],
        actual: object,
        limit: object,
        message: str = "the program is too large to be proved safe",
    ) -> Refused:
        """The refusal of a program that is too large to be lowered and proved; a smaller segment cures it."""
        share = actual / limit if isinstance(actual, int | float) and isinstance(limit, int | float) else 2.0
        error = LimitError(
            message,
            code=_TOO_LARGE,
            stage="lower",
            node=facts.graph.ops[ops[0]].node,
            actual=actual,
            limit=limit,
            hint="Split the model, or use smaller inputs",
        )
        return Refused(error=error, curable=True, share=max(share, 1.01))

    def exceeds_dram(self, facts: GraphFacts, found: FusedSegment) -> tuple[Refused, dict[int, float]] | None:
        """Whether a segment's tensors exceed the DRAM, in which they lie together: told before it is lowered (PROG-4).

        The refusal, and by op its part.
        """
        geometries = [GroupGeometry(facts, group.ops) for group in found.groups]
        read = {name for geometry in geometries for name in geometry.inputs}
        ends = read.union(*(geometry.outputs for geometry in geometries))
        ops, capacity = found.segment.ops, self.profile.dram.capacity_bytes
        total = sum(map(facts.tensor_bytes, ends))
        if total <= capacity:
            return None
        shares = {
            geometry.indices[-1]: sum(map(facts.tensor_bytes, geometry.outputs)) / capacity for geometry in geometries
        }
        refused = self._too_large(facts, ops, total, capacity, "the tensors of the program exceed the DRAM")
        return refused, shares

    def _shares(self, found: FusedSegment, lowered: LoweredSegment) -> dict[int, float]:
        """By op its part of the limit that its segment's program comes nearest to."""
        if lowered.program is None or lowered.sizes is None:
            return {}
        amounts = _amounts(self.profile, lowered.program, lowered.sizes)
        if not amounts:
            return {}
        share = max(actual / limit for _, limit, actual in amounts)
        program = lowered.program
        counts = np.bincount(program.commands["step"], minlength=len(program.steps))
        ops = [op for group in found.groups for op in sorted(group.ops)]
        total = max(1, int(counts.sum()))
        return {op: share * count / total for op, count in zip(ops, counts.tolist(), strict=True)}

    def refused(self, facts: GraphFacts, found: FusedSegment, lowered: LoweredSegment) -> Refused | None:
        """The limit of an executable that a program exceeds; None if it keeps all."""
        if lowered.program is None or lowered.sizes is None:
            return None
        error = limit_exceeded(facts, self.profile, found.segment.ops, lowered.program, lowered.sizes)
        if error is None:
            return None
        amounts = _amounts(self.profile, lowered.program, lowered.sizes)
        share = next(actual / limit for _, limit, actual in amounts if actual > limit)
        return Refused(error=error, curable=True, share=share)


def key_of(groups: Sequence[Group]) -> tuple[object, ...]:
    """What a segment of these groups is known by."""
    return tuple((group.ops, group.choice.tiling) for group in groups)


def _last_word(facts: GraphFacts, ops: Sequence[int], refused: Refused) -> TesseraError:
    """The error for the program of one op: what the profile limits, or what we can prove, which the host cures."""
    if refused.error.code != _TOO_LARGE:
        return refused.error
    return DefectError(
        refused.error.message,
        groups=[failed_group(facts, ops)],
        stage="lower",
        actual=refused.error.actual,
        limit=refused.error.limit,
        plain=refused.error,
    )


def limit_exceeded(
    facts: GraphFacts, profile: Profile, ops: Sequence[int], program: Program, sizes: ProgramSizes
) -> LimitError | None:
    """The first limit of an executable that the program of some ops exceeds; None if it keeps all."""
    for field_name, limit, actual in _amounts(profile, program, sizes):
        if actual > limit:
            op = facts.graph.ops[ops[0]]
            alone = len(ops) == 1
            return LimitError(
                f"the program of {'an op' if alone else 'a segment'} exceeds the profile's limit",
                code="program_too_long",
                stage="lower",
                node=op.node,
                op_type=op.kind if alone else None,
                actual=actual,
                limit=limit,
                hint=f"Raise limits.{field_name} in the profile",
            )
    return None


def _loops_throughout(program: Program) -> bool:
    """True if all groups of a program have commands that loop: none is listed that loops could make shorter."""
    loops = program.loops
    is_looping = loops.spaces["counters"][loops.statements["space"]] > 0
    return len(np.unique(program.group_numbers[is_looping])) == len(program.group_names)


def _amounts(profile: Profile, program: Program, sizes: ProgramSizes) -> list[tuple[str, int, int]]:
    """What a profile limits of a program: (field, limit, actual)."""
    limits = profile.limits
    amounts = [("commands", limits.commands, len(program.commands))]
    amounts.append(("program_bytes", limits.program_bytes, sizes.program_bytes))
    if limits.program_bytes_per_core is not None:
        most = max(bytes_by_core(program, sizes).values(), default=0)
        amounts.append(("program_bytes_per_core", limits.program_bytes_per_core, most))
    return [(name, limit, actual) for name, limit, actual in amounts if limit is not None]


def no_programs(profile: Profile) -> str:
    """Why there are no programs for a profile, as it describes what they cannot do; "" if there are."""
    if profile.weights.compression != 1:
        return "weights are compressed on the chip, by a method that the profile does not give"
    return ""


def _called(lowered: LoweredSegment, name: str) -> LoweredSegment:
    """A segment's program by another name: segments are numbered anew when others were cut."""
    program = lowered.program
    if program is None or program.name == name:
        return lowered
    steps = tuple(replace(step, group=name + step.group.removeprefix(program.name)) for step in program.steps)
    renamed = replace(program, name=name, steps=steps)
    time = lowered.time and replace(lowered.time, program=renamed)
    return replace(lowered, program=renamed, time=time)


def handed_out(facts: GraphFacts, ops: Iterable[int]) -> frozenset[str]:
    """The results of a segment that others read: later segments, the host, or whoever asked for the outputs."""
    graph, members = facts.graph, set(ops)
    return frozenset(
        name
        for op in members
        if (name := graph.ops[op].output) in graph.outputs
        or any(user not in members for user in graph.consumers.get(name, ()))
    )
