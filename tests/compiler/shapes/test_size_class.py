"""Size classes: few, close above every extent, and lengths that tiles are tried with anyway (SHAPE-1)."""

from __future__ import annotations

from compiler.shapes.size_class import resident_class, size_class


def test_two_classes_per_power_of_two_up_to_64_and_eight_beyond() -> None:
    classes = sorted({size_class(extent) for extent in range(1, 257)})
    small = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert classes == [*small, *range(72, 129, 8), *range(144, 257, 16)]


def test_a_class_is_no_smaller_than_its_extents_and_little_larger() -> None:
    for extent in range(1, 5000):
        found = size_class(extent)
        assert found >= extent
        assert size_class(found) == found
        assert found <= extent * (1.5 if extent <= 64 else 1.125)


def test_resident_bytes_count_in_64ths_of_their_memory() -> None:
    assert [resident_class(size, 6400) for size in (0, 1, 100, 101, 6400)] == [0, 100, 100, 200, 6400]
