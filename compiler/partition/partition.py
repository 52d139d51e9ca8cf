"""The pass that cuts a graph into segments, and drives what makes them compile and few (PART-1 to PART-4).

Host and chip in turns; chip parts at output taps, or after the nodes that the user names; what does not compile is
cut further, until all parts do or a single op fails; then neighbours are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import ceil
from typing import Final, Protocol

import numpy as np

from compiler.degraded import DefectError, failed_group
from compiler.errors import LimitError, TesseraError
from compiler.garbage import collection_paused
from compiler.ir.graph import Graph
from compiler.ops.base import OpClass
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.partition.chain import alternating_parts
from compiler.partition.cuts import articulation_cuts, balanced_cuts, crossing_bytes, named_cuts, output_taps
from compiler.partition.mapping_graph import MappingGraph, Unit, mapping_graph
from compiler.partition.merge import Load, Merged, MergeLimits, merge_chain, merge_for_chips
from compiler.partition.segments import (
    Apart,
    Cut,
    CutKind,
    FailedCompile,
    MergeAttempt,
    PartitionedGraph,
    Segment,
    SegmentKind,
)
from compiler.profile.schema import Profile

# Balanced cuts go into at most so many parts at once; what still fails is cut again.
_PARTS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A candidate segment that does not compile: the error, and whether a smaller segment can cure it.

    `share` is the largest resource's amount over its limit, where that is known: how many parts it takes at least.
    `op` is the op without a tiling, where that is the reason.
    """

    error: LimitError
    curable: bool
    share: float = 2.0
    op: int | None = None


class Candidates(Protocol):
    """Compilation of candidate segments, memoised by content: no candidate is compiled twice (PART-4)."""

    def refusal(self, ops: tuple[int, ...]) -> Refused | None:
        """Why the ops do not compile as one segment; None if they do."""

    def price(self, groups: Sequence[tuple[int, ...]]) -> float | None:
        """What groups of ops cost one after another, in the objective's unit; None if one does not fit."""

    def farthest(self, parts: Sequence[tuple[int, ...]]) -> Sequence[int] | None:
        """For a chain of parts: where a segment that begins with part i ends at the latest by the limits.

        Necessary, not sufficient. None where nothing is limited that adds up over parts.
        """

    def shares(self, ops: tuple[int, ...]) -> np.ndarray:
        """Per op and resource, its amount as a share of the chip's limit: [ops, resources]."""


CandidateFactory = Callable[[GraphFacts], Candidates]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A stretch of the chain while it is being cut: `fixed` if the user wants it to begin here."""

    ops: tuple[int, ...]
    cut: Cut
    host: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGraph:
    """Pass: graph to a chain of segments that compile."""

    name: str = "partition"
    profile: Profile
    options: Options
    candidates: CandidateFactory = field(repr=False)
    facts_of: Callable[[Graph], GraphFacts] = field(default=graph_facts, repr=False)

    def run(self, graph: Graph) -> PartitionedGraph:
        """Raises LimitError naming the op, the limit and the amount where a single op does not compile."""
        facts = self.facts_of(graph)
        with collection_paused():
            mapping = mapping_graph(facts, self.profile)
            return _Partition(facts, self.candidates(facts), mapping, self.profile, self.options).run()


class _Partition:
    """The state of one partition; lives as long as it."""

    def __init__(
        self, facts: GraphFacts, candidates: Candidates, mapping: MappingGraph, profile: Profile, options: Options
    ) -> None:
        self.facts = facts
        self.graph = facts.graph
        self.candidates = candidates
        self.mapping = mapping
        self.profile = profile
        self.options = options
        self._inside = _inside_patterns(facts.graph)
        self.failed: list[FailedCompile] = []
        self.merges: list[MergeAttempt] = []

    def run(self) -> PartitionedGraph:
        """Cut, settle, merge."""
        parts: list[_Part] = []
        for first in self._first_parts():
            parts.extend([first] if first.host else self._settled(first))
        merged = self._merged(parts)
        return PartitionedGraph(
            graph=self.graph,
            facts=self.facts,
            mapping=self.mapping,
            segments=tuple(
                Segment(
                    id=f"s{number}",
                    kind=SegmentKind.HOST if part.host else SegmentKind.CHIP,
                    ops=part.ops,
                    cut=part.cut,
                )
                for number, part in enumerate(merged)
            ),
            failed=tuple(self.failed),
            merges=tuple(self.merges),
            apart=tuple(self._apart(merged)),
            unmerged=len(parts),
        )

    def _first_parts(self) -> list[_Part]:
        """Host and chip in turns, and inside the chip's parts output taps, or the nodes that the user names."""
        named = self.options.partition
        parts: list[_Part] = []
        left = set(named) if not isinstance(named, str) else set()
        for host, ops in alternating_parts(self.graph):
            before = parts[-1].ops[-1] if parts else None
            cut = Cut(
                kind=CutKind.BEGIN if before is None else CutKind.HOST,
                after=before,
                crossing_bytes=self._entering(ops) if parts else 0,
            )
            part = _Part(ops=ops, cut=cut, host=host)
            if host:
                parts.append(part)
            elif isinstance(named, str):
                parts.extend(self._cut(part, output_taps(self.graph, ops), CutKind.OUTPUT_TAP))
            else:
                here = {node for op in ops for node in self.graph.ops[op].origin} & left
                left -= here
                parts.extend(self._cut(part, named_cuts(self.graph, ops, sorted(here)), CutKind.NAMED))
        if left:
            named_cuts(self.graph, (), sorted(left))
        return parts

    def _entering(self, ops: tuple[int, ...]) -> int:
        members = set(ops)
        names = {
            name
            for op in ops
            for name in self.graph.ops[op].inputs
            if name in self.graph.producer and self.graph.producer[name] not in members
        }
        # what only the host will know the size of crosses between host segments
        return sum(self.facts.tensor_bytes(name) for name in names if name in self.facts.tensors)

    def _cut(self, part: _Part, positions: Sequence[int], kind: CutKind) -> list[_Part]:
        """The part cut before its ops at the positions."""
        ops = part.ops
        inner = [position for position in positions if 0 < position < len(ops)]
        if not inner:
            return [part]
        crossing = crossing_bytes(self.graph, ops)
        result = []
        for begin, end in pairwise([0, *inner, len(ops)]):
            cut = part.cut
            if begin:
                cut = Cut(kind=kind, after=ops[begin - 1], crossing_bytes=int(crossing[begin]))
            fixed = kind is CutKind.NAMED if begin else part.fixed
            result.append(_Part(ops=ops[begin:end], cut=cut, fixed=fixed))
        return result

    def _settled(self, part: _Part) -> list[_Part]:
        """The part if it compiles, else its parts, settled in turn (PART-3)."""
        done: list[_Part] = []
        todo = [part]
        while todo:
            current = todo.pop()
            refused = self.candidates.refusal(current.ops)
            if refused is None:
                done.append(current)
                continue
            if not refused.curable or len(current.ops) == 1:
                raise self._last_word(refused)
            parts, kind = self._cut_further(current, refused)
            self.failed.append(
                FailedCompile(
                    first=current.ops[0],
                    last=current.ops[-1],
                    code=refused.error.code,
                    why=str(refused.error),
                    by=kind,
                    parts=len(parts),
                )
            )
            todo.extend(reversed(parts))
        return done

    def _last_word(self, refused: Refused) -> TesseraError:
        """The error where no smaller segment helps.

        That a main op has no tiling is a limit of the chip: one position of its result takes much of its operands. For
        other ops it is a limit of our tilings, so the host runs them (IMPORT-7).
        """
        op = refused.op
        if op is None or self.facts.ops[op].op_class is OpClass.MAIN:
            return refused.error
        return DefectError(
            "no tiling of the op fits a core",
            groups=[failed_group(self.facts, (op,))],
            stage="partition",
            actual=str(refused.error),
            plain=refused.error,
        )

    def _cut_further(self, part: _Part, refused: Refused) -> tuple[list[_Part], CutKind]:
        """In this order: output taps, articulation points, balanced cuts."""
        shares = self.candidates.shares(part.ops)
        for kind, found in ((CutKind.OUTPUT_TAP, output_taps), (CutKind.ARTICULATION, articulation_cuts)):
            positions = found(self.graph, part.ops)
            if kind is CutKind.ARTICULATION:
                # what belongs together is cut last, by balance
                positions = tuple(p for p in positions if part.ops[p] not in self._inside)
            parts = self._cut(part, _thinned(positions, shares), kind)
            if len(parts) > 1:
                return parts, kind
        count = min(_PARTS_MAX, len(part.ops), max(2, ceil(refused.share)))
        positions = balanced_cuts(self.graph, part.ops, shares, count)
        parts = self._cut(part, positions, CutKind.BALANCED)
        if len(parts) == 1:
            parts = self._cut(part, [len(part.ops) // 2], CutKind.BALANCED)
        return parts, CutKind.BALANCED

    def _merged(self, parts: list[_Part]) -> list[_Part]:
        """Neighbours on the chip merged by the chosen strategy; cuts of the host and of the user stay (PART-4)."""
        if self.options.merge == "none":
            return parts
        stretches: list[list[_Part]] = []
        for before, part in pairwise([None, *parts]):
            if part is None or part.host:
                continue
            if before is None or before.host or part.fixed:
                stretches.append([])
            stretches[-1].append(part)
        if self._chips > 1 and self.options.merge == "optimal":
            merged = self._merged_for_chips(stretches)
        else:
            merged = [part for stretch in stretches for part in self._merged_stretch(stretch)]
        in_order = {part.ops[0]: part for part in (*merged, *(part for part in parts if part.host))}
        return [in_order[part.ops[0]] for part in parts if part.ops[0] in in_order]

    @property
    def _chips(self) -> int:
        """Over how many chips segments may be dealt out."""
        return 1 if self.options.chips == "single" else self.profile.chips

    def _merged_stretch(self, stretch: list[_Part]) -> list[_Part]:
        """The parts between two cuts that stay, merged as for one chip."""
        strategy = self.options.merge
        if len(stretch) < 2 or strategy == "none":
            return stretch
        trials = _Trials(self.candidates, stretch)
        loads = [self._load(part.ops) for part in stretch]
        farthest = self.candidates.farthest([part.ops for part in stretch])
        return self._made(trials, merge_chain(loads, trials.compiles, strategy, self._limits(), farthest=farthest))

    def _merged_for_chips(self, stretches: list[list[_Part]]) -> list[_Part]:
        """All parts on chips merged at once, for each chip is to have its share of all of them; no run spans two
        stretches."""
        parts = [part for stretch in stretches for part in stretch]
        if len(parts) < 2:
            return parts
        loads: list[Load] = []
        farthest: list[int] = []
        for stretch in stretches:
            begin, ends = len(loads), accumulate(len(part.ops) for part in stretch[:-1])
            crossing = crossing_bytes(self.graph, tuple(op for part in stretch for op in part.ops))
            entering = [self._entering(stretch[0].ops), *(int(crossing[end]) for end in ends)]
            loads += [self._load(part.ops, size) for part, size in zip(stretch, entering, strict=True)]
            reach = self.candidates.farthest([part.ops for part in stretch])
            farthest += [len(loads)] * len(stretch) if reach is None else [begin + end for end in reach]
        trials = _Trials(self.candidates, parts)
        reprograms = self.profile.is_stationary or self.options.chips == "one-each"
        merged = merge_for_chips(
            loads, trials.compiles, self._limits(), chips=self._chips, reprograms=reprograms, farthest=farthest
        )
        return self._made(trials, merged)

    def _made(self, trials: _Trials, merged: Merged) -> list[_Part]:
        """The parts that merging made; what it tried is noted."""
        for step in merged.steps:
            ops = trials.ops(step.begin, step.end)
            self.merges.append(
                MergeAttempt(
                    first=ops[0],
                    last=ops[-1],
                    members=step.end - step.begin,
                    compiled=step.compiled,
                    why=trials.reasons.get((step.begin, step.end)),
                )
            )
        return [replace(trials.parts[b], ops=trials.ops(b, e)) for b, e in merged.runs]

    def _apart(self, parts: list[_Part]) -> Iterator[Apart]:
        """Why neighbours on the chip are still two segments."""
        for number, (before, part) in enumerate(pairwise(parts), start=1):
            if before.host or part.host:
                continue
            if part.fixed:
                why = "option partition asks for a cut here"
            elif self.options.merge == "none":
                why = "option merge is none"
            elif not self._limits().allow(self._load(before.ops), self._load(part.ops)):
                why = "together they exceed a maximum that the options set (max_macs, max_weight_bytes, ...)"
            else:
                refused = self.candidates.refusal(tuple(sorted((*before.ops, *part.ops))))
                why = str(refused.error) if refused is not None else self._left_apart()
            yield Apart(segment=number, why=why)

    def _left_apart(self) -> str:
        """Why neighbours that compile together are two segments."""
        if self._chips > 1 and self.options.merge == "optimal":
            return "strategy optimal leaves them apart, so that the slowest chip computes less per batch"
        return f"strategy {self.options.merge} leaves them apart"

    def _load(self, ops: tuple[int, ...], entering_bytes: int = 0) -> Load:
        return Load(
            macs=sum(self.facts.ops[op].total_macs for op in ops),
            weight_bytes=self.facts.weight_bytes(ops),
            vector_nodes=self.mapping.count(ops, Unit.VECTOR),
            cycles=self.mapping.cycles(ops),
            entering_bytes=entering_bytes,
        )

    def _limits(self) -> MergeLimits:
        options = self.options
        return MergeLimits(
            min_macs=options.min_macs,
            max_macs=options.max_macs,
            min_weight_bytes=options.min_weight_bytes,
            max_weight_bytes=options.max_weight_bytes,
            min_vector_nodes=options.min_vector_nodes,
            max_vector_nodes=options.max_vector_nodes,
        )


class _Trials:
    """Runs of the parts of a chain, compiled on trial, and why some do not compile."""

    def __init__(self, candidates: Candidates, parts: Sequence[_Part]) -> None:
        self.parts = parts
        self.reasons: dict[tuple[int, int], str] = {}
        self._candidates = candidates

    def ops(self, begin: int, end: int) -> tuple[int, ...]:
        """The ops of a run."""
        return tuple(sorted(op for part in self.parts[begin:end] for op in part.ops))

    def compiles(self, begin: int, end: int) -> bool:
        """Whether a run compiles."""
        refused = self._candidates.refusal(self.ops(begin, end))
        if refused is not None:
            self.reasons[begin, end] = str(refused.error)
        return refused is None


def _inside_patterns(graph: Graph) -> frozenset[int]:
    """The ops before which a cut would part a recorded pattern (attention's products and softmax)."""
    found: set[int] = set()
    for pattern in graph.patterns:
        ops = sorted(graph.producer[name] for name in pattern.ops if name in graph.producer)
        if len(ops) > 1:
            found.update(range(ops[0] + 1, ops[-1] + 1))
    return frozenset(found)


def _thinned(positions: Sequence[int], shares: np.ndarray) -> Sequence[int]:
    """Of very many positions those nearest to an even spread of the largest resource; what fails is cut again."""
    if len(positions) < _PARTS_MAX:
        return positions
    before = np.concatenate(([0.0], np.cumsum(shares[:, int(shares.sum(axis=0).argmax())])))
    wanted = before[-1] * np.arange(1, _PARTS_MAX) / _PARTS_MAX
    at = before[list(positions)]
    nearest = np.clip(np.searchsorted(at, wanted), 0, len(at) - 1)
    return sorted({positions[index] for index in nearest.tolist()})
