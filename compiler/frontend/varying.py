"""What constants are at other extents than the maxima of the dynamic dimensions (SHAPE-9).

A constant is evaluated once, at the maxima. At smaller extents it is, if every element depends on positions alone,
its leading part; elements that stand for extents keep their expressions; of anything else nobody knows what it is, and
the tensor says so (`Tensor.at_maxima`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from compiler.frontend.settle import has_dropped
from compiler.frontend.validate import MAX_RANK
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, Expression, expression_of, is_dropped
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, Inferred
from compiler.units import DTYPE_NAMES

# Kinds whose attributes that vary only say the result's shape.
_SHAPED: Final = ("Reshape", "Expand")


def element_symbols(elements: Iterable[object]) -> tuple[tuple[int, Expression], ...]:
    """Those of a constant's elements that vary, by flat position."""
    return tuple(
        (position, expression)
        for position, item in enumerate(elements)
        if isinstance(item, Dim) and (expression := expression_of(item)) is not None
    )


def varies(tensor: Tensor | None) -> bool:
    """Whether a tensor's extents vary, or nobody knows whether it does."""
    return tensor is not None and (tensor.at_maxima or any(isinstance(extent, Dim) for extent in tensor.shape))


def form_is_at_maxima(inferred: Inferred, call: Call) -> bool:
    """Whether an op's attributes or extents are known at the maxima alone."""
    consumed = (t for i, t in enumerate(call.inputs) if t is not None and i not in inferred.inputs)
    if any(t.at_maxima for t in consumed):
        return True
    return has_dropped(inferred.shape) or has_dropped(inferred.attributes.values())


def is_at_maxima(inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> bool:
    """Whether a result of constants, as evaluated, says nothing of its elements at smaller extents.

    It does where every element is made of elements at positions that do not depend on any extent.
    """
    if form_is_at_maxima(inferred, call) or any(t is not None and t.at_maxima for t in kept):
        return True
    if inferred.kind in _SHAPED:
        if any(varies(t) for t in kept) and inferred.kind == "Reshape":
            return not all(_is_relabelled(t, output) for t in kept if t is not None)
    elif any(isinstance(v, Dim) for value in inferred.attributes.values() for v in _items(value)):
        return True
    if not any(varies(t) for t in kept):
        return False
    if inferred.kind == "Concat" and _moves_what_follows(kept, inferred.attributes["axis"]):
        return True
    resolved = replace(call, op_type=inferred.kind, attributes=inferred.attributes, inputs=kept, output=output)
    for tensor, maps in zip(kept, OP_KINDS[inferred.kind].access(resolved), strict=True):
        if tensor is None or maps is None:
            continue
        for extent, axis_map in zip(tensor.shape, maps, strict=True):
            if isinstance(extent, Dim) and axis_map.axis is None:
                return True
    return any(is_dropped(extent) for extent in output.shape)


def can_be_computed(inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> bool:
    """Whether the accelerator may compute a result of constants whose elements would be known at the maxima only.

    Of more floats or flags than a shape has extents nobody makes one; what they are made of has to be known at any
    extents.
    """
    if output.dtype.startswith(("int", "uint")) or output.elements <= MAX_RANK or form_is_at_maxima(inferred, call):
        return False
    if any(t is None or t.at_maxima or t.dtype not in DTYPE_NAMES for t in kept):
        return False
    kind = OP_KINDS[inferred.kind]
    resolved = replace(call, op_type=inferred.kind, attributes=inferred.attributes, inputs=kept, output=output)
    # rows of a table come by indices that are computed or given, not by constants
    return not kind.gathered(resolved) and kind.unsupported(call) is None


def _is_relabelled(tensor: Tensor, output: Tensor) -> bool:
    """Whether a reshape only adds or leaves out axes of one position, so that leading elements stay leading."""
    mine, other = ([extent for extent in one.shape if extent != 1] for one in (tensor, output))
    if len(mine) != len(other):
        return False
    return all(a == b and _expression(a) == _expression(b) for a, b in zip(mine, other, strict=True))


def _moves_what_follows(parts: tuple[Tensor | None, ...], axis: object) -> bool:
    """Whether of concatenated constants one varies along the axis that another one comes after."""
    return isinstance(axis, int) and any(t is not None and isinstance(t.shape[axis], Dim) for t in parts[:-1])


def _expression(extent: int) -> Expression | None:
    return expression_of(extent) if isinstance(extent, Dim) else None


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
