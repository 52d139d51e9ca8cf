"""Constants at other extents than the maxima of the dynamic dimensions (SHAPE-9).

A constant is evaluated once, at the maxima. If every element depends on its position alone, the constant at smaller
extents is its leading part. Elements that stand for extents keep their expressions. Any other constant is unknown
there, and its tensor is marked (`Tensor.at_maxima`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from compiler.frontend.fixed_extents import has_dropped
from compiler.frontend.validate import MAX_RANK
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, Expression, expression_of, is_dropped
from compiler.ops import ALL_KINDS
from compiler.ops.base import Call, Inferred
from compiler.units import DTYPE_NAMES

# Kinds whose varying attributes affect the result's shape only.
_SHAPED: Final = ("Reshape", "Expand")
# Kinds whose varying attributes say how often an axis is repeated; one of fixed extent keeps its leading elements.
_REPEATED: Final = ("Tile",)


def element_symbols(elements: Iterable[object]) -> tuple[tuple[int, Expression], ...]:
    """The varying elements of a constant, by flat position."""
    return tuple(
        (position, expression)
        for position, item in enumerate(elements)
        if isinstance(item, Dim) and (expression := expression_of(item)) is not None
    )


def varies(tensor: Tensor | None) -> bool:
    """Whether a tensor's extents or elements may vary."""
    return tensor is not None and (tensor.at_maxima or any(isinstance(extent, Dim) for extent in tensor.shape))


def form_is_at_maxima(inferred: Inferred, call: Call) -> bool:
    """Whether an op's attributes or extents are known at the maxima only."""
    consumed = (t for i, t in enumerate(call.inputs) if t is not None and i not in inferred.inputs)
    if any(t.at_maxima for t in consumed):
        return True
    return has_dropped(inferred.shape) or has_dropped(inferred.attributes.values())


def why_at_maxima(inferred: Inferred) -> str:
    """Why an op's attributes are known at the maxima only, if they say so."""
    items = (item for value in inferred.attributes.values() for item in _items(value))
    return next((item.why for item in items if isinstance(item, Dim) and item.why), "")


def is_at_maxima(inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> bool:
    """Whether the evaluated result of constants is valid at the maxima only.

    It is valid at smaller extents if every element is made of elements at positions that depend on no extent.
    """
    if form_is_at_maxima(inferred, call) or any(t is not None and t.at_maxima for t in kept):
        return True
    if inferred.kind in _SHAPED:
        if any(varies(t) for t in kept) and inferred.kind == "Reshape":
            return not all(_is_relabelled(t, output) for t in kept if t is not None)
    elif inferred.kind not in _REPEATED and any(
        isinstance(v, Dim) for value in inferred.attributes.values() for v in _items(value)
    ):
        return True
    if not any(varies(t) for t in kept):
        return False
    if inferred.kind == "Concat" and _moves_what_follows(kept, inferred.attributes["axis"]):
        return True
    resolved = replace(call, op_type=inferred.kind, attributes=inferred.attributes, inputs=kept, output=output)
    for tensor, maps in zip(kept, ALL_KINDS[inferred.kind].access(resolved), strict=True):
        if tensor is None or maps is None:
            continue
        for extent, axis_map in zip(tensor.shape, maps, strict=True):
            if isinstance(extent, Dim) and axis_map.axis is None:
                return True
    return any(is_dropped(extent) for extent in output.shape)


def can_be_computed(inferred: Inferred, call: Call, kept: tuple[Tensor | None, ...], output: Tensor) -> bool:
    """Whether the accelerator may compute a result of constants that is otherwise known at the maxima only.

    The result must not be a list of extents: its length varies, or it has floats or flags, and not one axis of at most
    as many elements as a shape has axes. Its operands must be known at all extents.
    """
    is_short = len(output.shape) == 1 and output.elements <= MAX_RANK
    may_be_extents = is_short or output.dtype.startswith(("int", "uint"))
    if (may_be_extents and not varies(output)) or form_is_at_maxima(inferred, call):
        return False
    if any(t is None or t.at_maxima or t.dtype not in DTYPE_NAMES for t in kept):
        return False
    kind = ALL_KINDS[inferred.kind]
    resolved = replace(call, op_type=inferred.kind, attributes=inferred.attributes, inputs=kept, output=output)
    # rows of a table are gathered by indices computed or given at run time, not by constants
    return not kind.gathered(resolved) and kind.unsupported(call) is None


def _is_relabelled(tensor: Tensor, output: Tensor) -> bool:
    """Whether a reshape only adds or removes axes of extent 1, so that leading elements stay leading."""
    mine, other = ([extent for extent in one.shape if extent != 1] for one in (tensor, output))
    if len(mine) != len(other):
        return False
    return all(a == b and _expression(a) == _expression(b) for a, b in zip(mine, other, strict=True))


def _moves_what_follows(parts: tuple[Tensor | None, ...], axis: object) -> bool:
    """Whether a concatenated part other than the last varies along `axis`, which shifts the parts after it."""
    return isinstance(axis, int) and any(t is not None and isinstance(t.shape[axis], Dim) for t in parts[:-1])


def _expression(extent: int) -> Expression | None:
    return expression_of(extent) if isinstance(extent, Dim) else None


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
