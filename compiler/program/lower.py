"""The pass that turns planned groups into programs, proves them, and cuts what exceeds a limit (PROG-1, PART-3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Final

import numpy as np

from compiler.address.stored import AddressTables
from compiler.degraded import DEFECTS, DefectError, Degradations, FailedGroup, failed_group, reason_of
from compiler.errors import InternalError, LimitError, TesseraError
from compiler.frontend.source import ModelSource, opened
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.fusion.groups import FusedSegment, Group
from compiler.fusion.map_chips import MappedGraph, MapToChips
from compiler.garbage import collection_paused
from compiler.ir.layout import memory_order, strides_of
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.partition import PartitionGraph, Refused
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile
from compiler.program.decode import Decoders
from compiler.program.emitter import machine_of
from compiler.program.encoding.sizes import ProgramSizes, bytes_by_core, program_sizes
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS
from compiler.program.program import Program
from compiler.program.segment import PlannedGroup, lower_segment
from compiler.program.timing.timeline import Timeline
from compiler.program.verify import VerifiedProgram, verify
from compiler.tiling.commands import estimated_commands
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of
from compiler.tiling.tiled import TiledGroup

# What no program of ours may be, whatever the profile allows.
_TOO_LARGE: Final = "program_too_large"
# How often a graph is partitioned anew because a program exceeded a limit.
_ATTEMPTS_MAX: Final = 64
# Commands times queues beyond which a segment of several ops is cut before it is lowered: half of what can be proved.
_CLOCKS_MAX: Final = DEFAULT_LIMITS.clock_entries // 2
# Beyond so many commands a segment of several ops is cut, for lowering and proof take 1.5 KiB of memory for each.
_COMMANDS_MAX: Final = 600_000
# What the proof keeps for each word of the DRAM that is written: the command that wrote it.
_SHADOW_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredSegment:
    """A chip segment's program in time, what its proof found, and its bytes; all None for a host segment."""

    timeline: Timeline | None = None
    verified: VerifiedProgram | None = None
    sizes: ProgramSizes | None = None

    @property
    def program(self) -> Program | None:
        """The segment's program."""
        return None if self.timeline is None else self.timeline.program


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerSegments:
    """Pass: a program for every chip segment; a segment whose program exceeds a limit is cut, and all goes on anew."""

    name: str = "program"
    source: ModelSource
    profile: Profile
    options: Options
    compilers: SegmentCompilers = field(repr=False)
    partition: PartitionGraph = field(repr=False)
    degradations: Degradations = field(default_factory=Degradations, repr=False)
    tables: AddressTables = field(default_factory=AddressTables, repr=False)

    def run(self, mapped: MappedGraph) -> LoweredGraph:
        """Raises LimitError naming op, limit and amount where a single op's program exceeds a limit (PART-3)."""
        reason = no_programs(self.profile)
        if reason:
            none = LoweredSegment()
            return LoweredGraph(mapped=mapped, segments=tuple(none for _ in mapped.fused.segments), reason=reason)
        known: dict[object, LoweredSegment] = {}
        for _ in range(_ATTEMPTS_MAX):
            facts = mapped.fused.facts
            compiler = self.compilers.of(facts)
            result: list[LoweredSegment] = []
            segments = mapped.fused.segments
            # what is refused beforehand is cut before others are lowered in vain
            early: list[_Tried] = [
                (found, *why, None) for found in segments if (why := self._unprovable(facts, found)) is not None
            ]
            for found, refused, shares, lowered in early or (self._tried(facts, found, known) for found in segments):
                compiler.learn(shares)
                if refused is not None:
                    if len(found.segment.ops) == 1:
                        raise _last_word(facts, found.segment.ops, refused)
                    compiler.refuse(found.segment.ops, refused)
                elif lowered is not None:
                    result.append(lowered)
            if len(result) == len(segments):
                self.tables.keep()
                return LoweredGraph(mapped=mapped, segments=tuple(result))
            fuse = FuseSegments(options=self.options, compilers=self.compilers, degradations=self.degradations)
            again = fuse.run(self.partition.run(facts.graph, facts))
            mapped = MapToChips(profile=self.profile, options=self.options).run(again)
        raise LimitError(
            "cutting segments does not bring their programs within the profile's limits",
            code="program_too_long",
            stage="lower",
            actual=f"{_ATTEMPTS_MAX} attempts",
        )

    def _tried(self, facts: GraphFacts, found: FusedSegment, known: dict[object, LoweredSegment]) -> _Tried:
        too_long = self._too_long(facts, found)
        if too_long is not None:
            return found, *too_long, None
        with collection_paused():
            lowered = self._lowered(facts, found, known)
        if isinstance(lowered, Refused):
            return found, lowered, {}, None
        return found, self._refused(facts, found, lowered), self._shares(found, lowered), lowered

    def _lowered(
        self, facts: GraphFacts, found: FusedSegment, known: dict[object, LoweredSegment]
    ) -> LoweredSegment | Refused:
        if found.segment.kind is SegmentKind.HOST:
            return LoweredSegment()
        key = tuple((group.ops, group.choice.tiling) for group in found.groups)
        if key in known:
            return _called(known[key], found.segment.id)
        try:
            result = self._proved(facts, found, found.groups)
        except DEFECTS as error:
            raise DefectError(
                "the lowering or the proof of a program failed",
                groups=self._at_fault(facts, found),
                stage="lower",
                actual=reason_of(error),
            ) from error
        if not isinstance(result, Refused):
            known[key] = result
        return result

    def _proved(self, facts: GraphFacts, found: FusedSegment, groups: Sequence[Group]) -> LoweredSegment | Refused:
        """A program of some groups of a segment, proved."""
        ops = tuple(op for group in groups for op in group.ops)
        names = {id(group): f"{found.segment.id}.g{number}" for number, group in enumerate(found.groups)}
        timeline = lower_segment(
            facts,
            self.profile,
            found.segment.id,
            [PlannedGroup(name=names[id(group)], ops=group.ops, tiling=group.choice.tiling) for group in groups],
            handed_out(facts, ops),
            self.compilers.of(facts).resident_bytes(found.segment.ops),
            Decoders(facts.graph, opened(facts.graph.source, self.source)),
            self.tables,
        )
        program = timeline.program
        try:
            verified = verify(program, shared=self.profile.engines.shared)
        except ProgramError as error:
            if error.violation == "size":
                return self._too_large(facts, ops, error.actual, error.limit)
            raise InternalError(
                "a program of ours is not safe", stage="lower", node=found.segment.id, actual=str(error)
            ) from error
        return LoweredSegment(timeline=timeline, verified=verified, sizes=program_sizes(program))

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

    def _unprovable(self, facts: GraphFacts, found: FusedSegment) -> tuple[Refused, dict[int, float]] | None:
        """Whether a segment's tensors are beyond what a proof takes on, told before the program is lowered (PROG-4).

        They have to lie in the DRAM together. Of what is written there the proof keeps a number for each word, and no
        word is longer than from where one tile begins to where another one does. The refusal, and by op its part.
        """
        geometries = [GroupGeometry(facts, group.ops) for group in found.groups]
        read = {name for geometry in geometries for name in geometry.inputs}
        ends = read.union(*(geometry.outputs for geometry in geometries))
        ops, capacity = found.segment.ops, self.profile.dram.capacity_bytes
        if (total := sum(map(facts.tensor_bytes, ends))) > capacity:
            message, limit = "the tensors of the program exceed the DRAM", capacity
            amounts = [sum(map(facts.tensor_bytes, geometry.outputs)) for geometry in geometries]
        elif total > DEFAULT_LIMITS.shadow_bytes // _SHADOW_BYTES:
            message, limit = "the program is too large to be proved safe", DEFAULT_LIMITS.shadow_bytes
            beside = self.profile.beside(self.compilers.of(facts).resident_bytes(ops))
            tilings = [group.choice.tiling for group in found.groups]
            tiled = [group_of(g, beside, tiling) for g, tiling in zip(geometries, tilings, strict=True)]
            amounts = [_SHADOW_BYTES * least_words(group) for group in tiled]
            total = sum(amounts)
        else:
            return None
        if total <= limit:
            return None
        last = [geometry.indices[-1] for geometry in geometries]
        shares = {op: amount / limit for op, amount in zip(last, amounts, strict=True)}
        return self._too_large(facts, ops, total, limit, message), shares

    def _too_long(self, facts: GraphFacts, found: FusedSegment) -> tuple[Refused, dict[int, float]] | None:
        """Whether the tilings of several ops promise more commands than are sensible to lower, before it is done.

        The refusal, and by op its part of that limit. Stationary weights of a whole chip leave its groups so little
        room that a few positions are worked on at a time; of smaller segments the tiles are larger, too.
        """
        ops = found.segment.ops
        if found.segment.kind is SegmentKind.HOST or len(ops) == 1:
            return None
        limit = min(_COMMANDS_MAX, _CLOCKS_MAX // len(machine_of(self.profile).queues))
        beside = self.profile.beside(self.compilers.of(facts).resident_bytes(ops))
        counts = {
            group.ops: estimated_commands(group_of(GroupGeometry(facts, group.ops), beside, group.choice.tiling))
            for group in found.groups
        }
        total = sum(counts.values())
        if total <= limit:
            return None
        shares = {op: count / limit / len(of) for of, count in counts.items() for op in of}
        message = "by an estimate the segment has more commands than are lowered and proved as one program"
        return self._too_large(facts, ops, total, limit, message), shares

    def _shares(self, found: FusedSegment, lowered: LoweredSegment) -> dict[int, float]:
        """By op its part of the limit that its segment's program comes nearest to."""
        if lowered.program is None or lowered.sizes is None:
            return {}
        amounts = _amounts(self.profile, lowered.program, lowered.sizes)
        if not amounts:
            return {}
        share = max(actual / limit for _, limit, actual in amounts)
        counts = np.bincount(lowered.program.commands["step"], minlength=len(lowered.program.steps))
        ops = [op for group in found.groups for op in sorted(group.ops)]
        total = max(1, int(counts.sum()))
        return {op: share * count / total for op, count in zip(ops, counts.tolist(), strict=True)}

    def _refused(self, facts: GraphFacts, found: FusedSegment, lowered: LoweredSegment) -> Refused | None:
        """The limit of an executable that a program exceeds; None if it keeps all."""
        if lowered.program is None or lowered.sizes is None:
            return None
        error = limit_exceeded(facts, self.profile, found.segment.ops, lowered.program, lowered.sizes)
        if error is None:
            return None
        amounts = _amounts(self.profile, lowered.program, lowered.sizes)
        share = next(actual / limit for _, limit, actual in amounts if actual > limit)
        return Refused(error=error, curable=True, share=share)


def least_words(group: TiledGroup) -> int:
    """How many words the result of a group has in the DRAM at least: at the begin of each tile a word begins."""
    geometry, tiles = group.geometry, group.frustums.tiles
    tensor, size = geometry.output, geometry.facts.tensor_bytes(geometry.primary)
    strides = strides_of(tensor.shape, memory_order(tensor.axes), tensor.element_bytes)
    begins = ((stride, tiles[axis].starts) for axis, stride in zip(tensor.axes, strides, strict=True) if axis in tiles)
    return size // gcd(size, *(stride * int(np.gcd.reduce(starts)) for stride, starts in begins))


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
    timeline = lowered.timeline
    if timeline is None or timeline.program.name == name:
        return lowered
    program = timeline.program
    steps = tuple(replace(step, group=name + step.group.removeprefix(program.name)) for step in program.steps)
    return replace(lowered, timeline=replace(timeline, program=replace(program, name=name, steps=steps)))


def handed_out(facts: GraphFacts, ops: Iterable[int]) -> frozenset[str]:
    """The results of a segment that others read: later segments, the host, or whoever asked for the outputs."""
    graph, members = facts.graph, set(ops)
    return frozenset(
        name
        for op in members
        if (name := graph.ops[op].output) in graph.outputs
        or any(user not in members for user in graph.consumers.get(name, ()))
    )
