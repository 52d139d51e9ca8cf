"""Positions that a Resize to the nearest reads, as ONNX Runtime computes them in float32.

Tessera's programs compute positions by integers. Where float32 arithmetic rounds a position to another side of an
integer or of a half, ONNX Runtime reads a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
# Largest number of positions that are compared: beyond it float32 does not hold every position either.
_MOST: Final = 1 << 24
# Positions that are compared at once.
_AT_ONCE: Final = 1 << 20
# What is closer to a half is one to ONNX Runtime.
_TIE: Final = 1e-6
_HALF: Final = np.float32(0.5)


def _is_half(position: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.abs(position - np.floor(position) - _HALF) <= np.float32(_TIE))


# How a position becomes that of an element.
_ROUNDINGS: Final[Mapping[str, Callable[[Floats], Floats]]] = MappingProxyType(
    {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda p: np.where(_is_half(p), np.floor(p), np.rint(p)),
        "round_prefer_ceil": lambda p: np.where(_is_half(p), np.ceil(p), np.rint(p)),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestAxes:
    """Axes that are resized to the nearest, an element of each array for each of them.

    `source` and `target` are the extents before and after, `scale` the float32 between them. By the three arrays of
    `sampling` output position o reads element (o·scale + low) // divisor, or the last one where that lies
    beyond it; without `is_clipped` an axis has no last one.
    """

    transformation: str
    rounding: str
    source: Integers
    target: Integers
    scale: Floats
    sampling: tuple[Integers, Integers, Integers]
    is_clipped: bool = True

    @property
    def are_too_many(self) -> bool:
        """Whether there are too many positions to be compared."""
        return int(self.target.sum()) > _MOST

    def first_difference(self) -> int | None:
        """The index of the first axis of which ONNX Runtime reads other elements; None if there is none.

        An axis of which there are too many positions to be compared counts as one.
        """
        if self.are_too_many:
            return 0
        step, low, divisor = self.sampling
        for first, end in self._blocks():
            counts = self.target[first:end]
            axes = np.repeat(np.arange(first, end), counts)
            outputs = np.arange(len(axes)) - np.repeat(np.cumsum(counts) - counts, counts)
            exact = (outputs * step[axes] + low[axes]) // divisor[axes]
            with np.errstate(all="ignore"):
                found = _ROUNDINGS[self.rounding](self._positions(outputs.astype(np.float32), axes)).astype(np.int64)
            # where an axis keeps its extent ONNX Runtime copies
            found = np.where(self.scale[axes] == 1, outputs, found)
            last = self.source[axes] - 1 if self.is_clipped else None
            differs = np.flatnonzero(np.clip(exact, 0, last) != np.clip(found, 0, last))
            if differs.size:
                return int(axes[differs[0]])
        return None

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of axes that together have a number of positions which are compared at once."""
        ends, first = np.cumsum(self.target), 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            end = max(first + 1, int(np.searchsorted(ends, before + _AT_ONCE, "right")))
            yield first, end
            first = end

    def _positions(self, outputs: Floats, axes: Integers) -> Floats:
        scale = self.scale[axes]
        match self.transformation:
            case "asymmetric":
                return outputs / scale
            case "tf_half_pixel_for_nn":
                return (outputs + _HALF) / scale
        source, target = self.source[axes].astype(np.float32), self.target[axes].astype(np.float32)
        match self.transformation:
            case "align_corners":
                return np.asarray(outputs * (source - 1) / np.maximum(target - 1, 1))
            case "half_pixel_symmetric":
                # halves are double precision there
                offset = source / 2 * (1 - target / (scale * source))
                exact = offset.astype(np.float64) + (outputs + np.float64(0.5)) / scale.astype(np.float64) - 0.5
                return np.asarray(exact, dtype=np.float32)
        positions = (outputs + _HALF) / scale - _HALF
        is_single = self.transformation == "pytorch_half_pixel"
        return np.where(target == 1, np.float32(0), positions) if is_single else positions
