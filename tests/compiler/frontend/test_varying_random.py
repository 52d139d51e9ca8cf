"""Random shape arithmetic: what a graph says at smaller extents is what its model is there, or it is refused (SHAPE-9).

The deduction alone is tested, without the check that compilations make of it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.errors import ModelError, RequestError, TesseraError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.shapes.agreement import difference
from compiler.shapes.instance import graph_at, refuse_what_is_at_maxima
from tests.models import Model, error_of, import_graph

MAXIMA = {"s": 8, "t": 5}
_INT64, _FLOAT = 7, 1


class _Random:
    """A model under construction: numbers made of extents, comparisons, lists, and positions."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.model = model = Model()
        self.x = model.input([2, "s"])
        other = model.input(["t", 3])
        sizes = {value: model.node("Shape", [value]) for value in (self.x, other)}
        self.numbers = [
            model.node("Gather", [sizes[value], model.ints(axis)], axis=0) for value, axis in ((self.x, 1), (other, 0))
        ]
        zero, one = model.constant(np.int64(0)), model.constant(np.int64(1))
        end = model.node("Squeeze", [self.numbers[0], model.ints(0)])
        self.positions = [model.node("Range", [zero, end, one])]
        self.numbers += [model.ints(number) for number in (1, 2, 3, 8, -1)]
        self.lists = [sizes[self.x]]

    def one_of(self, items: list[Any]) -> Any:
        """Any of them, the last ones more often."""
        return items[-1] if self.random.random() < 0.3 else items[int(self.random.integers(len(items)))]

    def step(self) -> None:
        """One more number, list or row of positions."""
        model, one_of = self.model, self.one_of
        match int(self.random.integers(9)):
            case 0 | 1:
                kind = one_of(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"])
                self.numbers.append(model.node(kind, [one_of(self.numbers), one_of(self.numbers)]))
            case 2:
                kind = one_of(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
                chosen = model.node(kind, [one_of(self.numbers), one_of(self.numbers)])
                self.numbers.append(model.node("Where", [chosen, one_of(self.numbers), one_of(self.numbers)]))
            case 3:
                narrow = model.node("Cast", [one_of(self.numbers)], to=one_of([1, 2, 3, 6, 9, 10]))
                self.numbers.append(model.node("Cast", [narrow], to=_INT64))
            case 4:
                factor = model.constant(np.array([one_of([0.5, 2.0, 4.0, 1.5, 3.0])], dtype=np.float32))
                real = model.node("Cast", [one_of(self.numbers)], to=_FLOAT)
                real = model.node(one_of(["Mul", "Div", "Add"]), [real, factor])
                whole = model.node(one_of(["Floor", "Ceil", "Round"]), [real])
                self.numbers.append(model.node("Cast", [whole], to=_INT64))
            case 5:
                self.lists.append(model.node("Concat", [one_of(self.numbers), one_of(self.lists)], axis=0))
            case 6:
                kind = one_of(["ReduceProd", "ReduceMax", "ReduceMin"])
                self.numbers.append(model.node(kind, [one_of(self.lists)], axes=[0], keepdims=1))
            case 7:
                place = model.ints(int(self.random.integers(-2, 2)))
                self.numbers.append(model.node("Gather", [one_of(self.lists), place], axis=0))
            case _:
                kind = one_of(["Add", "Mul", "Sub", "Less", "Mod", "Max"])
                row = model.node(kind, [one_of(self.positions), one_of(self.numbers)])
                self.positions.append(model.node("Cast", [row], to=_INT64))

    def finished(self) -> bytes:
        """The model, in which what was made decides about shapes or values."""
        model, x, number, row = self.model, self.x, self.one_of(self.numbers), self.one_of(self.positions)
        table, end, one = model.weight(2, 20), model.ints(2**31), model.ints(1)
        uses = {
            "Mul": [[x, model.node("Cast", [number], to=_FLOAT)], [x, model.node("Cast", [row], to=_FLOAT)]],
            "Slice": [[x, number, end, one], [x, model.ints(0), number, one], [table, self.numbers[0], number, one]],
            "Pad": [[x, model.node("Concat", [model.ints(0, 0, 0), number], axis=0)]],
            "Expand": [[model.weight(1), model.node("Concat", [model.ints(2), number], axis=0)]],
            "Gather": [[table, number], [x, number], [table, row]],
            "ConstantOfShape": [[number]],
            "Reshape": [[x, model.node("Concat", [number, model.ints(-1)], axis=0)]],
        }
        kind = self.one_of(sorted(uses))
        inputs = uses[kind][int(self.random.integers(len(uses[kind])))]
        attributes: dict[str, Any] = {"axis": 1} if kind == "Gather" else {}
        model.output(model.node("Neg", [model.node(kind, inputs, **attributes)]))
        return model.data()


def random_model(seed: int) -> bytes:
    """A model of up to seven steps."""
    found = _Random(seed)
    for _ in range(int(found.random.integers(1, 8))):
        found.step()
    return found.finished()


def judged(seed: int) -> str:
    """`refused`, or `right`: at every extent the graph is what the model is there, or the model is none."""
    data = random_model(seed)
    source = ModelSource.from_bytes(data)
    try:
        graph = import_graph(data, MAXIMA)
        refuse_what_is_at_maxima(graph)
    except ModelError:
        return "refused"

    def values(constant: Constant) -> Any:
        return materialise(constant, opened(graph.source, source))

    for s, t in product(range(1, 9), (1, 2, 5)):
        dims = {"s": s, "t": t}
        try:
            there = import_graph(data, dims)
        except TesseraError:
            continue
        refused = error_of(lambda dims=dims: graph_at(graph, dims, values))  # type: ignore[misc]
        if refused is None:
            assert difference(graph_at(graph, dims, values), there, values) is None, (seed, dims)
        else:
            assert isinstance(refused, RequestError), (seed, dims)
    return "right"


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("block", range(4))
def test_random_shape_arithmetic_is_right_below_the_maxima_or_refused(block: int) -> None:
    found = [judged(seed) for seed in range(block * 30, block * 30 + 30)]
    # neither is everything refused, nor is nothing
    assert {"right", "refused"} == set(found)
