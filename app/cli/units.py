"""`tessera units`: the shape units that a service holds for your compilations (SHAPE-1, UI-1)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import JsonFlag, ServerOption, needed_service
from app.printing.text_table import Column, print_table
from compiler.errors import RequestError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

cli = typer.Typer(help="List the shape units that a service holds for your compilations, and carry them between hosts.")

OpOption = Annotated[str | None, typer.Option("--op", help="Kinds of the ops that run together, such as Conv+Relu")]
ProfileFilter = Annotated[str | None, typer.Option("--profile", "-p", help="Name or digest of a profile")]


@cli.callback(invoke_without_command=True)
def units(
    context: typer.Context,
    server: ServerOption = None,
    op: OpOption = None,
    profile: ProfileFilter = None,
    as_json: JsonFlag = False,
) -> None:
    """List the shape units that a service holds for your compilations, those used latest first."""
    given = {"--server": server is not None, "--op": op is not None, "--profile": profile is not None}
    given["--json"] = as_json
    with failures(as_json=as_json):
        if context.invoked_subcommand is not None:
            _refuse_before(context.invoked_subcommand, [name for name, is_given in given.items() if is_given])
            return
        with needed_service(server) as client:
            found = client.units(op=op, profile=profile)
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
            return
        _print_libraries(found, Console(markup=False, highlight=False))


def _refuse_before(command: str, options: Sequence[str]) -> None:
    """Raises RequestError for options that stand before the name of a command, which would not see them."""
    if options:
        raise RequestError(
            f"options of `tessera units {command}` come after its name",
            code="invalid_request",
            actual=" ".join(options),
            hint=f"tessera units {command} {' '.join(options)} ...",
        )


@cli.command()
def statistics(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Sums by op: libraries, units, bytes, and how often compilations found them."""
    with failures(as_json=as_json):
        with needed_service(server) as client:
            found = client.unit_statistics()
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
            return
        columns = [Column("op", "names"), *map(Column, ("libraries", "units", "bytes", "hits"))]
        fields = ("op", "libraries", "units", "bytes", "hits")
        rows = [_row(one, fields) for one in [*found["ops"], found | {"op": "all"}]]
        print_table(columns, rows, Console(markup=False, highlight=False))


def _print_libraries(libraries: Iterable[dict[str, Any]], console: Console) -> None:
    columns = [Column("op", "names"), Column("size", "words"), Column("signature", "words"), Column("profile", "words")]
    columns += [*map(Column, ("units", "bytes", "hits")), Column("made", "words")]
    rows = [
        [
            printable(one["op"], 120),
            printable(one["size"], 60),
            one["signature"][:12],
            one["profile"][:12],
            str(len(one["units"])),
            f"{one['bytes']:,}",
            str(one["hits"]),
            one["created_at"][:19],
        ]
        for one in libraries
    ]
    print_table(columns, rows, console)


def _row(values: dict[str, Any], fields: Iterable[str]) -> list[str]:
    return [f"{values[one]:,}" if isinstance(values[one], int) else printable(str(values[one]), 120) for one in fields]


FolderArgument = Annotated[Path, typer.Argument(help="A folder of units, one file per library", show_default=False)]


@cli.command()
def pull(
    folder: FolderArgument,
    server: ServerOption = None,
    op: OpOption = None,
    profile: ProfileFilter = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy the units that your compilations used from a service into a folder; `tessera package --units` uses them."""
    with failures(as_json=as_json):
        from app.client.errors import ServiceError
        from app.units.unit_folder import UnitFolder
        from compiler.shapes.unit_bundle import decode_bundle

        into, sizes = UnitFolder(folder), []
        with needed_service(server) as client:
            for one in client.units(op=op, profile=profile):
                try:
                    data = client.unit_bundle(one["id"])
                except ServiceError as error:
                    if error.code == "unknown_units":  # it left the cache after it was listed
                        continue
                    raise
                key, _ = decode_bundle(data)
                into.write(key, data)
                sizes.append(len(data))
        _say(as_json, f"pulled into {printable(str(folder), 200)}", sizes)


@cli.command()
def push(folder: FolderArgument, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Bring the units of a folder to a service, which builds each library again and keeps it if it is equal."""
    with failures(as_json=as_json):
        from app.units.unit_folder import UnitFolder

        sizes = []
        with needed_service(server) as client:
            for library, data in UnitFolder(folder).libraries():
                client.push_units(library, data)
                sizes.append(len(data))
        _say(as_json, f"pushed from {printable(str(folder), 200)}", sizes)


def _say(as_json: bool, what: str, sizes: Sequence[int]) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"libraries": len(sizes), "bytes": sum(sizes)}) + "\n")
    else:
        sys.stdout.write(f"{len(sizes)} libraries, {sum(sizes):,} bytes, {what}\n")
