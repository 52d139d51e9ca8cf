"""Which ops on dequantised tensors have exact forms on the integers, and the integers of their constants (IMPORT-9).

Such an op needs no conversion behind it: its result has the scale and zero point of its data.

- What moves or chooses elements gives integers of its data. A constant beside the data joins if each of its numbers is
  that of an integer; so does the value of a Pad.
- A limit gives the number of an integer for each integer of the type, or it is none of these.
- ArgMax and ArgMin find the same positions where unequal integers stand for unequal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from compiler.ir.graph import Attribute, Graph, Op
from compiler.ops import OP_KINDS
from compiler.ops.base import Array
from compiler.ops.contraction import Product
from compiler.ops.quantise import dequantised, quantised
from compiler.ops.quantised import LARGEST_DIFFERENCE
from compiler.units import numpy_dtype

# Ops whose results are elements of their data (of a Pad also its value), so that integers pass through them.
MOVES: Final = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Dropout",
        "Transpose",
        "Slice",
        "Expand",
        "Tile",
        "Gather",
        "DepthToSpace",
        "SpaceToDepth",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "Concat",
        "Pad",
        "Resize",
    }
)
# Of these the ones that choose by order, which a scale below zero turns round.
_BY_ORDER: Final = ("MaxPool", "ReduceMax", "ReduceMin")
# Ops that give positions, by the order of their data's elements.
ORDERS: Final = frozenset({"ArgMax", "ArgMin"})
# What keeps a result between bounds.
LIMITS: Final = ("Relu", "Clip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """A float tensor as integers: their tensor, scale and zero point.

    Where one of these is not known before the run, `scale_name` or `zero_name` is its tensor, of one element, and
    `scale` is 1 or `zero` is 0. `by`: the DequantizeLinear that makes the floats. `floats`: their element type.
    """

    name: str
    dtype: str
    scale: float
    zero: int
    scale_name: str
    zero_name: str
    floats: str
    by: Op

    @property
    def is_known(self) -> bool:
        """True if scale and zero point are known before the run."""
        return not (self.scale_name or self.zero_name)

    @property
    def meaning(self) -> tuple[object, ...]:
        """What decides which number an integer stands for."""
        return self.dtype, self.scale, self.zero, self.scale_name, self.zero_name

    @property
    def largest(self) -> int:
        """The largest |q − zero point|."""
        least, most = self.bounds
        return max(most - self.zero, self.zero - least) if not self.zero_name else LARGEST_DIFFERENCE

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest q."""
        found: Any = np.iinfo(numpy_dtype(self.dtype))
        return int(found.min), int(found.max)

    def numbers(self) -> Array:
        """The float that each integer of the type stands for if that is known, the least first."""
        least, most = self.bounds
        with np.errstate(all="ignore"):
            return dequantised(np.arange(least, most + 1), *self._parameters(), self.floats)

    def exact(self, values: Array) -> Array | None:
        """The integers that stand for floats, bit for bit; None if a float is no integer's, or before the run."""
        if not self.is_known or values.dtype != numpy_dtype(self.floats):
            return None
        with np.errstate(all="ignore"):
            found = quantised(values, *self._parameters(), self.dtype)
            same = dequantised(found, *self._parameters(), self.floats).tobytes() == values.tobytes()
        return found if same else None

    def _parameters(self) -> tuple[Array, Array]:
        return np.asarray(self.scale, np.float32), np.asarray(self.zero, np.int32)


def is_move(op: Op) -> bool:
    """True for an op that moves or chooses elements; a Resize only where it takes the nearest."""
    return op.kind in MOVES and (op.kind != "Resize" or dict(op.attributes).get("mode") == "nearest")


def data_of(op: Op) -> tuple[str, ...]:
    """The inputs whose elements an op moves."""
    return op.inputs if op.kind == "Concat" else op.inputs[:1]


def attributes_on_integers(op: Op, data: Integers) -> tuple[tuple[str, Attribute], ...] | None:
    """The attributes of an op that moves integers; None for a Pad with a value that is no integer's, and for a choice
    by order among integers whose scale is not known before the run.
    """
    if op.kind in _BY_ORDER and data.scale_name:
        return None
    attributes = dict(op.attributes)
    if op.kind != "Pad" or attributes["mode"] != "constant":
        return op.attributes
    value = data.exact(np.asarray(attributes["value"], numpy_dtype(data.floats)))
    return None if value is None else tuple({**attributes, "value": int(value)}.items())


def feeding_products(graph: Graph) -> frozenset[str]:
    """The tensors that products multiply, directly or behind moves and limits."""
    found: set[str] = set()
    for op in reversed(graph.ops):
        if isinstance(OP_KINDS.get(op.kind), Product):
            found.update(op.inputs[:2])
        elif op.output in found and (is_move(op) or op.kind in LIMITS):
            found.update(data_of(op))
    return frozenset(found)
