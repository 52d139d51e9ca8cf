"""A library of shape units as one file that travels between hosts without a model; `rebuild_units.py` proves it.

header   8 bytes: magic, format version, number of values
values   each 4 bytes of length and its bytes: the library's, then its units' in order
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from compiler.errors import RequestError
from compiler.shapes.unit_encoding import DamagedUnitError, check_value, decode_library
from compiler.unit_key import UNIT_FORMAT, library_key

_MAGIC: Final = b"TSRB"
_HEAD: Final = struct.Struct("<4sHH")
_LENGTH: Final = struct.Struct("<I")
# What a bundle may hold: far more than any library has.
MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_VALUES: Final = 256
# The header of a library describes ops without constants, some 200 bytes each, and at most 40 units. Reading one holds
# up all other requests of a process.
_MAX_HEADER_BYTES: Final = 1024 * 1024


def encode_bundle(library: str, values: Mapping[str, bytes]) -> bytes:
    """The bundle of a library and its units, by key; raises KeyError if one is missing."""
    first = values[library]
    ordered = [first, *(values[key] for key in decode_library(first).unit_keys)]
    pieces = [_HEAD.pack(_MAGIC, UNIT_FORMAT, len(ordered))]
    for value in ordered:
        pieces += [_LENGTH.pack(len(value)), value]
    return b"".join(pieces)


def decode_bundle(data: bytes) -> tuple[str, dict[str, bytes]]:
    """The key of a bundle's library, and its values by key; raises RequestError for bytes that are no bundle.

    Checksums hold then; whether the units are what the compiler makes, `rebuilt` tells.
    """
    try:
        values = _values(data)
        if max(check_value(value) for value in values) > _MAX_HEADER_BYTES:
            raise DamagedUnitError("the description is too long")
        library = decode_library(values[0])
        if len(library.tiles) != len(values) - 1:
            raise DamagedUnitError("units are missing")
        keys = library.unit_keys
    except (DamagedUnitError, struct.error, IndexError) as error:
        raise RequestError(
            "these are no shape units, or they are damaged or of another format",
            code="invalid_units",
            stage="units",
            actual=str(error)[:200],
            limit=f"a bundle of format {UNIT_FORMAT}",
            hint="Pull the units again with `tessera units pull`",
        ) from None
    key = library_key(library.about)
    return key, {key: values[0], **dict(zip(keys, values[1:], strict=True))}


def _values(data: bytes) -> list[bytes]:
    magic, version, count = _HEAD.unpack_from(data)
    if (magic, version) != (_MAGIC, UNIT_FORMAT) or not 1 <= count <= _MAX_VALUES:
        raise DamagedUnitError("another kind or format")
    values, at = [], _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        values.append(data[at : at + length])
        at += length
    if at != len(data):
        raise DamagedUnitError("cut off, or something follows")
    return values
