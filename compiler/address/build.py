"""Address tables of windows over a buffer of fixed strides (ADDR-1, ADDR-2, ADDR-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.address.table import AddressTable, frozen, ramp
from compiler.errors import InternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRead:
    """A window over one buffer: along every axis, tap k of position p reads element p·stride + k·dilation.

    `distances` are the buffer's bytes from element to element along each axis, in any layout. No tap is padding. What
    makes no difference counts as 1 or 0 (the stride along an axis of one position), so that equal tables have equal
    reads: a read is the key of its table (ADDR-5). Raises InternalError on counts or steps that no window has.
    """

    positions: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    distances: tuple[int, ...]
    element_bytes: int

    def __post_init__(self) -> None:
        axes = tuple(zip(self.positions, self.taps, self.strides, self.dilations, self.distances, strict=True))
        if min(min(axis[:4]) for axis in axes) < 1 or min(self.distances) < 0 or self.element_bytes < 1:
            raise InternalError(
                "a window has positive counts, strides and dilations", stage="address", actual=str(self)
            )
        for name, values in (
            ("strides", (stride if count > 1 else 1 for count, _, stride, _, _ in axes)),
            ("dilations", (dilation if taps > 1 else 1 for _, taps, _, dilation, _ in axes)),
            ("distances", (distance if max(count, taps) > 1 else 0 for count, taps, _, _, distance in axes)),
        ):
            object.__setattr__(self, name, tuple(values))

    @property
    def inputs(self) -> dict[str, int | tuple[int, ...]]:
        """Everything that decides the table, by name: what it is stored under."""
        return {
            "distances": self.distances,
            "dilations": self.dilations,
            "element_bytes": self.element_bytes,
            "positions": self.positions,
            "strides": self.strides,
            "taps": self.taps,
        }

    @property
    def steps(self) -> tuple[int, ...]:
        """Bytes from one position to the next along each axis; 0 along axes of one."""
        every = zip(self.positions, self.strides, self.distances, strict=True)
        return tuple(stride * distance if count > 1 else 0 for count, stride, distance in every)

    @property
    def tap_steps(self) -> tuple[int, ...]:
        """Bytes from one tap to the next along each axis; 0 along axes of one."""
        every = zip(self.taps, self.dilations, self.distances, strict=True)
        return tuple(dilation * distance if count > 1 else 0 for count, dilation, distance in every)

    @property
    def reach_bytes(self) -> int:
        """Bytes from the first element that is read to the last."""
        return _reach(self.positions, self.steps) + _reach(self.taps, self.tap_steps)


def build_table(read: WindowRead) -> AddressTable:
    """The address table of a read: bases and offsets ascend, elements side by side are one run (ADDR-4)."""
    axes, tap_axes, run_length = orders_of(read)
    offsets = ramp(read.taps, read.tap_steps, tap_axes)
    return AddressTable(
        element_bytes=read.element_bytes,
        positions=read.positions,
        taps=read.taps,
        axes=axes,
        tap_axes=tap_axes,
        bases=frozen(ramp(read.positions, read.steps, axes)),
        run_offsets=frozen(np.ascontiguousarray(offsets[::run_length])),
        run_length=run_length,
    )


def orders_of(read: WindowRead) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The axes of positions and of taps, each outermost first, and how many taps follow one another in memory."""
    axes, tap_axes = _outer_first(read.positions, read.steps), _outer_first(read.taps, read.tap_steps)
    inner = tap_axes[-1]
    return axes, tap_axes, read.taps[inner] if read.tap_steps[inner] == read.element_bytes else 1


def _outer_first(counts: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Axes by the distance of their elements, those of one first: they must not pass for the innermost."""
    return tuple(sorted(range(len(counts)), key=lambda axis: (counts[axis] > 1, -steps[axis], axis)))


def _reach(counts: Sequence[int], steps: Sequence[int]) -> int:
    return sum((count - 1) * step for count, step in zip(counts, steps, strict=True))
