"""Lists of floats that vary with extents, from which models compute other extents, such as Floor(height · 0.5).

The floats of a value are kept beside it. It may be needed as data too: then the accelerator computes it, or it is known
at the maxima only. What rounds floats to extents is a constant list of these, as any other list of extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx

from compiler.errors import ModelError
from compiler.frontend.constant_values import literal
from compiler.frontend.fold import Folded, Symbolic, with_symbols
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, bounds_of, expression_of, is_dropped
from compiler.ir.varying_floats import ROUNDINGS, VaryingFloat, calculated, rounded, varying_float, whole
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, Inferred
from compiler.units import numpy_dtype

# More elements than any list of extents, scales or pads has.
_MOST: Final = 64
# Largest number of floats that are held for all values of a model: 32 MiB of float32.
_MOST_FLOATS: Final = 1 << 23
_FLOATS: Final = frozenset(("float16", "float32", "float64"))
_ARITHMETIC: Final = frozenset(("Add", "Sub", "Mul", "Div"))
_ROUNDED: Final = frozenset(("Floor", "Ceil", "Round"))
# Kinds that move elements of their first input, and of all.
_MOVES: Final = frozenset(("Slice", "Gather", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Identity"))
_JOINS: Final = frozenset(("Concat",))
KINDS: Final = _ARITHMETIC | _ROUNDED | _MOVES | _JOINS | {"Cast"}


class Room:
    """How many floats may still be held for the values of a model; elements that values share count once."""

    def __init__(self, floats: int) -> None:
        self.floats = floats
        self._held: set[VaryingFloat] = set()

    def holds(self, element: Any) -> bool:
        """Whether there is room for an element, which is held then; after the first one without, there is none."""
        if isinstance(element, VaryingFloat) and element not in self._held:
            self.floats = self.floats - element.values.size if element.values.size <= self.floats else 0
            if not self.floats:
                return False
            self._held.add(element)
        return True


class VaryingFloats:
    """The floats of values by name, of those that have some which vary; lives as long as one walk over one model."""

    def __init__(self, elements: Callable[[Tensor], Symbolic | None]) -> None:
        self._elements = elements
        self.known: dict[str, Symbolic] = {}
        self._room = Room(floats=_MOST_FLOATS)

    def folded(self, node: onnx.NodeProto, call: Call) -> Folded | None:
        """The result of a node as extents, if it rounds floats to them; None for what is left to the usual way.

        Floats that the node makes are kept by the name of its result.
        """
        if node.op_type not in KINDS or node.domain not in ("", "ai.onnx") or not call.inputs:
            return None
        operands = call.inputs if node.op_type in _ARITHMETIC | _JOINS else call.inputs[:1]
        given = [None if one is None else self._of(one) for one in operands]
        if any(one is None for one in given) or not any(map(_varies, given)):
            return None
        try:
            inferred = OP_KINDS[node.op_type].infer(call)
        except (KeyError, ModelError):
            return None
        found = _result(node.op_type, inferred, call, [one for one in given if one is not None], self._room)
        if found is None:
            return None
        if any(isinstance(item, VaryingFloat) for item in found.reshape(-1)):
            self.known[node.output[0]] = found
            return None
        if not any(one.name in self.known for one in operands if one is not None):
            return None
        dtype = numpy_dtype(inferred.dtype)
        kind = int if dtype.kind == "i" else float
        with np.errstate(over="ignore"):  # a large float is an infinite one of float16
            plain = np.array([kind(item) for item in found.reshape(-1)]).astype(dtype)
        constant = literal(plain.reshape(found.shape), inferred.dtype)
        return Folded(constant=constant, symbolic=with_symbols(found), shape=inferred.shape)

    def _of(self, tensor: Tensor) -> Symbolic | None:
        if tensor.elements > _MOST:
            return None
        return self.known[tensor.name] if tensor.name in self.known else self._elements(tensor)


def _varies(elements: Symbolic | None) -> bool:
    return elements is not None and any(isinstance(item, VaryingFloat | Dim) for item in elements.reshape(-1))


def _result(kind: str, inferred: Inferred, call: Call, given: list[Symbolic], room: Room) -> Symbolic | None:
    """The elements of a result: extents, floats that vary, or numbers; None if one of them is unknown."""
    dtype = numpy_dtype(inferred.dtype)
    if kind in _ARITHMETIC:
        if inferred.dtype not in _FLOATS or not room.floats:
            return None
        pairs = np.broadcast(*given)
        return _filled(lambda pair: _calculated(kind, pair[0], pair[1], dtype), pairs, pairs.shape, room)
    if kind in _ROUNDED or kind == "Cast":
        is_whole = kind != "Cast" or inferred.dtype in ("int32", "int64")
        if not is_whole and inferred.dtype not in _FLOATS:
            return None
        items = ((item,) for item in given[0].reshape(-1))
        return _filled(lambda one: _rounded(kind, one[0], dtype, is_whole), items, given[0].shape, room)
    tensors = tuple(call.inputs[index] for index in inferred.inputs if index < len(call.inputs))
    attributes: Mapping[str, Any] = inferred.attributes
    resolved = replace(call, op_type=inferred.kind, attributes=attributes, inputs=tensors)
    moved = (
        given[0]
        if inferred.source is not None
        else OP_KINDS[inferred.kind].evaluate(
            replace(resolved, output=Tensor(name="", shape=inferred.shape, dtype=inferred.dtype, axes=inferred.axes)),
            tuple(given),
        )
    )
    return None if moved is None else np.asarray(moved, dtype=object).reshape(tuple(map(int, inferred.shape)))


def _filled(
    make: Callable[[tuple[Any, ...]], Any], operands: Iterable[tuple[Any, ...]], shape: tuple[int, ...], room: Room
) -> Symbolic | None:
    """The elements made of operands, equal ones once; None if one of them is unknown, or there is no room for it."""
    made: dict[tuple[object, ...], Any] = {}
    found: list[Any] = []
    for of in operands:
        key = tuple(map(_key, of))
        if key not in made:
            made[key] = make(of)
        if made[key] is None or not room.holds(made[key]):
            return None
        found.append(made[key])
    elements = np.empty(len(found), dtype=object)
    elements[:] = found
    return elements.reshape(shape)


def _key(element: Any) -> object:
    """What equal elements have in common."""
    if isinstance(element, VaryingFloat):
        return element  # its arrays are compared nowhere
    return (
        (str(element), expression_of(element))
        if isinstance(element, Dim) and not is_dropped(element)
        else repr(element)
    )


def _calculated(kind: str, a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    one, other = varying_float(a, dtype), varying_float(b, dtype)
    found = None if one is None or other is None else calculated(kind, one, other)
    if found is None:
        return None
    extent = whole(found)
    return extent if extent is not None else found if found.limits else float(found)


def _rounded(kind: str, item: Any, dtype: np.dtype[Any], is_whole: bool) -> Any:
    if not is_whole:
        number = varying_float(item, dtype)
        extent = None if number is None else whole(number)
        return number if extent is None else extent
    if not isinstance(item, Dim | VaryingFloat) and not np.isfinite(item):
        return None
    found = rounded(kind, item) if isinstance(item, VaryingFloat) else item if isinstance(item, Dim) else None
    if not isinstance(item, Dim | VaryingFloat):
        found = int(ROUNDINGS[kind](item))
    limits = np.iinfo(dtype if dtype.kind == "i" else np.int64)
    return found if found is not None and _lies(found, limits.min, limits.max) else None


def _lies(extent: int, low: int, high: int) -> bool:
    """Whether an extent lies between two numbers, wherever it varies."""
    first, last = bounds_of(extent)
    return low <= first and last <= high
