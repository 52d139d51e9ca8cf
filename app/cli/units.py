"""`tessera units`: the shape units that a service holds for your compilations (SHAPE-1, UI-1)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import JsonFlag, ServerOption, required_server
from app.printing.text_table import Column, print_table
from compiler.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

cli = typer.Typer(help="List the shape units that a service holds for your compilations.")

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
    if context.invoked_subcommand is not None:
        return
    with failures(as_json=as_json):
        from app.client.client import Client

        with Client(required_server(server)) as client:
            found = client.units(op=op, profile=profile)
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
            return
        _print_libraries(found, Console(markup=False, highlight=False))


@cli.command()
def statistics(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Sums by op: libraries, units, bytes, and how often compilations found them."""
    with failures(as_json=as_json):
        from app.client.client import Client

        with Client(required_server(server)) as client:
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
