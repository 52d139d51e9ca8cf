"""Value check of a compilation: compares the executable with the original model on random inputs (SIM-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from compiler.degraded import DefectError, defects_of, failed_group
from compiler.errors import InternalError, RequestError, TesseraError, printable
from compiler.frontend.host import host_bytes
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.host_bound import HOST_BOUND, HostBound, HostBoundError
from compiler.ir.constant import Derived, Splat
from compiler.ir.graph import HOST, Graph, Tensor
from compiler.options import Options
from compiler.profile.schema import Profile
from compiler.program.build import executable_of
from compiler.program.executable import Executable
from compiler.program.lower import LoweredGraph
from compiler.simulator.compare import Comparison, compare, limits_of, steps_of
from compiler.simulator.host import random_tensors, refuse_endless
from compiler.simulator.inputs import random_inputs
from compiler.simulator.node_by_node import nodes_compared
from compiler.simulator.reference import reference_of_graph, run_reference
from compiler.simulator.rounding_amplification import Judged, Verdict, judge_again
from compiler.simulator.run import MadeOf, Proved, run_executable

# The seed of the check's inputs, the same for every compilation.
SEED: Final = 5
# A model with a larger tensor (constants in its file excepted) is not run.
MAX_CHECKED_BYTES: Final = 2**31
# Limit on the tensors between groups that are kept for a second judgement, which few checks need.
_LARGEST_KEPT_BYTES: Final = 2**28
NO_PROOFS: Final[Mapping[str, Proved]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCheck:
    """The result of the value check: a comparison per output, the judge, and the seed of the inputs.

    `reason` says why nothing was compared (no runtime runs the model, no values, not requested) and is empty otherwise.
    `skipped` lists outputs that depend on random nodes. If an output misses its plain limit, `again` says how it was
    judged then, by output; `between` and `undecided` hold the findings on the tensors that the program passes from
    group to group (`rounding_amplification.py`), `nodes` the worst op of a quantised network that was judged node by
    node (`node_by_node.py`).
    """

    seed: int
    judge: str
    reason: str
    comparisons: tuple[Comparison, ...]
    skipped: tuple[str, ...] = ()
    again: Mapping[str, Judged] = field(default_factory=dict)
    between: Comparison | None = None
    undecided: tuple[str, ...] = ()
    nodes: Comparison | None = None

    @property
    def has_run(self) -> bool:
        """True if outputs were compared."""
        return bool(self.comparisons)

    @property
    def holds(self) -> bool:
        """True if every tensor that could be judged is within its limit."""
        return all(comparison.holds for comparison in self._decided)

    @property
    def worst(self) -> Comparison | None:
        """The comparison nearest to its limit, or furthest beyond it, among those that could be judged."""
        return max(self._decided, key=_excess, default=None)

    def verdict(self, output: str) -> Verdict:
        """How an output was judged."""
        return self.again[output].verdict if output in self.again else Verdict.PLAIN

    @property
    def _decided(self) -> tuple[Comparison, ...]:
        by_other_means = (Verdict.UNDECIDED, Verdict.BY_NODE)
        found = [c for c in self.comparisons if self.verdict(c.tensor) not in by_other_means]
        found += [] if self.nodes is None else [self.nodes]
        return tuple(found) if self.between is None or self.between.holds else (*found, self.between)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGraph:
    """A lowered graph, its executable (None without programs), and the result of the value check."""

    lowered: LoweredGraph
    executable: Executable | None
    check: ValueCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckValues:
    """Pass: the executable of a lowered graph, run on seeded random inputs and compared with the model (SIM-1)."""

    name: str = "check values"
    source: ModelSource
    profile: Profile
    options: Options

    def run(self, lowered: LoweredGraph) -> CheckedGraph:
        """Raises InternalError naming output, error and limit if a value exceeds its limit."""
        executable = executable_of(lowered, self.source, self.profile, self.options)
        reason = lowered.reason or self.options.unverified
        if executable is None or reason:
            check = ValueCheck(seed=SEED, judge="", reason=reason, comparisons=())
            return CheckedGraph(lowered=lowered, executable=executable, check=check)
        fused = lowered.mapped.fused
        graph = fused.partitioned.graph
        groups = [group.ops for found in fused.segments for group in found.groups]
        # The cause is not yet known: groups of several ops come first, then all.
        suspected = [ops for ops in groups if len(ops) > 1] or groups
        with defects_of(self.name, [failed_group(fused.facts, ops) for ops in suspected]):
            check = check_values(executable, graph, self.source, proofs=_proofs(lowered))
        worst = check.worst
        if worst is not None and not check.holds:
            message = f"the program computes other values than the model: {worst.tensor!r} is off at {worst.where}"
            actual, limit = f"{worst.max_error:g} (got {worst.got}, expected {worst.expected})", f"{worst.limit:g}"
            wrong = _first_wrong(executable, graph, self.source, groups)
            definition = wrong is None
            ops = wrong or _first_misunderstood(graph, self.source)
            if ops is None:
                raise InternalError(
                    message,
                    stage=self.name,
                    actual=actual,
                    limit=limit,
                    hint="This is a defect of Tessera; option verify=none compiles without the check",
                )
            raise DefectError(
                message,
                groups=[failed_group(fused.facts, ops)],
                stage=self.name,
                actual=actual,
                limit=limit,
                definition=definition,
            )
        return CheckedGraph(lowered=lowered, executable=executable, check=check)


def _proofs(lowered: LoweredGraph) -> dict[str, Proved]:
    """The programs of segments, and what their proofs found."""
    named = zip(lowered.mapped.fused.segments, lowered.segments, strict=True)
    found = ((found.segment.id, segment.program, segment.proof) for found, segment in named)
    return {name: (program, proof) for name, program, proof in found if program is not None and proof is not None}


def _first_wrong(
    executable: Executable, graph: Graph, source: ModelSource, groups: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The first group whose results differ from those of its ops' definitions; None if all agree."""
    inputs = random_inputs(graph, SEED)
    got: dict[str, Any] = {}
    run_executable(executable, inputs, results=got.__setitem__)
    limits, random = limits_of(graph), random_tensors(graph)
    expected = reference_of_graph(graph, source, inputs, wanted=set(got) - random)
    for ops in groups:
        for name in (graph.ops[op].output for op in ops if graph.ops[op].output in got):
            if name in expected and not compare(name, got[name], expected[name], limit=limits.get(name)).holds:
                return ops
    return None


def _first_misunderstood(graph: Graph, source: ModelSource) -> tuple[int, ...] | None:
    """The first op whose definition disagrees with ONNX Runtime's value of the same name.

    None if all agree, or if the runtime does not return these values.
    """
    inputs = random_inputs(graph, SEED)
    if steps_of(graph, source):
        nodes = nodes_compared(graph, source, inputs, HOST_BOUND)
        wrong = (i for i, op in enumerate(graph.ops) if op.output in nodes and not nodes[op.output].holds)
        first = next(wrong, None)
        return None if first is None else (first,)
    random, limits = random_tensors(graph), limits_of(graph)
    given = {name for model in [ReadModel().run(source).proto] for node in model.graph.node for name in node.output}
    wanted = [op.output for op in graph.ops if op.kind != HOST and op.output in given - random]
    unread = {tensor.name: tensor.shape for tensor in graph.unread if tensor.is_known}
    expected = run_reference(source, inputs, wanted=wanted, zeros_for_missing=True, missing_shapes=unread).values
    ours = reference_of_graph(graph, source, inputs, wanted=set(wanted))
    for index, op in enumerate(graph.ops):
        name = op.output
        if (
            name in ours
            and name in expected
            and not compare(name, ours[name], expected[name], limit=limits[name]).holds
        ):
            return (index,)
    return None


def check_values(
    executable: Executable,
    graph: Graph,
    source: ModelSource,
    seed: int = SEED,
    *,
    proofs: Mapping[str, Proved] = NO_PROOFS,
    bound: HostBound = HOST_BOUND,
) -> ValueCheck:
    """Runs an executable and the original model on the same seeded inputs and compares all outputs.

    `proofs`: its programs with what was found of them, by segment; any other is checked before it runs. The executable
    runs a second time only if an output misses its limit and the tensors between groups took too much to keep. Compares
    nothing if the host takes longer than `bound`. Raises the errors of running the executable.
    """
    try:
        inputs = random_inputs(graph, seed)
    except TesseraError as error:
        # no inputs can be generated for text, sequences and types that only the host supports, so nothing is compared
        return ValueCheck(seed=seed, judge="", reason=error.message, comparisons=())
    largest = max((t for t in graph.tensors.values() if _is_made(t)), key=host_bytes, default=None)
    if largest is not None and host_bytes(largest) > MAX_CHECKED_BYTES:
        reason = f"tensor {printable(largest.name, 120)!r} has {host_bytes(largest)} bytes; limit {MAX_CHECKED_BYTES}"
        return ValueCheck(seed=seed, judge="", reason=reason, comparisons=())
    unread = {tensor.name: tensor.shape for tensor in graph.unread if tensor.is_known}
    try:
        refuse_endless(graph, source, inputs, bound)
        reference = run_reference(source, inputs, zeros_for_missing=True, missing_shapes=unread, bound=bound)
        if not reference.has_run:
            return ValueCheck(seed=seed, judge="", reason=reference.reason, comparisons=())
        kept, made_of = _Kept(), MadeOf(graph=graph, proofs=proofs)
        outputs = run_executable(executable, inputs, made_of=made_of, results=kept.keep, bound=bound)
        steps = steps_of(graph, source)
        check = _compared(executable, graph, outputs, reference.values, reference.judge, seed, steps)
        if check.holds:
            return check
        got = kept.values
        if got is None:
            got = {}
            run_executable(executable, inputs, made_of=made_of, results=got.__setitem__, bound=bound)
    except HostBoundError as error:
        reason = f"host node {printable(error.node or '', 120)!r} takes {error.actual}; limit {error.limit}"
        return ValueCheck(seed=seed, judge="", reason=reason, comparisons=())
    except RequestError as error:  # an input that reaches no output, for which there are no values
        return ValueCheck(seed=seed, judge="", reason=error.message, comparisons=())
    judged = _judged_again(check, executable, graph, source, inputs, got)
    return _judged_by_node(judged, executable, graph, source, inputs, bound) if steps else judged


@dataclass(slots=True)
class _Kept:
    """Tensors by name, as long as they take no more than the limit; from then on `values` is None."""

    values: dict[str, Any] | None = field(default_factory=dict)
    size_bytes: int = 0

    def keep(self, name: str, value: Any) -> None:
        """Keeps one more tensor, or drops all."""
        self.size_bytes += value.nbytes
        if self.size_bytes > _LARGEST_KEPT_BYTES:
            self.values = None
        if self.values is not None:
            self.values[name] = value


def _is_made(tensor: Tensor) -> bool:
    """True for a tensor that takes its own memory when the model runs."""
    return tensor.is_known and (tensor.constant is None or isinstance(tensor.constant.data, Splat | Derived))


def _judged_again(
    check: ValueCheck,
    executable: Executable,
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Any],
    got: dict[str, Any],
) -> ValueCheck:
    """Judges the outputs again with the model's own spread, and `got`, the tensors between groups."""
    for tensor in random_tensors(graph):
        got.pop(tensor, None)
    tensor_of = {output.name: output.tensor for output in executable.outputs}
    missed = {tensor_of[comparison.tensor]: comparison for comparison in check.comparisons if not comparison.holds}
    found = judge_again(graph, source, inputs, got, missed)
    again = {name: found.outputs[tensor] for name, tensor in tensor_of.items() if tensor in found.outputs}
    comparisons = tuple(again[c.tensor].comparison if c.tensor in again else c for c in check.comparisons)
    return replace(check, comparisons=comparisons, again=again, between=found.between, undecided=found.undecided)


def _judged_by_node(
    check: ValueCheck,
    executable: Executable,
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Any],
    bound: HostBound,
) -> ValueCheck:
    """Outputs of a quantised network that are still open hold if each op agrees, and the program does what ops do."""
    is_open = not check.holds or any(judged.verdict is Verdict.UNDECIDED for judged in check.again.values())
    if not is_open or check.undecided or (check.between is not None and not check.between.holds):
        return check
    nodes = nodes_compared(graph, source, inputs, bound)
    worst = max(nodes.values(), key=_excess, default=None)
    if worst is None or not worst.holds:
        return check
    tensor_of = {output.name: output.tensor for output in executable.outputs}
    again = {name: _held(one) if tensor_of[name] in nodes else one for name, one in check.again.items()}
    found = tuple(again[c.tensor].comparison if c.tensor in again else c for c in check.comparisons)
    return replace(check, again=again, comparisons=found, nodes=worst)


def _held(judged: Judged) -> Judged:
    """An output that is open, judged node by node."""
    if judged.comparison.holds and judged.verdict is not Verdict.UNDECIDED:
        return judged
    return replace(judged, verdict=Verdict.BY_NODE, comparison=replace(judged.comparison, holds=True))


def _compared(
    executable: Executable,
    graph: Graph,
    got: Mapping[str, Any],
    expected: Mapping[str, Any],
    judge: str,
    seed: int,
    steps: Mapping[str, float],
) -> ValueCheck:
    limits, random = limits_of(graph), random_tensors(graph)
    comparisons, skipped = [], []
    for output in executable.outputs:
        if output.tensor in random or output.name not in expected:
            skipped.append(output.name)
            continue
        limit, step = limits.get(output.tensor), steps.get(output.tensor, 0.0)
        comparisons.append(compare(output.name, got[output.name], expected[output.name], limit=limit, step=step))
    reason = "" if comparisons else "every output depends on random nodes"
    return ValueCheck(seed=seed, judge=judge, reason=reason, comparisons=tuple(comparisons), skipped=tuple(skipped))


def _excess(comparison: Comparison) -> float:
    if comparison.holds:
        return comparison.max_error / comparison.limit if comparison.limit else 0.0
    return float("inf") if comparison.max_error != comparison.max_error else 1.0 + comparison.max_error
