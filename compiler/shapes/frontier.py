"""Covers of one axis: one computed frontier answers every length of it (SHAPE-6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.shapes.cost import Floats
from compiler.shapes.units import Lengths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """The kinds of pieces along an axis: whole ones, of a unit's extent, descending; then clipped tails, ascending."""

    extents: Lengths
    tails: Lengths

    def __len__(self) -> int:
        return len(self.extents) + len(self.tails)

    @property
    def lengths(self) -> Lengths:
        """The length of each kind inside the tensor."""
        return np.concatenate([self.extents, self.tails])

    @classmethod
    def of_length(cls, extents: Lengths, length: int) -> Pieces:
        """What can occur in covers of one length: of tails those that are left by some sum of extents."""
        usable, longest = _descending(extents, length)
        reached = np.zeros(length + 1, dtype=np.bool_)
        reached[0] = True
        for extent in usable.tolist():
            for start in range(extent):
                # once a position is reached, so are all that lie multiples of the extent behind it
                reached[start::extent] = np.logical_or.accumulate(reached[start::extent])
        tails = length - np.flatnonzero(reached)[::-1]
        return cls(extents=usable, tails=tails[(tails >= 1) & (tails <= longest)])

    @classmethod
    def up_to(cls, extents: Lengths, length: int) -> Pieces:
        """What can occur in covers of any length up to one."""
        usable, longest = _descending(extents, length)
        return cls(extents=usable, tails=np.arange(1, min(longest, length) + 1, dtype=np.int64))


def _descending(extents: Lengths, length: int) -> tuple[Lengths, int]:
    """The extents that fit into a length, and the longest of all, which tails are clipped from."""
    distinct = np.unique(extents)
    return distinct[distinct <= length][::-1].astype(np.int64), int(distinct[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal pieces in a row: their kind, where they begin, how long each is, how many."""

    kind: int
    start: int
    length: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """The cheapest covers of the wanted lengths of one axis; `cycles` are theirs."""

    pieces: Pieces
    wanted: Lengths
    cycles: Floats
    ends: NDArray[np.int32]
    sums: Floats
    last: NDArray[np.int32]

    @classmethod
    def build(cls, pieces: Pieces, costs: Floats, wanted: Lengths) -> Frontier:
        """`costs` by kind of piece; `wanted` lengths rise."""
        # imported where it is used alone: it brings a compiler with it
        from compiler.shapes.kernels import frontier

        count = len(pieces.extents)
        cycles, ends, sums, last = frontier(
            np.ascontiguousarray(costs[:count]),
            pieces.extents,
            np.ascontiguousarray(costs[count:]),
            pieces.tails,
            wanted,
        )
        return cls(pieces=pieces, wanted=wanted, cycles=cycles, ends=ends, sums=sums, last=last)

    def cover(self, number: int) -> tuple[Part, ...]:
        """The pieces of wanted[number], longer ones first and the tail last (SHAPE-5).

        A shorter length thus drops pieces from the end and clips one.
        """
        from compiler.shapes.kernels import NO_PIECE, whole_pieces

        length, end, kinds = int(self.wanted[number]), int(self.ends[number]), len(self.pieces.extents)
        before = length if end == NO_PIECE else length - int(self.pieces.tails[end])
        counts = whole_pieces(self.pieces.extents, self.last, before)
        parts, start = [], 0
        for kind in np.flatnonzero(counts).tolist():
            extent, count = int(self.pieces.extents[kind]), int(counts[kind])
            parts.append(Part(kind=kind, start=start, length=extent, count=count))
            start += extent * count
        if end != NO_PIECE:
            parts.append(Part(kind=kinds + end, start=start, length=length - start, count=1))
        return tuple(parts)


def cover_cycles(pieces: Pieces, costs: Floats, wanted: Lengths) -> Floats:
    """The cheapest covers of many rows of costs at once: [..., kinds] -> [..., wanted]."""
    from compiler.shapes.kernels import best_covers

    count = len(pieces.extents)
    rows = np.ascontiguousarray(costs.reshape(-1, costs.shape[-1]))
    found: Floats = best_covers(
        np.ascontiguousarray(rows[:, :count]),
        pieces.extents,
        np.ascontiguousarray(rows[:, count:]),
        pieces.tails,
        wanted,
    )
    return found.reshape(*costs.shape[:-1], len(wanted))
