"""Parameter tables on the command line: cached in a folder, optimised after they were shown (UI-1, SHAPE-7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from app.cli.shapes import Shaped
from app.cli.table_folder import TableFolder
from app.printing.text_table import Column, print_table, print_text, span
from app.tables import simple_tables
from app.tables.check_cached import fits
from app.tables.document import RoutineTable, TableRun, TablesDocument, tables_document
from app.tables.lookup import Found
from app.tables.open_packages import Asked, OpenPackage
from app.tables.optimised_tables import settled
from app.tables.table_encoding import StoredTable
from compiler.amounts import count_text
from compiler.errors import RequestError, printable
from compiler.shapes.package import Package
from compiler.version import COMPILER_VERSION

_COLUMNS: Final = (
    *map(Column, ("#", "nodes")),
    Column("names", "names"),
    *(Column(name, "words") for name in ("result", "cache", "kind")),
    *map(Column, ("calls", "runs", "cycles", "simple")),
)


def tables_here(
    of: Shaped, dims: dict[str, int], folder: TableFolder | None
) -> tuple[TablesDocument, tuple[tuple[Asked, StoredTable], ...], OpenPackage]:
    """The tables of a model at given dimensions, from the folder or made now; and those that can be optimised."""
    package = Package(model=of.model, tables=of.tables, compiler_version=COMPILER_VERSION, data=memoryview(b""))
    opened = OpenPackage(digest="", package=package, values=of.values)
    found: list[Found] = []
    known: dict[str, Found] = {}
    for asked in opened.asked(dims):
        one = known.get(asked.key)
        if one is None:
            kept = opened.prepared.get(asked.key) or _kept(opened, asked, folder)
            table = simple_tables.simple(opened, asked) if kept is None else kept
            if kept is None and folder is not None:
                folder.write(asked.key, table)
            one = known[asked.key] = Found(asked=asked, cache="miss" if kept is None else "hit", table=table)
        found.append(Found(asked=asked, cache=one.cache, table=one.table))
    better = tuple((one.asked, one.table) for one in known.values() if not one.table.settled)
    return tables_document(opened, dims, found), better, opened


def _kept(opened: OpenPackage, asked: Asked, folder: TableFolder | None) -> StoredTable | None:
    """The table in the folder, if it fits the request."""
    found = None if folder is None else folder.read(asked.key)
    return found if found is not None and fits(opened, asked, found) else None


def improve(opened: OpenPackage, better: Sequence[tuple[Asked, StoredTable]], folder: TableFolder) -> int:
    """Makes the missing optimised tables and keeps them within the folder's limit; returns their number."""
    for asked, simple in better:
        folder.write(asked.key, settled(opened, asked, simple))
    folder.prune()
    return len(better)


def print_tables(document: TablesDocument, console: Console, routine: int | None) -> None:
    """Prints a row per routine, or the runs of one."""
    if routine is not None:
        _print_runs(document, console, routine)
        return
    shapes = ", ".join(f"{printable(name, 60)} {_shape(shape)}" for name, shape in document.inputs.items())
    title = f"{printable(document.model.name, 60)} on {printable(document.profile.name, 60)}: {shapes}"
    rows = [
        (
            str(one.routine),
            str(len(one.ops)),
            span(one.ops),
            _shape(one.shape),
            one.cache,
            one.kind,
            f"{one.calls:,}",
            str(len(one.runs)),
            f"{one.cost_cycles:,.0f}",
            f"{one.simple_cost_cycles / one.cost_cycles:.3f}" if one.cost_cycles else "",
        )
        for one in document.routines
    ]
    print_table(_COLUMNS, rows, console, title=title)
    console.print()
    print_text(
        f"Cache {document.cache}, {document.kind} tables: {document.cost_cycles:,.0f} cycles estimated, all cores "
        f"together; {document.simple_cost_cycles:,.0f} with simple tables, whose units are identical.",
        console,
    )


def _print_runs(document: TablesDocument, console: Console, routine: int) -> None:
    if not 0 <= routine < len(document.routines):
        raise RequestError(
            "the model has no such routine",
            code="unknown_routine",
            actual=routine,
            limit=f"0 to {len(document.routines) - 1}",
            hint="Leave out --routine to see all of them",
        )
    one = document.routines[routine]
    axes = ", ".join(map(str, one.tiled)) or "none"
    print_text(f"routine {one.routine}: {span(one.ops)} ({count_text(len(one.ops), 'node')})", console)
    print_text(f"result {_shape(one.shape)} {one.dtype}, divided along axes {axes}", console)
    print_text(f"{one.cache}, {one.kind}, {one.calls:,} calls, {one.cost_cycles:,.0f} cycles", console)
    for number, run in enumerate(one.runs):
        print_text(f"  run {number}: unit {run.unit}  {_axes(one, run)}", console)


def _axes(one: RoutineTable, run: TableRun) -> str:
    parts = []
    for place in run.order:
        along = run.axes[place]
        times = f" ×{along.count}" if along.count > 1 else ""
        tail = "" if along.mode == "exact" else f" {along.mode} {along.low} to {along.high}"
        parts.append(f"axis {one.tiled[place]}: {along.start}+{along.length}{times}{tail}")
    return "; ".join(parts)


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"
