"""`tessera table --list`: the parameter tables that a service has cached (SHAPE-1, UI-1)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from app.cli.shared_parameters import needed_service
from app.printing.text_table import Column, print_table
from compiler.errors import printable
from compiler.shapes.extents import parse_shapes


def list_cached(
    server: str | None, model: Path | None, profile: str | None, shapes: Sequence[str], *, as_json: bool
) -> None:
    """Print the cached tables of a model or of all, for one shape or for those that were asked for."""
    with needed_service(server) as client:
        found = client.cached_tables(
            model=None if model is None else str(model), profile=profile, shapes=parse_shapes(shapes)
        )
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    columns = [Column("model", "names"), Column("dimensions", "words"), Column("op", "names"), Column("shape", "words")]
    columns += [Column("kind", "words"), *map(Column, ("units", "bytes", "requests", "age s"))]
    rows = [
        [
            printable(shape["name"], 120),
            printable(", ".join(f"{name}={extent}" for name, extent in shape["dims"].items()), 120),
            printable(table["op"], 120),
            "x".join(map(str, table["shape"])),
            table["kind"],
            str(len(table["tiles"])),
            str(table["bytes"]),
            str(shape["requests"]),
            f"{table['age_s']:.0f}",
        ]
        for shape in found
        for table in shape["tables"]
    ]
    print_table(columns, rows, Console(markup=False, highlight=False))
