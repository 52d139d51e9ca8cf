"""Models for ranges of shapes on the command line: runs, parameter tables, packages (UI-1, SHAPE-9).

The compiler is imported where it is used, so that a wrong shape is answered first.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from app.cli.progress import ProgressBar
from app.input_files import (
    PACKAGE_MAGIC,
    existing_model,
    is_executable,
    load_profile,
    named_profile,
    open_model,
    starts_with,
    uncompiled_model,
)
from app.outputs import whole_files
from app.simulations.arrays import Array
from app.units.unit_folder import UnitFolder
from compiler.errors import InternalError, printable
from compiler.frontend.constant_values import materialise
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource, opened
from compiler.option_words import parse_assignments
from compiler.options import DimRange, Options
from compiler.profile import profile_digest
from compiler.program.errors import ExecutableError
from compiler.program.executable import ChipSegment, Executable, write
from compiler.program.loops.instances import Instances
from compiler.shapes.declared import dims_from_arrays, dims_from_words, refuse_free
from compiler.shapes.extents import ties_in_words
from compiler.shapes.instance import Values
from compiler.shapes.model import ShapeModel
from compiler.shapes.package import MEANINGLESS, read_package, stored_values, write_package
from compiler.shapes.prepared import ShapeTables, tables_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A model for ranges of shapes, the file with its constants, their elements, and tables made beforehand."""

    model: ShapeModel
    tables: tuple[ShapeTables, ...]
    source: ModelSource
    values: Values


def is_package(path: Path) -> bool:
    """Whether a file is a package, by its first bytes; raises as `existing_model`."""
    return starts_with(path, PACKAGE_MAGIC)


def has_ranges(options: Options) -> bool:
    """Whether the options leave a dimension open."""
    return any(isinstance(extent, DimRange) and extent.min < extent.max for extent in options.dims.values())


def settings_with_dims(
    path: Path, settings: Sequence[str], words: Sequence[str], given: Mapping[str, Array] | None
) -> list[str]:
    """The settings, plus missing values of option `dims` taken from the shapes (IMPORT-10).

    Shapes are words such as `x:1x3x225x199`, or those of given inputs. Raises RequestError for shapes that the model or
    the settings do not allow, and ModelError for free dimensions where nothing says how long they are. A compiled file
    has no open dimensions: its settings stay unchanged.
    """
    if is_executable(path) or is_package(path):
        return list(settings)
    options = parse_assignments(settings)
    if not (words or given or not options.dims):
        return list(settings)
    graph = ReadModel().run(open_model(path)).proto.graph
    if not (words or given):
        refuse_free(graph)
        return list(settings)
    dims = dims_from_words(graph, options, words) if words else dims_from_arrays(graph, options, given or {})
    return [*settings, f"dims={json.dumps(dims)}"] if dims else list(settings)


def shaped(path: Path, profile: str | None, options: Options, console: Console, units: UnitFolder | None) -> Shaped:
    """The model of a package, or of an ONNX file compiled for the ranges in option `dims`.

    `units` has those that a package names and does not carry; a compilation finds units there and adds to them.
    """
    if is_package(path):
        wanted = None if profile is None else profile_digest(load_profile(profile))
        with existing_model(path).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        package = read_package(memoryview(data), profile_digest=wanted, units=units)
        source = ModelSource(name=package.model.model_name, data=data, sha256=package.model.model_digest)
        return Shaped(model=package.model, tables=package.tables, source=source, values=stored_values(package.data))
    from compiler.compile import compile_package

    uncompiled_model(path)
    hardware = load_profile(named_profile(profile))
    source = open_model(path)
    with ProgressBar(console, path.name) as bar:
        made = compile_package(source, hardware, options, observer=bar, stored=units)
    inner = opened(made.model.graph.source, source)
    return Shaped(
        model=made.model, tables=made.tables, source=inner, values=lambda constant: materialise(constant, inner)
    )


def dims_for(of: Shaped, shapes: Sequence[str], given: Mapping[str, Array] | None) -> dict[str, int]:
    """The dimensions from inputs or from words of shapes; the maxima without either."""
    model = of.model
    if given is not None:
        by_name = {name: array.shape for name, array in given.items()}
        return model.dims_of(by_name, partial=False)
    if shapes:
        return model.dims_of_words(shapes)
    return {name: one.high for name, one in model.ranges.items()}


@contextmanager
def as_package(path: Path) -> Iterator[None]:
    """Turns errors about a package's contents into ExecutableError, since we may not have made the package.

    Attributes of ops that contradict each other show only when programs are made. Errors about other files stay
    unchanged.
    """
    try:
        yield
    except (*MEANINGLESS, InternalError) as error:
        if not is_package(path):
            raise
        raise ExecutableError(
            f"what it says cannot be run: {printable(str(error), 300) or type(error).__name__}",
            section="manifest",
            offset=0,
            actual=type(error).__name__,
            hint="Make the package anew. If this version of Tessera made it, this is a defect of Tessera",
        ) from error


def without_unread(of: Shaped, given: Mapping[str, Array] | None) -> Mapping[str, Array] | None:
    """The input values that ops need, without unread ones: executables have no others."""
    unread = {tensor.name for tensor in of.model.graph.unread}
    return None if given is None else {name: array for name, array in given.items() if name not in unread}


def executable_at(of: Shaped, dims: Mapping[str, int]) -> tuple[Executable, str]:
    """The executable of one shape, from tables made beforehand or simple ones, and its digest; compiles nothing."""
    executable = _instance(of, dims)
    digest = hashlib.sha256()
    for piece in write(executable):
        digest.update(piece)
    return executable, digest.hexdigest()


def save_package(of: Shaped, path: Path, *, with_units: bool) -> int:
    """Writes a package, whole or not at all, with its units or their libraries' names; returns its size in bytes.

    The old file is replaced at the end, because it may be the mapped model that is being read.
    """
    with whole_files() as fresh, fresh(path).open("wb") as file:
        pieces = write_package(of.model, of.tables, of.values, with_units=with_units)
        return sum(file.write(piece) for piece in pieces)


def prove(of: Shaped) -> list[dict[str, object]]:
    """Makes and proves the programs of the least shape, the largest, and those with tables; describes each."""
    least = {name: one.low for name, one in of.model.ranges.items()}
    most = {name: one.high for name, one in of.model.ranges.items()}
    shapes: list[dict[str, int]] = []
    for dims in (least, most, *(dict(one.dims) for one in of.tables)):
        if dims not in shapes:
            shapes.append(dims)
    found: list[dict[str, object]] = []
    for dims in shapes:
        executable = _instance(of, dims)
        programs = [segment.program for segment in executable.segments if isinstance(segment, ChipSegment)]
        found.append({"dims": dims, "commands": sum(Instances(program).total for program in programs)})
    return found


def _instance(of: Shaped, dims: Mapping[str, int]) -> Executable:
    from compiler.shapes.instantiate import instantiate, simple_tables

    tables = tables_for(of.tables, dims)
    return instantiate(of.model, dims, simple_tables(of.model, dims) if tables is None else tables, of.source)


def describe(of: Shaped) -> dict[str, object]:
    """Describes a model for ranges of shapes as plain values."""
    model = of.model
    return {
        "model": printable(model.model_name, 200),
        "model_sha256": model.model_digest,
        "profile": model.profile_name,
        "profile_digest": model.profile_digest,
        "inputs": [printable(str(one), 200) for one in model.inputs],
        "dims": {name: {"min": one.low, "max": one.high, "step": one.step} for name, one in model.ranges.items()},
        "tied": ties_in_words(model.graph.tied),
        "default_ranges": model.has_default_ranges,
        "routines": [
            {
                "ops": [printable(model.graph.ops[op].node, 120) for op in library.routine.ops],
                "signature": library.units.signature,
                "units": len(library.units),
                "library": use.library_id,
            }
            for library, use in zip(model.libraries, model.uses, strict=True)
        ],
        "host_ops": sum(len(part.ops) for part in model.parts if part.is_host),
        "tables": [dict(one.dims) for one in of.tables],
    }


def print_described(found: dict[str, Any], console: Console) -> None:
    """Prints the description of a package, and the shapes whose programs were proved."""
    console.print(f"{found['model']} for {found['profile']} ({str(found['profile_digest'])[:12]})")
    for one in found["inputs"]:
        console.print(f"  input {one}")
    for name, allowed in found["dims"].items():
        step = f" in steps of {allowed['step']}" if allowed["step"] > 1 else ""
        default = ", by default" if found["default_ranges"] else ""
        console.print(f"  dimension {printable(name, 80)}: {allowed['min']} to {allowed['max']}{step}{default}")
    for one in found["tied"]:
        console.print(f"  dimension {one}: ops of the model need it")
    routines = found["routines"]
    ops = sum(len(one["ops"]) for one in routines)
    units = len({(one["signature"], one["units"]) for one in routines})
    console.print(f"  {ops} ops in {len(routines)} routines of {units} signatures, {found['host_ops']} ops on the host")
    for dims in found["tables"]:
        console.print(f"  tables made beforehand for {_dims(dims)}")
    for one in found.get("proved", ()):
        console.print(f"  proved at {_dims(one['dims'])}: {one['commands']:,} commands")


def _dims(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{printable(name, 80)} = {extent}" for name, extent in dims.items()) or "its shape"
