"""The small loader's command line: runs a package on inputs and writes outputs.

It is copied to execution hosts as one file (`tessera loader`) and needs Python and numpy there. It imports the modules
that read and run packages, never the compiler.
"""

from __future__ import annotations

import argparse
import mmap
import sys
from pathlib import Path

from app.outputs import check_file, whole_files
from app.simulations.arrays import read_arrays, write_arrays
from app.units.unit_folder import UnitFolder
from compiler.errors import RequestError, TesseraError, printable
from compiler.program.encoding.container import PACKAGE
from compiler.shapes.direct import run_directly
from compiler.shapes.extents import ties_in_words
from compiler.shapes.package import MEANINGLESS, Package, read_package, stored_values
from compiler.version import COMPILER_VERSION


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="tessera-loader", description="Run a package of Tessera.")
    parser.add_argument("package", type=Path)
    parser.add_argument("--inputs", type=Path, help="an .npz file; its keys are names of inputs")
    parser.add_argument("--outputs", type=Path, help="an .npz file to write the outputs to")
    parser.add_argument("--profile", help="the digest of the profile of this machine, or the first 12 digits of it")
    parser.add_argument(
        "--units", type=Path, help="a folder of shape units, for a package without its own [TESSERA_UNITS]"
    )
    parser.add_argument("--version", action="version", version=COMPILER_VERSION)
    given = parser.parse_args(arguments)
    try:
        check_file(given.outputs)
        package = _opened(given.package, UnitFolder.of(given.units))
        _check_profile(package, given.profile)
        if given.inputs is None:
            _describe(package)
        else:
            with given.inputs.open("rb") as file:
                inputs = read_arrays(file)
            outputs = run_directly(package.model, stored_values(package.data), inputs, package.tables)
            for name, array in outputs.items():
                sys.stdout.write(f"{printable(name, 80)}: {array.dtype} {list(array.shape)}\n")
            if given.outputs is not None:
                with whole_files() as fresh, fresh(given.outputs).open("wb") as file:
                    write_arrays(file, outputs)
    except (TesseraError, OSError) as error:
        return _failed(str(error))
    except (*MEANINGLESS, MemoryError) as error:
        # contradictory attributes of ops show only when the ops run; or this machine has too little memory
        return _failed(f"the package cannot be run: {type(error).__name__}: {error}")
    return 0


def _failed(reason: str) -> int:
    sys.stderr.write(f"error: {printable(reason, 2000)}\n")
    return 2


def _opened(path: Path, units: UnitFolder | None) -> Package:
    with path.open("rb") as file:
        if file.read(len(PACKAGE)) != PACKAGE:
            raise RequestError("this file is no package of Tessera", code="no_package", actual=str(path))
        return read_package(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), units=units)


def _check_profile(package: Package, wanted: str | None) -> None:
    digest = package.model.profile_digest
    if wanted is not None and (len(wanted) < 12 or not digest.startswith(wanted)):
        raise RequestError(
            "the package was made for another profile",
            code="wrong_profile",
            stage="package",
            actual=f"{package.model.profile_name} {digest[:12]}",
            limit=wanted[:64],
            hint="Make a package for this profile",
        )


def _describe(package: Package) -> None:
    model = package.model
    sys.stdout.write(
        f"package of {printable(model.model_name, 120)} for {printable(model.profile_name, 80)}"
        f" ({model.profile_digest[:12]}), Tessera {package.compiler_version}\n"
    )
    for one in model.inputs:
        sys.stdout.write(f"input {printable(str(one), 200)} {one.dtype}\n")
    for name, allowed in model.ranges.items():
        sys.stdout.write(f"dimension {printable(name, 80)}: {allowed}\n")
    for tie in ties_in_words(model.graph.tied):
        sys.stdout.write(f"dimension {tie}: ops of the model need it\n")
    for made in package.tables:
        dims = ", ".join(f"{name} = {extent}" for name, extent in made.dims.items())
        sys.stdout.write(f"tables made beforehand for {printable(dims, 200) or 'its shape'}\n")
