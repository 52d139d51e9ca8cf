"""What a matcher asks of a graph, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isclose, prod
from types import MappingProxyType
from typing import Final

from compiler.frontend.source import ModelSource
from compiler.frontend.values import materialise
from compiler.ir.constant import Constant, Derived, Opaque
from compiler.ir.graph import Attribute, Graph, Op, Tensor

# How far a written constant may be from the number meant, relatively: what rounding to the element type explains.
_TOLERANCES: Final[Mapping[str, float]] = MappingProxyType({"bfloat16": 4e-3})
_TOLERANCE: Final = 1e-3
# The most elements that are looked at to see whether all are one value; networks have fewer channels.
_READ: Final = 65536
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Ops that one op can stand for.

    `pattern` is the name for the report. `ops` are indices, ascending; the last makes the result. The op in their
    place is `kind` of `inputs` (tensor names, or constants that have no name yet) with ONNX `attributes`.
    """

    pattern: str
    ops: tuple[int, ...]
    kind: str
    inputs: tuple[str | Constant, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: _NO_ATTRIBUTES)


class Lookup:
    """A graph under recognition: who makes and who reads a value, and the values of constants of one element."""

    def __init__(self, graph: Graph, source: ModelSource) -> None:
        self.graph = graph
        self.source = source
        self._outputs = frozenset(graph.outputs)
        self._scalars: dict[str, float | None] = {}

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`."""
        return self.graph.tensors[name]

    def maker(self, name: str, *kinds: str) -> int | None:
        """The op that makes `name`, if there is one and it is of one of `kinds` (of any, if none are given)."""
        index = self.graph.producer.get(name)
        if index is None or (kinds and self.graph.ops[index].kind not in kinds):
            return None
        return index

    def readers(self, name: str) -> tuple[int, ...]:
        """The ops that read `name`; none if it is a graph output, so that it has to stay."""
        return () if name in self._outputs else self.graph.consumers.get(name, ())

    def sole_reader(self, name: str, *kinds: str) -> int | None:
        """The only op that reads `name`, if it is of one of `kinds` (of any, if none are given)."""
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
        """The value of all elements of a constant, if it is one value and quickly told; None for anything else."""
        constant = self.graph.tensors[name].constant
        if constant is None or isinstance(constant.data, Derived | Opaque) or not 0 < prod(constant.shape) <= _READ:
            return self.scalar(name) if constant is not None else None
        values = materialise(constant, self.source)
        first = values.reshape(-1)[0]
        return float(first) if bool((values == first).all()) else None

    def split(self, op: Op) -> tuple[str, float] | None:
        """An op of two inputs as the one that is computed and the value of the other, a constant of one element.

        None if it is not so. The order of the inputs is lost: for Sub and Div compare with `op.inputs`.
        """
        if len(op.inputs) != 2 or "" in op.inputs:
            return None
        left, right = op.inputs
        first, second = self.scalar(left), self.scalar(right)
        if (first is None) == (second is None):
            return None
        return (right, first) if first is not None else (left, second if second is not None else 0.0)

    def is_closed(self, ops: Collection[int]) -> bool:
        """True if nobody but `ops` reads what they make, the last of them excepted, and none of it is an output."""
        inside, last = frozenset(ops), max(ops)
        for index in inside - {last}:
            output = self.graph.ops[index].output
            if output in self._outputs or not inside.issuperset(self.graph.consumers.get(output, ())):
                return False
        return True


def _has_one_element(constant: Constant) -> bool:
    """True if its value is cheap to have: nothing larger lies behind it."""
    match constant.data:
        case Derived():
            return prod(constant.shape) == 1 and all(_has_one_element(part) for part in constant.data.inputs)
        case Opaque():
            return False
        case _:
            return prod(constant.shape) == 1


Rewrite = Callable[[Lookup, int], Replacement | None]


def is_near(value: float, wanted: float, dtype: str) -> bool:
    """True if `value` may be `wanted` as an element of `dtype`."""
    return isclose(value, wanted, rel_tol=_TOLERANCES.get(dtype, _TOLERANCE))
