"""Gathers the operands at the taps of a window, element by element through an address table (ADDR-1, SIM-1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.address.unit import SPATIAL, UnitTable
from compiler.ir.box import Ints
from compiler.ops.base import Window
from compiler.ops.slab import Box

# Limit on the offsets kept for later calls.
_MOST_KEPT: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class _Class:
    """Positions along one axis (counted from the first of the call) whose taps lie in a piece alike."""

    positions: tuple[int, int]
    taps: tuple[int, int]


class _Step(NamedTuple):
    """One class of positions of a piece: its first operand's place, in words from the piece's first element.

    `offsets` are the operands' offsets from there, the last at `reach`; `into` selects their destination.
    """

    start: int
    reach: int
    offsets: Ints
    into: tuple[slice, ...]


class WindowGather:
    """Gathers for one window, and remembers the offsets of its calls."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._classes: dict[tuple[int, ...], list[_Class]] = {}
        self._offsets: dict[tuple[object, ...], tuple[int, Ints]] = {}
        self._steps: dict[tuple[object, ...], list[_Step]] = {}
        self._kept = 0

    def fill(
        self,
        met: NDArray[Any],
        box: Box,
        channels: int,
        piece: Box,
        address: int,
        strides: tuple[int, ...],
        unit: UnitTable,
        memory: NDArray[Any],
    ) -> None:
        """Copies operands of an output box from a piece to `met`, unsigned words [N, extents..., kernel..., C].

        `channels` is the first channel in `met`. `address` and `strides` are in bytes, as in the piece's binding.
        Operands outside of the piece stay unchanged: they are padding, or lie in another piece. Every word read lies in
        the piece.
        """
        element = met.itemsize
        key = (unit, strides, piece, box[0], *box[SPATIAL:], channels)
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = self._new_steps(box, channels, piece, strides, unit, element)
        count = piece[1][1] - piece[1][0]
        for start, reach, offsets, into in steps:
            apart = (element, unit.channel_step)
            runs = np.ndarray((reach + 1, count), met.dtype, memory, address + start * element, apart)
            met[into] = runs[offsets]

    def _new_steps(
        self, box: Box, channels: int, piece: Box, strides: Sequence[int], unit: UnitTable, element: int
    ) -> list[_Step]:
        window, rank = self._window, len(box) - SPATIAL
        low, high = max(box[0][0], piece[0][0]), min(box[0][1], piece[0][1])
        if low >= high:
            return []
        apart = unit.element_strides(window, strides)
        # from the piece's first element to that of the first tap at the box's first position
        origin = (box[0][0] - piece[0][0]) * apart[0]
        for axis in range(rank):
            first = box[SPATIAL + axis][0] * window.strides[axis] - window.pads[axis]
            origin += (first - piece[SPATIAL + axis][0]) * apart[SPATIAL + axis]
        begin, images = piece[1][0] - channels, (low - box[0][0], high - box[0][0])
        found = []
        for cell in product(*(self._along(axis, box[axis], piece[axis]) for axis in range(SPATIAL, len(box)))):
            least, offsets = self._relative(unit, apart, images, cell, element)
            into = (
                slice(*images),
                *(slice(*each.positions) for each in cell),
                *(slice(*each.taps) for each in cell),
                slice(begin, begin + piece[1][1] - piece[1][0]),
            )
            found.append(_Step(origin // element + least, int(offsets.max()), offsets, into))
        return found

    def _along(self, axis: int, positions: tuple[int, int], piece: tuple[int, int]) -> list[_Class]:
        """The classes of positions along an axis, by the taps that lie in a piece."""
        key = (axis, *positions, *piece)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = self._new_classes(axis - SPATIAL, positions, piece)
        return found

    def _new_classes(self, axis: int, positions: tuple[int, int], piece: tuple[int, int]) -> list[_Class]:
        window = self._window
        dilation, taps = window.dilations[axis], window.kernel[axis]
        first = np.arange(*positions, dtype=np.int64) * window.strides[axis] - window.pads[axis]
        lows = np.clip(-((first - piece[0]) // dilation), 0, taps)
        highs = np.clip((piece[1] - 1 - first) // dilation + 1, 0, taps)
        changes = np.flatnonzero((lows[1:] != lows[:-1]) | (highs[1:] != highs[:-1])) + 1
        edges = [0, *changes.tolist(), len(first)]
        return [
            _Class((begin, end), (int(lows[begin]), int(highs[begin])))
            for begin, end in pairwise(edges)
            if begin < end and lows[begin] < highs[begin]
        ]

    def _relative(
        self, unit: UnitTable, steps: Sequence[int], images: tuple[int, int], cell: tuple[_Class, ...], element: int
    ) -> tuple[int, Ints]:
        """Operand offsets of classes in words from the call's first tap: the first offset, and all relative to it.

        [images, positions..., taps...]. Positions go block by block: the table's offsets for one block, plus the
        block's begin.
        """
        key = (unit, *steps, *images, *cell)
        found = self._offsets.get(key)
        if found is None:
            window, rank = self._window, len(cell)
            ramps: list[Ints] = []
            for axis, (begin, end) in enumerate([images, *(each.positions for each in cell)]):
                real = axis if axis == 0 else axis + 1
                numbers = np.arange(begin, end, dtype=np.int64)
                blocks = numbers // unit.block[real] * unit.block[real]
                step = steps[real] * (window.strides[axis - 1] if axis else 1)
                ramps.append(blocks * step + unit.bases[real][numbers - blocks])
            taps = unit.offsets[tuple(slice(*each.taps) for each in cell)]
            total = ramps[0].reshape(-1, *(1,) * (2 * rank))
            for axis, ramp in enumerate(ramps[1:], start=1):
                total = total + ramp.reshape(-1, *(1,) * (2 * rank - axis))
            total = (total + taps) // element
            first = int(total.min())
            self._kept += total.size
            if self._kept > _MOST_KEPT:
                self._offsets.clear()
                self._steps.clear()
                self._kept = total.size
            found = self._offsets[key] = (first, total - first)
        return found


def empty_met(
    box: Box, kernel: Sequence[int], channels: int, fill: float, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """An array [N, extents..., kernel..., C] filled with a value, and the same array as unsigned words."""
    sides = [stop - start for start, stop in (box[0], *box[SPATIAL:])]
    met = np.full((*sides, *kernel, channels), fill, dtype=dtype)
    return met, met.view(np.dtype(f"u{dtype.itemsize}"))


def as_windows(met: NDArray[Any], rank: int) -> NDArray[Any]:
    """[N, extents..., kernel..., C] as [N, C, kernel..., extents...]; not copied."""
    return met.transpose(0, 1 + 2 * rank, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))


def met_bytes(box: Box, kernel: Sequence[int], channels: int, element_bytes: int) -> int:
    """Bytes of the array that `empty_met` makes."""
    sides = [stop - start for start, stop in (box[0], *box[SPATIAL:])]
    return prod(sides) * prod(kernel) * channels * element_bytes
