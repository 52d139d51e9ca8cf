"""Address tables as a plan tells of them (ADDR-3, ADDR-4)."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from compiler.address.unit import CHANNELS
from compiler.report.plan_group_parts import AddressTables
from compiler.tiling.addresses import OpTables


def address_tables(tables: Iterable[OpTables]) -> dict[int, AddressTables]:
    """By op what the plan says of its address tables."""
    return {
        found.op: AddressTables(
            positions=prod(found.block),
            taps=prod(found.window.kernel),
            channels=found.read.taps[CHANNELS],
            layout=found.layout,
            bytes=found.core_bytes,
            read_bytes=found.read_bytes,
            lines_per_position=round(found.lines().per_position, 3),
            padding="classes" if found.is_padded else "none",
        )
        for found in tables
    }
