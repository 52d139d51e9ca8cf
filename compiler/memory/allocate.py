"""Addresses for buffers by their lifetimes, with as low a peak as can be found (PROG-2).

Finding the lowest peak is NP-hard, so this is a search in three steps. Buffers are placed one after another, each at
the lowest address that is free for all of its life; some order of placing always gives the optimum (the buffers of an
optimal allocation by address), so only orders are searched. First come four orders that do well: by size, by begin, by
area, by life. Where none reaches the goal, each is improved: as soon as placing meets a buffer that would reach the
best peak so far, that buffer moves half-way to the front and placing begins again. The search ends as soon as the peak
is the most bytes live at any step, since no allocation can be lower, or fits the capacity.
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

# Placings that improve one order. Most end early, at the first buffer that would reach the best peak.
_ROUNDS: Final = 128
# Placed buffers looked at before improvement ends: half a second or so.
_WORK: Final = 4_000_000
# Up to so many neighbours in time are listed and sorted for a place; with more it passes through all that is placed.
_FEW: Final = 256
# With more places than this, what is placed is passed through as arrays.
_MANY: Final = 192


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Bytes at one address during the steps `begin` to `end` (half-open, at least one step).

    `shares` names the buffer whose space this one takes over exactly, for results made in place: both have the same
    address, this one is no larger, and its life begins as the other's ends or in the other's last step. The space
    keeps the first one's size until the last one that takes it over ends.
    """

    name: str
    size_bytes: int
    begin: int
    end: int
    alignment_bytes: int = 1
    shares: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """An address per buffer, by name in ascending order.

    `peak_bytes` is one more than the highest address used; `lower_bound_bytes` the most bytes live at any step, with
    what alignment costs in any allocation.
    """

    addresses: Mapping[str, int]
    peak_bytes: int
    lower_bound_bytes: int

    @property
    def ratio(self) -> float:
        """The peak over the lower bound, at least 1; 1 where there are no bytes at all."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What lies at an address."""

    address: int
    size_bytes: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What memory holds during the steps `begin` to `end` (half-open), by ascending address."""

    begin: int
    end: int
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One address to be found: for a buffer and those that take over its space one after another."""

    names: tuple[str, ...]
    size_bytes: int
    begin: int
    end: int
    alignment_bytes: int


def allocate(buffers: Iterable[Buffer], capacity_bytes: int | None = None) -> Allocation:
    """An address per buffer, live ones disjoint, with a low peak (PROG-2).

    With `capacity_bytes` the first allocation found that fits is taken. One that fits need not be found, nor exist:
    compare `peak_bytes`. The result does not depend on the order of `buffers`. Raises InternalError on buffers that
    contradict themselves or each other (equal names, empty lives, space taken over from nobody or twice).
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
    # what begins after a buffer and before its end lives at the same time as it
    until = np.searchsorted(begins, [buffer.end for buffer in ordered])
    for index, buffer in enumerate(ordered):
        later = slice(index + 1, int(until[index]))
        clash = (lows[later] < highs[index]) & (highs[later] > lows[index]) & (owners[later] != owners[index])
        if clash.any():
            other = ordered[index + 1 + int(clash.argmax())]
            raise _wrong(f"overlaps {other.name} at {at[other.name]}", buffer, at[buffer.name], limit=None)


def occupancy(buffers: Iterable[Buffer], allocation: Allocation) -> tuple[Occupancy, ...]:
    """What lies where, step by step: the map of address × time (PROG-2).

    Runs of steps between which nothing begins or ends, from the first begin to the last end without holes. Buffers
    without bytes are left out; in a step that makes a result in place both buffers appear at the one address.
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
    """The lowest address for a place beside ranges (address, top) in order of their addresses."""
    at, size = 0, place.size_bytes
    for low, high in taken:
        if low - at >= size:
            break
        if high > at:
            at = ceil_div(high, place.alignment_bytes) * place.alignment_bytes
    return at


class _Placed:
    """What is placed so far, by address."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []  # (address, top, begin, end)

    @property
    def count(self) -> int:
        """How many places are."""
        return len(self._rows)

    def add(self, address: int, place: _Place) -> None:
        """Enter a place."""
        insort(self._rows, (address, address + place.size_bytes, place.begin, place.end))

    def lowest(self, place: _Place) -> int:
        """The lowest address at which a place shares no byte with what lives at the same time."""
        first, last = place.begin, place.end
        taken = ((low, high) for low, high, begin, end in self._rows if begin < last and end > first)
        return _first_gap(taken, place)


class _ManyPlaced:
    """As `_Placed`, in arrays: of thousands of places each passes through all before it."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self._rows = np.empty((4, most), dtype=np.int64)  # addresses, tops, begins, ends

    def add(self, address: int, place: _Place) -> None:
        """Enter a place."""
        at = int(np.searchsorted(self._rows[0, : self.count], address, side="right"))
        self._rows[:, at + 1 : self.count + 1] = self._rows[:, at : self.count]
        self._rows[:, at] = address, address + place.size_bytes, place.begin, place.end
        self.count += 1

    def lowest(self, place: _Place) -> int:
        """The lowest address at which a place shares no byte with what lives at the same time."""
        low, high, begin, end = self._rows[:, : self.count]
        taken = (begin < place.end) & (end > place.begin)
        # it may begin at 0 or behind all that lies below
        starts = np.concatenate(([0], -(-np.maximum.accumulate(high[taken]) // place.alignment_bytes)))
        starts *= place.alignment_bytes
        fits = low[taken] - starts[:-1] >= place.size_bytes
        return int(starts[int(np.argmax(fits)) if fits.any() else -1])


class _Search:
    """The best placing so far, and the orders tried."""

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
        """Place in this order; the place that would reach the best peak so far, or None if that was beaten."""
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
        """Move what would reach the best peak towards the front and place again, while that gives new orders."""
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
        """An order not tried yet, with the place at position `late` half-way to the front, or half-way again.

        Where all of those were tried (there are few orders of few buffers) another place moves, the last ones first.
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
        """For each place those that live at some step of its life, itself included, where they are few."""
        # lives that began before the end, without those that ended before the begin
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
    """The orders to begin with: largest, earliest, largest area, longest first; ties by name."""

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
    """Buffers joined with those that take over their space, by name of the first."""
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

    Addresses are multiples of the alignments' common divisor, so all but the topmost live place take up whole
    multiples of it; which one is topmost is not known, so the largest padding is left out.
    """
    unit = gcd(*(place.alignment_bytes for place in places))
    bound = total = 0
    ending: list[tuple[int, int]] = []  # (end, padded size) of live places
    padding: list[tuple[int, int]] = []  # (-padding, end) of live places and of some that have ended
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
