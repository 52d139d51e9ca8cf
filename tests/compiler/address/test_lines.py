"""Lines that positions touch (ADDR-4)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import build_table
from compiler.address.lines import lines_touched
from compiler.address.unit import unit_read
from compiler.errors import InternalError
from compiler.ir.layout import strides_of
from compiler.ops.base import Window

COUNTS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.integers(1, 4), st.sampled_from([1, 3, 8, 16, 64]))
def test_lines_are_those_that_a_count_byte_by_byte_finds(
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    counts: tuple[int, ...],
    channels: int,
    line_bytes: int,
) -> None:
    """ADDR-4."""
    sides = [
        (count - 1) * stride + (taps - 1) * dilation + 1
        for count, stride, taps, dilation in zip(counts, strides, kernel, dilations, strict=True)
    ]
    window = Window(kernel, strides, dilations, (0, 0))
    buffer = strides_of((1, channels, *sides), (0, 2, 3, 1), 4)
    table = build_table(unit_read(window, (1, 1, *counts), channels, buffer, 4))
    total = 0
    for base in table.bases.tolist():
        read = (base + table.offsets)[:, np.newaxis] + np.arange(4)
        total += len(np.unique(read // line_bytes))
    found = lines_touched(table, line_bytes)
    assert (found.total, found.positions) == (total, counts[0] * counts[1])
    assert found.per_position == total / (counts[0] * counts[1])


def test_a_line_has_bytes() -> None:
    table = build_table(unit_read(Window((1,), (1,), (1,), (0,)), (1, 1, 4), 1, (16, 4, 4), 4))
    with pytest.raises(InternalError, match="at least one byte"):
        lines_touched(table, 0)
