"""The order of tensors in memory, by option `layout`."""

from __future__ import annotations

import pytest

from compiler.ir.layout import Layout, is_relabelling, memory_order, strides_of


@pytest.mark.parametrize(
    ("layout", "map_2d", "map_1d", "without_images"),
    [
        ("NHWC", (0, 2, 3, 1), (0, 2, 1), (1, 2, 0)),
        ("NCHW", (0, 1, 2, 3), (0, 1, 2), (0, 1, 2)),
        ("CNHW", (1, 0, 2, 3), (1, 0, 2), (0, 1, 2)),
    ],
)
def test_feature_maps_lie_as_the_layout_says(
    layout: Layout, map_2d: tuple[int, ...], map_1d: tuple[int, ...], without_images: tuple[int, ...]
) -> None:
    """ADDR-1."""
    assert memory_order(("N", "C", "H", "W"), layout) == map_2d
    assert memory_order(("N", "C", "W"), layout) == map_1d
    assert memory_order(("C", "H", "W"), layout) == without_images


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "CNHW"])
def test_matrices_keep_their_rows_packed_in_every_layout(layout: Layout) -> None:
    """ADDR-5: so that products of them need no tables."""
    for axes in (("N", "H", "C"), ("N", "G", "H", "C"), ("N", "C"), ("C",), ("N", "A1", "A2"), ()):
        assert memory_order(axes, layout) == tuple(range(len(axes)))


def test_a_view_is_another_name_where_both_lie_in_the_order_of_their_axes() -> None:
    shape, flat = (1, 4, 3, 2), (1, 24)
    assert is_relabelling(shape, (0, 1, 2, 3), flat, (0, 1))
    assert not is_relabelling(shape, (0, 2, 3, 1), flat, (0, 1))
    assert is_relabelling((1, 24, 1, 1), (0, 2, 3, 1), flat, (0, 1)), "axes of one position do not count"
    assert not is_relabelling(shape, (0, 1, 2, 3), (1, 23), (0, 1))


def test_strides_follow_the_order() -> None:
    assert strides_of((2, 3, 4, 5), memory_order(("N", "C", "H", "W"), "CNHW"), 2) == (40, 80, 10, 2)
