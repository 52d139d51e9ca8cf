"""Assigns addresses to buffers by their lifetimes and searches for a low peak (PROG-2).

Finding the lowest peak is NP-hard, so this is a heuristic search. It places buffers one after another, each at the
lowest address that is free for its whole life. At least one order of placing gives the optimum (an optimal allocation's
buffers by address), so the search covers orders only.

It first tries four orders: by size, by begin, by area, by life. Then it improves each of them: when a buffer would
reach the best peak so far, that buffer moves half-way to the front and placing begins again. The search ends when the
peak equals the most bytes live at any step (no allocation can be lower) or fits the capacity.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import gcd, lcm
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.errors import InternalError
from compiler.units import ceil_div

# Placings to improve one order. Most end early, at the first buffer that would reach the best peak.
_ROUNDS: Final = 128
# Placed buffers to compare with before improvement ends: about half a second.
_WORK: Final = 4_000_000
# Up to this many buffers alive at the same time are listed and sorted per place; above it, all placed ones are scanned.
_FEW: Final = 256
# Above this many places, the placed ones are scanned as arrays.
_MANY: Final = 192


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Bytes at one address during the steps `begin` to `end` (half-open, at least one step).

    `shares` names the buffer whose space this one reuses, for results made in place. Both have the same address, and
    this one is no larger. Its life begins when the other's ends, or in the other's last step. The space keeps the first
    buffer's size until the last buffer that reuses it ends.
    """

    name: str
    size_bytes: int
    begin: int
    end: int
    alignment_bytes: int = 1
    shares: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One address per buffer, by name in ascending order.

    `peak_bytes` is the highest address used plus one. `lower_bound_bytes` is the most bytes live at any step, with the
    padding that alignment forces on every allocation.
    """

    addresses: Mapping[str, int]
    peak_bytes: int
    lower_bound_bytes: int

    @property
    def ratio(self) -> float:
        """Peak divided by lower bound, at least 1; 1 without any bytes."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One buffer in memory at its address."""

    address: int
    size_bytes: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """The contents of memory during the steps `begin` to `end` (half-open), by ascending address."""

    begin: int
    end: int
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A space to find one address for: a buffer and the buffers that reuse its space in turn."""

    names: tuple[str, ...]
    size_bytes: int
    begin: int
    end: int
    alignment_bytes: int


def allocate(buffers: Iterable[Buffer], capacity_bytes: int | None = None) -> Allocation:
    """Assigns an address to each buffer so that live buffers are disjoint and the peak is low (PROG-2).

    With `capacity_bytes` the search stops at the first allocation that fits. It may find no allocation that fits, or
    there may be none: compare `peak_bytes`. The result does not depend on the order of `buffers`. Raises InternalError
    for contradictory buffers (equal names, empty lives, space reused twice or from an unknown buffer).
    """
    places = _places_of(buffers)
    bound = _lower_bound(places)
    goal = max(bound, capacity_bytes or 0)
    search = _Search(places)
    for order in _orders(places):
        if search.peak_bytes is None or search.peak_bytes > goal:
            search.place(order)
    for order in sorted(search.tried, key=lambda order: order != search.best):
        search.improve(order, goal)
    found = {name: at for place, at in zip(places, search.addresses, strict=True) for name in place.names}
    return Allocation(
        addresses=MappingProxyType({name: found[name] for name in sorted(found)}),
        peak_bytes=search.peak_bytes or 0,
        lower_bound_bytes=bound,
    )


def verify_allocation(buffers: Iterable[Buffer], allocation: Allocation) -> None:
    """Raise InternalError unless each buffer has an aligned address below the peak and live ones are disjoint."""
    ordered = sorted(buffers, key=lambda buffer: (buffer.begin, buffer.name))
    places = _places_of(ordered)
    at = allocation.addresses
    if set(at) != {buffer.name for buffer in ordered}:
        raise InternalError("an allocation is for other buffers than these", stage="memory")
    for buffer in ordered:
        if at[buffer.name] < 0 or at[buffer.name] + buffer.size_bytes > allocation.peak_bytes:
            raise _wrong("lies outside its memory", buffer, at[buffer.name], limit=allocation.peak_bytes)
        if at[buffer.name] % buffer.alignment_bytes:
            raise _wrong("is not aligned", buffer, at[buffer.name], limit=buffer.alignment_bytes)
        if buffer.shares is not None and at[buffer.name] != at[buffer.shares]:
            raise _wrong("does not lie where what it takes over lies", buffer, at[buffer.name], limit=at[buffer.shares])
    place_of = {name: index for index, place in enumerate(places) for name in place.names}
    ordered = [buffer for buffer in ordered if buffer.size_bytes]
    begins = np.array([buffer.begin for buffer in ordered], dtype=np.int64)
    lows = np.array([at[buffer.name] for buffer in ordered], dtype=np.int64)
    highs = lows + np.array([buffer.size_bytes for buffer in ordered], dtype=np.int64)
    owners = np.array([place_of[buffer.name] for buffer in ordered], dtype=np.int64)
    # a buffer that begins between another's begin and end is alive at the same time
    until = np.searchsorted(begins, [buffer.end for buffer in ordered])
    for index, buffer in enumerate(ordered):
        later = slice(index + 1, int(until[index]))
        clash = (lows[later] < highs[index]) & (highs[later] > lows[index]) & (owners[later] != owners[index])
        if clash.any():
            other = ordered[index + 1 + int(clash.argmax())]
            raise _wrong(f"overlaps {other.name} at {at[other.name]}", buffer, at[buffer.name], limit=None)


def occupancy(buffers: Iterable[Buffer], allocation: Allocation) -> tuple[Occupancy, ...]:
    """Lists the contents of memory step by step: the map of address × time (PROG-2).

    Each entry is a run of steps in which no buffer begins or ends; together they cover the first begin to the last end
    without gaps. Buffers without bytes are left out. In a step that makes a result in place both buffers appear at the
    same address.
    """
    by_begin = sorted((buffer for buffer in buffers if buffer.size_bytes), key=lambda buffer: buffer.begin)
    steps = sorted({step for buffer in by_begin for step in (buffer.begin, buffer.end)})
    runs: list[Occupancy] = []
    live: list[Buffer] = []
    coming = 0
    for begin, end in pairwise(steps):
        live = [buffer for buffer in live if buffer.end > begin]
        while coming < len(by_begin) and by_begin[coming].begin == begin:
            live.append(by_begin[coming])
            coming += 1
        held = (Held(address=allocation.addresses[b.name], size_bytes=b.size_bytes, name=b.name) for b in live)
        runs.append(Occupancy(begin=begin, end=end, held=tuple(sorted(held, key=lambda h: (h.address, h.name)))))
    return tuple(runs)


def _first_gap(taken: Iterable[tuple[int, int]], place: _Place) -> int:
    """The lowest address for a place beside the ranges (address, top), which are in order of address."""
    at, size = 0, place.size_bytes
    for low, high in taken:
        if low - at >= size:
            break
        if high > at:
            at = ceil_div(high, place.alignment_bytes) * place.alignment_bytes
    return at


class _Placed:
    """The places with an address so far, sorted by address."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []  # (address, top, begin, end)

    @property
    def count(self) -> int:
        """Number of places."""
        return len(self._rows)

    def add(self, address: int, place: _Place) -> None:
        """Adds a place."""
        insort(self._rows, (address, address + place.size_bytes, place.begin, place.end))

    def lowest(self, place: _Place) -> int:
        """The lowest address at which a place overlaps no place that is alive at the same time."""
        first, last = place.begin, place.end
        taken = ((low, high) for low, high, begin, end in self._rows if begin < last and end > first)
        return _first_gap(taken, place)


class _ManyPlaced:
    """As `_Placed`, in arrays: with thousands of places, each new one is compared with all earlier ones."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self._rows = np.empty((4, most), dtype=np.int64)  # addresses, tops, begins, ends

    def add(self, address: int, place: _Place) -> None:
        """Adds a place."""
        at = int(np.searchsorted(self._rows[0, : self.count], address, side="right"))
        self._rows[:, at + 1 : self.count + 1] = self._rows[:, at : self.count]
        self._rows[:, at] = address, address + place.size_bytes, place.begin, place.end
        self.count += 1

    def lowest(self, place: _Place) -> int:
        """The lowest address at which a place overlaps no place that is alive at the same time."""
        low, high, begin, end = self._rows[:, : self.count]
        taken = (begin < place.end) & (end > place.begin)
        # candidates: 0, and the top of everything below
        starts = np.concatenate(([0], -(-np.maximum.accumulate(high[taken]) // place.alignment_bytes)))
        starts *= place.alignment_bytes
        fits = low[taken] - starts[:-1] >= place.size_bytes
        return int(starts[int(np.argmax(fits)) if fits.any() else -1])


class _Search:
    """The best placing so far, and the orders already tried."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self.peak_bytes: int | None = None
        self.addresses: Sequence[int] = ()
        self.best: tuple[int, ...] = ()
        self.tried: dict[tuple[int, ...], None] = {}
        self._places = places
        self._begins = np.array([place.begin for place in places], dtype=np.int64)
        self._ends = np.array([place.end for place in places], dtype=np.int64)
        self._few = min(len(places) // 8, _FEW)
        self._beside = self._neighbours()
        self._work = _WORK

    def place(self, order: tuple[int, ...]) -> int | None:
        """Places in this order; returns None for a new best peak, else the place that would reach the old one."""
        self.tried[order] = None
        addresses = [-1] * len(order)
        tops = [0] * len(order)
        placed = _ManyPlaced(len(order)) if len(order) > _MANY else _Placed()
        peak = 0
        for index in order:
            place = self._places[index]
            beside = self._beside[index]
            if beside is None:
                self._work -= placed.count
                at = placed.lowest(place)
            else:
                self._work -= len(beside)
                taken = sorted([(addresses[i], tops[i]) for i in beside if addresses[i] >= 0])
                at = _first_gap(taken, place)
            addresses[index] = at
            tops[index] = top = at + place.size_bytes
            placed.add(at, place)
            if top > peak:
                peak = top
                if self.peak_bytes is not None and peak >= self.peak_bytes:
                    return index
        self.peak_bytes, self.addresses, self.best = peak, addresses, order
        return None

    def improve(self, order: tuple[int, ...], goal: int) -> None:
        """Moves the place that would reach the best peak to the front and places again, while orders are new."""
        for _ in range(_ROUNDS):
            if self.peak_bytes is None or self.peak_bytes <= goal or self._work <= 0:
                return
            late = self.place(order)
            if late is not None:
                changed = self._changed(order, order.index(late))
                if changed is None:
                    return
                order = changed

    def _changed(self, order: tuple[int, ...], late: int) -> tuple[int, ...] | None:
        """Returns an untried order with the place at position `late` moved half-way to the front, or half-way again.

        If all of those were tried (few buffers have few orders), another place moves, the last ones first.
        """
        for position in (late, *range(len(order) - 1, 0, -1)):
            to = position
            while to:
                to //= 2
                changed = (*order[:to], order[position], *order[to:position], *order[position + 1 :])
                if changed not in self.tried:
                    return changed
        return None

    def _neighbours(self) -> list[list[int] | None]:
        """For each place the places alive at some step of its life, itself included; None if there are too many."""
        # lives that began before the end, minus those that ended before the begin
        counts = np.searchsorted(np.sort(self._begins), self._ends) - np.searchsorted(
            np.sort(self._ends), self._begins, side="right"
        )
        return [
            np.flatnonzero((self._begins < place.end) & (self._ends > place.begin)).tolist()
            if count <= self._few
            else None
            for place, count in zip(self._places, counts.tolist(), strict=True)
        ]


def _orders(places: Sequence[_Place]) -> list[tuple[int, ...]]:
    """The initial orders: largest, earliest, largest area, longest life first; ties by name."""

    def life(index: int) -> int:
        return places[index].end - places[index].begin

    def size(index: int) -> int:
        return places[index].size_bytes

    indices = range(len(places))
    return [
        tuple(sorted(indices, key=lambda i: (-size(i), -life(i)))),
        tuple(sorted(indices, key=lambda i: (places[i].begin, -size(i)))),
        tuple(sorted(indices, key=lambda i: -size(i) * life(i))),
        tuple(sorted(indices, key=lambda i: (-life(i), -size(i)))),
    ]


def _places_of(buffers: Iterable[Buffer]) -> list[_Place]:
    """Joins each buffer with those that reuse its space; sorted by the first one's name."""
    by_name: dict[str, Buffer] = {}
    heirs: dict[str, Buffer] = {}
    for buffer in sorted(buffers, key=lambda buffer: buffer.name):
        if buffer.name in by_name:
            raise InternalError(f"two buffers are called {buffer.name}", stage="memory")
        if buffer.size_bytes < 0 or buffer.alignment_bytes < 1 or buffer.end <= buffer.begin:
            raise InternalError("a buffer has no life, or no size or alignment", stage="memory", actual=str(buffer))
        by_name[buffer.name] = buffer
        if buffer.shares is not None:
            if buffer.shares in heirs:
                raise InternalError(f"the space of buffer {buffer.shares} is taken over twice", stage="memory")
            heirs[buffer.shares] = buffer
    for name, heir in heirs.items():
        owner = by_name.get(name)
        if owner is None or heir.size_bytes > owner.size_bytes or heir.begin not in (owner.end - 1, owner.end):
            raise InternalError(
                "a buffer cannot take over the space it asks for", stage="memory", actual=f"{heir} after {owner}"
            )
    places = []
    joined = 0
    for first in by_name.values():
        if first.shares is None:
            line = [first]
            while line[-1].name in heirs:
                line.append(heirs[line[-1].name])
            joined += len(line)
            places.append(
                _Place(
                    names=tuple(buffer.name for buffer in line),
                    size_bytes=first.size_bytes,
                    begin=first.begin,
                    end=line[-1].end,
                    alignment_bytes=lcm(*(buffer.alignment_bytes for buffer in line)),
                )
            )
    if joined < len(by_name):
        raise InternalError("buffers take over each other's space in a circle", stage="memory")
    return places


def _lower_bound(places: Sequence[_Place]) -> int:
    """The most bytes live at any step.

    Addresses are multiples of the alignments' greatest common divisor, so every live place except the topmost occupies
    whole multiples of it. The topmost place is unknown, so the largest padding is subtracted.
    """
    unit = gcd(*(place.alignment_bytes for place in places))
    bound = total = 0
    ending: list[tuple[int, int]] = []  # (end, padded size) of live places
    padding: list[tuple[int, int]] = []  # (-padding, end) of live places and of some ended ones
    for place in sorted(places, key=lambda place: place.begin):
        while ending and ending[0][0] <= place.begin:
            total -= heappop(ending)[1]
        padded = ceil_div(place.size_bytes, unit) * unit
        total += padded
        heappush(ending, (place.end, padded))
        heappush(padding, (place.size_bytes - padded, place.end))
        while padding[0][1] <= place.begin:
            heappop(padding)
        bound = max(bound, total + padding[0][0])
    return bound


def _wrong(what: str, buffer: Buffer, address: int, limit: int | None) -> InternalError:
    return InternalError(f"buffer {buffer.name} {what}", stage="memory", actual=address, limit=limit)
