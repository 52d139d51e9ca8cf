"""Builds nodes one by one, each in the form of the model's operator set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.ir.symbol import Dim
from compiler.ops.base import NATIVE_DTYPES, Array, Call, Refusal, unknown_constant, wrong_dtype
from compiler.units import numpy_dtype

Fresh = Callable[[str], str]
# From this opset on axes of Unsqueeze and ReduceSum are an input instead of an attribute.
_AXES_AS_INPUT: Final = 13
# ... and positions of Slice are inputs from this one on.
_STARTS_AS_INPUT: Final = 10
# ... and extents of Split's results.
_EXTENTS_AS_INPUT: Final = 13
# ... and axes of the other reductions.
_MEAN_AXES_AS_INPUT: Final = 18
# Nodes of a loop that is written out, all trips together. An LSTM of 96 steps, 128 wide (2,016 nodes), is compiled in
# 45 s of the processor for `edge4` and in 80 s for `cluster4x4`; 200 steps take twice that and 1.2 GiB.
MAX_UNROLLED: Final = 2048


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition for replacing a node; `check` returns None if it holds, else the offending value."""

    text: str
    check: Callable[[onnx.NodeProto, Call], object | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """The decomposition of one op, with its limits, which are enforced and printed in the documentation.

    `dtypes` restricts the element types of single inputs; others may have any native type. `constant_inputs` are those
    whose values must be known at compile time. `replace` appends the nodes; it raises ModelError for an illegal call.
    """

    op_type: str
    replace: Callable[[onnx.NodeProto, Call, NodeList], None]
    dtypes: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    constant_inputs: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    limits: tuple[Limit, ...] = ()

    def unsupported(self, node: onnx.NodeProto, call: Call) -> Refusal | None:
        """The first limit that the node breaks, None if it can be replaced."""
        folds = all(tensor is None or tensor.constant is not None for tensor in call.inputs)
        for index, tensor in enumerate(call.inputs):
            allowed = self.dtypes.get(index, NATIVE_DTYPES)
            if tensor is None or (folds and index not in self.dtypes):
                continue  # evaluation at compile time accepts any type
            if tensor.dtype not in allowed:
                return wrong_dtype(index, tensor, allowed)
        unknown = unknown_constant(call, self.constant_inputs)
        if unknown is not None:
            return unknown
        for limit in self.limits:
            actual = limit.check(node, call)
            if actual is not None:
                return Refusal(reason=limit.text, actual=actual)
        return None

    @property
    def constraints(self) -> tuple[str, ...]:
        """The texts of all limits except the constant inputs."""
        types = (f"input {index} is of {' or '.join(dtypes)}" for index, dtypes in self.dtypes.items())
        return (*types, *(limit.text for limit in self.limits))


class NodeList:
    """Nodes under construction; methods return the name of the value that they make.

    `shapes` maps the names of constant shapes to their extents, which may vary. `constant_bytes`: of constants.
    """

    def __init__(self, *, call: Call, fresh: Fresh) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.constant_bytes = 0
        self.opset = call.opset
        self.fresh = fresh
        self.stem = call.node

    def add(self, op_type: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Adds a node with one output, `out` or a new name."""
        output = out or self.fresh(f"{self.stem}/{op_type}")
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], **attributes))
        return output

    def constant(self, array: Array) -> str:
        """Adds a constant; what all of a model take is bounded (`constant_bytes`)."""
        self.constant_bytes += array.nbytes
        return self.add("Constant", value=numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)))

    def positions(self, extent: int, value: str, axis: int) -> str:
        """The positions 0, 1, ... along an axis of `value` with this extent."""
        if not isinstance(extent, Dim):
            return self.constant(np.arange(extent, dtype=np.int64))
        zero, one = (self.number(number, "int64") for number in (0, 1))
        return self.add("Range", zero, self.extent(value, axis), one)

    def extent(self, value: str, axis: int) -> str:
        """The extent of an axis of `value`, as a scalar."""
        return self.add("Gather", self.add("Shape", value), self.number(axis, "int64"), axis=0)

    def number(self, value: float, dtype: str) -> str:
        """A constant scalar."""
        return self.constant(np.array(value, dtype=numpy_dtype(dtype)))

    def integers(self, values: Sequence[int]) -> str:
        """A constant list of int64."""
        return self.constant(np.array([int(value) for value in values], dtype=np.int64))

    def reshape(self, value: str, shape: Sequence[int], *, out: str | None = None) -> str:
        """The value in another shape; 0 copies an extent, −1 is inferred."""
        varies = any(isinstance(extent, Dim) for extent in shape)
        return self.add("Reshape", value, self.shape(shape) if varies else self.integers(shape), out=out)

    def shape(self, extents: Sequence[int]) -> str:
        """A constant list of extents, which may vary."""
        name = self.fresh(f"{self.stem}/shape")
        self.shapes[name] = tuple(extents)
        return name

    def transpose(self, value: str, permutation: Sequence[int], *, out: str | None = None) -> str:
        """The value with its axes permuted."""
        return self.add("Transpose", value, perm=list(permutation), out=out)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """The value with axes of extent 1 inserted."""
        if self.opset < _AXES_AS_INPUT:
            return self.add("Unsqueeze", value, axes=list(axes))
        return self.add("Unsqueeze", value, self.integers(axes))

    def reduce_sum(self, value: str, *axes: int) -> str:
        """The sum over axes, which are removed."""
        if self.opset < _AXES_AS_INPUT:
            return self.add("ReduceSum", value, axes=list(axes), keepdims=0)
        return self.add("ReduceSum", value, self.integers(axes), keepdims=0)

    def reduce_mean(self, value: str, *axes: int) -> str:
        """The mean over axes, which remain with extent 1."""
        return self.reduce("ReduceMean", value, *axes)

    def reduce(self, op_type: str, value: str, *axes: int) -> str:
        """A reduction other than the sum over axes, which remain with extent 1."""
        if self.opset < _MEAN_AXES_AS_INPUT:
            return self.add(op_type, value, axes=list(axes), keepdims=1)
        return self.add(op_type, value, self.integers(axes), keepdims=1)

    def slice(self, value: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Positions [start, end) of one axis, every `step`th (operator sets from 10 on, before them every one)."""
        if self.opset < _STARTS_AS_INPUT:
            return self.add("Slice", value, axes=[axis], starts=[start], ends=[end])
        parts = [self.integers([part]) for part in (start, end, axis, step)]
        return self.add("Slice", value, *parts)

    def split(self, value: str, axis: int, extents: Sequence[int]) -> list[str]:
        """The value cut along an axis into parts of these extents."""
        parts = [self.fresh(f"{self.stem}/Split") for _ in extents]
        if self.opset < _EXTENTS_AS_INPUT:
            self.nodes.append(helper.make_node("Split", [value], parts, axis=axis, split=list(extents)))
        else:
            self.nodes.append(helper.make_node("Split", [value, self.integers(extents)], parts, axis=axis))
        return parts

    def cast(self, value: str, dtype: str, *, out: str | None = None) -> str:
        """The value in another element type."""
        return self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)), out=out)
