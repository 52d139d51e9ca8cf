"""Address tables as bytes: compact, versioned, deterministic, little-endian (ADDR-5, PROG-3).

table = "TADR"  version u16  rank u16  element_bytes u32  positions u32×rank  taps u32×rank
        axes u8×rank  tap_axes u8×rank  run_length u32  bases i32×(positions)  run_offsets i32×(taps / run_length)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import prod
from typing import Final, NoReturn

import numpy as np

from compiler.address.table import MAX_TAPS, AddressTable, frozen
from compiler.errors import InternalError, LimitError, RequestError
from compiler.ir.box import Ints

_MAGIC: Final = b"TADR"
# The version of the bytes.
FORM: Final = 2
_MAX_RANK: Final = 8
_INT32: Final = np.dtype("<i4")
_LIMITS: Final = np.iinfo(np.int32)
# Elements of more bytes do not exist.
_MAX_ELEMENT_BYTES: Final = 16


def encode(table: AddressTable) -> bytes:
    """The table as bytes; equal tables give equal bytes.

    Raises LimitError if an address does not fit in 32 bits.
    """
    return b"".join(
        (
            struct.pack("<4sHHI", _MAGIC, FORM, len(table.positions), table.element_bytes),
            _words((*table.positions, *table.taps)),
            bytes((*table.axes, *table.tap_axes)),
            _words((table.run_length,)),
            _int32(table.bases),
            _int32(table.run_offsets),
        )
    )


def decode(data: bytes) -> AddressTable:
    """The table of which `data` are the bytes.

    Every count is checked against the bytes that are left before anything of that size is made. Raises RequestError
    if `data` are not, or not only, a table of this version. What the table says is checked too: there are positions and
    taps, axes are named once each, bases and offsets advance in even steps from 0.
    """
    reader = _Reader(data)
    magic, version, rank, element_bytes = struct.unpack("<4sHHI", reader.take(12))
    if magic != _MAGIC or version != FORM:
        _refuse("these bytes are no address table of this version", (magic, version), (_MAGIC, FORM))
    if not 1 <= rank <= _MAX_RANK or not 1 <= element_bytes <= _MAX_ELEMENT_BYTES:
        _refuse(
            "the table's axes or elements are out of bounds", (rank, element_bytes), (_MAX_RANK, _MAX_ELEMENT_BYTES)
        )
    positions, taps = reader.words(rank), reader.words(rank)
    if not all((*positions, *taps)):
        _refuse("a window has at least one position and one tap along each axis", (positions, taps))
    axes, tap_axes = tuple(reader.take(rank)), tuple(reader.take(rank))
    if sorted(axes) != list(range(rank)) or sorted(tap_axes) != list(range(rank)):
        _refuse("the table names an axis twice", (axes, tap_axes))
    (run_length,) = reader.words(1)
    if not run_length or taps[tap_axes[-1]] % run_length:
        _refuse("the runs are no parts of the innermost taps", run_length, taps[tap_axes[-1]])
    if prod(taps) > MAX_TAPS:
        _refuse("the window has too many taps", prod(taps), MAX_TAPS)
    table = AddressTable(
        element_bytes=element_bytes,
        positions=positions,
        taps=taps,
        axes=axes,
        tap_axes=tap_axes,
        bases=reader.array(prod(positions)),
        run_offsets=reader.array(prod(taps) // run_length),
        run_length=run_length,
    )
    if reader.left:
        _refuse("bytes are left behind the table", reader.left, 0)
    if not table.is_even:
        _refuse("bases or offsets do not advance by one step along each axis")
    return table


class _Reader:
    """A cursor that never reads, or makes room for, more than there is."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> memoryview:
        if size > self.left:
            _refuse("the table is cut off", size, self.left)
        self.at += size
        return self.data[self.at - size : self.at]

    def words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.take(4 * count))

    def array(self, count: int) -> Ints:
        return frozen(np.frombuffer(self.take(_INT32.itemsize * count), dtype=_INT32).astype(np.int64))


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
