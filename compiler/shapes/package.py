"""Packages: a model for ranges of shapes as one file, with units, costs, tables and constants (SHAPE-10).

A compile host writes one, an execution host reads it without compiling; docs/packages.md describes the bytes. What
reading needs is numpy and the standard library, so that a small loader can carry it (`shapes/direct.py` runs it).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from compiler.errors import RequestError, printable
from compiler.ir.constant import Constant, Stored
from compiler.ops.constants import constant_values
from compiler.program.encoding.container import (
    NO_SEGMENT,
    PACKAGE,
    Buffer,
    Container,
    Section,
    read_container,
    write_container,
)
from compiler.program.errors import ExecutableError
from compiler.shapes.extents import Range
from compiler.shapes.instance import Values
from compiler.shapes.model import Part, ShapeModel
from compiler.shapes.number_arrays import ArrayWriter, array_bytes
from compiler.shapes.package_libraries import Bundles, UnitsError, libraries_of, library_values
from compiler.shapes.prepared import ShapeTables, check_prepared
from compiler.shapes.records import graph_of, graph_values, whole_numbers
from compiler.shapes.table import RUN, ShapeTable, TableError
from compiler.shapes.validate import check_model
from compiler.units import element_bytes
from compiler.version import COMPILER_VERSION

SCHEMA: Final = 3
# What reading or running a package may end in that says what no model says: who made it is not known.
MEANINGLESS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_ALIGNMENT: Final = 64
_CHUNK: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Package:
    """What a package holds: the model, whose constants are pieces of `data`, and tables made beforehand."""

    model: ShapeModel
    tables: tuple[ShapeTables, ...]
    compiler_version: str
    data: memoryview


def write_package(
    model: ShapeModel, tables: Sequence[ShapeTables], values: Values, *, with_units: bool = True
) -> Iterator[Buffer]:
    """The file's bytes piece by piece; `values` gives the elements of a constant of the model.

    `tables` were made beforehand, by shape. Without units the package names its libraries, and whoever reads it finds
    them elsewhere.
    """
    pieces = _Pieces(values)
    floats = ArrayWriter()
    manifest = {
        "schema": SCHEMA,
        "compiler_version": COMPILER_VERSION,
        "profile_digest": model.profile_digest,
        "model_name": model.model_name,
        "model_digest": model.model_digest,
        "ranges": {name: [one.low, one.high, one.step] for name, one in sorted(model.ranges.items())},
        "default_ranges": model.has_default_ranges,
        "reach": {name: [one.low, one.high, one.step] for name, one in sorted(model.reach.items())},
        "graph": graph_values(model.graph, pieces.add),
        "parts": [[part.is_host, part.ops, part.routines, part.chip] for part in model.parts],
        "libraries": [
            library_values(library, use, floats if with_units else None)
            for library, use in zip(model.libraries, model.uses, strict=True)
        ],
        "tables": [_tables_values(one, floats) for one in tables],
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    sections = (
        Section(name="manifest", segment=NO_SEGMENT, pieces=(text,)),
        Section(name="profile", segment=NO_SEGMENT, pieces=(model.profile,)),
        Section(name="numbers", segment=NO_SEGMENT, pieces=floats.pieces()),
        Section(name="constants", segment=NO_SEGMENT, pieces=pieces.pieces()),
    )
    return write_container(sections, kind=PACKAGE)


def read_package(
    data: memoryview, *, profile_digest: str | None = None, is_ours: bool = False, units: Bundles | None = None
) -> Package:
    """The package in a buffer; constants are views of it, not copies.

    `is_ours`: its bytes are known to be as we wrote them: only damage is looked for, and not in the constants. `units`
    has the libraries of a package without units.
    Raises ExecutableError for a file that is no package, is damaged, or of another version of the format; RequestError
    for one of another version of the compiler, or, with `profile_digest`, of another profile; UnitsError for libraries
    that are missing in `units`, damaged, or others than the package names.
    """
    container = read_container(data, unchecked=frozenset({"constants"} if is_ours else ()), kind=PACKAGE)
    manifest = _manifest(container)
    profile = bytes(container.section("profile"))
    if hashlib.sha256(profile).hexdigest() != manifest.get("profile_digest"):
        raise ExecutableError("the profile is not the one of the manifest", section="profile", offset=0)
    _check_version(manifest)
    base = container.entry("constants").offset
    try:
        numbers = container.section("numbers")
        model = _model_of(manifest, profile, base, numbers, units)
        if not is_ours:
            check_model(model)
            _check_pieces(model, container)
        tables = tuple(_tables_of(values, model, numbers) for values in manifest["tables"])
        check_prepared(model, tables, proved=is_ours)
    except UnitsError:
        raise
    except (*MEANINGLESS, RequestError, TableError) as error:
        raise ExecutableError(
            f"the manifest is not as packages are written: {printable(str(error), 160)}",
            section="manifest",
            offset=0,
            actual=type(error).__name__,
        ) from None
    if profile_digest is not None:
        _check_profile(model, profile_digest)
    return Package(model=model, tables=tables, compiler_version=str(manifest["compiler_version"]), data=data)


def stored_values(data: memoryview) -> Values:
    """What gives the elements of constants that are pieces of a package."""
    return lambda constant: constant_values(constant, data)


def _manifest(container: Container) -> dict[str, Any]:
    try:
        manifest = json.loads(bytes(container.section("manifest")))
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict):
        raise ExecutableError("the manifest is no JSON object", section="manifest", offset=0)
    if manifest.get("schema") != SCHEMA:
        raise ExecutableError(
            "the manifest has a version that this reader does not know",
            section="manifest",
            offset=0,
            code="package_version",
            actual=printable(str(manifest.get("schema")), 20),
            limit=SCHEMA,
        )
    return manifest


def _check_version(manifest: Mapping[str, Any]) -> None:
    if manifest.get("compiler_version") != COMPILER_VERSION:
        raise RequestError(
            "the package was made by another version of Tessera",
            code="package_version",
            stage="package",
            actual=printable(str(manifest.get("compiler_version")), 40),
            limit=COMPILER_VERSION,
            hint="Make the package again with this version, or use the loader of the version that made it",
        )


def _check_profile(model: ShapeModel, wanted: str) -> None:
    if wanted != model.profile_digest:
        raise RequestError(
            "the package was made for another profile",
            code="wrong_profile",
            stage="package",
            actual=f"{printable(model.profile_name, 80)} {model.profile_digest[:12]}",
            limit=wanted[:12],
            hint="Make a package for this profile",
        )


def _model_of(
    manifest: Mapping[str, Any], profile: bytes, base: int, numbers: memoryview, units: Bundles | None
) -> ShapeModel:
    graph = graph_of(manifest["graph"], base)
    found = libraries_of(manifest["libraries"], graph, str(manifest["profile_digest"]), numbers, units)
    libraries = found.libraries
    parts = tuple(
        Part(is_host=bool(host), ops=whole_numbers(ops), routines=whole_numbers(chosen), chip=whole_numbers([chip])[0])
        for host, ops, chosen, chip in manifest["parts"]
    )
    for part in parts:
        if any(not 0 <= op < len(graph.ops) for op in part.ops):
            raise ValueError("a part has ops that are not there")
        if any(not 0 <= number < len(libraries) for number in part.routines):
            raise ValueError("a part has routines that are not there")
    for library in libraries:
        if not library.routine.ops or any(not 0 <= op < len(graph.ops) for op in library.routine.ops):
            raise ValueError("a routine has ops that are not there")
    return ShapeModel(
        graph=graph,
        profile=profile,
        ranges=_ranges_of(manifest["ranges"]),
        reach=_ranges_of(manifest["reach"]),
        parts=parts,
        libraries=libraries,
        uses=found.uses,
        model_name=str(manifest["model_name"]),
        model_digest=str(manifest["model_digest"]),
        has_default_ranges=bool(manifest["default_ranges"]),
    )


def _ranges_of(values: Mapping[str, Any]) -> Mapping[str, Range]:
    found = ((name, whole_numbers(one)) for name, one in values.items())
    return MappingProxyType({name: Range(low=low, high=high, step=step) for name, (low, high, step) in found})


def _check_pieces(model: ShapeModel, container: Container) -> None:
    """Constants lie in the section of constants."""
    entry = container.entry("constants")
    for tensor in model.graph.tensors.values():
        todo = [] if tensor.constant is None else [tensor.constant]
        while todo:
            data = todo.pop().data
            if isinstance(data, Stored) and data.offset + data.size_bytes > entry.offset + entry.length:
                raise ValueError(f"constant {tensor.name} lies outside its section")
            todo += getattr(data, "inputs", ())


def _tables_values(made: ShapeTables, floats: ArrayWriter) -> dict[str, Any]:
    """The tables of one shape: per routine kind, runs, and cycles of it and of the simple one; equal runs lie once."""
    return {
        "dims": dict(made.dims),
        "routines": [
            [None, None, cycles, cycles]
            if table is None
            else [table.kind, floats.add(table.runs.view(np.uint8).reshape(-1)), table.cost_cycles, cycles]
            for table, cycles in zip(made.tables, made.simple_cycles, strict=True)
        ],
    }


def _tables_of(values: Mapping[str, Any], model: ShapeModel, numbers: memoryview) -> ShapeTables:
    dims = {str(name): whole_numbers([extent])[0] for name, extent in values["dims"].items()}
    model.check(dims)
    tables: list[ShapeTable | None] = []
    for number, (kind, where, cycles, _) in enumerate(values["routines"]):
        library = model.libraries[number]
        if kind not in ("simple", "optimised", None):
            raise ValueError(f"no table is {kind!r}")
        if kind is None:
            tables.append(None)
            continue
        shape = model.problem(number, dims)
        tables.append(
            ShapeTable(
                signature=library.units.signature,
                dtype=library.units.dtype,
                shape=tuple(shape[axis] for axis in library.routine.tiled),
                units=library.units.ids,
                runs=np.frombuffer(array_bytes(numbers, where), dtype=RUN),
                cost_cycles=float(cycles),
                kind=kind,
            )
        )
    simple = tuple(float(cycles) for _, _, _, cycles in values["routines"])
    return ShapeTables(dims=MappingProxyType(dims), tables=tuple(tables), simple_cycles=simple)


class _Pieces:
    """Constants one after another in a section; their elements are asked for when they are written."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._constants: list[tuple[Constant, int]] = []
        self._known: dict[bytes, tuple[int, int]] = {}
        self._size = 0

    def add(self, constant: Constant) -> tuple[int, int]:
        """Where a constant's elements will lie; those of one digest lie once."""
        found = self._known.get(constant.digest)
        if found is None:
            size = int(np.prod(constant.shape, dtype=np.int64)) * _itemsize(constant)
            found = self._known[constant.digest] = (self._size, size)
            self._constants.append((constant, size))
            self._size += size + -size % _ALIGNMENT
        return found

    def pieces(self) -> Iterator[Buffer]:
        """The section's bytes."""
        for constant, size in self._constants:
            data = np.ascontiguousarray(self._values(constant)).reshape(-1).view(np.uint8).data
            for start in range(0, size, _CHUNK):
                yield data[start : start + _CHUNK]
            yield bytes(-size % _ALIGNMENT)


def _itemsize(constant: Constant) -> int:
    return element_bytes(constant.dtype)
