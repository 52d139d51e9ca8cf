"""Whether a graph says of smaller extents what its model is there (SHAPE-9).

What ops and constants are below the maxima is deduced while the model is imported. Importing it again at other extents
tells whether that was right: at the ends of the ranges and at some extents in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.frontend.source import ModelSource, opened
from compiler.frontend.values import materialise
from compiler.ir.constant import Constant
from compiler.ir.graph import HOST, Graph, Op
from compiler.ops import call_of, definition
from compiler.options import Options
from compiler.shapes.extents import Range
from compiler.shapes.instance import Values, graph_at, refuse_what_is_at_maxima
from compiler.shapes.make_units import ranges_of

# Imports of models with more ops take too long to be repeated often.
_MANY_OPS: Final = 2000
_FEW, _SOME = 3, 9
# What floats may differ by that were computed by other definitions of the same function.
_ROUNDING: Final = 1e-5
# Kinds that hand their first input on, where it has the shape of their result.
_PASSING: Final = ("Reshape", "Expand", "Slice", "Tile")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckExtents:
    """Pass: the graph at some extents against the model imported there; hands it on as it is."""

    name: str = "check extents"
    source: ModelSource
    options: Options
    import_at: Callable[[Mapping[str, int]], Graph]

    def run(self, graph: Graph) -> Graph:
        """Raises ModelError for a graph that says something else, or for extents at which the model is none."""

        refuse_what_is_at_maxima(graph)

        def values(constant: Constant) -> NDArray[Any]:
            return materialise(constant, opened(graph.source, self.source))

        for dims in tried_dims(ranges_of(graph, self.options), _FEW if len(graph.ops) > _MANY_OPS else _SOME):
            at = printable(", ".join(f"{name} = {extent}" for name, extent in sorted(dims.items())), 160)
            try:
                there = self.import_at(dims)
            except (ModelError, LimitError) as error:
                raise ModelError(
                    f"the model is none at {at}: {error.message}",
                    code="illegal_extents",
                    stage=self.name,
                    node=error.node,
                    op_type=error.op_type,
                    actual=error.actual,
                    limit=error.limit,
                    hint="Narrow the ranges of the dynamic dimensions (min, max, step)",
                ) from error
            found = difference(graph_at(graph, dims, values), there, values)
            if found is not None:
                raise ModelError(
                    f"{printable(found, 120)} depends on dynamic dimensions in a way known at their maxima only",
                    code="known_at_maxima_only",
                    stage=self.name,
                    actual=at,
                    limit="positions, sums and products of dimensions",
                    hint="Give the dimension a fixed extent",
                )
        return graph


def tried_dims(ranges: Mapping[str, Range], count: int) -> list[dict[str, int]]:
    """The lower ends, each dimension alone at its lower end and one step above, then some drawn; no maxima alone."""
    lower = {name: one.low for name, one in ranges.items()}
    upper = {name: one.high for name, one in ranges.items()}
    found = [lower, {name: min(one.low + one.step, one.high) for name, one in ranges.items()}]
    found += [{**upper, name: one.low} for name, one in ranges.items()]
    random = np.random.default_rng(0)
    for _ in range(count):
        steps = {name: int(random.integers(0, (one.high - one.low) // one.step + 1)) for name, one in ranges.items()}
        found.append({name: one.low + steps[name] * one.step for name, one in ranges.items()})
    distinct = {tuple(sorted(dims.items())): dims for dims in found if dims != upper}
    return list(distinct.values())[:count]


def difference(graph: Graph, other: Graph, values: Values) -> str | None:
    """The first tensor on the way from the outputs that two graphs make differently; None if they are alike.

    Ops that hand on their input unchanged do not count: import leaves them out where it sees that they do.
    """
    todo = list(zip(graph.output_tensors, other.output_tensors, strict=True))
    seen = set(todo)
    while todo:
        mine, its = todo.pop()
        a, b = _source(graph, mine), _source(other, its)
        if graph.tensors[a].is_known and graph.tensors[a].shape != other.tensors[b].shape:
            return mine
        first, second = _maker(graph, a), _maker(other, b)
        if isinstance(first, Op) and isinstance(second, Op):
            if not _is_alike(first, second) or len(first.inputs) != len(second.inputs):
                return mine
            for pair in zip(first.inputs, second.inputs, strict=True):
                if (not pair[0]) != (not pair[1]):
                    return mine
                if pair[0] and pair not in seen:
                    seen.add(pair)
                    todo.append(pair)
        elif isinstance(first, str) or isinstance(second, str):
            if first != second:
                return mine
        elif first != second:
            # what one import computes with constants the other may leave to the chip
            ours, theirs = _elements(graph, a, values), _elements(other, b, values)
            if ours is None or theirs is None or not _are_equal(ours, theirs):
                return mine
    return None


def _elements(graph: Graph, name: str, values: Values) -> NDArray[Any] | None:
    """A tensor's elements, if it is a constant or computed from constants; None if it is not, or is large."""
    constant = graph.tensors[name].constant
    if constant is not None:
        return values(constant)
    if name not in graph.producer or graph.tensors[name].elements > FOLD_ELEMENTS:
        return None
    op = graph.ops[graph.producer[name]]
    if op.kind == HOST:
        return None
    inputs = [_elements(graph, one, values) if one else None for one in op.inputs]
    if any(one and found is None for one, found in zip(op.inputs, inputs, strict=True)):
        return None
    return definition(op).evaluate(call_of(graph, op), tuple(inputs))


def _are_equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays are the same numbers; floats may have been computed in another order."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "fV":
        return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    return np.array_equal(a, b)


def _maker(graph: Graph, name: str) -> Op | Constant | str:
    """What makes a tensor: an op, a constant, or the input of that name."""
    constant = graph.tensors[name].constant
    if constant is not None:
        return constant
    return graph.ops[graph.producer[name]] if name in graph.producer else name


def _source(graph: Graph, name: str) -> str:
    """The tensor that a chain of ops hands on unchanged."""
    while name in graph.producer and graph.tensors[name].constant is None:
        op = graph.ops[graph.producer[name]]
        if op.kind not in _PASSING or graph.tensors[op.inputs[0]].shape != graph.tensors[name].shape:
            break
        if op.kind == "Slice" and any(step != 1 for step in dict(op.attributes)["step"]):  # type: ignore[union-attr]
            break
        name = op.inputs[0]
    return name


def _is_alike(op: Op, other: Op) -> bool:
    if op.kind == HOST:
        # where the node lies in the other graph's list of them is no difference
        return other.kind == HOST and dict(op.attributes)["result"] == dict(other.attributes)["result"]
    return op.kind == other.kind and op.attributes == other.attributes
