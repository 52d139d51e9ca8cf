"""The graph: ops in topological order, one output tensor each.

Grammar, on one page (every name is unique within its graph):

    graph   = inputs: tensor*  ops: op*  outputs: tensor name*
    op      = kind(inputs: tensor name | "" for an omitted one ...) -> output tensor name  {attributes}  origin
    tensor  = name: dtype[axis=extent ...]  constant?

A node that stays on the host is one op of kind `Host` per result that is used, and one `HostNode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Final

from compiler.ir.constant import Constant
from compiler.ir.pattern import Pattern
from compiler.ir.symbol import Expression
from compiler.units import element_bytes

# The kind of ops that the accelerator does not run.
HOST: Final = "Host"
# Axes of a tensor that the accelerator's commands can name (PROG-1); ops on more work on merged axes.
MAX_AXES: Final = 8
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value of the graph: shape with named axes, element type, and its constant if it is one.

    `shape` is at the maxima of the dynamic dimensions; `symbols` gives the axes that vary, as expressions in the
    model's symbols. A constant whose extents vary holds its leading elements at smaller ones; `element_symbols` are
    those of its elements (flat positions) that vary themselves. `at_maxima`: what it is at other extents than the
    maxima, nobody knows. `is_known` is False for a value of the host whose shape (or type) nobody knows before it runs;
    its `shape` is then empty and means nothing.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    constant: Constant | None = None
    symbols: tuple[tuple[int, Expression], ...] = ()
    element_symbols: tuple[tuple[int, Expression], ...] = ()
    at_maxima: bool = False
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
        """The element type that the tensor has in memory."""
        return self.dtype if self.constant is None else self.constant.stored_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation with a single output; `kind` names its definition in compiler.ops.

    `attributes` are at the maxima of the dynamic dimensions; `symbols` are those elements of them that vary (name,
    position, expression; position 0 of what is no list).
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    symbols: tuple[tuple[str, int, Expression], ...] = ()

    @property
    def node(self) -> str:
        """The ONNX node that gave the op its kind: the name used for it in plans and errors."""
        return self.origin[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """An ONNX node that the host runs: why, and the node itself (serialised, reading and making tensors of the graph).

    `name` is the ONNX node (several host nodes may come from one). `inputs` are all it reads, what its subgraphs
    capture included; `outputs` all it makes, "" for unnamed ones. `opsets` are the operator set versions it was
    written for; `functions` the model-local functions it calls. `macs` is None where the work cannot be told before
    the run.
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
    """The op for one result, by position, of the host node that the graph keeps as `key`."""
    return Op(kind=HOST, inputs=inputs, output=output, origin=origin, attributes=(("node", key), ("result", result)))


def free_key(hosts: Mapping[str, HostNode], name: str) -> str:
    """The name under which a graph with these host nodes keeps another one: its own, numbered where that is taken."""
    key, count = name, 0
    while key in hosts:
        count += 1
        key = f"{name}#{count}"
    return key


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The imported model.

    `outputs` are tensors, each once; `output_names` are the ONNX names in their order and `output_tensors` the tensor
    of each (several may be one).
    `folded` are the names of ONNX nodes evaluated at compile time or needed by no output: they are in no segment.
    `host` are the nodes that the host runs, by the name that attribute `node` of a `Host` op gives. `patterns` were
    recognised. `dims` are the dynamic dimensions with the maxima they were compiled for. `unread` are inputs that the
    model declares and no op needs: nothing reads them, or they are empty. `source` is the opened file
    that stored constants lie in (of an archive: the model in it, with the files beside it).
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
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unread: tuple[Tensor, ...] = ()
    source: object | None = field(default=None, compare=False, repr=False)

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

    @cached_property
    def on_host(self) -> frozenset[int]:
        """Indices of the ops that the host runs."""
        return frozenset(index for index, op in enumerate(self.ops) if op.kind == HOST)

    @cached_property
    def chip_outputs(self) -> tuple[str, ...]:
        """What the chip has to hand out: graph outputs that it makes or passes on, and what the host reads of it."""
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
    """The graph with some ops, by index, replaced by the host node that makes the result of each."""
    ops, hosts = list(graph.ops), dict(graph.host)
    for index, node in sorted(nodes.items()):
        key = free_key(hosts, node.name)
        hosts[key] = node
        ops[index] = host_op(key, node.inputs, graph.ops[index].output, graph.ops[index].origin)
    return replace(graph, ops=tuple(ops), host=MappingProxyType(hosts))
