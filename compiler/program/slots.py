"""Slots: buffers of a place, what lies in them, and what a command that touches them waits for.

A *slot* is a buffer of a place: bytes at one address for one use. What touches a slot leaves its mark there, queue by
queue, so that later commands know what to wait for: a read waits for the writes before it; the first write of a new
content (`begin`) waits for all that touched these bytes before, through whatever slot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Generic, TypeVar

# The streams of an engine: what comes to the cores, weights, what leaves them, and what passes between or inside them.
# Each keeps its order; while commands are collected, a mark's or a command's queue is its engine times so many, and its
# stream.
STREAMS: Final = 4
Marks = dict[int, int]
_Bytes = TypeVar("_Bytes", "Span", "Slot")


class Span:
    """Bytes [address, address + size_bytes) of a place, for all slots that lie at just these.

    As many slots take turns there as a group has tensors, so what is the same for all of them is kept once. `conflicts`
    are other spans that share bytes with it. `latest`: the slot here or in one of these that began last. `unwritten`:
    slots whose content has begun and was not written yet.
    """

    __slots__ = ("_is_stale", "_touched", "address", "conflicts", "latest", "size_bytes", "slots", "unwritten")

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.conflicts: list[Span] = []
        self.slots: list[Slot] = []
        self.latest: Slot | None = None
        self.unwritten: dict[Slot, None] = {}
        self._touched: Marks = {}
        self._is_stale = False

    @property
    def touched(self) -> Marks:
        """What has touched the contents that lie here now, through any slot."""
        if self._is_stale:
            self._is_stale = False
            self._touched = {}
            for slot in self.slots:
                self._touched = merged(self._touched, slot.touched)
        return self._touched

    def touch(self, queue: int, number: int) -> None:
        """Note a command, the latest so far."""
        self._touched[queue] = number

    def forget(self, touched: Marks) -> None:
        """Leave out marks of a content that has ended; other slots may have some of them too."""
        if not self._is_stale:
            latest = self._touched
            self._is_stale = any(latest.get(queue) == command for queue, command in touched.items())


class ByAddress(Generic[_Bytes]):
    """What lies in one place, found by the bytes that it shares: of about equal size in order of addresses."""

    def __init__(self, items: Iterable[_Bytes] = ()) -> None:
        # by number of bits of the size: addresses, ascending, and what lies there
        self._by_size: dict[int, tuple[list[int], list[_Bytes]]] = {}
        for item in items:
            self.add(item)

    def add(self, item: _Bytes) -> None:
        """Enter what is to be found."""
        starts, items = self._by_size.setdefault(item.size_bytes.bit_length(), ([], []))
        at = bisect_right(starts, item.address)
        starts.insert(at, item.address)
        items.insert(at, item)

    def sharing(self, address: int, size_bytes: int) -> Iterator[_Bytes]:
        """What shares a byte with a range; what is empty counts as the point where it lies."""
        end = address + size_bytes
        for bits, (starts, items) in self._by_size.items():
            for item in items[bisect_right(starts, address - (1 << bits)) : bisect_left(starts, end)]:
                if address < item.address + item.size_bytes:
                    yield item


class Spans:
    """The spans of one place."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Span] = {}
        self._by_address: ByAddress[Span] = ByAddress()

    def enter(self, slot: Slot) -> Span:
        """Tell a slot its span, and so which others share bytes with it."""
        key = (slot.address, slot.size_bytes)
        span = self._known.get(key)
        if span is None:
            span = Span(*key)
            span.conflicts = list(self._by_address.sharing(*key))
            for other in span.conflicts:
                other.conflicts.append(span)
            self._by_address.add(span)
            # empty ones share no byte, not even with each other
            if slot.size_bytes:
                self._known[key] = span
        span.slots.append(slot)
        slot.span = span
        return span


class Slot:
    """Bytes [address, address + size_bytes) of a place, and the last command of each queue that touched them.

    `touched` are the marks of what read or wrote since the content began, `writers` of what wrote. `span` knows other
    slots that share bytes with it, `before` are the marks of those that nothing touches any more; `content` says what
    it holds now, for what is loaded once. `served`: bit by queue, whether one of its writes has waited for `barrier`.
    """

    __slots__ = (
        "_content",
        "address",
        "barrier",
        "before",
        "place",
        "served",
        "size_bytes",
        "span",
        "touched",
        "writers",
    )

    def __init__(self, place: int, address: int, size_bytes: int) -> None:
        self.place = place
        self.address = address
        self.size_bytes = size_bytes
        self.span: Span | None = None
        self._content: object = None
        self.touched: Marks = {}
        self.writers: Marks = {}
        self.before: Marks = {}
        self.barrier: Marks = {}
        self.served = 0

    @property
    def content(self) -> object:
        """What it holds; None once another slot that shares bytes with it has begun."""
        return self._content if self.span is None or self.span.latest is self else None

    @content.setter
    def content(self, content: object) -> None:
        self._content = content
        if self.span is not None:
            self.span.latest = self

    def begin(self, content: object = None) -> None:
        """New content: its writes wait for all that touched these bytes before."""
        span = self.span
        barrier = self.touched if span is None else span.touched.copy()
        if self.before:
            barrier = merged(barrier, self.before)
        if not self.writers:
            # its content was never written: what was there before may still be read
            barrier = merged(barrier, self.barrier)
        if span is not None:
            if self.touched:
                span.forget(self.touched)
            for other in (span, *span.conflicts):
                other.latest = self
                if other is not span:
                    barrier = merged(barrier, other.touched)
                for slot in other.unwritten:
                    barrier = merged(barrier, slot.barrier)
            span.unwritten[self] = None
        self.barrier, self.touched, self.writers = barrier, {}, {}
        self.served = 0
        self._content = content

    def part(self) -> None:
        """Know no other slots any more: what knows each other is not freed with the last that knows it."""
        if self.span is not None:
            self.span.conflicts = []
            self.span = None

    def mark(self, marks: Marks) -> None:
        """Leave marks of commands that touched it."""
        self.touched = merged(self.touched, marks)
        if self.span is not None:
            for queue, number in marks.items():
                if self.span.touched.get(queue, -1) < number:
                    self.span.touch(queue, number)

    def written_by(self, queues: Collection[int]) -> Slot:
        """The same bytes as they are once the last writes of some engines to them have ended."""
        found = Slot(self.place, self.address, self.size_bytes)
        found.writers = {other: command for other, command in self.writers.items() if other // STREAMS in queues}
        found.content = self.content
        return found

    def succeed(self, other: Slot) -> None:
        """Come after a slot that nothing touches any more."""
        self.before = merged(self.before, other.touched)
        if not other.writers:
            self.before = merged(self.before, other.barrier)


def merged(marks: Marks, others: Marks) -> Marks:
    """Of each queue the latest command of either; this may be `marks` with more in them, never `others`."""
    if len(marks) < len(others):
        # to copy many and to go through few is faster than the other way round
        marks, others = others.copy(), marks
    known = marks.get
    for queue, command in others.items():
        if known(queue, -1) < command:
            marks[queue] = command
    return marks
