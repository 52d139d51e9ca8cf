"""The libraries of a package: carried in it, or named by key and found in a folder of bundles (SHAPE-1, SHAPE-10)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from compiler.errors import RequestError, printable
from compiler.ir.graph import Graph
from compiler.shapes.number_arrays import ArrayWriter
from compiler.shapes.records import whole_numbers
from compiler.shapes.routine import Routine
from compiler.shapes.unit_bundle import decode_bundle
from compiler.shapes.unit_encoding import DamagedUnitError, StoredLibrary, decode_library, library_of
from compiler.shapes.unit_library import LazyBuffers, Library, LibraryUse, UnitBuffers, bound
from compiler.shapes.unit_records import buffer_values, buffers_of, cost_of, cost_values
from compiler.shapes.units import UnitSet
from compiler.unit_key import library_id_of, library_key_of

_ID: Final = re.compile(r"[0-9a-f]{64}")
# Libraries that a refusal names.
_NAMED: Final = 3


class Bundles(Protocol):
    """Where a package's libraries are found that it does not carry; `str` of it is shown to people."""

    def bundle(self, library_id: str) -> bytes | None:
        """The bundle of a library, None if there is none."""


class UnitsError(RequestError):
    """Libraries of a package are missing, damaged, or others than it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """The libraries of a model's routines, and which stored ones they are."""

    libraries: tuple[Library, ...]
    uses: tuple[LibraryUse, ...]


def library_values(library: Library, use: LibraryUse, floats: ArrayWriter | None) -> dict[str, Any]:
    """What a package says of one library; its units and costs only with `floats`, which takes the tables of costs."""
    named = {
        "ops": library.routine.ops,
        "id": use.library_id,
        "names": dict(use.names),
        "dims": dict(use.dims),
    }
    return named if floats is None else named | _own_values(library, floats)


def libraries_of(
    values: Sequence[Mapping[str, Any]], graph: Graph, profile_digest: str, numbers: memoryview, units: Bundles | None
) -> Libraries:
    """The libraries of a package in order, from the package itself or from `units`.

    Raises UnitsError for libraries that are not in `units` as they were written; KeyError, TypeError, ValueError and
    their like for values that no package has.
    """
    uses = tuple(_use_of(one) for one in values)
    outside = {use.library_id for use, one in zip(uses, values, strict=True) if "units" not in one}
    stored = _found(sorted(outside), units)
    libraries = []
    for use, one in zip(uses, values, strict=True):
        if use.library_id not in outside:
            libraries.append(_own_library(one, numbers))
            continue
        about, library = stored[use.library_id]
        ops = whole_numbers(one["ops"])
        if about.about.profile != profile_digest or about.kinds != tuple(graph.ops[op].kind for op in ops):
            raise ValueError(f"library {use.library_id} is for other ops or another profile")
        libraries.append(bound(library, ops, use))
    return Libraries(libraries=tuple(libraries), uses=uses)


def _use_of(values: Mapping[str, Any]) -> LibraryUse:
    library_id = values["id"]
    if not isinstance(library_id, str) or _ID.fullmatch(library_id) is None:
        raise ValueError("a library is named by what is no id")
    names, dims = (
        MappingProxyType({str(own): str(name) for own, name in values[of].items()}) for of in ("names", "dims")
    )
    return LibraryUse(library_id=library_id, names=names, dims=dims)


def _found(ids: Sequence[str], units: Bundles | None) -> dict[str, tuple[StoredLibrary, Library]]:
    """Libraries by id; raises UnitsError naming those that are missing, or the first that is damaged or another."""
    data = {one: None if units is None else units.bundle(one) for one in ids}
    missing = [one for one, found in data.items() if found is None]
    if missing:
        raise _missing(missing, len(ids), units)
    return {one: _decoded(one, found, units) for one, found in data.items() if found is not None}


def _decoded(library_id: str, data: bytes, units: Bundles | None) -> tuple[StoredLibrary, Library]:
    try:
        key, values = decode_bundle(data)
        about = decode_library(values[key])
        if key != library_key_of(library_id):
            raise _refused(library_id, "wrong_units", f"library {library_id_of(key)}", units)
        return about, library_of(about, [values[one] for one in about.unit_keys])
    except UnitsError:
        raise
    except (RequestError, DamagedUnitError) as error:
        actual = error.actual if isinstance(error, RequestError) else str(error)
        raise _refused(library_id, "invalid_units", str(actual), units) from None


def _missing(missing: Sequence[str], count: int, units: Bundles | None) -> UnitsError:
    named = ", ".join(missing[:_NAMED])
    more = len(missing) - _NAMED
    return UnitsError(
        f"{len(missing)} of the {count} libraries of shape units that the package names are missing"
        + (", and no folder of units was given" if units is None else f" in {printable(str(units), 200)}"),
        code="missing_units",
        stage="package",
        actual=f"no {named}{f' and {more} more' if more > 0 else ''}",
        hint=_pull(missing[0]),
    )


def _refused(library_id: str, code: str, actual: str, units: Bundles | None) -> UnitsError:
    what = "is damaged, or of another format" if code == "invalid_units" else "is another library"
    return UnitsError(
        f"the file of library {library_id} of shape units in {printable(str(units), 200)} {what}",
        code=code,
        stage="package",
        actual=printable(actual, 200),
        limit=f"library {library_id}",
        hint=_pull(library_id),
    )


def _pull(library_id: str) -> str:
    return (
        "Pull it with `tessera units pull FOLDER --server URL` from a service that compiled the model, or save "
        f"URL/v1/units/{library_id} as FOLDER/{library_id}.units; then name the folder with --units or TESSERA_UNITS"
    )


def _own_values(library: Library, floats: ArrayWriter) -> dict[str, Any]:
    return {
        "tiled": library.routine.tiled,
        "signature": library.units.signature,
        "dtype": library.units.dtype,
        "loaders": library.loaders,
        "summed": library.summed,
        "units": [
            {
                "id": name,
                "tile": tile,
                "low": low,
                "buffers": buffer_values(buffers),
                "activation_bytes": buffers.activation_bytes,
                "weight_bytes": buffers.weight_bytes,
            }
            for name, tile, low, buffers in zip(
                library.units.ids, library.tiles, library.units.lows.tolist(), library.buffers, strict=True
            )
        ],
        "cost": cost_values(library.cost, floats),
    }


def _own_library(values: Mapping[str, Any], numbers: memoryview) -> Library:
    tiled = whole_numbers(values["tiled"])
    units = values["units"]
    tiles = tuple(whole_numbers(one["tile"]) for one in units)
    return Library(
        routine=Routine(ops=whole_numbers(values["ops"]), tiled=tiled),
        units=UnitSet.of(
            signature=str(values["signature"]),
            dtype=str(values["dtype"]),
            ids=tuple(str(one["id"]) for one in units),
            extents=[[tile[axis] for axis in tiled] or [1] for tile in tiles],
            lows=[one["low"] for one in units],
        ),
        tiles=tiles,
        loaders=int(values["loaders"]),
        summed=tuple(map(str, values["summed"])),
        buffers=_buffers(units),
        cost=cost_of(values["cost"], numbers),
    )


def _buffers(units: Sequence[Mapping[str, Any]]) -> LazyBuffers:
    def read(number: int) -> UnitBuffers:
        unit = units[number]
        return buffers_of(unit["buffers"], unit["activation_bytes"], unit["weight_bytes"])

    return LazyBuffers(len(units), read)
