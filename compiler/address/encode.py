"""Address tables as bytes: compact, versioned, deterministic, little-endian (ADDR-5, PROG-3).

    table  = "TADR"  version u16  rank u16  element_bytes u32  positions u32×rank  taps u32×rank
             lists u32  classes u32  order i32×(product of taps)  list*  class*
    list   = count u32  i32×count
    class  = ranges (u32 u32)×rank  axes u8×rank  offsets u32  taps u32  run_length u32  bases i32×(positions)

Lists are those of offsets and of taps, by runs; classes name them by number, so equal ones are kept once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import prod
from typing import Final, NoReturn

import numpy as np

from compiler.address.table import AddressTable, PositionClass, frozen
from compiler.errors import InternalError, LimitError, RequestError
from compiler.ir.box import Ints

_MAGIC: Final = b"TADR"
_VERSION: Final = 1
_MAX_RANK: Final = 8
_INT32: Final = np.dtype("<i4")
_LIMITS: Final = np.iinfo(np.int32)
# Elements of more bytes do not exist.
_MAX_ELEMENT_BYTES: Final = 16


def encode(table: AddressTable) -> bytes:
    """The table as bytes; equal tables give equal bytes.

    Raises LimitError if an address does not fit in 32 bits.
    """
    numbers: dict[bytes, int] = {}
    classes = []
    for each in table.classes:
        offsets = numbers.setdefault(_int32(each.run_offsets), len(numbers))
        taps = numbers.setdefault(_int32(each.run_taps), len(numbers))
        classes.append(
            _words(edge for range_ in each.ranges for edge in range_)
            + bytes(each.axes)
            + _words((offsets, taps, each.run_length))
            + _int32(each.bases)
        )
    return b"".join(
        (
            struct.pack("<4sHHI", _MAGIC, _VERSION, len(table.positions), table.element_bytes),
            _words((*table.positions, *table.taps, len(numbers), len(classes))),
            _int32(table.order),
            *(_words((len(values) // _INT32.itemsize,)) + values for values in numbers),
            *classes,
        )
    )


def decode(data: bytes) -> AddressTable:
    """The table of which `data` are the bytes.

    Every count is checked against the bytes that are left before anything of that size is made. Raises RequestError
    if `data` are not, or not only, a table of this version. What the table says is checked too: every position is in
    one class, bases advance in even steps, taps ascend. Whether `span` lies in the buffer is for the caller to see.
    """
    reader = _Reader(data)
    magic, version, rank, element_bytes = struct.unpack("<4sHHI", reader.take(12))
    if magic != _MAGIC or version != _VERSION:
        _refuse("these bytes are no address table of this version", (magic, version), (_MAGIC, _VERSION))
    if not 1 <= rank <= _MAX_RANK or not 1 <= element_bytes <= _MAX_ELEMENT_BYTES:
        _refuse(
            "the table's axes or elements are out of bounds", (rank, element_bytes), (_MAX_RANK, _MAX_ELEMENT_BYTES)
        )
    positions, taps = reader.words(rank), reader.words(rank)
    list_count, class_count = reader.words(2)
    order = reader.array(prod(taps))
    if not _is_permutation(order):
        _refuse("the order of taps is no order of all taps", len(order))
    lists = [reader.array(reader.words(1)[0]) for _ in range(reader.at_most(list_count, 4))]
    classes = tuple(
        _class(reader, rank, lists, element_bytes, len(order))
        for _ in range(reader.at_most(class_count, 9 * rank + 12))
    )
    if not all(taps):
        _refuse("a window has at least one tap along each axis", taps)
    if reader.left:
        _refuse("bytes are left behind the table", reader.left, 0)
    _check_cover(positions, classes)
    return AddressTable(element_bytes=element_bytes, positions=positions, taps=taps, order=order, classes=classes)


class _Reader:
    """A cursor that never reads, or makes room for, more than there is."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> memoryview:
        self.at_most(size, 1)
        self.at += size
        return self.data[self.at - size : self.at]

    def at_most(self, count: int, size_bytes: int) -> int:
        """The count, if so many items of at least that size can follow."""
        if count * size_bytes > self.left:
            _refuse("the table is cut off", count * size_bytes, self.left)
        return count

    def words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.take(4 * count))

    def array(self, count: int) -> Ints:
        return frozen(np.frombuffer(self.take(_INT32.itemsize * count), dtype=_INT32).astype(np.int64))


def _class(reader: _Reader, rank: int, lists: list[Ints], element_bytes: int, tap_count: int) -> PositionClass:
    edges = reader.words(2 * rank)
    ranges = tuple(zip(edges[::2], edges[1::2], strict=True))
    axes = tuple(reader.take(rank))
    offsets, taps, run_length = reader.words(3)
    if any(stop <= start for start, stop in ranges) or sorted(axes) != list(range(rank)):
        _refuse("a class has an empty range, or names an axis twice", (ranges, axes))
    bases = reader.array(prod(stop - start for start, stop in ranges))
    if max(offsets, taps) >= len(lists) or len(lists[offsets]) != len(lists[taps]) or run_length < 1:
        _refuse("a class names lists that are not there, or of unequal lengths", (offsets, taps, run_length))
    starts = lists[taps]
    if len(starts):
        is_apart = bool((np.diff(starts) >= run_length).all())
        if not is_apart or starts[0] < 0 or int(starts[-1]) + run_length > tap_count:
            _refuse("a class reads taps that are not there, or twice", run_length, tap_count)
    result = PositionClass(
        ranges=ranges,
        axes=axes,
        bases=bases,
        run_offsets=lists[offsets],
        run_taps=starts,
        run_length=run_length,
        element_bytes=element_bytes,
    )
    if not np.array_equal(bases, bases[0] + result.advances()):
        _refuse("the bases of a class do not advance by one step along each axis")
    return result


def _check_cover(positions: tuple[int, ...], classes: tuple[PositionClass, ...]) -> None:
    """Raise RequestError unless each position is in exactly one class; bytes in proportion to the bases read."""
    count = prod(positions)
    if sum(len(each.bases) for each in classes) != count:
        _refuse("the classes do not hold the positions once each", sum(len(each.bases) for each in classes), count)
    if not count:
        return  # the axes that are not empty may be of any length
    seen = np.zeros(positions, dtype=bool)
    for each in classes:
        if any(stop > extent for (_, stop), extent in zip(each.ranges, positions, strict=True)):
            _refuse("a class has positions that the table has not", each.ranges, positions)
        box = seen[tuple(slice(start, stop) for start, stop in each.ranges)]
        if box.any():
            _refuse("two classes hold the same position", each.ranges)
        box[...] = True


def _is_permutation(order: Ints) -> bool:
    return bool(np.array_equal(np.sort(order), np.arange(len(order))))


def _int32(values: Ints) -> bytes:
    if len(values) and (values.min() < _LIMITS.min or values.max() > _LIMITS.max):
        raise LimitError(
            "an address of a table does not fit in 32 bits",
            stage="address",
            actual=int(np.abs(values).max()),
            limit=_LIMITS.max,
            hint="Use smaller tiles, or buffers that lie closer together.",
        )
    return values.astype(_INT32).tobytes()


def _words(values: Iterable[int]) -> bytes:
    words = tuple(values)
    if max(words, default=0) > 0xFFFFFFFF or min(words, default=0) < 0:
        raise InternalError("a count of a table does not fit in 32 bits", stage="address", actual=max(words))
    return struct.pack(f"<{len(words)}I", *words)


def _refuse(message: str, actual: object = None, limit: object = None) -> NoReturn:
    raise RequestError(message, code="invalid_address_table", stage="address", actual=actual, limit=limit)
