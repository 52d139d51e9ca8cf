"""`tessera store`: what an operator does with the blob store of a running service."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import DataDirOption, JsonFlag

cli = typer.Typer(help="Look after the blob store of a running service.", no_args_is_help=True)

DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and say what would be")]


@cli.callback()
def store() -> None:
    """Look after the blob store of a running service."""


@cli.command()
def collect(data_dir: DataDirOption = None, dry_run: DryRunFlag = False, as_json: JsonFlag = False) -> None:
    """Remove stored blobs that nothing refers to; the service does so by itself now and then."""
    with failures(as_json=as_json):
        from app.cli.collecting import collected

        found = collected(data_dir, dry_run=dry_run)
        if as_json:
            sys.stdout.write(json.dumps(dataclasses.asdict(found)) + "\n")
            return
        console = Console(highlight=False, markup=False)
        done = "would be removed" if dry_run else "removed"
        console.print(f"{found.removed:,} blobs with {found.removed_bytes:,} bytes {done}")
        if found.results:
            console.print(f"{found.results:,} results {done}, as those kept take too many bytes")
        if found.leftovers:
            console.print(f"{found.leftovers:,} remains of interrupted writes {done}")
        console.print(f"{found.blobs:,} blobs with {found.stored_bytes:,} bytes {'stored' if dry_run else 'left'}")
