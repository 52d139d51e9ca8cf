"""Compiling candidate segments for partition: limits, and a tiling of every op alone (PART-3, PART-4).

A segment compiles if it keeps the profile's limits and each of its ops has a tiling in the memory that the segment's
own stationary weights leave: what fusion does not group it leaves alone, so groups can then always be found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import numpy as np

from compiler.cost.objective import Totals, objective_value
from compiler.errors import LimitError, ModelError
from compiler.fusion.evaluate import Evaluator, refused
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.partition.partition import Refused
from compiler.profile.schema import Profile
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.stationary import WeightTable

# An op that takes so many times as long beside its segment's stationary weights as beside its own does not fit there.
# Of 1,064 ops of ResNet-50, DenseNet-121, Inception-v2 and AlexNet on manycore2x64 one takes 67 times as long (it has
# one channel in a core at a time, for two million commands), the next 3.2 times.
_CROWDED: Final = 4


class SegmentCompilers:
    """The segment compiler of a graph; keeps the latest, for partition and fusion ask for the same one.

    Lives as long as one compilation.
    """

    def __init__(self, profile: Profile, options: Options) -> None:
        self.profile = profile
        self.options = options
        self._latest: SegmentCompiler | None = None

    def facts_of(self, graph: Graph) -> GraphFacts:
        """The facts of a graph: those of the latest compiler, with all that it has learnt, where they are."""
        latest = self._latest
        return graph_facts(graph) if latest is None or latest.facts.graph is not graph else latest.facts

    def of(self, facts: GraphFacts) -> SegmentCompiler:
        """The compiler of the segments of this graph."""
        if self._latest is None or self._latest.facts is not facts:
            self._latest = SegmentCompiler(facts, self.profile, self.options)
        return self._latest

    def tilings(self, facts: GraphFacts) -> Callable[[tuple[int, ...], tuple[int, ...]], Choice | Refusal]:
        """The tilings of groups of this graph: of a segment's ops and a group's, known where fusion asked for it."""

        def tiling(segment: tuple[int, ...], group: tuple[int, ...]) -> Choice | Refusal:
            return self.of(facts).evaluator(segment).tiling(sum(1 << op for op in group))

        return tiling


class SegmentCompiler:
    """Whether ops compile as one segment, memoised: by candidate, and by op content and the memory left to it."""

    def __init__(self, facts: GraphFacts, profile: Profile, options: Options) -> None:
        self.facts = facts
        self.profile = profile
        self.options = options
        self._evaluators: dict[int, Evaluator] = {}
        self._refusals: dict[tuple[int, ...], Refused | None] = {}
        self._program_shares: dict[int, float] = {}
        self._program_error: Refused | None = None
        self._weights = WeightTable(facts, profile)
        self._macs = np.array([op.total_macs for op in facts.ops], dtype=object)
        # ops of equal content have equal tilings: per op the number of its content, per content an op of it
        self._contents, self._examples = _contents(facts)
        # per content: the most resident bytes beside which it is known to fit, and the fewest with which not
        self._fits: dict[int, int] = {}
        self._fails: dict[int, int] = {}
        everything = sum(map(facts.tensor_bytes, facts.tensors))
        self._capacity = profile.resident_capacity_bytes
        self._dram_is_ample = everything <= profile.dram.capacity_bytes

    def evaluator(self, ops: tuple[int, ...]) -> Evaluator:
        """Tilings and prices for a segment of these ops: for the profile that its own weights leave."""
        return self._evaluator_beside(self.resident_bytes(ops))

    def forget_boxes(self) -> None:
        """Give the memory back that only further prices would use: lowering needs it more."""
        for evaluator in self._evaluators.values():
            evaluator.forget_boxes()

    def _evaluator_beside(self, resident: int) -> Evaluator:
        found = self._evaluators.get(resident)
        if found is None:
            found = self._evaluators[resident] = Evaluator(self.facts, self.profile.beside(resident), self.options)
        return found

    def farthest(self, parts: Sequence[tuple[int, ...]]) -> list[int] | None:
        """For a chain of parts: where a segment that begins with part i ends at the latest by the limits.

        Necessary, not sufficient. None where nothing is limited that adds up over parts.
        """
        columns = []
        if self.profile.is_stationary and not self._weights.has_common:
            # each part's bytes are rounded up, their sum only once
            columns.append(([max(0, self._weights.resident_bytes_per_core(p) - 1) for p in parts], self._capacity))
        if self.profile.limits.weight_bytes is not None and not self._weights.has_common:
            columns.append(([self._weights.size_bytes(p) for p in parts], self.profile.limits.weight_bytes))
        if self.profile.limits.macs is not None:
            columns.append(([int(self._macs[list(p)].sum()) for p in parts], self.profile.limits.macs))
        if not columns:
            return None
        ends = [len(parts)] * len(parts)
        for amounts, limit in columns:
            sums = list(accumulate(amounts, initial=0))
            ends = [min(end, bisect_right(sums, sums[begin] + limit) - 1) for begin, end in enumerate(ends)]
        return ends

    def refusal(self, ops: tuple[int, ...]) -> Refused | None:
        """Why the ops do not compile as one segment; None if they do."""
        if ops not in self._refusals:
            self._refusals[ops] = self._refusal(ops)
        return self._refusals[ops]

    def price(self, groups: Sequence[tuple[int, ...]]) -> float | None:
        """What groups of ops cost one after another, in the objective's unit; None if one does not fit."""
        evaluator = self.evaluator(tuple(op for ops in groups for op in ops))
        choices = [evaluator.tiling(sum(1 << op for op in ops)) for ops in groups]
        costs = [choice.cost for choice in choices if not isinstance(choice, Refusal)]
        if len(costs) < len(choices):
            return None
        value: float = objective_value(self.options.objective, Totals.of(costs))
        return value

    def resident_bytes(self, ops: tuple[int, ...]) -> int:
        """Bytes that stationary weights take in each core; the widest elements first."""
        return self._weights.resident_bytes_per_core(ops)

    def learn(self, shares: Mapping[int, float]) -> None:
        """What programs have shown: by op, its part of the program limit that comes nearest (PART-3)."""
        self._program_shares.update(shares)

    def refuse(self, ops: tuple[int, ...], refused: Refused) -> None:
        """What lowering has shown: these ops do not compile as one segment; what was asked before is asked anew."""
        self._refusals = {known: why for known, why in self._refusals.items() if why is not None}
        self._refusals[ops] = refused
        self._program_error = refused

    def _program_too_long(self, ops: tuple[int, ...]) -> Refused | None:
        """Whether what is known of the ops' programs exceeds a limit together."""
        share = sum(self._program_shares.get(op, 0.0) for op in ops)
        if self._program_error is None or share <= 1.0 or len(ops) == 1:
            return None
        return replace(self._program_error, share=share)

    def _refusal(self, ops: tuple[int, ...]) -> Refused | None:
        too_long = self._program_too_long(ops)
        if too_long is not None:
            return too_long
        for what, field, actual, limit in self._amounts(ops):
            if actual > limit:
                return Refused(
                    error=_too_large(self.facts, ops, what, field, actual, limit), curable=True, share=actual / limit
                )
        resident = self._weights.resident_bytes_per_core(ops)
        for content in np.unique(self._contents[list(ops)]).tolist():
            if not self._fits_beside(content, resident):
                op = next(op for op in ops if self._contents[op] == content)
                error = self._alone(op, resident)
                if error is not None:
                    return Refused(error=error, curable=self.profile.is_stationary, op=op)
        return None

    def _alone(self, op: int, resident: int) -> LimitError | None:
        """Why an op does not compile alone beside so many bytes of stationary weights in each core; None if it does."""
        choice = self._evaluator_beside(resident).tiling(1 << op)
        if isinstance(choice, Refusal):
            return refused(self.facts, 1 << op, choice, self.profile)
        own = self.resident_bytes((op,))
        if resident <= own:
            return None
        alone = self._evaluator_beside(own).tiling(1 << op)
        if isinstance(alone, Refusal) or choice.cost.cycles <= _CROWDED * alone.cost.cycles:
            return None
        node = self.facts.graph.ops[op]
        return LimitError(
            "an op has too little room beside the weights of its segment",
            code="segment_too_large",
            stage="partition",
            node=node.node,
            op_type=node.kind,
            actual=f"{choice.cost.cycles:,} cycles",
            limit=f"{_CROWDED} × {alone.cost.cycles:,}",
            hint="Let the segment be split, or use cores with more memory",
        )

    def _fits_beside(self, content: int, resident: int) -> bool:
        """Whether an op of this content has a tiling alone; more memory never hurts, so most answers are known."""
        if resident <= self._fits.get(content, -1):
            return True
        if content in self._fails and resident >= self._fails[content]:
            return False
        # a harder question first, half way to where it is known to fail: its answer serves all that lies below
        harder = (resident + self._fails.get(content, self._capacity)) // 2
        if self.profile.is_stationary and harder > resident:
            if self._tiles(content, harder):
                self._fits[content] = harder
                return True
            self._fails[content] = harder
        fits = self._tiles(content, resident)
        if fits:
            self._fits[content] = max(resident, self._fits.get(content, -1))
        else:
            self._fails[content] = min(resident, self._fails.get(content, resident))
        return fits

    def _tiles(self, content: int, resident: int) -> bool:
        """Whether an op of this content compiles alone; a type without an array is the op's fault by name."""
        example = self._examples[content]
        try:
            return self._alone(example, resident) is None
        except ModelError as error:
            error.node = error.node or self.facts.graph.ops[example].node
            raise

    def _amounts(self, ops: tuple[int, ...]) -> list[tuple[str, str, int, int]]:
        """What the profile limits of one executable: (what, field, actual, limit)."""
        profile = self.profile
        amounts = []
        weights = self._weights.size_bytes(ops)
        if not self._dram_is_ample:
            stored = weights + self._crossing_bytes(ops)
            amounts.append(("bytes to store", "dram.capacity_bytes", stored, profile.dram.capacity_bytes))
        if profile.limits.weight_bytes is not None:
            amounts.append(("bytes of weights", "limits.weight_bytes", weights, profile.limits.weight_bytes))
        if profile.limits.macs is not None:
            macs = int(self._macs[list(ops)].sum())
            amounts.append(("multiply-accumulates", "limits.macs", macs, profile.limits.macs))
        if profile.is_stationary:
            level = "wram" if profile.wram is not None else "nram"
            resident = self._weights.resident_bytes_per_core(ops)
            capacity = self._capacity
            amounts.append(("bytes of stationary weights per core", f"{level}.capacity_bytes", resident, capacity))
        return amounts

    def _crossing_bytes(self, ops: tuple[int, ...]) -> int:
        """Bytes of the activations that enter or leave the segment."""
        graph = self.facts.graph
        members = set(ops)
        names = {name for op in ops for name in (*graph.ops[op].inputs, graph.ops[op].output) if name}
        return sum(
            self.facts.tensor_bytes(name)
            for name in names
            if graph.tensors[name].constant is None and not self._stays(name, members)
        )

    def _stays(self, name: str, members: set[int]) -> bool:
        """True if a tensor never leaves the segment."""
        graph = self.facts.graph
        producer = graph.producer.get(name)
        if producer not in members or name in graph.outputs:
            return False
        return all(user in members for user in graph.consumers.get(name, ()))

    def shares(self, ops: tuple[int, ...]) -> np.ndarray:
        """Per op and limited resource, its amount as a share of the limit: [ops, resources]."""
        profile = self.profile
        columns: list[list[float]] = []
        if profile.is_stationary:
            capacity = profile.resident_capacity_bytes
            columns.append([self._weights.resident_bytes_per_core((op,)) / capacity for op in ops])
        elif profile.limits.weight_bytes is not None:
            columns.append([self._weights.size_bytes((op,)) / profile.limits.weight_bytes for op in ops])
        if profile.limits.macs is not None:
            columns.append([self.facts.ops[op].total_macs / profile.limits.macs for op in ops])
        if not columns:
            columns.append([1.0 / len(ops)] * len(ops))
        return np.array(columns, dtype=np.float64).T


def _contents(facts: GraphFacts) -> tuple[np.ndarray, list[int]]:
    """Per op the number of its content (0 for ops of the host), and per number an op that has it."""
    numbers: dict[tuple[object, ...], int] = {}
    examples: list[int] = []
    result = np.zeros(len(facts.ops), dtype=np.int64)
    for op in facts.ops:
        if op.index in facts.graph.on_host:
            continue
        key = GroupGeometry(facts, (op.index,)).content()
        if key not in numbers:
            numbers[key] = len(numbers)
            examples.append(op.index)
        result[op.index] = numbers[key]
    return result, examples


def _too_large(facts: GraphFacts, ops: tuple[int, ...], what: str, field: str, actual: int, limit: int) -> LimitError:
    op = facts.graph.ops[ops[0]]
    alone = len(ops) == 1
    return LimitError(
        f"{'an op has' if alone else 'a segment has'} too many {what}",
        code="op_too_large" if alone else "segment_too_large",
        stage="partition",
        node=op.node,
        op_type=op.kind if alone else None,
        actual=actual,
        limit=limit,
        hint=f"Raise {field} in the profile" + ("" if alone else ", or let the segment be split"),
    )
