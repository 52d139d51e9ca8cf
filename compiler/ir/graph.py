"""The graph: ops in topological order, one output tensor each.

Grammar, on one page (every name is unique within its graph):

    graph   = inputs: tensor*  ops: op*  outputs: tensor name*
    op      = kind(inputs: tensor name | "" for an omitted one ...) -> output tensor name  {attributes}  origin
    tensor  = name: dtype[axis=extent ...]  constant?

A node on the host is one op of kind `Host` per used result, and one `HostNode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Final

from compiler.ir.constant import Constant
from compiler.ir.layout import DEFAULT_LAYOUT, Layout
from compiler.ir.pattern import Pattern
from compiler.ir.symbol import Expression, Tie
from compiler.units import element_bytes

# The kind of ops that run on the host.
HOST: Final = "Host"
# Largest number of tensor axes in accelerator commands (PROG-1); ops on more axes work on merged ones.
MAX_AXES: Final = 8
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


# The least and the largest extent of a dimension, both included.
Extents = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value of the graph: shape with named axes, element type, and its constant if it is one.

    `shape` is at the maxima of the dynamic dimensions. `symbols` lists the varying axes with their expressions in the
    model's symbols. A constant with varying extents holds, at smaller extents, its leading elements. `element_symbols`
    lists its varying elements (flat positions). `at_maxima` is True if its elements are known at the maxima only;
    `why_at_maxima` may say why.
    `is_known` is False for a value of the host whose shape or type is unknown before the run; its `shape` is then empty
    and meaningless.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    constant: Constant | None = None
    symbols: tuple[tuple[int, Expression], ...] = ()
    element_symbols: tuple[tuple[int, Expression], ...] = ()
    at_maxima: bool = False
    why_at_maxima: str = ""
    is_known: bool = True

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements, unpadded; a dequantised constant counts at its quantised size."""
        return prod(self.shape) * element_bytes(self.stored_dtype)

    @property
    def stored_dtype(self) -> str:
        """The element type in memory."""
        return self.dtype if self.constant is None else self.constant.stored_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation with a single output; `kind` names its definition in compiler.ops.

    `attributes` are at the maxima of the dynamic dimensions. `symbols` lists their varying elements as (name, position,
    expression); the position is 0 for a scalar attribute.
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    symbols: tuple[tuple[str, int, Expression], ...] = ()

    @property
    def node(self) -> str:
        """The ONNX node that gave the op its kind; plans and errors use this name."""
        return self.origin[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """An ONNX node on the host: the reason, and the serialised node, which reads and makes tensors of the graph.

    `name` is the ONNX node (several host nodes may come from one). `inputs` are all values read, including those
    captured by subgraphs; `outputs` are all results, "" for unnamed ones. `opsets` are the operator set versions of
    the node; `functions` the model-local functions it calls. `macs` is None if the work is unknown before the run.
    """

    name: str
    op_type: str
    domain: str
    reason: str
    node: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[bytes, ...] = ()
    macs: int | None = 0


def host_op(key: str, inputs: tuple[str, ...], output: str, origin: tuple[str, ...], *, result: int = 0) -> Op:
    """The op for result number `result` of the host node stored under `key`."""
    return Op(kind=HOST, inputs=inputs, output=output, origin=origin, attributes=(("node", key), ("result", result)))


def free_key(hosts: Mapping[str, HostNode], name: str) -> str:
    """The key for another host node in a graph with `hosts`: its name, numbered if already taken."""
    key, count = name, 0
    while key in hosts:
        count += 1
        key = f"{name}#{count}"
    return key


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The imported model.

    `outputs` are tensors, without repeats. `output_names` are the ONNX names in order, `output_tensors` the tensor of
    each name (names may share a tensor). `folded` are the names of ONNX nodes that were evaluated at compile time or
    that no output needs; they are in no segment. `host` maps the attribute `node` of `Host` ops to the nodes that the
    host runs. `patterns` are the recognised patterns. `layout` is the memory order of feature maps. `dims` are the
    dynamic dimensions with the maxima they were compiled for; what import decided holds between the extents of `reach`.
    `tied` are further dimensions of inputs, which ops force to be equal to expressions of those. `ties` are expressions
    that would have to be equal for the graph to be known below the maxima.
    `unread` are declared inputs that no op needs: they have no reader or no elements. `source` is the opened model file
    with the stored constants (from an archive: the model in it, with the files beside it).
    """

    name: str
    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...] = ()
    output_tensors: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    opset: int = field(default=0)
    host: Mapping[str, HostNode] = field(default_factory=lambda: MappingProxyType({}))
    patterns: tuple[Pattern, ...] = ()
    layout: Layout = DEFAULT_LAYOUT
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    reach: Mapping[str, Extents] = field(default_factory=lambda: MappingProxyType({}))
    tied: Mapping[str, Expression] = field(default_factory=lambda: MappingProxyType({}))
    ties: tuple[Tie, ...] = ()
    unread: tuple[Tensor, ...] = ()
    source: object | None = field(default=None, compare=False, repr=False)

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Maps each tensor name to the index of the op that makes it."""
        return MappingProxyType({op.output: index for index, op in enumerate(self.ops)})

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Maps each tensor name to the indices of the ops that read it, ascending, without repeats."""
        table: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            for name in dict.fromkeys(op.inputs):
                if name:
                    table.setdefault(name, []).append(index)
        return MappingProxyType({name: tuple(indices) for name, indices in table.items()})

    @cached_property
    def on_host(self) -> frozenset[int]:
        """Indices of the ops that the host runs."""
        return frozenset(index for index, op in enumerate(self.ops) if op.kind == HOST)

    @cached_property
    def chip_outputs(self) -> tuple[str, ...]:
        """Values that the chip returns: graph outputs that it makes or passes on, and results that the host reads."""
        if not self.on_host:
            return self.outputs
        mine = [n for n in self.outputs if self.producer.get(n, -1) not in self.on_host]
        read = [name for index in sorted(self.on_host) for name in self.ops[index].inputs if name]
        made = [name for name in read if name in self.producer and self.producer[name] not in self.on_host]
        return tuple(dict.fromkeys([*mine, *made]))

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
    if not tensor.is_known:
        return f"{tensor.name}: {tensor.dtype}[?]"
    varying = dict(tensor.symbols)
    extents = ",".join(
        f"{axis}={extent}" + (f" ({varying[index]})" if index in varying else "")
        for index, (axis, extent) in enumerate(zip(tensor.axes, tensor.shape, strict=True))
    )
    return f"{tensor.name}: {tensor.dtype}[{extents}]"


def leave_ops_to_host(graph: Graph, nodes: Mapping[int, HostNode]) -> Graph:
    """The graph with the ops at the indices in `nodes` replaced by host nodes that make the same results."""
    ops, hosts = list(graph.ops), dict(graph.host)
    for index, node in sorted(nodes.items()):
        key = free_key(hosts, node.name)
        hosts[key] = node
        ops[index] = host_op(key, node.inputs, graph.ops[index].output, graph.ops[index].origin)
    return replace(graph, ops=tuple(ops), host=MappingProxyType(hosts))
