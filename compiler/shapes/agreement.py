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

from compiler.errors import LimitError, ModelError, RequestError, printable
from compiler.frontend.constant_values import materialise
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.ir.graph import HOST, Graph, Op
from compiler.ir.ties import UnequalExtentsError
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
        """Raises ModelError for a graph that says something else, or for extents at which the model is none.

        Raises RequestError for extents at which a tensor is empty.
        """

        refuse_what_is_at_maxima(graph)

        def values(constant: Constant) -> NDArray[Any]:
            return materialise(constant, opened(graph.source, self.source))

        for dims in tried_dims(ranges_of(graph, self.options), _FEW if len(graph.ops) > _MANY_OPS else _SOME):
            at = printable(", ".join(f"{name} = {extent}" for name, extent in sorted(dims.items())), 160)
            try:
                there = self.import_at(dims)
            except (ModelError, LimitError) as error:
                raise UnequalExtentsError(
                    f"the model is none at {at}: {error.message}",
                    ties=error.ties if isinstance(error, UnequalExtentsError) else (),
                    code="illegal_extents",
                    stage=self.name,
                    node=error.node,
                    op_type=error.op_type,
                    actual=error.actual,
                    limit=error.limit,
                    hint="Narrow the ranges of the dynamic dimensions (min, max, step)",
                ) from error
            found = self._differing(graph, there, dims, values)
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

    def _differing(self, graph: Graph, there: Graph, dims: Mapping[str, int], values: Values) -> str | None:
        """As `difference`, of the graph at some extents and the model imported there.

        A view of another number of elements is one: the model has none there, for it was imported. Raises RequestError
        where a tensor is empty at these extents.
        """
        try:
            mine = graph_at(graph, dims, values)
        except RequestError as error:
            if error.op_type is None:
                raise
            return f"what node {error.node} makes"
        return difference(mine, there, values)


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

    Ops that hand on an input unchanged do not count: import leaves them out where it sees that they do.
    """
    ours, theirs = _Side(graph, values), _Side(other, values)
    todo = list(zip(graph.output_tensors, other.output_tensors, strict=True))
    seen = set(todo)
    while todo:
        mine, its = todo.pop()
        a, b = ours.source(mine), theirs.source(its)
        if graph.tensors[a].is_known and graph.tensors[a].shape != other.tensors[b].shape:
            return mine
        first, second = ours.maker(a), theirs.maker(b)
        if isinstance(first, Op) and isinstance(second, Op):
            if _is_alike(first, second):
                following = list(zip(first.inputs, second.inputs, strict=True))
                if any((not one) != (not two) for one, two in following):
                    return mine
            else:
                following = [(ours.chosen(a) or a, theirs.chosen(b) or b)]
                if following == [(a, b)]:
                    return mine
            fresh = [pair for pair in following if pair[0] and pair not in seen]
            seen.update(fresh)
            todo += fresh
        elif isinstance(first, str) or isinstance(second, str):
            if first != second:
                return mine
        elif first != second:
            # what one import computes with constants the other may leave to the chip
            elements, its_elements = ours.elements(a), theirs.elements(b)
            if elements is None or its_elements is None or not _are_equal(elements, its_elements):
                return mine
    return None


class _Side:
    """One of two graphs that are compared, and what of it was computed for that."""

    def __init__(self, graph: Graph, values: Values) -> None:
        self._graph = graph
        self._values = values
        self._computed: dict[str, NDArray[Any] | None] = {}

    def source(self, name: str) -> str:
        """The tensor that a chain of ops hands on unchanged."""
        graph = self._graph
        while name in graph.producer and graph.tensors[name].constant is None:
            op = graph.ops[graph.producer[name]]
            if op.kind not in _PASSING or graph.tensors[op.inputs[0]].shape != graph.tensors[name].shape:
                break
            if op.kind == "Slice" and any(step != 1 for step in dict(op.attributes)["step"]):  # type: ignore[union-attr]
                break
            name = op.inputs[0]
        return name

    def maker(self, name: str) -> Op | Constant | str:
        """What makes a tensor: an op, a constant, or the input of that name."""
        constant = self._graph.tensors[name].constant
        if constant is not None:
            return constant
        return self._graph.ops[self._graph.producer[name]] if name in self._graph.producer else name

    def chosen(self, name: str) -> str | None:
        """The tensor that a Where takes all its result from, if constants say so; None otherwise."""
        op = self.maker(name)
        if not isinstance(op, Op) or op.kind != "Where":
            return None
        condition, *branches = op.inputs
        elements = self.elements(condition)
        if elements is None or elements.any() != elements.all():
            return None
        branch = branches[0 if elements.all() else 1]
        return branch if self._graph.tensors[branch].shape == self._graph.tensors[name].shape else None

    def elements(self, name: str) -> NDArray[Any] | None:
        """A tensor's elements, if it is a constant or computed from constants; None if it is not, or is large."""
        waiting = [] if name in self._computed else [name]
        while waiting:
            last = waiting[-1]
            needed = [one for one in self._operands(last) if one and one not in self._computed]
            if needed:
                waiting.append(needed[0])
            else:
                self._computed[waiting.pop()] = self._evaluated(last)
        return self._computed[name]

    def _operands(self, name: str) -> tuple[str, ...]:
        """What a small tensor is computed from; nothing for others."""
        maker = self.maker(name)
        if not isinstance(maker, Op) or maker.kind == HOST or self._graph.tensors[name].elements > FOLD_ELEMENTS:
            return ()
        return maker.inputs

    def _evaluated(self, name: str) -> NDArray[Any] | None:
        maker, operands = self.maker(name), self._operands(name)
        if isinstance(maker, Constant):
            return self._values(maker)
        inputs = tuple(self._computed[one] if one else None for one in operands)
        if not isinstance(maker, Op) or not operands or any(one and self._computed[one] is None for one in operands):
            return None
        return definition(maker).evaluate(call_of(self._graph, maker), inputs)


def _are_equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays are the same numbers; floats may have been computed in another order."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "fV":
        return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    return np.array_equal(a, b)


def _is_alike(op: Op, other: Op) -> bool:
    if len(op.inputs) != len(other.inputs):
        return False
    if op.kind == HOST:
        # where the node lies in the other graph's list of them is no difference
        return other.kind == HOST and dict(op.attributes)["result"] == dict(other.attributes)["result"]
    return op.kind == other.kind and op.attributes == other.attributes
