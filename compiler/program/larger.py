"""Room in a core for what the plan's buffers have none for: pieces of tiles that are larger than the usual one.

The first tile of a walk is larger than others where halos are kept. What stays in the core otherwise passes it in
pieces then (`tiling/stages.py`), through the space that is free meanwhile: beside the buffers of the stage at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from compiler.program.emitter import Box

# Every address is a multiple of it, as those beside buffers are.
_ALIGNMENT = 64


class FreeSpace:
    """Ranges of a core's memory from which space is taken, the first that has room first."""

    def __init__(self, areas: Iterable[tuple[int, int]]) -> None:
        """`areas`: begin and end of each, in bytes; space begins at multiples of 64."""
        self._areas: list[tuple[int, int]] = []
        for begin, end in sorted(areas):
            begin = -(-begin // _ALIGNMENT) * _ALIGNMENT
            if self._areas and begin <= self._areas[-1][1]:
                self._areas[-1] = (self._areas[-1][0], max(end, self._areas[-1][1]))
            elif begin < end:
                self._areas.append((begin, end))
        self._taken = [begin for begin, _ in self._areas]

    @property
    def largest_bytes(self) -> int:
        """The most that can be taken at once while nothing is."""
        return max((end - begin for begin, end in self._areas), default=0)

    def take(self, size_bytes: int) -> int | None:
        """The address of so many bytes, None if no area has them left."""
        for number, (_, end) in enumerate(self._areas):
            begin = self._taken[number]
            if begin + size_bytes <= end:
                self._taken[number] = begin + -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
                return begin
        return None


def gaps(taken: Iterable[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """What lies between ranges of addresses, from 0 to an end; ranges may overlap."""
    found, at = [], 0
    for start, stop in sorted(taken):
        if start > at:
            found.append((at, start))
        at = max(at, stop)
    return [*found, (at, end)] if at < end else found


def cut(box: Box, extents: Iterable[int]) -> list[Box]:
    """A box in pieces of these extents, along each axis from its begin, in row-major order."""
    ranges = [
        [(begin, min(begin + extent, stop)) for begin in range(start, stop, extent)]
        for (start, stop), extent in zip(box, extents, strict=True)
    ]
    return list(product(*ranges))


def smaller(extents: tuple[int, ...], axes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """These extents and ever smaller ones: the axes are halved down to one element, each before the next."""
    yield extents
    for axis in axes:
        while extents[axis] > 1:
            extents = (*extents[:axis], extents[axis] // 2 + extents[axis] % 2, *extents[axis + 1 :])
            yield extents
