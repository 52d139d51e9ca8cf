"""The pass that cuts a graph into segments, and drives what makes them compile and few (PART-1 to PART-4).

Host and chip in turns; chip parts at output taps, or after the nodes that the user names; what does not compile is
cut further, until all parts do or a single op fails; then neighbours are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Final, Protocol

import numpy as np

from compiler.errors import LimitError
from compiler.garbage import collection_paused
from compiler.ir.graph import Graph
from compiler.ops.facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.partition.chain import alternating_parts
from compiler.partition.cuts import articulation_cuts, balanced_cuts, crossing_bytes, named_cuts, output_taps
from compiler.partition.mapping_graph import MappingGraph, Unit, mapping_graph
from compiler.partition.merge import Load, MergeLimits, merge_chain
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
    """

    error: LimitError
    curable: bool
    share: float = 2.0


class Candidates(Protocol):
    """Compilation of candidate segments, memoised by content: no candidate is compiled twice (PART-4)."""

    def refusal(self, ops: tuple[int, ...]) -> Refused | None:
        """Why the ops do not compile as one segment; None if they do."""

    def within_limits(self, parts: Sequence[tuple[int, ...]]) -> Callable[[int, int], bool] | None:
        """For a chain of parts: whether the limits allow parts `begin` to `end` as one segment, told at once.

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

    def run(self, graph: Graph, facts: GraphFacts | None = None) -> PartitionedGraph:
        """Raises LimitError naming the op, the limit and the amount where a single op does not compile.

        `facts` are the graph's where they are at hand: what is known of candidates belongs to them.
        """
        facts = facts or graph_facts(graph)
        with collection_paused():
            return _Partition(facts, self.candidates(facts), mapping_graph(facts, self.profile), self.options).run()


class _Partition:
    """The state of one partition; lives as long as it."""

    def __init__(self, facts: GraphFacts, candidates: Candidates, mapping: MappingGraph, options: Options) -> None:
        self.facts = facts
        self.graph = facts.graph
        self.candidates = candidates
        self.mapping = mapping
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
                raise refused.error
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
        result: list[_Part] = []
        run: list[_Part] = []
        for part in parts:
            if run and (part.host or part.fixed):
                result.extend(self._merged_run(run))
                run = []
            if part.host:
                result.append(part)
            else:
                run.append(part)
        return [*result, *self._merged_run(run)]

    def _merged_run(self, run: list[_Part]) -> list[_Part]:
        strategy = self.options.merge
        if len(run) < 2 or strategy == "none":
            return run

        def ops_of(begin: int, end: int) -> tuple[int, ...]:
            return tuple(sorted(op for part in run[begin:end] for op in part.ops))

        reasons: dict[tuple[int, int], str] = {}

        def compiles(begin: int, end: int) -> bool:
            refused = self.candidates.refusal(ops_of(begin, end))
            if refused is not None:
                reasons[begin, end] = str(refused.error)
            return refused is None

        may_compile = self.candidates.within_limits([part.ops for part in run])
        loads = [self._load(part.ops) for part in run]
        merged = merge_chain(loads, compiles, strategy, self._limits(), may_compile=may_compile)
        for step in merged.steps:
            ops = ops_of(step.begin, step.end)
            self.merges.append(
                MergeAttempt(
                    first=ops[0],
                    last=ops[-1],
                    members=step.end - step.begin,
                    compiled=step.compiled,
                    why=reasons.get((step.begin, step.end)),
                )
            )
        return [_Part(ops=ops_of(b, e), cut=run[b].cut, fixed=run[b].fixed) for b, e in merged.runs]

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
                why = str(refused.error) if refused is not None else f"strategy {self.options.merge} leaves them apart"
            yield Apart(segment=number, why=why)

    def _load(self, ops: tuple[int, ...]) -> Load:
        return Load(
            macs=sum(self.facts.ops[op].total_macs for op in ops),
            weight_bytes=self.facts.weight_bytes(ops),
            vector_nodes=self.mapping.count(ops, Unit.VECTOR),
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
