"""Broadcasting: which extents repeat, and which are one.

Where two extents vary, the op is known at all extents if they are equal. ONNX also repeats one that is 1 at run time;
as nothing but the request says when, such extents are taken as equal, and their dimensions as one (`ir/ties.py`).
"""

from __future__ import annotations

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.symbol import Dim, bounds_of, tied_extent, ties_of, unknown_extent
from compiler.ops.base import Call


def broadcast_access(shape: tuple[int, ...], output: tuple[int, ...]) -> tuple[AxisMap, ...]:
    """Access of a numpy-broadcast input: trailing axes align, a repeated axis is needed whole."""
    lead = len(output) - len(shape)
    return tuple(same(lead + index) if extent == output[lead + index] else WHOLE for index, extent in enumerate(shape))


def broadcast_shapes(call: Call, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The numpy broadcast of shapes; raises ModelError with both shapes if they do not fit."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1 and result[index] not in (1, extent):
                call.fail(
                    "shapes cannot be broadcast together",
                    actual=" and ".join(map(str, shapes)),
                    ties=ties_of(result[index], extent),
                )
            result[index] = repeated(result[index], extent)
    return tuple(result)


def check_broadcasts(call: Call, index: int, output: tuple[int, ...], message: str) -> None:
    """Raises ModelError with the message if an input does not broadcast to a shape that it leaves as it is."""
    shape = call.tensor(index).shape
    if broadcast_shapes(call, (output, shape)) != output:
        pairs = zip(reversed(shape), reversed(output), strict=False)
        ties = tuple(tie for mine, its in pairs if mine not in (1, its) for tie in ties_of(mine, its))
        call.fail(message, actual=shape, limit=output, ties=ties if len(shape) <= len(output) else ())


def repeated(a: int, b: int) -> int:
    """The extent of the broadcast of extents `a` and `b`: 1 repeats.

    The result has an unknown expression if the extents are unequal for some sizes of the dynamic dimensions.
    """
    for mine, other in ((a, b), (b, a)):
        if mine == 1:
            return unknown_extent(int(other)) if bounds_of(mine)[1] > 1 else other
    return agreed(a, b)


def agreed(a: int, b: int) -> int:
    """The common extent of two tensors; of unknown expression if they differ for some dynamic sizes."""
    if bounds_of(a - b) != (0, 0):
        return tied_extent(a, b)
    # of two equal extents the varying one is kept
    return a if isinstance(a, Dim) else b
