"""What passes that replace ops add to a graph: tensors under names of their own, and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType

import numpy as np

from compiler.frontend.constant_values import derive, literal
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ir.symbol import Expression
from compiler.ops.base import default_axes

# Axes that are seen as one, for each axis of a view.
Groups = tuple[tuple[int, ...], ...]


class Made:
    """The tensors of a graph and those that a pass adds to them."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        # views of constants, by the constant and the shape it is seen in
        self._views: dict[tuple[str, tuple[int, ...]], str] = {}

    def add(self, tensor: Tensor) -> str:
        """The name under which a tensor is in the graph now: its own, or one like it."""
        name = tensor.name
        while name in self.tensors:
            name += "'"
        self.tensors[name] = replace(tensor, name=name)
        return name

    def accept(self, tried: Made) -> None:
        """Take over what was added to these tensors on trial."""
        self.tensors, self._views = tried.tensors, tried._views

    def graph(self, graph: Graph, ops: list[Op]) -> Graph:
        """The graph with these ops in place of its own; itself where none was replaced by several."""
        if len(ops) == len(graph.ops):
            return graph
        return replace(graph, ops=tuple(ops), tensors=MappingProxyType(self.tensors))

    def view(self, ops: list[Op], op: Op, data: str, view: Tensor) -> str:
        """The name of a tensor seen in another's shape; a constant stays one, else `op` gets a Reshape in front."""
        constant = self.tensors[data].constant
        if constant is not None:
            key = (data, view.shape)
            if key not in self._views:
                self._views[key] = self.add(replace(view, constant=derive("Reshape", (constant,), view.shape)))
            return self._views[key]
        made = self.add(replace(view, constant=None))
        ops.append(reshape(op, data, self.tensors[made]))
        return made

    def along(self, ops: list[Op], op: Op, data: str, axis: int, begin: int, end: int) -> str:
        """The name of the positions `begin` to `end` of a tensor along an axis that does not vary."""
        whole = self.tensors[data]
        rank, shape = len(whole.shape), (*whole.shape[:axis], end - begin, *whole.shape[axis + 1 :])
        name = self.add(replace(whole, name=f"{data}/from{begin}", shape=shape, constant=None))
        begins = tuple(begin if own == axis else 0 for own in range(rank))
        attributes = (("begin", begins), ("step", (1,) * rank))
        ops.append(Op(kind="Slice", inputs=(data,), output=name, origin=op.origin, attributes=attributes))
        return name

    def scaled(self, ops: list[Op], op: Op, data: str, axis: int, factors: tuple[float, ...]) -> str:
        """The name of a tensor of floats times a factor for each position along an axis."""
        whole = self.tensors[data]
        shape = (len(factors), *(1,) * (len(whole.shape) - axis - 1))
        constant = literal(np.asarray(factors).reshape(shape), whole.dtype)
        tensor = Tensor(
            name=f"{data}/factors", shape=shape, dtype=whole.dtype, axes=default_axes(len(shape)), constant=constant
        )
        name = self.add(replace(whole, name=f"{data}/scaled"))
        ops.append(Op(kind="Mul", inputs=(data, self.add(tensor)), output=name, origin=op.origin))
        return name


def reshape(op: Op, data: str, result: Tensor) -> Op:
    """The Reshape that makes a tensor of the graph, as a part of `op`."""
    return Op(
        kind="Reshape",
        inputs=(data,),
        output=result.name,
        origin=op.origin,
        attributes=(("shape", result.shape),),
        symbols=tuple(("shape", axis, expression) for axis, expression in result.symbols),
    )


def opened(tensor: Tensor, axis: int, extents: tuple[int, int]) -> Tensor:
    """A tensor as it is seen with one axis, which does not vary, as two."""
    shape = (*tensor.shape[:axis], *extents, *tensor.shape[axis + 1 :])
    symbols = tuple((own + (own > axis), expression) for own, expression in tensor.symbols)
    return _seen(tensor, shape, symbols)


def regrouped(tensor: Tensor, rank: int, groups: Groups) -> Tensor:
    """A tensor as it is seen with an axis for each group of axes, of which one varies at most.

    Groups count the axes of what the tensor is broadcast to, `rank` of them; an empty one is an axis of extent 1.
    """
    missing, varying = rank - len(tensor.shape), dict(tensor.symbols)
    shape: list[int] = []
    symbols: list[tuple[int, Expression]] = []
    for group in groups:
        own = [axis - missing for axis in group if axis >= missing]
        extent = prod(tensor.shape[axis] for axis in own)
        symbols += [(len(shape), _times(varying[a], extent // tensor.shape[a])) for a in own if a in varying]
        shape.append(extent)
    return _seen(tensor, tuple(shape), tuple(symbols))


def _seen(tensor: Tensor, shape: tuple[int, ...], symbols: tuple[tuple[int, Expression], ...]) -> Tensor:
    name = f"{tensor.name}/seen"
    return replace(tensor, name=name, shape=shape, axes=default_axes(len(shape)), symbols=symbols, constant=None)


def _times(expression: Expression, factor: int) -> Expression:
    terms = tuple((atom, factor * own) for atom, own in expression.terms)
    return Expression(terms=terms, constant=factor * expression.constant)
