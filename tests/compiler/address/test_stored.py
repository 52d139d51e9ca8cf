"""Address tables of earlier compilations: found under a key of all inputs, checked, and never a different result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.address.build import WindowRead, build_table
from compiler.address.encode import encode
from compiler.address.stored import AddressTables
from compiler.cache_key import address_table_key
from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.executable import Executable, write
from tests.models import Model

READ = WindowRead(
    positions=(1, 1, 4, 5),
    taps=(1, 1, 3, 3),
    strides=(1, 1, 2, 1),
    dilations=(1, 1, 1, 2),
    distances=(640, 4, 160, 16),
    element_bytes=4,
)


class Stored:
    """The port over a dictionary; `asked` counts."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.asked = self.found = 0

    def get(self, read: WindowRead) -> bytes | None:
        """The bytes of a read's key."""
        key = address_table_key(read)
        self.asked += 1
        self.found += key in self.values
        return self.values.get(key)

    def put(self, tables: Mapping[WindowRead, bytes]) -> None:
        """Keeps all."""
        self.values |= {address_table_key(read): table for read, table in tables.items()}


def test_a_table_is_made_once_and_found_by_the_next_compilation() -> None:
    stored = Stored()
    first = AddressTables(stored)
    table = first.of(READ)
    assert first.of(replace(READ)) is table
    assert (stored.asked, stored.values) == (1, {})
    first.keep()
    assert list(stored.values) == [address_table_key(READ)]
    again = AddressTables(stored).of(READ)
    assert stored.found == 1
    assert encode(again) == encode(table) == encode(build_table(READ))


@pytest.mark.parametrize("name", ["positions", "taps", "strides", "dilations", "distances"])
def test_every_input_is_in_the_key(name: str) -> None:
    value = getattr(READ, name)
    changed: dict[str, Any] = {name: (*value[:-1], value[-1] + 1)}
    other = replace(READ, **changed)
    assert address_table_key(other) != address_table_key(READ)
    assert address_table_key(replace(READ, element_bytes=2)) != address_table_key(READ)


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"no table",
        encode(build_table(READ))[:-1],
        encode(build_table(replace(READ, distances=(640, 4, 320, 16)))),
        encode(build_table(replace(READ, taps=(1, 1, 3, 2)))),
        encode(build_table(replace(READ, element_bytes=2))),
    ],
)
def test_what_is_no_table_of_the_read_is_made_anew_and_replaced(other: bytes) -> None:
    stored = Stored()
    key = address_table_key(READ)
    stored.values[key] = other
    tables = AddressTables(stored)
    assert np.array_equal(tables.of(READ).bases, build_table(READ).bases)
    tables.keep()
    assert stored.values[key] == encode(build_table(READ))


def test_a_compilation_with_a_warm_cache_gives_the_same_bytes_as_with_a_cold_one() -> None:
    """ADDR-5: and as with none; equal ops share a table."""
    model = Model()
    x = model.input([1, 4, 12, 12], "x")
    y = model.relu(model.conv(model.relu(model.conv(x, 4, 4)), 4, 4))
    model.output(model.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2]))
    stored, profile = Stored(), builtin_profile("edge4")

    def compiled(addresses: Stored | None) -> bytes:
        made = compile_model(model.data(), profile, parse_options({"verify": "none"}), addresses=addresses)
        assert isinstance(made.executable, Executable)
        return b"".join(bytes(piece) for piece in write(made.executable))

    without, cold = compiled(None), compiled(stored)
    kept, asked = dict(stored.values), stored.asked
    assert kept
    assert stored.found == 0
    warm = compiled(stored)
    assert without == cold == warm
    assert (stored.values, stored.found, stored.asked) == (kept, asked, 2 * asked)
