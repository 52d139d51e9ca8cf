"""The address tables of one compilation: each made once, or found where earlier compilations left it (ADDR-5)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from compiler.address.build import WindowRead, build_table, orders_of
from compiler.address.encode import decode, encode
from compiler.address.table import AddressTable
from compiler.errors import LimitError, RequestError


class StoredAddressTables(Protocol):
    """Encoded address tables by read. Whatever it loses is made again: it never changes a result."""

    def get(self, read: WindowRead) -> bytes | None:
        """The bytes stored for a read, None where there are none."""

    def put(self, tables: Mapping[WindowRead, bytes]) -> None:
        """Store tables by read."""


class AddressTables:
    """The tables of one compilation by read; `stored` holds those of earlier ones."""

    def __init__(self, stored: StoredAddressTables | None = None) -> None:
        self._stored = stored
        self._known: dict[WindowRead, AddressTable] = {}
        self._made: dict[WindowRead, bytes] = {}

    def of(self, read: WindowRead) -> AddressTable:
        """The table of a read, the same whether it is found or made."""
        found = self._known.get(read)
        if found is None:
            found = self._known[read] = self._found(read) or self._new(read)
        return found

    def keep(self) -> None:
        """Leave the tables that were made to later compilations."""
        if self._stored is not None and self._made:
            self._stored.put(self._made)
            self._made = {}

    def _found(self, read: WindowRead) -> AddressTable | None:
        data = None if self._stored is None else self._stored.get(read)
        if data is None:
            return None
        try:
            table = decode(data)
        except RequestError:  # damaged, or of another version: made anew and put in its place
            return None
        return table if _is_of(table, read) else None

    def _new(self, read: WindowRead) -> AddressTable:
        table = build_table(read)
        if self._stored is not None:
            with suppress(LimitError):  # addresses of more than 32 bits: no program binds it
                self._made[read] = encode(table)
        return table


def _is_of(table: AddressTable, read: WindowRead) -> bool:
    """Whether a table is that of a read: `decode` has held its steps and orders against all its addresses."""
    mine = (table.element_bytes, table.positions, table.taps, table.steps, table.tap_steps)
    its = (read.element_bytes, read.positions, read.taps, read.steps, read.tap_steps)
    return mine == its and (table.axes, table.tap_axes, table.run_length) == orders_of(read)
