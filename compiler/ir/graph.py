"""The graph: ops in topological order, one output tensor each.

Grammar, on one page (every name is unique within its graph):

    graph   = inputs: tensor*  ops: op*  outputs: tensor name*
    op      = kind(inputs: tensor name | "" for an omitted one ...) -> output tensor name  {attributes}  origin
    tensor  = name: dtype[axis=extent ...]  constant?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType

from compiler.ir.constant import Constant
from compiler.units import element_bytes

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value of the graph: shape with named axes, element type, and its constant if it is one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    constant: Constant | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements, unpadded."""
        return prod(self.shape) * element_bytes(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation with a single output; `kind` names its definition in compiler.ops."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()

    @property
    def node(self) -> str:
        """The ONNX node that gave the op its kind: the name used for it in plans and errors."""
        return self.origin[0]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The imported model.

    `outputs` are tensors, each once; `output_names` are the ONNX names in their order (several may be one tensor).
    `folded` are the names of ONNX nodes evaluated at compile time or needed by no output: they are in no segment.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    opset: int = field(default=0)

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Tensor name -> index of the op that makes it."""
        return MappingProxyType({op.output: index for index, op in enumerate(self.ops)})

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Tensor name -> indices of the ops that read it, ascending, each once."""
        table: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            for name in dict.fromkeys(op.inputs):
                if name:
                    table.setdefault(name, []).append(index)
        return MappingProxyType({name: tuple(indices) for name, indices in table.items()})

    def activations(self, op: Op) -> Iterable[Tensor]:
        """The op's inputs that are not constants."""
        for name in op.inputs:
            if name and self.tensors[name].constant is None:
                yield self.tensors[name]

    def weights(self, op: Op) -> Iterable[Tensor]:
        """The op's inputs that are constants."""
        for name in op.inputs:
            if name and self.tensors[name].constant is not None:
                yield self.tensors[name]

    def text(self) -> str:
        """The graph in its text form, one op per line."""
        lines = [f"graph {self.name}({', '.join(_type(self.tensors[name]) for name in self.inputs)})"]
        for op in self.ops:
            attributes = "".join(f" {key}={value}" for key, value in op.attributes)
            lines.append(
                f"  {_type(self.tensors[op.output])} = {op.kind}({', '.join(op.inputs)}){attributes}"
                f"  from {', '.join(op.origin)}"
            )
        lines.append(f"  return {', '.join(self.outputs)}")
        return "\n".join(lines) + "\n"


def _type(tensor: Tensor) -> str:
    extents = ",".join(f"{axis}={extent}" for axis, extent in zip(tensor.axes, tensor.shape, strict=True))
    return f"{tensor.name}: {tensor.dtype}[{extents}]"
