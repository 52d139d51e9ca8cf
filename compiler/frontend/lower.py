"""Lowering: ONNX nodes, in order, to ops of the IR; shapes are inferred and constants folded on the way.

Shape arithmetic and shape inference need each other (a Reshape's target may be computed from a Shape), so they are
one walk. Whatever has only constant inputs is evaluated if it is small, kept as a splat if it is one, and described
(not computed) if it is a view of a large weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.errors import LimitError, ModelError, RequestError, printable
from compiler.frontend.nodes import attributes_of, node_names
from compiler.frontend.read import OnnxModel
from compiler.frontend.source import ModelSource
from compiler.frontend.values import constant_of, derive, element_type, literal, materialise
from compiler.ir.constant import Constant, Literal, Splat
from compiler.ir.graph import Attribute, Graph, Op, Tensor
from compiler.ops import OP_KINDS
from compiler.ops.base import Array, Call, Inferred, default_axes
from compiler.units import dtype_name

# Constants up to this many elements are evaluated while lowering; larger ones stay descriptions.
FOLD_ELEMENTS: Final = 65_536
MAX_ELEMENTS: Final = 2**40
_DEFAULT_DOMAINS: Final = ("", "ai.onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerModel:
    """Pass: protobuf structure to graph (IMPORT-2). `dims` fixes dynamic dimensions by name."""

    name: str = "lower"
    dims: Mapping[str, int] = field(default_factory=dict)

    def run(self, model: OnnxModel) -> Graph:
        """Raises ModelError naming the node for what cannot be lowered."""
        lowering = _Lowering(model, self.dims)
        lowering.constants()
        lowering.inputs()
        for index, node in enumerate(model.proto.graph.node):
            lowering.node(index, node)
        return lowering.finish()


class _Lowering:
    """The state of one walk over one model; lives as long as the walk."""

    def __init__(self, model: OnnxModel, dims: Mapping[str, int]) -> None:
        self.model = model
        self.source: ModelSource = model.source
        self.dims = dims
        self.tensors: dict[str, Tensor] = {}
        self.alias: dict[str, str] = {}
        self.values: dict[str, Array] = {}
        self.ops: list[Op] = []
        self.made_by: dict[str, int] = {}
        self.folded: list[str] = []
        self.fixed: set[str] = set()
        self.graph_inputs: list[str] = []
        graph = model.proto.graph
        self.names = node_names(graph)
        self.used = frozenset(
            [name for node in graph.node for name in node.input] + [value.name for value in graph.output]
        )

    def constants(self) -> None:
        """Initialisers become constant tensors; their bytes stay where they are."""
        for position, proto in enumerate(self.model.proto.graph.initializer):
            constant = constant_of(
                proto,
                span=self.model.weights.get(position),
                node=None,
                what=f"initializer {proto.name!r}",
            )
            if proto.name in self.tensors:
                raise ModelError(
                    f"initializer {proto.name!r} is given twice",
                    code="duplicate_value",
                    stage="import",
                    actual=proto.name,
                )
            self._constant(proto.name, constant)
        if self.model.proto.graph.sparse_initializer:
            raise ModelError("sparse initialisers are not supported", code="unsupported_op", stage="import")

    def inputs(self) -> None:
        """Graph inputs that no initialiser defines; dynamic dims take the value given for them."""
        for value in self.model.proto.graph.input:
            if value.name in self.tensors:
                continue
            what = f"input {value.name!r}"
            if not value.type.HasField("tensor_type"):
                raise ModelError(f"{what} is not a tensor", code="unsupported_dtype", stage="import")
            tensor_type = value.type.tensor_type
            dtype = element_type(tensor_type.elem_type, node=None, what=what)
            if not tensor_type.HasField("shape"):
                raise ModelError(f"{what} has no shape", code="unknown_shape", stage="import")
            shape = tuple(self._extent(dim, axis, value.name, what) for axis, dim in enumerate(tensor_type.shape.dim))
            self._bounded(shape, None, what)
            self.tensors[value.name] = Tensor(name=value.name, shape=shape, dtype=dtype, axes=default_axes(len(shape)))
            self.graph_inputs.append(value.name)
        for name in self.dims:
            if name not in self.fixed:
                raise RequestError(
                    f"option dims names {printable(name, 80)!r}, which no input of the model has",
                    code="unknown_dim",
                    stage="import",
                    actual=printable(name, 80),
                )

    def _extent(self, dim: onnx.TensorShapeProto.Dimension, axis: int, tensor: str, what: str) -> int:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            return int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value < 0:
            raise ModelError(
                f"{what} has a negative extent on axis {axis}",
                code="invalid_shape",
                stage="import",
                actual=dim.dim_value,
                limit="at least 1",
            )
        name = dim.dim_param or f"{tensor}.{axis}"
        if name in self.dims:
            self.fixed.add(name)
            return self.dims[name]
        raise ModelError(
            f"{what} has the dynamic dimension {name!r} on axis {axis}, and option dims gives no value for it",
            code="dynamic_dim",
            stage="import",
            actual=name,
            hint=f"Give it one: --set dims.{name}=1",
        )

    def node(self, index: int, node: onnx.NodeProto) -> None:
        """Lower one node: fold it, drop it, or append its op.

        What a definition did not foresee in a node's attributes or constants is the model's fault, not ours.
        """
        name = self.names[index]
        try:
            self._node(name, node)
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"op {node.op_type!r} cannot be read: its attributes or constants are malformed",
                code="invalid_model",
                stage="import",
                node=name,
                op_type=node.op_type,
                actual=f"{type(error).__name__}: {error}",
            ) from error

    def _node(self, name: str, node: onnx.NodeProto) -> None:
        if not node.output or not node.output[0] or len({o for o in node.output if o}) < sum(map(bool, node.output)):
            raise ModelError(
                "a node needs a first output, and all its outputs need names of their own",
                code="invalid_model",
                stage="import",
                node=name,
                op_type=node.op_type,
                actual=", ".join(map(repr, node.output)) or "no outputs",
            )
        if node.domain not in _DEFAULT_DOMAINS:
            raise self._unsupported(node, name, f"domain {node.domain!r} is not known")
        call = self._call(node, name)
        if self._compile_time(node, call):
            self.folded.append(name)
            return
        if node.op_type == "Split":
            self._split(node, call)
            return
        kind = OP_KINDS.get(node.op_type)
        if kind is None:
            raise self._unsupported(node, name, "there is no definition of this op type in this version")
        extra = [output for output in node.output[1:] if output]
        used = [output for output in extra if self._is_used(output)]
        if used:
            raise self._unsupported(node, name, f"its output {used[0]!r} beside the first is used")
        self._append(kind.infer(call), call, node.output[0], name)

    def _append(self, inferred: Inferred, call: Call, output: str, name: str) -> None:
        self._bounded(inferred.shape, name, f"output {output!r}")
        if inferred.source is not None:
            source = call.tensor(inferred.source).name
            self.alias[output] = source
            if source in self.made_by:
                op = self.ops[self.made_by[source]]
                self.ops[self.made_by[source]] = _with_origin(op, name)
            else:
                self.folded.append(name)
            return
        tensor = Tensor(name=output, shape=inferred.shape, dtype=inferred.dtype, axes=inferred.axes)
        kept = tuple(call.inputs[i] if i < len(call.inputs) else None for i in inferred.inputs)
        folded = self._fold(inferred, call, kept, tensor)
        if folded is not None:
            self._constant(output, folded)
            self.folded.append(name)
            return
        if min(tensor.shape, default=1) < 1:
            raise ModelError(
                f"output {output!r} is empty",
                code="invalid_shape",
                stage="import",
                node=name,
                op_type=call.op_type,
                actual=tensor.shape,
                limit="extents of at least 1",
            )
        self.tensors[output] = tensor
        self.made_by[output] = len(self.ops)
        self.ops.append(
            Op(
                kind=inferred.kind,
                inputs=tuple("" if t is None else t.name for t in kept),
                output=output,
                origin=(name,),
                attributes=tuple(sorted(inferred.attributes.items())),
            )
        )

    def _fold(self, inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> Constant | None:
        """The output as a constant if all inputs are constants and folding stays small."""
        constants = [t.constant for t in kept if t is not None]
        if not constants or any(c is None for c in constants):
            return None
        first = constants[0]
        moves = inferred.kind in ("Reshape", "Transpose", "Expand", "Slice")
        if moves and first is not None and isinstance(first.data, Splat):
            return Constant(shape=output.shape, dtype=output.dtype, data=first.data)
        if output.elements <= FOLD_ELEMENTS and all(t is None or t.name in self.values for t in kept):
            arrays = tuple(None if t is None else self.values[t.name] for t in kept)
            resolved = Call(
                op_type=inferred.kind,
                node=call.node,
                attributes=inferred.attributes,
                inputs=kept,
                opset=call.opset,
                output=output,
            )
            result = OP_KINDS[inferred.kind].evaluate(resolved, arrays)
            return None if result is None else literal(np.asarray(result), output.dtype)
        if inferred.kind == "Reshape" and first is not None:
            return derive("reshape", (first,), output.shape)
        if inferred.kind == "Transpose" and first is not None:
            perm = inferred.attributes["perm"]
            return derive("transpose", (first,), output.shape, {"perm": _ints(perm)})
        return None

    def _compile_time(self, node: onnx.NodeProto, call: Call) -> bool:
        """Ops that only ever make constants: evaluated here (Constant, ConstantOfShape, Shape...)."""
        result: Constant | None = None
        match node.op_type:
            case "Constant":
                result = self._constant_node(node, call)
            case "ConstantOfShape":
                result = self._constant_of_shape(node, call)
            case "Shape" | "Size":
                shape = call.tensor(0).shape
                if node.op_type == "Shape":
                    begin, end, _ = slice(call.integer("start", 0), call.integer("end", len(shape))).indices(len(shape))
                    result = literal(np.array(shape[begin:end], dtype=np.int64), "int64")
                else:
                    result = literal(np.array(prod(shape), dtype=np.int64), "int64")
            case "Range":
                start, limit, step = (call.value(i, "bound").reshape(()) for i in range(3))
                count = max(0, int(np.ceil((float(limit) - float(start)) / float(step)))) if float(step) else 0
                if not 0 < count <= FOLD_ELEMENTS:
                    call.fail("the range's length is out of bounds", actual=count, limit=f"1 to {FOLD_ELEMENTS}")
                result = literal(
                    np.asarray(start.item() + np.arange(count) * step.item(), dtype=start.dtype),
                    dtype_name(start),
                )
            case "Gather":
                data, indices = call.value(0, "data"), call.value(1, "indices")
                axis = call.axis("axis", 0, data.ndim)
                if indices.size and (indices.min() < -data.shape[axis] or indices.max() >= data.shape[axis]):
                    call.fail("an index is out of range", actual=int(indices.max()), limit=data.shape[axis])
                if data.size // max(1, data.shape[axis]) * indices.size > FOLD_ELEMENTS:
                    call.fail(
                        "the gathered constant is too large",
                        code="unsupported_op",
                        actual=data.size // max(1, data.shape[axis]) * indices.size,
                        limit=FOLD_ELEMENTS,
                    )
                result = literal(np.take(data, indices.astype(np.int64), axis=axis), dtype_name(data))
        if result is None:
            return False
        self._constant(node.output[0], result)
        return True

    def _constant_node(self, node: onnx.NodeProto, call: Call) -> Constant:
        for attribute in node.attribute:
            if attribute.name == "value":
                return constant_of(attribute.t, span=None, node=call.node, what="attribute value")
            if attribute.name in ("value_float", "value_floats"):
                values: object = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                return literal(np.array(values, dtype=np.float32), "float32")
            if attribute.name in ("value_int", "value_ints"):
                values = attribute.i if attribute.name == "value_int" else list(attribute.ints)
                return literal(np.array(values, dtype=np.int64), "int64")
        call.fail("the constant has no value of a supported kind", code="unsupported_op")

    def _constant_of_shape(self, node: onnx.NodeProto, call: Call) -> Constant:
        shape = tuple(int(v) for v in np.asarray(call.value(0, "shape")).reshape(-1))
        if any(extent < 0 for extent in shape):
            call.fail("negative extent in the shape", code="invalid_shape", actual=shape)
        self._bounded(shape, call.node, f"output {node.output[0]!r}")
        value, dtype = b"\0\0\0\0", "float32"
        for attribute in node.attribute:
            if attribute.name == "value":
                one = constant_of(attribute.t, span=None, node=call.node, what="attribute value")
                if prod(one.shape) != 1 or not isinstance(one.data, Literal):
                    call.fail("the value must have one element", actual=one.shape)
                value, dtype = one.data.data, one.dtype
        return Constant(shape=shape, dtype=dtype, data=Splat(value=value))

    def _split(self, node: onnx.NodeProto, call: Call) -> None:
        """Split becomes one Slice per used output, all with the Split's name as origin."""
        data = call.tensor(0)
        axis = call.axis("axis", 0, len(data.shape))
        extent, outputs = data.shape[axis], list(node.output)
        sizes = call.integers("split")
        if sizes is None and call.has(1):
            sizes = tuple(int(v) for v in np.asarray(call.value(1, "split")).reshape(-1))
        if sizes is None:
            part = -(-extent // len(outputs))
            sizes = tuple(min(part, extent - i * part) for i in range(len(outputs)))
        if len(sizes) != len(outputs) or sum(sizes) != extent or any(size < 1 for size in sizes):
            call.fail("the parts do not add up to the axis", actual=sizes, limit=extent)
        if not any(output and self._is_used(output) for output in outputs):
            self.folded.append(call.node)
        begin = 0
        for output, size in zip(outputs, sizes, strict=True):
            if output and self._is_used(output):
                shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
                attributes: dict[str, Attribute] = {
                    "begin": tuple(begin if i == axis else 0 for i in range(len(shape))),
                    "step": (1,) * len(shape),
                }
                part_of = Inferred(
                    shape=shape,
                    dtype=data.dtype,
                    axes=data.axes,
                    kind="Slice",
                    inputs=(0,),
                    attributes=attributes,
                    source=0 if len(outputs) == 1 else None,
                )
                self._append(part_of, call, output, call.node)
            begin += size

    def _call(self, node: onnx.NodeProto, name: str) -> Call:
        inputs: list[Tensor | None] = []
        values: dict[int, Array] = {}
        for position, given in enumerate(node.input):
            if not given:
                inputs.append(None)
                continue
            resolved = self.alias.get(given, given)
            tensor = self.tensors.get(resolved)
            if tensor is None:
                raise ModelError(
                    f"input {given!r} is produced by no earlier node, initialiser or graph input",
                    code="missing_value",
                    stage="import",
                    node=name,
                    op_type=node.op_type,
                    actual=given,
                    hint="Nodes must stand in topological order",
                )
            inputs.append(tensor)
            if resolved in self.values:
                values[position] = self.values[resolved]
        for output in node.output:
            if output and (output in self.tensors or output in self.alias):
                raise ModelError(
                    f"value {output!r} is produced twice",
                    code="duplicate_value",
                    stage="import",
                    node=name,
                    op_type=node.op_type,
                    actual=output,
                )
        return Call(
            op_type=node.op_type,
            node=name,
            attributes=attributes_of(node, name),
            inputs=tuple(inputs),
            opset=self.model.opset,
            values=MappingProxyType(values),
        )

    def _constant(self, name: str, constant: Constant) -> None:
        self.tensors[name] = Tensor(
            name=name,
            shape=constant.shape,
            dtype=constant.dtype,
            axes=default_axes(len(constant.shape)),
            constant=constant,
        )
        if prod(constant.shape) <= FOLD_ELEMENTS:
            self.values[name] = materialise(constant, self.source)

    def _is_used(self, output: str) -> bool:
        return output in self.used

    def _bounded(self, shape: tuple[int, ...], node: str | None, what: str) -> None:
        if prod(shape) > MAX_ELEMENTS:
            raise LimitError(
                f"{what} has too many elements",
                code="tensor_too_large",
                stage="import",
                node=node,
                actual=f"{prod(shape)} elements in {shape}",
                limit=MAX_ELEMENTS,
            )

    def _unsupported(self, node: onnx.NodeProto, name: str, why: str) -> ModelError:
        return ModelError(
            f"op {node.op_type!r} is not supported: {why}",
            code="unsupported_op",
            stage="import",
            node=name,
            op_type=node.op_type,
            actual=node.op_type,
            hint=f"Supported: {', '.join(sorted(OP_KINDS))}",
        )

    def finish(self) -> Graph:
        """The graph, without ops that no output needs."""
        proto = self.model.proto.graph
        outputs = []
        for value in proto.output:
            name = self.alias.get(value.name, value.name)
            if name not in self.tensors:
                raise ModelError(
                    f"graph output {value.name!r} is produced by no node",
                    code="missing_value",
                    stage="import",
                    actual=value.name,
                )
            outputs.append(name)
        if not outputs:
            raise ModelError("the graph has no outputs", code="empty_graph", stage="import", actual=0, limit="1")
        needed = set(outputs)
        kept: list[Op] = []
        for op in reversed(self.ops):
            if op.output in needed:
                kept.append(op)
                needed.update(name for name in op.inputs if name)
            else:
                self.folded.extend(op.origin)
        kept.reverse()
        names = {name for op in kept for name in (*op.inputs, op.output) if name} | set(outputs)
        live_nodes = {node for op in kept for node in op.origin}
        order = {name: index for index, name in enumerate(self.names)}
        folded = {name for name in self.folded if name not in live_nodes}
        return Graph(
            name=proto.name or self.source.name,
            ops=tuple(kept),
            tensors=MappingProxyType({name: t for name, t in self.tensors.items() if name in names}),
            inputs=tuple(name for name in self.graph_inputs if name in names),
            outputs=tuple(dict.fromkeys(outputs)),
            output_names=tuple(value.name for value in proto.output),
            folded=tuple(sorted(folded, key=order.__getitem__)),
            opset=self.model.opset,
        )


def _with_origin(op: Op, name: str) -> Op:
    return Op(kind=op.kind, inputs=op.inputs, output=op.output, origin=(*op.origin, name), attributes=op.attributes)


def _ints(value: Attribute) -> tuple[int, ...]:
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()
