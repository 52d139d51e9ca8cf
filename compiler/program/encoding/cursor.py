"""Numbers as bytes, and reading them from bytes that nobody vouches for (PROG-3, API-4).

A number is stored in base 128, its low seven bits first; a byte's high bit says that another follows. Signed numbers
are folded first: 0, −1, 1, −2... become 0, 1, 2, 3...
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError
from compiler.program.errors import ExecutableError

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]

# 64 bits at seven a byte.
_LONGEST: Final = 10
# What may be made of a file: a fixed amount, and so many bytes for each of its own.
_FREE_BYTES: Final = 64 << 20
_MULTIPLE: Final = 4096


class Budget:
    """The bytes that reading one file may take in memory beside the file itself.

    `limit_bytes` is the caller's limit; below it, 64 MiB and 4096 bytes for each byte of what is being read. What is
    counted is what is kept; while a section is being read it may take three times its part.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self, read_bytes: int, limit_bytes: int) -> None:
        self._limit = self._left = min(_FREE_BYTES + _MULTIPLE * read_bytes, limit_bytes)

    def take(self, size_bytes: int, what: str) -> None:
        """Count bytes before they are taken; raises LimitError where too many would be."""
        self._left -= size_bytes
        if self._left < 0:
            raise LimitError(
                f"{what} takes more memory than a file of this size may",
                code="executable_too_large",
                stage="executable",
                actual=self._limit - self._left,
                limit=self._limit,
            )


class Cursor:
    """A place in a section; whatever does not fit raises ExecutableError with section and byte."""

    __slots__ = ("_bytes", "budget", "position", "section")

    def __init__(self, section: str, data: memoryview, budget: Budget) -> None:
        self.section = section
        self.budget = budget
        self.position = 0
        self._bytes = np.frombuffer(data, dtype=np.uint8)

    def fail(self, message: str, *, actual: object | None = None, limit: object | None = None) -> NoReturn:
        """Raise the error for what stands here."""
        raise ExecutableError(message, section=self.section, offset=self.position, actual=actual, limit=limit)

    def number(self, what: str, limit: int) -> int:
        """One number of at most `limit`."""
        value = int(self.numbers(1)[0])
        if value > limit:
            self.fail(f"the number of {what} is too large", actual=value, limit=limit)
        return value

    def count(self, what: str, item_bytes: int) -> int:
        """How many items follow; their memory is counted before anybody takes it."""
        value = self.number(what, 1 << 31)
        self.budget.take(value * item_bytes, f"{self.section}: {value} {what}")
        return value

    def numbers(self, count: int) -> Unsigned:
        """So many numbers."""
        if count == 0:
            return np.zeros(0, dtype=np.uint64)
        window = self._bytes[self.position : self.position + _LONGEST * count]
        if len(window) < count:
            self.fail("the section ends early", actual=len(window), limit=count)
        ends = np.flatnonzero(window < 128)[:count]
        if len(ends) < count:
            self.fail("a number does not end", actual=len(ends), limit=count)
        starts = np.empty(count, dtype=np.int64)
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
        lengths = ends - starts + 1
        longest = int(lengths.max())
        if longest > _LONGEST:
            self.fail("a number of more than 64 bits", actual=longest, limit=_LONGEST)
        values = window[starts].astype(np.uint64) & np.uint64(127)
        for digit in range(1, longest):
            rows = np.flatnonzero(lengths > digit)
            digits = window[starts[rows] + digit].astype(np.uint64) & np.uint64(127)
            values[rows] |= digits << np.uint64(7 * digit)
        self.position += int(ends[-1]) + 1
        return values

    def signed(self, count: int) -> Integers:
        """So many signed numbers."""
        return unfold(self.numbers(count))

    def finish(self) -> None:
        """Everything was read; raises ExecutableError if bytes are left."""
        if self.position != len(self._bytes):
            self.fail("the section does not end here", actual=len(self._bytes) - self.position, limit=0)


def fold(values: Integers) -> Unsigned:
    """Signed numbers as unsigned ones, small where they are near 0."""
    result: Unsigned = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return result


def unfold(values: Unsigned) -> Integers:
    """What `fold` was given."""
    half = (values >> np.uint64(1)).view(np.int64)
    result: Integers = half ^ -(values & np.uint64(1)).view(np.int64)
    return result


def sizes_of(values: Unsigned) -> Integers:
    """Bytes that each number takes."""
    sizes = np.ones(len(values), dtype=np.int64)
    left = values >> np.uint64(7)
    while left.any():
        sizes += left != 0
        left = left >> np.uint64(7)
    return sizes


def encode(values: NDArray[Any]) -> bytes:
    """Numbers of 0 and above as bytes."""
    unsigned = values.astype(np.uint64, copy=False)
    sizes = sizes_of(unsigned)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for digit in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > digit)
        digits = ((unsigned[rows] >> np.uint64(7 * digit)) & np.uint64(127)).astype(np.uint8)
        digits[sizes[rows] > digit + 1] |= 128
        out[starts[rows] + digit] = digits
    return out.tobytes()


def encode_counts(*values: int) -> bytes:
    """A few counts as bytes."""
    return encode(np.array(values, dtype=np.uint64))
