"""Queries of pattern matchers on a graph, and their result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isclose, prod
from types import MappingProxyType
from typing import Final

from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived, Opaque
from compiler.ir.graph import Attribute, Graph, Op, Tensor

# Largest relative deviation of a written constant from the intended number: the rounding of the element type.
_TOLERANCES: Final[Mapping[str, float]] = MappingProxyType({"bfloat16": 4e-3})
_TOLERANCE: Final = 1e-3
# Largest constant checked for equal elements; networks have fewer channels.
_READ: Final = 65536
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A set of ops and the single op that replaces them.

    `pattern` is the name for the report. `ops` are indices, ascending; the last one makes the result. The replacing op
    is `kind` of `inputs` (tensor names, or constants without a name yet) with ONNX `attributes`.
    """

    pattern: str
    ops: tuple[int, ...]
    kind: str
    inputs: tuple[str | Constant, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: _NO_ATTRIBUTES)


class Lookup:
    """A graph during recognition: producers and readers of values, and values of one-element constants."""

    def __init__(self, graph: Graph, source: ModelSource) -> None:
        self.graph = graph
        self.source = source
        self._outputs = frozenset(graph.outputs)
        self._scalars: dict[str, float | None] = {}

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`."""
        return self.graph.tensors[name]

    def maker(self, name: str, *kinds: str) -> int | None:
        """The op that makes `name`; None if there is none, or if its kind is not in `kinds` (when given)."""
        index = self.graph.producer.get(name)
        if index is None or (kinds and self.graph.ops[index].kind not in kinds):
            return None
        return index

    def readers(self, name: str) -> tuple[int, ...]:
        """The ops that read `name`; empty for a graph output, which must remain."""
        return () if name in self._outputs else self.graph.consumers.get(name, ())

    def sole_reader(self, name: str, *kinds: str) -> int | None:
        """The only op that reads `name`; None if there are others, or if its kind is not in `kinds` (when given)."""
        readers = self.readers(name)
        if len(readers) != 1 or (kinds and self.graph.ops[readers[0]].kind not in kinds):
            return None
        return readers[0]

    def scalar(self, name: str) -> float | None:
        """The value of a constant of one element; None for anything else."""
        if name not in self._scalars:
            constant = self.graph.tensors[name].constant if name else None
            found = constant is not None and _has_one_element(constant)
            self._scalars[name] = float(materialise(constant, self.source).item()) if constant and found else None
        return self._scalars[name]

    def uniform(self, name: str) -> float | None:
        """The common value of a constant's elements, if it is quick to find; None for anything else."""
        constant = self.graph.tensors[name].constant
        if constant is None or isinstance(constant.data, Derived | Opaque) or not 0 < prod(constant.shape) <= _READ:
            return self.scalar(name) if constant is not None else None
        values = materialise(constant, self.source)
        first = values.reshape(-1)[0]
        return float(first) if bool((values == first).all()) else None

    def split(self, op: Op) -> tuple[str, float] | None:
        """The computed input of a two-input op, and the value of the other input, a constant of one element.

        None for other ops. The order of the inputs is lost: for Sub and Div compare with `op.inputs`.
        """
        if len(op.inputs) != 2 or "" in op.inputs:
            return None
        left, right = op.inputs
        first, second = self.scalar(left), self.scalar(right)
        if (first is None) == (second is None):
            return None
        return (right, first) if first is not None else (left, second if second is not None else 0.0)

    def is_closed(self, ops: Collection[int]) -> bool:
        """True if no other op reads the results of `ops`, except the last one's, and these are no graph outputs."""
        inside, last = frozenset(ops), max(ops)
        for index in inside - {last}:
            output = self.graph.ops[index].output
            if output in self._outputs or not inside.issuperset(self.graph.consumers.get(output, ())):
                return False
        return True


def _has_one_element(constant: Constant) -> bool:
    """True if the constant has one element and is cheap to evaluate: it derives from no larger constant."""
    match constant.data:
        case Derived():
            return prod(constant.shape) == 1 and all(_has_one_element(part) for part in constant.data.inputs)
        case Opaque():
            return False
        case _:
            return prod(constant.shape) == 1


Rewrite = Callable[[Lookup, int], Replacement | None]


def is_near(value: float, wanted: float, dtype: str) -> bool:
    """True if `value` equals `wanted` within the rounding of `dtype`."""
    return isclose(value, wanted, rel_tol=_TOLERANCES.get(dtype, _TOLERANCE))
