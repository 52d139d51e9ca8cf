"""Two references for values: the original ONNX model on ONNX Runtime, and our own graph op by op (SIM-1).

The first gives the meaning of the model, by its ONNX names. The second gives every tensor between the ops, also those
that import made, from the definitions that the compiler itself uses; the first checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.errors import InternalError, LimitError, RequestError, printable
from compiler.frontend.constant_values import constant_of, declared_extent, is_packed, materialise, packed_bytes
from compiler.frontend.inline_functions import all_nodes, inner_tensors, subgraphs
from compiler.frontend.read import MAX_FILE_BYTES, OnnxModel, ReadModel
from compiler.frontend.runnable import restamped
from compiler.frontend.runtimes import Array, Value, run_model, seed_random_nodes, with_data
from compiler.frontend.source import ModelSource
from compiler.host_bound import HOST_BOUND, HostBound
from compiler.ir.graph import Graph, Op
from compiler.ops import call_of, definition
from compiler.ops.compute_types import Values
from compiler.ops.quantised import QuantisedOp, QuantisedProduct, is_rounded
from compiler.simulator.host import host_runs, run_host, value_of_constant

_RECURRENT: Final = frozenset({"LSTM", "GRU", "RNN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Values of a model's outputs and of requested tensors, by ONNX name; empty if no runtime could run the model.

    `judge` is the runtime that ran it. `reason` says why that is not ONNX Runtime, or why no runtime could.
    """

    values: Mapping[str, Value]
    judge: str
    reason: str

    @property
    def has_run(self) -> bool:
        """True if there are values."""
        return bool(self.judge)


def run_reference(
    source: ModelSource,
    inputs: Mapping[str, Value],
    *,
    wanted: Sequence[str] = (),
    threads: int = 1,
    zeros_for_missing: bool = False,
    missing_shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    bound: HostBound = HOST_BOUND,
) -> Reference:
    """Runs the original model on given inputs; returns its outputs and the values `wanted`.

    The source is a model file or an archive with external data. With `zeros_for_missing`, inputs that are not given are
    zeros, of the shape that the model fixes or of one in `missing_shapes`: the graph leaves out inputs whose values
    reach no output. Raises RequestError for inputs that are unknown or of another type or shape, and for unknown values
    in `wanted`; raises HostBoundError naming a node of a model that takes longer than `bound`.
    """
    model = ReadModel().run(source)
    proto, weights = _loaded(model)
    if zeros_for_missing:
        _drop_unread(proto, inputs)
    feeds = _fed(proto, inputs, missing_shapes if zeros_for_missing else None)
    names = [value.name for value in proto.graph.output]
    extra = [name for name in dict.fromkeys(wanted) if name not in names]
    _check_wanted(proto, extra)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    _drop_unread_weights(proto, weights)
    seed_random_nodes(proto.graph.node)
    for function in proto.functions:
        seed_random_nodes(function.node)
    if ended_by := _ended_by(proto, feeds):
        reason = f"ONNX Runtime may end the process at {ended_by} without elements"
        return Reference(values=MappingProxyType({}), judge="", reason=reason)
    run = run_model(proto, feeds, weights=weights, threads=threads, bound=bound)
    found = dict(zip([*names, *extra], run.values, strict=True)) if run.values is not None else {}
    return Reference(values=MappingProxyType(found), judge=run.judge, reason=run.reason)


def _ended_by(proto: onnx.ModelProto, feeds: Mapping[str, Value]) -> str:
    """The kind of a recurrent node in a model with an input without elements, "" if there is none: there ONNX Runtime
    does not fail but ends the process.
    """
    if all(not isinstance(value, np.ndarray) or value.size for value in feeds.values()):
        return ""
    return next((node.op_type for node in all_nodes(proto.graph.node) if node.op_type in _RECURRENT), "")


def whole_model(model: OnnxModel) -> onnx.ModelProto:
    """The model with all its weights inside and, if they suffice, versions that ONNX Runtime reads.

    Raises ModelError for weights that are damaged or missing, LimitError beyond what one file may hold.
    """
    proto, weights = _loaded(model)
    size_bytes = sum(array.nbytes for array in weights.values())
    if size_bytes > MAX_FILE_BYTES:
        raise LimitError(
            "the model with its weights does not fit one ONNX file",
            code="model_too_large",
            stage="import",
            actual=size_bytes,
            limit=MAX_FILE_BYTES,
            hint="Take a smaller model, or a part of this one",
        )
    return restamped(with_data(proto, weights))


def reference_of_graph(
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Value],
    *,
    wanted: Collection[str] | None = None,
    threads: int = 1,
) -> dict[str, Value]:
    """The values of the tensors `wanted` (by default of all results of ops) by the ops' own definitions."""
    found = {name: value for name, value in inputs.items() if wanted is not None and name in wanted}
    for name in wanted or ():
        constant = graph.tensors[name].constant
        if constant is not None:
            found[name] = value_of_constant(constant, source)
    made = evaluated(graph, source, inputs, threads=threads)
    return found | {name: value for name, value in made if wanted is None or name in wanted}


def evaluated(
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Value],
    *,
    threads: int = 1,
    disturb: Callable[[Op, Value, Callable[[], Values] | None], Value] | None = None,
    ops: Sequence[int] | None = None,
) -> Iterator[tuple[str, Value]]:
    """Yields every result of an op with its values, in the ops' order; frees values after their last use.

    `disturb` replaces an op's result for later ops; for one that is rounded to integers it can ask for the steps that
    were rounded. With `ops` only these are evaluated, and `inputs` holds all that
    they do not make themselves. Raises RequestError for a missing input, InternalError if a definition gives another
    type than declared.
    """
    for name in graph.inputs:
        if ops is None and name not in inputs:
            raise _missing(name)
    last = {name: index for index, op in enumerate(graph.ops) for name in op.inputs if name}
    values: dict[str, Value] = {name: inputs[name] for name in graph.inputs} if ops is None else dict(inputs)
    for on_host, stretch in host_runs(graph, range(len(graph.ops)) if ops is None else ops):
        for name in dict.fromkeys(name for index in stretch for name in graph.ops[index].inputs if name):
            constant = graph.tensors[name].constant
            if constant is not None and on_host:
                values[name] = value_of_constant(constant, source)
        if on_host:
            made = run_host(graph, values, stretch, threads=threads)
            if disturb is not None:
                made |= {
                    name: disturb(graph.ops[index], made[name], None)
                    for index in stretch
                    if (name := graph.ops[index].output) in made
                }
            values |= made
            yield from made.items()
        for index in stretch:
            op = graph.ops[index]
            if not on_host:
                result = _evaluate(graph, op, source, values)
                values[op.output] = (
                    result if disturb is None else disturb(op, result, _steps(graph, op, source, values))
                )
                yield op.output, values[op.output]
            for name in (*op.inputs, op.output):
                if last.get(name, -1) <= index:
                    values.pop(name, None)


def _arrays(graph: Graph, op: Op, source: ModelSource, values: Mapping[str, Value]) -> tuple[Any, ...]:
    """The values of an op's inputs, None where one is omitted."""
    arrays: list[Any] = []
    for name in op.inputs:
        constant = graph.tensors[name].constant if name else None
        arrays.append(values[name] if name and constant is None else constant and materialise(constant, source))
    return tuple(arrays)


def _steps(graph: Graph, op: Op, source: ModelSource, values: Mapping[str, Value]) -> Callable[[], Values] | None:
    """What gives an op's result before it was rounded to integers; None for an op that does no such thing."""
    kind, call = definition(op), call_of(graph, op)
    if not isinstance(kind, QuantisedOp | QuantisedProduct) or not is_rounded(call):
        return None
    given = tuple(array for array in _arrays(graph, op, source, values) if array is not None)
    return lambda: kind.unrounded(call, given)


def _evaluate(graph: Graph, op: Op, source: ModelSource, values: Mapping[str, Value]) -> Array:
    arrays = _arrays(graph, op, source, values)
    with np.errstate(all="ignore"):
        result = definition(op).evaluate(call_of(graph, op), arrays)
    tensor = graph.tensors[op.output]
    if result is None or (result.shape, result.dtype.name) != (tensor.shape, tensor.dtype):
        raise InternalError(
            f"the definition of {op.kind} gives another type than it said",
            stage="simulate",
            node=op.node,
            op_type=op.kind,
            actual="nothing" if result is None else f"{result.dtype.name}{list(result.shape)}",
            limit=f"{tensor.dtype}{list(tensor.shape)}",
        )
    return np.asarray(result)


def _loaded(model: OnnxModel) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model's structure, and the weights outside of it: in the file, or in the files beside it."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    weights: dict[str, Array] = {}
    for position, tensor in enumerate(proto.graph.initializer):
        span = model.weights.get(position)
        if span is not None or _is_external(tensor):
            constant = constant_of(
                tensor,
                span=span,
                node=None,
                what=f"initializer {printable(tensor.name, 120)!r}",
                files=model.source.files,
            )
            _detach(tensor)
            if is_packed(constant):
                tensor.raw_data = packed_bytes(constant, model.source)
            else:
                weights[tensor.name] = materialise(constant, model.source)
    for tensor in inner_tensors([*proto.graph.node, *(node for function in proto.functions for node in function.node)]):
        if _is_external(tensor):
            constant = constant_of(tensor, span=None, node=None, what="a constant", files=model.source.files)
            _detach(tensor)
            bytes_of = packed_bytes if is_packed(constant) else lambda *its: materialise(*its).tobytes()
            tensor.raw_data = bytes_of(constant, model.source)
    return proto, weights


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or bool(tensor.external_data)


def _detach(tensor: TensorProto) -> None:
    """Removes references to external data, so that no file is opened for it."""
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _fed(
    proto: onnx.ModelProto, inputs: Mapping[str, Value], missing: Mapping[str, Sequence[int]] | None
) -> dict[str, Value]:
    """Checks the inputs against the model's own; `missing`: shapes of inputs not given, None if all are given."""
    defaults = {tensor.name for tensor in proto.graph.initializer}
    defaults |= {sparse.values.name for sparse in proto.graph.sparse_initializer}
    declared = {value.name: value for value in proto.graph.input}
    for name in inputs:
        if name not in declared:
            raise RequestError(
                f"the model has no input {printable(name, 120)!r}",
                code="unknown_input",
                stage="simulate",
                actual=printable(name, 120),
                limit=", ".join(printable(known, 60) for known in declared if known not in defaults) or "no inputs",
            )
    feeds: dict[str, Value] = {}
    for name, value in declared.items():
        if name in inputs:
            _check_type(value, inputs[name])
            feeds[name] = inputs[name]
        elif name not in defaults:
            if missing is None:
                raise _missing(name)
            feeds[name] = _nothing(value, missing.get(name))
    return feeds


def _drop_unread(proto: onnx.ModelProto, inputs: Mapping[str, Value]) -> None:
    """Drops inputs without values that no node reads: a runtime takes half a minute over a hundred thousand."""
    read = _read(proto)
    kept = [value for value in proto.graph.input if value.name in read or value.name in inputs]
    if len(kept) < len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(kept)


def _drop_unread_weights(proto: onnx.ModelProto, weights: dict[str, Array]) -> None:
    """Drops weights that no node reads: ONNX Runtime drops them itself, and then rejects values for them."""
    read = _read(proto)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name in read]
    if len(kept) < len(proto.graph.initializer):
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
        for name in weights.keys() - read:
            del weights[name]


def _read(proto: onnx.ModelProto) -> set[str]:
    """The values that nodes (also in subgraphs) and outputs read."""
    nodes = list(all_nodes(proto.graph.node))
    read = {name for node in nodes for name in node.input}
    read.update(value.name for node in nodes for graph in subgraphs(node) for value in graph.output)
    read.update(value.name for value in proto.graph.output)
    return read


def _missing(name: str) -> RequestError:
    return RequestError(
        f"input {printable(name, 120)!r} is missing",
        code="input_missing",
        stage="simulate",
        actual="no values",
        limit="values for every input",
    )


def _check_type(declared: onnx.ValueInfoProto, value: Value) -> None:
    kind = declared.type.tensor_type
    if not declared.type.HasField("tensor_type") or not isinstance(value, np.ndarray):
        return
    extents = [declared_extent(dim) for dim in kind.shape.dim]
    fits = len(extents) == value.ndim and all(
        extent is None or extent == given for extent, given in zip(extents, value.shape, strict=True)
    )
    wanted = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    same_type = wanted == value.dtype or (kind.elem_type == TensorProto.STRING and value.dtype.kind in "OSU")
    if (kind.HasField("shape") and not fits) or not same_type:
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim]
        raise RequestError(
            f"input {printable(declared.name, 120)!r} has another type or shape than the model says",
            code="input_type",
            stage="simulate",
            actual=f"{value.dtype.name}{list(value.shape)}",
            limit=f"{wanted.name}{shape}",
        )


def _nothing(declared: onnx.ValueInfoProto, shape: Sequence[int] | None) -> Value:
    """Zeros of an input's type, in the model's shape or else this one; an empty sequence, an absent optional value.

    Raises RequestError for a tensor without a shape, or a large one, and for other types.
    """
    if declared.type.HasField("sequence_type"):
        return []
    if declared.type.HasField("optional_type"):
        return None
    kind = declared.type.tensor_type
    if kind.HasField("shape") and all(declared_extent(dim) is not None for dim in kind.shape.dim):
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
    if shape is None or not declared.type.HasField("tensor_type") or prod(shape) >= 2**31:
        raise _missing(declared.name)
    if kind.elem_type == TensorProto.STRING:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _check_wanted(proto: onnx.ModelProto, wanted: Sequence[str]) -> None:
    known = {name for node in proto.graph.node for name in node.output}
    known.update(value.name for value in (*proto.graph.input, *proto.graph.initializer))
    for name in wanted:
        if name not in known:
            raise RequestError(
                f"the model has no value {printable(name, 120)!r}",
                code="unknown_value",
                stage="simulate",
                actual=printable(name, 120),
                limit="the output of a node of the main graph",
            )
