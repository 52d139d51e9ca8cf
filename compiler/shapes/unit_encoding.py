"""Stored libraries and units as bytes and back (SHAPE-1; docs/redis.md describes them).

A library value says for which routine, size and profile it is, which units there are, and what their calls cost; the
tables of costs, which all its units share, lie in it once. A unit value holds one unit: its tile, the lengths that it
accepts, its memory need, what a call of the whole tile costs by axis, and its routine, which is opaque to whoever
stores it. Both begin with a kind, a format version and a checksum. Equal libraries give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compiler.shapes.number_arrays import ArrayWriter
from compiler.shapes.records import graph_values, whole_numbers
from compiler.shapes.routine import Routine
from compiler.shapes.size_class import Sized
from compiler.shapes.unit_library import Library, UnitBuffers
from compiler.shapes.unit_records import buffer_values, buffers_of, cost_of, cost_values
from compiler.shapes.units import UnitSet
from compiler.unit_key import UNIT_FORMAT, LibraryFor, unit_key

_LIBRARY: Final = b"TSRL"
_UNIT: Final = b"TSRU"
# Kind, format version, length of the header; SHA-256 of all that follows.
_HEAD: Final = struct.Struct("<4sHI32s")

Tile = tuple[int, ...]


class DamagedUnitError(Exception):
    """A stored value is not as it was written, or of another format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLibrary:
    """A library value that was read: what it is for, the kinds of its ops, and its units' tiles.

    `tiles` is empty where no tile fits a core at this size. `header` and `numbers` hold the rest.
    """

    about: LibraryFor
    kinds: tuple[str, ...]
    dtype: str
    tiles: tuple[Tile, ...]
    header: Mapping[str, Any]
    numbers: memoryview

    @property
    def unit_keys(self) -> list[str]:
        """The keys of the units, in order."""
        return [unit_key(self.about, tile) for tile in self.tiles]

    @property
    def labels(self) -> dict[str, str]:
        """What lists show: kinds of ops, signature, element type, size, profile."""
        return {
            "op": "+".join(self.kinds),
            "signature": self.about.signature,
            "dtype": self.dtype,
            "size": self.about.size,
            "profile": self.about.profile,
        }


def encode_library(about: LibraryFor, sized: Sized, library: Library | None) -> bytes:
    """A library as its value; None for a size at which no tile fits a core."""
    arrays = ArrayWriter()
    graph = sized.graph
    header: dict[str, Any] = {
        "signature": about.signature,
        "size": about.size,
        "profile": about.profile,
        "resident_bytes": about.resident_bytes,
        "graph": graph_values(graph, _no_piece),
        "ranges": {name: [one.low, one.high, one.step] for name, one in sized.ranges.items()},
        "in_place": sorted(sized.in_place),
        "dtype": graph.tensors[graph.outputs[0]].dtype,
        "units": [],
    }
    if library is not None:
        header |= {
            "tiled": library.routine.tiled,
            "loaders": library.loaders,
            "summed": library.summed,
            "ids": library.units.ids,
            "units": library.tiles,
            "lows": library.units.lows.tolist(),
            "cost": cost_values(library.cost, arrays),
        }
    return _value(_LIBRARY, header, b"".join(arrays.pieces()))


def encode_units(library: Library) -> dict[Tile, bytes]:
    """The units of a library as their values, by tile."""
    return {tile: _unit_value(library, number) for number, tile in enumerate(library.tiles)}


def _unit_value(library: Library, number: int) -> bytes:
    tile, buffers = library.tiles[number], library.buffers[number]
    cost = library.cost
    # costs by dimensions that the result does not show count at their maxima
    box = (*tile, *cost.maxima[len(tile) :])
    header = {
        "id": library.units.ids[number],
        "tile": tile,
        "accepts": list(zip(library.units.lows[number].tolist(), library.units.extents[number].tolist(), strict=True)),
        "activation_bytes": buffers.activation_bytes,
        "weight_bytes": buffers.weight_bytes,
        "cost": {
            "call_cycles": cost.call_cycles,
            "variable_cycles": cost.variable_cycles,
            "compute": [cost.compute_cycles, *(float(f[length]) for f, length in zip(cost.compute, box, strict=True))],
            "operands": [
                [
                    one.start_cycles,
                    one.move_cycles,
                    *(None if f is None else float(f[length]) for f, length in zip(one.factors, box, strict=True)),
                ]
                for one in cost.operands
            ],
        },
    }
    return _value(_UNIT, header, _json(buffer_values(buffers)))


def decode_library(value: bytes) -> StoredLibrary:
    """A library value that was written by `encode_library`; raises DamagedUnitError for any other bytes."""
    header, numbers = _parts(_LIBRARY, value)
    try:
        return StoredLibrary(
            about=LibraryFor(
                signature=str(header["signature"]),
                size=str(header["size"]),
                profile=str(header["profile"]),
                resident_bytes=int(header["resident_bytes"]),
            ),
            kinds=tuple(str(op[0]) for op in header["graph"]["ops"]),
            dtype=str(header["dtype"]),
            tiles=tuple(whole_numbers(tile) for tile in header["units"]),
            header=header,
            numbers=numbers,
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DamagedUnitError(str(error)) from None


def decode_unit(value: bytes) -> tuple[Tile, UnitBuffers]:
    """The tile and the buffers of a unit value; raises DamagedUnitError for bytes that are none."""
    header, routine = _parts(_UNIT, value)
    try:
        tile = whole_numbers(header["tile"])
        return tile, buffers_of(json.loads(bytes(routine)), header["activation_bytes"], header["weight_bytes"])
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise DamagedUnitError(str(error)) from None


def library_of(stored: StoredLibrary, units: Sequence[bytes]) -> Library:
    """The library of a value with at least one unit, and its units' values in order of `tiles`.

    Raises DamagedUnitError where they do not belong together.
    """
    header = stored.header
    decoded = [decode_unit(value) for value in units]
    if tuple(tile for tile, _ in decoded) != stored.tiles:
        raise DamagedUnitError("units of other tiles")
    try:
        tiled = whole_numbers(header["tiled"])
        return Library(
            routine=Routine(ops=tuple(range(len(stored.kinds))), tiled=tiled),
            units=UnitSet.of(
                signature=stored.about.signature,
                dtype=stored.dtype,
                ids=tuple(map(str, header["ids"])),
                extents=[[tile[axis] for axis in tiled] or [1] for tile in stored.tiles],
                lows=header["lows"],
            ),
            tiles=stored.tiles,
            buffers=tuple(buffers for _, buffers in decoded),
            cost=cost_of(header["cost"], stored.numbers),
            loaders=int(header["loaders"]),
            summed=tuple(map(str, header["summed"])),
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DamagedUnitError(str(error)) from None


def check_value(value: bytes) -> int:
    """The bytes of a value's header, which is not read.

    Raises DamagedUnitError for bytes that are no value of a library or unit of this format, or were damaged.
    """
    return _checked(bytes(value[:4]), value)


def _value(kind: bytes, header: Mapping[str, Any], rest: bytes) -> bytes:
    text = _json(header)
    digest = hashlib.sha256(text)
    digest.update(rest)
    return _HEAD.pack(kind, UNIT_FORMAT, len(text), digest.digest()) + text + rest


def _checked(kind: bytes, value: bytes) -> int:
    """The length of the header of a value of this kind."""
    if kind not in (_LIBRARY, _UNIT) or len(value) < _HEAD.size:
        raise DamagedUnitError("no stored unit or library")
    own, version, length, digest = _HEAD.unpack_from(value)
    body = memoryview(value)[_HEAD.size :]
    if (own, version) != (kind, UNIT_FORMAT) or length > len(body) or hashlib.sha256(body).digest() != digest:
        raise DamagedUnitError("another kind, another format, or damaged")
    return int(length)


def _parts(kind: bytes, value: bytes) -> tuple[dict[str, Any], memoryview]:
    length = _checked(kind, value)
    body = memoryview(value)[_HEAD.size :]
    try:
        header = json.loads(bytes(body[:length]))
    except (ValueError, RecursionError) as error:  # written so, checksum and all
        raise DamagedUnitError(str(error)) from None
    if not isinstance(header, dict):
        raise DamagedUnitError("no header")
    return header, body[length:]


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _no_piece(constant: object) -> tuple[int, int]:
    raise AssertionError(constant)
