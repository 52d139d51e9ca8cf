"""Runs host segments on ONNX Runtime: the ONNX nodes that the accelerator does not run (IMPORT-6, SIM-1).

The nodes of a segment become one small model, so sequences and optionals between them stay inside the runtime. Between
segments they travel as lists and None, text as arrays of objects. If the model does not run as a whole, the nodes run
one by one, each on onnx.reference if ONNX Runtime lacks it; an error names the node. Random nodes draw from a seed
derived from their result's name, so a run repeats itself to the byte. A reference may draw other numbers.
`random_tensors` lists the results of random nodes and everything computed from them; only their types and shapes can be
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.errors import InternalError, ModelError, printable
from compiler.frontend.constant_values import FOUR_BITS, in_eight_bits, is_packed, materialise, type_of_text
from compiler.frontend.host_steps import Known, known_value, repeating_node
from compiler.frontend.inline_functions import captured, rename
from compiler.frontend.runtimes import Runtime, Value, is_random, run_model, seed_random_nodes
from compiler.frontend.source import ModelSource
from compiler.host_bound import HOST_BOUND, HostBound
from compiler.ir.constant import Constant, Opaque
from compiler.ir.graph import HOST, Graph, HostNode, Op
from compiler.ops.host_form import DOMAIN as IR_DOMAIN
from compiler.ops.host_form import evaluate_host_node
from compiler.program.errors import ExecutableError

_IR_VERSION: Final = 10
# Operators that ONNX Runtime sums in float32, term by term; onnx.reference runs them as a fast transform in float64.
_ON_REFERENCE: Final = frozenset({"DFT", "STFT"})
NO_TYPES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCall:
    """A host node, and the tensors of the graph that it outputs; "" for an output that nobody reads."""

    key: str
    node: HostNode
    results: tuple[str, ...]


def value_of_constant(constant: Constant, source: ModelSource) -> Value:
    """The values of a constant, also of one that only the host understands; values in a file come as views."""
    if is_packed(constant) and constant.dtype in FOUR_BITS:
        return materialise(in_eight_bits(constant), source).astype(getattr(ml_dtypes, constant.dtype))
    if isinstance(constant.data, Opaque):
        return numpy_helper.to_array(onnx.TensorProto.FromString(constant.data.tensor))
    return materialise(constant, source)


def host_reads(graph: Graph, ops: Iterable[int]) -> tuple[str, ...]:
    """The outside tensors, constants included, that the given host ops read, each once, in order."""
    indices = sorted(ops)
    made = {graph.ops[index].output for index in indices}
    reads = (name for index in indices for name in graph.ops[index].inputs if name and name not in made)
    return tuple(dict.fromkeys(reads))


def run_host(graph: Graph, values: Mapping[str, Value], ops: Iterable[int], *, threads: int = 1) -> dict[str, Value]:
    """Runs host ops and returns their results by tensor name; no chip op stands between the `ops` (indices).

    `values` holds all of `host_reads`. Raises ModelError naming a node that no runtime could run, and HostBoundError
    naming one that takes too long.
    """
    known: dict[str, Value] = {name: _given(graph, values, name, ops) for name in host_reads(graph, ops)}
    types = {name: tensor.dtype for name, tensor in graph.tensors.items()}
    return _run_calls(_calls(graph, ops), known, types, threads, HOST_BOUND)


def run_nodes(
    nodes: Iterable[HostNode],
    values: Mapping[str, Value],
    *,
    types: Mapping[str, str] = NO_TYPES,
    threads: int = 1,
    bound: HostBound = HOST_BOUND,
) -> dict[str, Value]:
    """Runs the host nodes of an executable and returns their results by tensor name.

    `values` holds their inputs, by tensor name. `types` gives the types of values that do not tell their own: empty
    sequences and optionals. Raises ModelError naming a node that no runtime could run, and HostBoundError naming one
    that takes longer than `bound`.
    """
    calls = [HostCall(key=node.name, node=node, results=node.outputs) for node in nodes]
    made = {name for call in calls for name in call.results}
    known: dict[str, Value] = {}
    for call in calls:
        for name in call.node.inputs:
            if name and name not in made:
                if name not in values:
                    raise InternalError(
                        f"tensor {name!r} is not there when the host wants it", stage="simulate", node=call.node.name
                    )
                known[name] = values[name]
    return _run_calls(calls, known, types, threads, bound)


def _run_calls(
    calls: list[HostCall], known: dict[str, Value], types: Mapping[str, str], threads: int, bound: HostBound
) -> dict[str, Value]:
    result: dict[str, Value] = {}
    # A model has one set of operator versions; a node from a function may need others.
    for (opsets, precise), run in groupby(calls, key=_alike):
        if IR_DOMAIN in dict(opsets):
            for call in run:
                made = _evaluated(call, known)
                known |= made
                result |= made
            continue
        order: tuple[Runtime, Runtime] = ("onnxruntime", "onnx.reference")
        made = _run_together(types, list(run), known, threads, order[::-1] if precise else order, bound)
        known |= made
        result |= made
    return result


def _alike(call: HostCall) -> tuple[tuple[tuple[str, int], ...], bool]:
    """A key: calls with equal keys can run as one model; each op of the IR runs alone."""
    return call.node.opsets, call.node.op_type in _ON_REFERENCE


def _evaluated(call: HostCall, known: Mapping[str, Value]) -> dict[str, Value]:
    """Evaluates a call of an op of the IR by the op's own definition."""
    node = onnx.NodeProto.FromString(call.node.node)
    arrays = [np.asarray(known[name]) if name else None for name in call.node.inputs]
    return {call.results[0]: evaluate_host_node(node, call.node.name, arrays)}


def refuse_endless(graph: Graph, source: ModelSource, inputs: Mapping[str, Value], bound: HostBound) -> None:
    """Raises HostBoundError naming host nodes that are known to take more steps than `bound`.

    The graph knows more than its model: import has computed everything that does not depend on the inputs.
    """
    calls = _calls(graph, [index for index, op in enumerate(graph.ops) if op.kind == HOST])
    known = {name: known_value(value) for name, value in inputs.items()}
    for name in {name for call in calls for name in call.node.inputs if name} - known.keys():
        tensor = graph.tensors[name]
        if tensor.constant is not None and tensor.elements == 1:
            known[name] = known_value(value_of_constant(tensor.constant, source))
        elif tensor.is_known:
            known[name] = Known(tuple(map(int, tensor.shape)))
    nodes, names = [_node(call) for call in calls], [call.node.name for call in calls]
    functions = dict.fromkeys(function for call in calls for function in call.node.functions)
    repeating_node(nodes, names, map(onnx.FunctionProto.FromString, functions), known, bound)


def random_tensors(graph: Graph) -> frozenset[str]:
    """The results of random nodes, and every tensor computed from them."""
    keys = {key for key, host in graph.host.items() if is_random(onnx.NodeProto.FromString(host.node))}
    found: set[str] = set()
    for op in graph.ops:
        if (op.kind == HOST and _key(op) in keys) or any(name in found for name in op.inputs):
            found.add(op.output)
    return frozenset(found)


def host_runs(graph: Graph, ops: Sequence[int]) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Splits the given ops into stretches for the host (True) and for the chip (False), in order."""
    for on_host, stretch in groupby(ops, key=lambda index: graph.ops[index].kind == HOST):
        yield on_host, tuple(stretch)


def _given(graph: Graph, values: Mapping[str, Value], name: str, ops: Iterable[int]) -> Value:
    if name not in values:
        reader = next(graph.ops[index] for index in sorted(ops) if name in graph.ops[index].inputs)
        raise InternalError(
            f"tensor {name!r} is not there when the host wants it", stage="simulate", node=reader.node, actual=name
        )
    return values[name]


def _calls(graph: Graph, ops: Iterable[int]) -> list[HostCall]:
    """The nodes of the ops, in order, each once."""
    results: dict[str, dict[int, str]] = {}
    for index in sorted(ops):
        op = graph.ops[index]
        if op.kind != HOST:
            raise InternalError(f"op {op.output!r} is not the host's", stage="simulate", node=op.node, actual=op.kind)
        position = dict(op.attributes)["result"]
        assert isinstance(position, int)
        results.setdefault(_key(op), {})[position] = op.output
    return [
        HostCall(
            key=key,
            node=graph.host[key],
            results=tuple(made.get(position, "") for position in range(len(graph.host[key].outputs))),
        )
        for key, made in results.items()
    ]


def _key(op: Op) -> str:
    return str(dict(op.attributes)["node"])


def _run_together(
    types: Mapping[str, str],
    calls: list[HostCall],
    known: Mapping[str, Value],
    threads: int,
    order: Sequence[Runtime],
    bound: HostBound,
) -> dict[str, Value]:
    """Runs the calls as one model on the first runtime, or one by one if that does not run.

    Also as one model on the second runtime if values between the calls have no type that can be named.
    """
    model, feeds, names = _model(types, calls, known)
    alone = len(calls) == 1
    run = run_model(model, feeds, threads=threads, runtimes=order if alone else order[:1], bound=bound)
    if run.values is None and not alone:
        made: dict[str, Value] = {}
        try:
            for call in calls:
                made |= _run_together(types, [call], {**known, **made}, threads, order, bound)
        except InternalError:
            run = run_model(model, feeds, threads=threads, runtimes=order[1:], bound=bound)
            if run.values is None:
                raise
        else:
            return made
    if run.values is None:
        host = calls[0].node
        raise ModelError(
            "the host could not run the node on these inputs",
            code="host_node_failed",
            stage="simulate",
            node=host.name,
            op_type=host.op_type,
            actual=run.reason,
            hint="Check the inputs, and whether the operator's domain is known to ONNX Runtime",
        )
    return dict(zip(names, run.values, strict=True))


def _model(
    types: Mapping[str, str], calls: Sequence[HostCall], known: Mapping[str, Value]
) -> tuple[onnx.ModelProto, dict[str, Value], tuple[str, ...]]:
    """A model of the calls, the values to feed it, and the names of its outputs; all names come from the graph."""
    nodes = [_node(call) for call in calls]
    made = {name for node in nodes for name in node.output}
    feeds = {
        name: known[name]
        for name in dict.fromkeys(name for call in calls for name in call.node.inputs)
        if name and name not in made
    }
    names = tuple(name for call in calls for name in call.results if name)
    functions = dict.fromkeys(function for call in calls for function in call.node.functions)
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "host",
            [onnx.ValueInfoProto(name=name, type=_type(types, name, value)) for name, value in feeds.items()],
            [onnx.ValueInfoProto(name=name) for name in names],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in calls[0].node.opsets],
        ir_version=_IR_VERSION,
        functions=[onnx.FunctionProto.FromString(function) for function in functions],
    )
    return model, feeds, names


def _node(call: HostCall) -> onnx.NodeProto:
    """The node with input and output names from the graph, and with a seed if it is random."""
    node: onnx.NodeProto = onnx.NodeProto.FromString(call.node.node)
    node.name = call.node.name
    seed_random_nodes([node])
    reads = [*node.input, *captured(node)]
    if (len(reads), len(node.output)) != (len(call.node.inputs), len(call.results)):
        raise ExecutableError(
            f"host node {printable(call.node.name, 80)} has other inputs or outputs than the manifest says",
            section="nodes",
            offset=0,
            actual=f"{len(call.node.inputs)} inputs, {len(call.results)} outputs",
            limit=f"{len(reads)} inputs, {len(node.output)} outputs",
        )
    names = {local: name for local, name in zip(reads, call.node.inputs, strict=True) if local and local != name}
    names |= {local: name for local, name in zip(node.output, call.results, strict=True) if local and name}
    if names:
        rename(node, names)
    return node


def _type(types: Mapping[str, str], name: str, value: Any) -> onnx.TypeProto:
    """The type of a value fed to the model: of a tensor from the value, of any other value from the graph."""
    if isinstance(value, np.ndarray):
        is_text = value.dtype.kind in "OSU"
        code = onnx.TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_type_proto(code, value.shape)
    found = type_of_text(types.get(name, ""))
    if found is None and isinstance(value, list) and value:
        return helper.make_sequence_type_proto(_type(types, name, value[0]))
    if found is None:
        raise InternalError(f"value {name!r} has no type that can be named", stage="simulate", actual=types.get(name))
    return found
