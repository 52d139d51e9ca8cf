"""Positions that a Resize to the nearest reads: those of ONNX Runtime, or a difference is found."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
import onnxruntime as ort
import pytest

from compiler.ops.resize_positions import NearestAxes
from tests.models import Model

HALF = Fraction(1, 2)
ROUNDINGS = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda position: ceil(position - HALF),
    "round_prefer_ceil": lambda position: floor(position + HALF),
}
# Extents before and after of which float32 arithmetic finds other positions by some rounding, and others.
PAIRS = (
    (14, 2),
    (7, 38),
    (7, 2),
    (14, 19),
    (20, 6),
    (36, 21),
    (40, 26),
    (7, 1),
    (14, 4),
    (6, 9),
    (9, 9),
    (5, 10),
    (1, 3),
)


def exact(transformation: str, rounding: str, source: int, target: int) -> list[int]:
    step = Fraction(source, target)
    shift = {"asymmetric": Fraction(0), "tf_half_pixel_for_nn": step / 2}.get(transformation, (step - 1) / 2)
    return [min(max(ROUNDINGS[rounding](o * step + shift), 0), source - 1) for o in range(target)]


def sampling(transformation: str, rounding: str, source: int, target: int) -> tuple[int, int, int]:
    """Numbers of which (o·scale + low) // divisor is the exact position."""
    offset = {"asymmetric": 0, "tf_half_pixel_for_nn": source}.get(transformation, source - target)
    low = {"floor": 0, "ceil": 2 * target - 1, "round_prefer_floor": target - 1}.get(rounding, target)
    return 2 * source, offset + low, 2 * target


@pytest.mark.parametrize("transformation", ["asymmetric", "half_pixel", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("rounding", sorted(ROUNDINGS))
def test_a_difference_is_found_exactly_where_the_runtime_reads_other_elements(
    transformation: str, rounding: str
) -> None:
    model = Model(opset=13)
    x, sizes = model.input(["h"], "x"), model.input([1], "sizes", dtype=7)
    how = {"coordinate_transformation_mode": transformation, "nearest_mode": rounding}
    model.output(model.node("Resize", [x, "", "", sizes], mode="nearest", **how))
    runtime = ort.InferenceSession(model.data(), providers=["CPUExecutionProvider"])
    found = []
    for source, target in PAIRS:
        feeds = {"x": np.arange(source, dtype=np.float32), "sizes": np.array([target])}
        rows = runtime.run(None, feeds)[0].astype(int).tolist()
        axis = NearestAxes(
            transformation=transformation,
            rounding=rounding,
            source=np.array([source]),
            target=np.array([target]),
            scale=np.array([target / source], dtype=np.float32),
            sampling=tuple(np.array([one]) for one in sampling(transformation, rounding, source, target)),  # type: ignore[arg-type]
        )
        found.append((axis.first_difference() is None, rows == exact(transformation, rounding, source, target)))
    assert all(one == other for one, other in found)


def test_the_first_axis_that_differs_is_named() -> None:
    counts = np.array([3, 2, 4])
    source = np.array([6, 14, 14])
    axes = NearestAxes(
        transformation="asymmetric",
        rounding="floor",
        source=source,
        target=counts,
        scale=(counts / source).astype(np.float32),
        sampling=(source, np.zeros(3, np.int64), counts),
    )
    assert axes.first_difference() == 1
