"""The commands for models with open dimensions: `tessera table`, `package` and `loader` (UI-1, SHAPE-7, 10)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import (
    JsonFlag,
    ProfileOfTarget,
    ServerOption,
    SetOption,
    ShapeOption,
    StrictFlag,
    UnitsOption,
    all_settings,
    check_arguments,
    excluding,
    file_to_write,
    progress_console,
)
from app.input_files import PACKAGE_MAGIC, starts_with
from app.limits import bounded, refuse_decided
from app.outputs import whole_files
from compiler.errors import RequestError, printable
from compiler.option_words import parse_assignments


def package(
    target: Annotated[
        Path, typer.Argument(help="An ONNX file to make a package of, or a package to verify", show_default=False)
    ],
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The package to write")] = None,
    strict: StrictFlag = False,
    units: UnitsOption = None,
    without_units: Annotated[
        bool, typer.Option("--without-units", help="Name the libraries of shape units and leave them out")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a package of a model for ranges of its dimensions (`--set dims.NAME=...`), or verify one.

    Verifying reads the whole package. It makes the programs of the least and the largest shape and of the shapes with
    tables (`--set tables=...`), and proves them safe.
    """
    with failures(as_json=as_json):
        words = all_settings(settings, strict)
        options = parse_assignments(words)
        is_package = starts_with(target, PACKAGE_MAGIC)
        if is_package == (out is not None):
            raise RequestError(
                "a package is made of a model with --out, and verified without" if out is None else "this is a package",
                code="invalid_request",
                actual=printable(str(target), 200),
                hint="tessera package MODEL --profile P --out FILE, or tessera package FILE",
            )
        if is_package:
            refuse_decided("a package", [*words, *(["--without-units"] if without_units else [])])
        file_to_write(out)
        check_arguments(target, [profile], words, server=None, is_model=False)
        from app.cli import shapes
        from app.units.unit_folder import UnitFolder

        console = progress_console(as_json)
        with bounded(options.time_limit_s, options.memory_limit_bytes), shapes.as_package(target):
            of = shapes.shaped(target, profile, options, console, UnitFolder.of(units))
            found = shapes.describe(of)
            if out is not None:
                found["bytes"] = shapes.save_package(of, out, with_units=not without_units)
            else:
                found["proved"] = shapes.prove(of)
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
            return
        shown = Console(markup=False, highlight=False)
        shapes.print_described(found, shown)
        if out is not None:
            shown.print(f"wrote {printable(str(out), 200)}")
        if without_units:
            count = len({use.library_id for use in of.model.uses})
            shown.print(f"it names {count} {'library' if count == 1 else 'libraries'} of shape units and carries none")


def table(
    target: Annotated[
        Path | None, typer.Argument(help="An ONNX file, or a package; with --list a model's id", show_default=False)
    ] = None,
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    shapes: ShapeOption = None,
    as_list: Annotated[bool, typer.Option("--list", help="What a service has cached, with --server")] = False,
    server: ServerOption = None,
    routine: Annotated[int | None, typer.Option("--routine", min=0, help="The runs of one routine's table")] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            help="Folder that keeps tables, up to TESSERA_TABLES_BYTES [TESSERA_TABLES, or the user's cache]",
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no tables")] = False,
    units: UnitsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the parameter tables of a model for one shape: from the cache, or simple ones made at once.

    Optimised tables are made afterwards and shown at the next request for the shape.
    """
    with failures(as_json=as_json):
        excluding({"--cache": cache is not None, "--no-cache": no_cache})
        excluding({"--units": units is not None, "--server": server is not None})
        if as_list or server is not None or target is None:
            refuse_decided("a list of cached tables", settings or ())
            of_one = {"--routine": routine is not None, "--cache": cache is not None, "--no-cache": no_cache}
            for option, is_given in (of_one | {"--units": units is not None}).items():
                excluding({option: is_given, "--list" if as_list else "--server": as_list or server is not None})
            from app.cli.cached_tables import list_cached

            list_cached(server, target, profile, shapes or (), as_json=as_json)
            return
        words = all_settings(settings, strict=False, no_verify=True)
        options = parse_assignments(words)
        if starts_with(target, PACKAGE_MAGIC):
            refuse_decided("a package", settings or ())
        check_arguments(target, [profile], words, server=None, is_model=False, shapes=shapes or ())
        from app.cli.shapes import as_package, dims_for, settings_with_dims, shaped
        from app.cli.table_folder import TableFolder
        from app.units.unit_folder import UnitFolder

        folder = None if no_cache else TableFolder.of(cache)
        with bounded(options.time_limit_s, options.memory_limit_bytes), as_package(target):
            options = parse_assignments(settings_with_dims(target, words, shapes or (), None))
            of = shaped(target, profile, options, progress_console(as_json), UnitFolder.of(units))
            dims = dims_for(of, shapes or (), None)
            # slow to import: a wrong shape is answered first
            from app.cli.tables import improve, print_tables, tables_here
            from app.tables.document import tables_json

            document, better, opened = tables_here(of, dims, folder)
        if as_json:
            sys.stdout.write(tables_json(document).decode() + "\n")
        else:
            print_tables(document, Console(markup=False, highlight=False), routine)
        if folder is not None:
            sys.stdout.flush()
            improve(opened, better, folder)


def loader(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, which Python runs")],
) -> None:
    """Write the small loader: one file that runs packages and needs only Python and numpy."""
    with failures(as_json=False):
        from app.cli.loader import loader_bytes

        file_to_write(out)
        data = loader_bytes()
        with whole_files() as fresh:
            fresh(out).write_bytes(data)
        shown = Console(markup=False, highlight=False)
        shown.print(f"wrote {printable(str(out), 200)}, {len(data):,} bytes")
        shown.print(f"python {printable(out.name, 100)} PACKAGE --inputs IN.npz --outputs OUT.npz")
