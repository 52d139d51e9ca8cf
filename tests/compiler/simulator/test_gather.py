"""Gathering through address tables, where a table leaves a distance to the piece (SIM-1)."""

from __future__ import annotations

import numpy as np

from compiler.address.build import build_table
from compiler.address.unit import UnitTable, unit_read
from compiler.ops.base import Window
from compiler.simulator.gather import WindowGather, empty_met


def test_pieces_whose_images_lie_at_other_distances_are_read_through_one_table() -> None:
    """ADDR-3: a block of one image says nothing of where the next one begins."""
    window, row = Window((2, 2), (1, 1), (1, 1), (0, 0)), 17 * 4
    unit = UnitTable.of(build_table(unit_read(window, (1, 1, 16, 16), 1, (0, 4, row, 4), 4)))
    memory = np.arange(1000, dtype="<f4")
    gather, box, piece = WindowGather(window), ((0, 2), (0, 1), (0, 1), (0, 2)), ((0, 2), (0, 1), (0, 2), (0, 3))
    for distance in (4, 10):
        strides = (distance * row, 4, row, 4)
        assert unit.fits(window, [stop - start for start, stop in piece], strides, 4)
        met, words = empty_met(box, window.kernel, 1, 0, np.dtype("f4"))
        gather.fill(words, box, 0, piece, 0, strides, unit, memory.view(np.uint8))
        first = met[0].reshape(-1)
        assert first.tolist() == [0, 1, 17, 18, 1, 2, 18, 19]
        assert np.array_equal(met[1].reshape(-1), first + distance * 17)
