"""Calls that find their input through address tables: which tables they bind, and by which each piece is read (ADDR-5).

A table has to be that of the unit's window for the buffer in which a piece lies; then what it names is what the piece
holds, and nothing else is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.address.table import ENTRY_BYTES
from compiler.address.unit import UnitTable
from compiler.errors import InternalError
from compiler.ops.base import Window
from compiler.program.calls import CallBook
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_call, refuse_first
from compiler.program.pieces import Pieces
from compiler.program.program import ADDRESSES, Opcode, Program, Role
from compiler.program.strided import Ints

# The slot of the input that a window goes over.
_DATA = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Addressed:
    """One row per address table that a command binds, by command; and per row of pieces its table, -1 for none.

    `bound`: the binding's number in its call; `numbers` of the tables, `places` and `addresses` where their words lie,
    `sizes` in bytes.
    """

    tables: tuple[UnitTable, ...]
    commands: Ints
    bound: Ints
    numbers: Ints
    places: Ints
    addresses: Ints
    sizes: Ints
    of_piece: Ints


def addressed_of(program: Program, book: CallBook, pieces: Pieces | None, limits: ProgramLimits) -> Addressed | None:
    """What calls read through address tables; None where none do. Raises ProgramError where a table does not fit."""
    tables = _tables(program, limits)
    calling = np.flatnonzero(is_call(program.commands["opcode"]))
    if pieces is None or not len(calling):
        return None
    calls = program.calls[program.commands["call"][calling]]
    counts = calls["count"].astype(np.int64)
    owners = np.repeat(np.arange(len(calling)), counts)
    rows = calls["first"].astype(np.int64)[owners] + np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
    chosen = np.flatnonzero(program.bindings["operand"][rows] <= ADDRESSES)
    if not len(chosen):
        return None
    owners, bindings = owners[chosen], program.bindings[rows[chosen]]
    commands = calling[owners]
    numbers = ADDRESSES - bindings["operand"].astype(np.int64)
    refuse_first(numbers >= len(tables), commands, "binds an unknown address table", "addresses", numbers, len(tables))
    sizes = np.array([found.table.size_bytes for found in tables], dtype=np.int64)[numbers]
    has_shape = (bindings["starts"][:, 0] == 0) & (bindings["lengths"][:, 0] * ENTRY_BYTES == sizes)
    has_shape &= (bindings["strides"][:, 0] == ENTRY_BYTES) & (bindings["address"] % ENTRY_BYTES == 0)
    refuse_first(~has_shape, commands, "an address table is bound in part, or not as it lies", "addresses", sizes)
    is_gather = program.commands["opcode"][commands] == Opcode.GATHER
    refuse_first(is_gather, commands, "a transfer engine reads no address tables", "addresses")
    windows = {table: _window(book, table) for table in np.unique(calls["table"][owners]).tolist()}
    none = np.array([windows[table] is None for table in calls["table"][owners].tolist()])
    refuse_first(none, commands, "binds address tables for an op without a window", "addresses", numbers)
    return Addressed(
        tables=tables,
        commands=commands,
        bound=rows[chosen] - calls["first"][owners],
        numbers=numbers,
        places=bindings["place"].astype(np.int64),
        addresses=bindings["address"].astype(np.int64),
        sizes=sizes,
        of_piece=_of_pieces(pieces, tables, windows, commands, numbers),
    )


def _window(book: CallBook, table: int) -> Window | None:
    geometry = book.geometry(table)
    return geometry.kind.window(geometry.call)


def _tables(program: Program, limits: ProgramLimits) -> tuple[UnitTable, ...]:
    """The address tables, if each is one, and the region of its words."""
    if len(program.addresses) > limits.entries:
        raise ProgramError(
            "too many address tables", violation="size", actual=len(program.addresses), limit=limits.entries
        )
    found, named = [], []
    for number, addresses in enumerate(program.addresses):
        table = addresses.table
        if not 0 <= addresses.region < len(program.regions):
            raise ProgramError(f"address table {number} has no region", violation="addresses", actual=addresses.region)
        region = program.regions[addresses.region]
        whole = (table.size_bytes // ENTRY_BYTES,)
        if region.role != Role.ADDRESSES or region.dtype != "int32" or region.shape != whole:
            raise ProgramError(
                f"the region of address table {number} is none for it", violation="addresses", actual=str(region.shape)
            )
        named.append(addresses.region)
        try:
            found.append(UnitTable.of(table))
        except InternalError as error:
            raise ProgramError(f"address table {number} is none: {error}"[:300], violation="addresses") from error
    filled = [number for number, region in enumerate(program.regions) if region.role == Role.ADDRESSES]
    if sorted(named) != filled:
        raise ProgramError("regions of address tables are not those of the tables", violation="addresses")
    return tuple(found)


def _of_pieces(
    pieces: Pieces,
    tables: Sequence[UnitTable],
    windows: dict[int, Window | None],
    commands: Ints,
    numbers: Ints,
) -> Ints:
    """By row of pieces the table through which it is read: the first of its command's that fits."""
    result = np.full(len(pieces.commands), -1, dtype=np.int64)
    data = left = np.flatnonzero((pieces.slots == _DATA) & np.isin(pieces.commands, commands))
    at, stop = (np.searchsorted(commands, pieces.commands[data], side=side) for side in ("left", "right"))
    known: dict[bytes, bool] = {}
    while len(left):
        sides = pieces.stops[left] - pieces.starts[left]
        heads = (numbers[at], pieces.tables[left], pieces.element_bytes[left])
        # the length of an axis says only whether its stride is known
        rows = np.column_stack([*heads, sides == 1, pieces.strides[left]])
        keys: list[bytes] = rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0].tolist()
        for key, row in {key: row for row, key in enumerate(keys) if key not in known}.items():
            window, strides = windows[int(heads[1][row])], pieces.strides[left[row]].tolist()
            table = tables[int(heads[0][row])]
            known[key] = window is not None and _fits(table, window, sides[row].tolist(), strides, int(heads[2][row]))
        fits = np.array([known[key] for key in keys])
        result[left[fits]] = numbers[at[fits]]
        is_left = ~fits & (at + 1 < stop)
        left, at, stop = left[is_left], at[is_left] + 1, stop[is_left]
    for row in data[result[data] < 0].tolist():
        raise ProgramError(
            "an input lies as none of the call's address tables says",
            violation="addresses",
            command=int(pieces.commands[row]),
            actual=str(pieces.strides[row].tolist()),
            limit=str(tuple(numbers[commands == pieces.commands[row]].tolist())),
        )
    return result


def _fits(table: UnitTable, window: Window, sides: list[int], strides: list[int], element: int) -> bool:
    rank = 2 + len(window.kernel)
    return table.fits(window, sides[:rank], strides[:rank], element)
