"""Rewrites a model for one image into a model for several: option `batch` (TILE-6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compiler.errors import ModelError, RequestError, printable
from compiler.frontend.fold import bounded
from compiler.ir.box import AxisMap, same
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ir.symbol import Expression
from compiler.ops import call_of, definition

STAGE: Final = "rebatch"
_HINT: Final = "Leave out option batch, or export the model with this batch or with a dynamic one that option dims sets"
# Ops that cut or pad; an axis that they leave unchanged is not marked as identity in its map.
_CUTTING: Final = ("Slice", "Pad")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebatch:
    """Pass: a graph for one image becomes a graph for `batch` images that are computed side by side (TILE-6).

    The images are stacked along the leading axis of every value that depends on an input. For one image that axis has
    extent 1 on inputs and outputs; other values may have more (the rows of an image). An op must map the stacked images
    to the stack of its results per image. Conditions:
    1. For an operand that carries images, axis 0 follows axis 0 of the result exactly, and no other axis follows it.
    2. No operand that is the same for all images (a constant) lies along axis 0 of the result.
    3. The definition infers the stacked result from the stacked operands.
    Views keep the order of elements, so 3 suffices; their attributes take the new extent. In a Concat of images and
    constants, each constant is repeated.
    The graph stays unchanged if `batch` is None or all inputs already have this batch.
    """

    name: str = STAGE
    batch: int | None = None

    def run(self, graph: Graph) -> Graph:
        """The graph for the batch; raises RequestError `batch_not_possible` naming the obstacle."""
        if self.batch is None or all(graph.tensors[name].shape[:1] == (self.batch,) for name in graph.inputs):
            return graph
        for name in graph.inputs:
            _check_input(graph.tensors[name], self.batch)
        for host in graph.host.values():
            raise _refusal(host.name, host.op_type, "nodes on the host are not rewritten", host.reason)
        return _Rebatching(graph, self.batch).graph_for_batch()


def _check_input(tensor: Tensor, batch: int) -> None:
    """Raises RequestError unless the input's leading axis is one image."""
    shown = printable(tensor.name, 120)
    leading = dict(tensor.symbols).get(0)
    if leading is not None:
        raise RequestError(
            f"option batch needs a fixed batch, and the batch of input {shown!r} is dynamic",
            code="batch_not_possible",
            stage=STAGE,
            actual=printable(str(leading), 80),
            limit="1",
            hint=f"Leave out option batch and set the dimension: dims.{printable(str(leading), 40)}={batch}",
        )
    if tensor.shape[:1] != (1,):
        raise RequestError(
            f"option batch needs a leading axis of one image, which input {shown!r} lacks",
            code="batch_not_possible",
            stage=STAGE,
            actual=str(tensor.shape),
            limit="leading extent 1",
            hint=_HINT,
        )


def _refusal(node: str, op_type: str, what: str, actual: object) -> RequestError:
    return RequestError(
        f"the model cannot be rewritten for a batch: {what}",
        code="batch_not_possible",
        stage=STAGE,
        node=node,
        op_type=op_type,
        actual=actual,
        limit="ops that work on each image by itself, leading axis first",
        hint=_HINT,
    )


class _Rebatching:
    """The state of one walk over one graph; lives as long as the walk."""

    def __init__(self, graph: Graph, batch: int) -> None:
        self.graph = graph
        self.batch = batch
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        # the values that are stacks of images
        self.stacked: set[str] = set()
        self.repeated: dict[str, str] = {}

    def graph_for_batch(self) -> Graph:
        """The rewritten graph."""
        for name in self.graph.inputs:
            self._stack(name, None)
        for op in self.graph.ops:
            self._rewrite(op)
        return replace(self.graph, ops=tuple(self.ops), tensors=MappingProxyType(self.tensors))

    def _stack(self, name: str, node: str | None) -> None:
        tensor = self.tensors[name]
        shape = (self.batch * tensor.shape[0], *tensor.shape[1:])
        bounded(shape, node, f"value {printable(name, 120)!r} for {self.batch} images")
        symbols = tuple((axis, _times(e, self.batch) if axis == 0 else e) for axis, e in tensor.symbols)
        self.tensors[name] = replace(tensor, shape=shape, symbols=symbols)
        self.stacked.add(name)

    def _rewrite(self, op: Op) -> None:
        """Appends the op for the batch; an op that does not depend on images stays unchanged."""
        if self.stacked.isdisjoint(op.inputs):
            self.ops.append(op)
            return
        output = self.tensors[op.output]
        if not output.shape or (op.output in self.graph.outputs and output.shape[0] != 1):
            raise _refusal(op.node, op.kind, "the image axis is not the leading axis of the result", output.shape)
        made = self._resized(self._with_repeated(op))
        self._stack(op.output, op.node)
        stacked = replace(self.graph, tensors=self.tensors)
        # a view keeps the order of the elements, and so the order of the images
        if op.kind != "Reshape":
            self._check_access(stacked, made)
        self._check_type(stacked, op, made)
        self.ops.append(made)

    def _resized(self, op: Op) -> Op:
        """The op with the batch in attributes that hold a whole shape."""
        if op.kind != "Reshape":
            return op
        shape = (self.batch * self.tensors[op.output].shape[0], *self.tensors[op.output].shape[1:])
        return replace(op, attributes=tuple((key, shape if key == "shape" else v) for key, v in op.attributes))

    def _with_repeated(self, op: Op) -> Op:
        """A Concat with its image-independent inputs repeated per image; other ops broadcast by themselves."""
        if op.kind != "Concat" or self.tensors[op.output].shape[0] != 1:
            return op
        return replace(op, inputs=tuple(n if n in self.stacked else self._repeat(op, n) for n in op.inputs))

    def _repeat(self, op: Op, name: str) -> str:
        if name not in self.repeated:
            made = f"{name}/repeated"
            while made in self.tensors:
                made += "'"
            self.repeated[name] = made
            self.tensors[made] = replace(self.tensors[name], name=made, constant=None)
            self._stack(made, op.node)
            self.ops.append(Op(kind="Expand", inputs=(name,), output=made, origin=op.origin))
        return self.repeated[name]

    def _check_access(self, graph: Graph, op: Op) -> None:
        """Raises RequestError if an operand's boxes mix images."""
        maps = definition(op).access(call_of(graph, op))
        for name, access in zip(op.inputs, maps, strict=True):
            if not name or access is None:
                continue
            shown, shape = printable(name, 120), graph.tensors[name].shape
            if name not in self.stacked:
                if any(entry.axis == 0 and entry.scale for entry in access):
                    what = f"input {shown!r}, which all images share, lies along the image axis"
                    raise _refusal(op.node, op.kind, what, shape)
                continue
            if shape[0] != graph.tensors[op.output].shape[0] or not _follows_images(op, access[0]):
                what = f"its result does not follow input {shown!r} image by image"
                raise _refusal(op.node, op.kind, what, _text(access[0]))
            if any(entry.axis == 0 and entry.scale for entry in access[1:]):
                what = f"another axis of input {shown!r} lies along the image axis"
                raise _refusal(op.node, op.kind, what, shape)

    def _check_type(self, graph: Graph, before: Op, after: Op) -> None:
        """Raises RequestError if the definition infers another result from the stacked inputs.

        A few kinds do not keep what they were inferred from (a Slice keeps no ends); for them the box check suffices.
        """
        if _inferred(self.graph, before) != self.graph.tensors[before.output].shape:
            return
        found = _inferred(graph, after)
        if found != graph.tensors[after.output].shape:
            shapes = " and ".join(str(graph.tensors[name].shape) for name in after.inputs if name)
            raise _refusal(after.node, after.kind, "its stacked inputs give a result of another shape", shapes)


def _times(expression: Expression, factor: int) -> Expression:
    terms = tuple((atom, count * factor) for atom, count in expression.terms)
    return Expression(terms=terms, constant=expression.constant * factor)


def _inferred(graph: Graph, op: Op) -> tuple[int, ...] | None:
    """The shape that the op's definition infers from its inputs; None if inputs and attributes do not determine it."""
    try:
        return definition(op).infer(call_of(graph, op)).shape
    except ModelError:
        return None


def _follows_images(op: Op, entry: AxisMap) -> bool:
    """True if image i of the result depends on image i of the operand only."""
    return entry == same(0) or (op.kind in _CUTTING and entry == AxisMap(axis=0))


def _text(entry: AxisMap) -> str:
    if entry.axis is None:
        return "a part of the result needs all images"
    if entry.axis != 0:
        return f"the images lie along axis {entry.axis} of the result"
    return "an image of the result depends on other images"
