"""Extents at which a graph means nothing: a tensor without a shape, a view of another number of elements (SHAPE-9).

Import decides at the maxima. Most of what could go wrong below them cannot, whatever the extents are: that is found
once. What is left is asked of every shape, in microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler.errors import RequestError, printable
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ir.symbol import Compound, Expression, Limits, interval_of

# Elements of one tensor, as import bounds them.
MAX_ELEMENTS: Final = 2**40
_HINT: Final = "Use other extents, or narrow the ranges of the dynamic dimensions (option dims: min, max, step)"
Extents = tuple[int | Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What of a graph some extents within the ranges may make impossible: tensors, and views as (op, source, result).

    Tensors of equal form are one.
    """

    tensors: tuple[Tensor, ...]
    views: tuple[tuple[Op, Tensor, Tensor], ...]

    @classmethod
    def of(cls, graph: Graph, limits: Limits) -> Doubts:
        """`limits`: the least and the largest value of each dimension."""
        tensors = {_extents(tensor): tensor for tensor in graph.tensors.values() if tensor.symbols}
        views: dict[tuple[Extents, Extents], tuple[Op, Tensor, Tensor]] = {}
        for op in graph.ops:
            if op.kind == "Reshape":
                source, result = graph.tensors[op.inputs[0]], graph.tensors[op.output]
                if _factors(_extents(source)) != _factors(_extents(result)):
                    views.setdefault((_extents(source), _extents(result)), (op, source, result))
        doubtful = (tensor for extents, tensor in tensors.items() if not _is_always_one(extents, limits))
        return cls(tensors=tuple(doubtful), views=tuple(views.values()))

    def check(self, dims: Mapping[str, int]) -> None:
        """Raise RequestError naming tensor or node where these dimensions leave nothing that could be run."""
        for tensor in self.tensors:
            checked_shape(tensor, dims)
        for op, source, result in self.views:
            check_view(op, shape_at(source, dims), shape_at(result, dims), dims)


def shape_at(tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
    """A tensor's shape at given dimensions."""
    varying = {axis: expression.value(dims) for axis, expression in tensor.symbols}
    return tuple(varying.get(axis, extent) for axis, extent in enumerate(tensor.shape))


def checked_shape(tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
    """A tensor's shape at given dimensions; raises RequestError where an extent that varies is none."""
    try:
        shape = shape_at(tensor, dims)
    except ZeroDivisionError:  # what it is divided by is an extent that is none either
        shape = (0,) * len(tensor.shape)
    if any(shape[axis] < 1 for axis, _ in tensor.symbols) or prod(shape) > MAX_ELEMENTS:
        raise RequestError(
            f"tensor {printable(tensor.name, 120)!r} cannot be of the shape that these dimensions give it",
            code="illegal_extents",
            stage="shapes",
            actual=f"{'x'.join(map(str, shape))} at {_text(dims)}",
            limit=f"extents of at least 1, {MAX_ELEMENTS} elements",
            hint=_HINT,
        )
    return shape


def check_view(op: Op, source: Sequence[int], result: Sequence[int], dims: Mapping[str, int]) -> None:
    """Views hold as many elements as what they are views of; raises RequestError, for not every model's do."""
    if prod(source) != prod(result):
        raise RequestError(
            "the model cannot be run at these dimensions: a new shape holds another number of elements",
            code="illegal_extents",
            stage="shapes",
            node=op.node,
            op_type=op.kind,
            actual=f"{tuple(result)} of {tuple(source)} at {_text(dims)}",
            limit="equal numbers",
            hint=_HINT,
        )


def _extents(tensor: Tensor) -> Extents:
    varying = dict(tensor.symbols)
    return tuple(varying.get(axis, extent) for axis, extent in enumerate(tensor.shape))


def _is_always_one(extents: Extents, limits: Limits) -> bool:
    """Whether extents are a shape whatever the dimensions are, as far as intervals tell."""
    ends = [interval_of(one, limits) if isinstance(one, Expression) else (1, one) for one in extents]
    return all(low >= 1 for low, _ in ends) and prod(high for _, high in ends) <= MAX_ELEMENTS


def _factors(extents: Extents) -> tuple[int, Counter[str | Compound | Expression]]:
    """A product of extents as its constant factor and its other factors: equal ones are equal at all dimensions."""
    constant = 1
    others: Counter[str | Compound | Expression] = Counter()
    todo = list(extents)
    while todo:
        one = todo.pop()
        if isinstance(one, int):
            constant *= one
        elif one.constant or len(one.terms) != 1:
            others[one] += 1
        else:
            (atom, factor), *_ = one.terms
            constant *= factor
            if isinstance(atom, Compound) and atom.operator == "*":
                todo += [atom.left, atom.right]
            else:
                others[atom] += 1
    return constant, others


def _text(dims: Mapping[str, int]) -> str:
    return printable(", ".join(f"{name} = {extent}" for name, extent in sorted(dims.items())), 160)
