"""Small models whose shapes, constants or choices depend on dynamic dimensions, by what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.compiler.shapes.dynamic import Ranges
from tests.models import Model

Build = Callable[[Model], None]
# By name: how the model is built, and the ranges of its dimensions.
SERVED: dict[str, tuple[Build, Ranges]] = {}
# The same, and the code of the error that refuses it.
REFUSED: dict[str, tuple[Build, Ranges, str]] = {}


def served(ranges: Ranges) -> Callable[[Build], Build]:
    """Note a model that is right at all extents."""

    def noted(build: Build) -> Build:
        SERVED[build.__name__] = (build, ranges)
        return build

    return noted


def refused(ranges: Ranges, code: str) -> Callable[[Build], Build]:
    """Note a model of which nobody knows what it is below the maxima."""

    def noted(build: Build) -> Build:
        REFUSED[build.__name__] = (build, ranges, code)
        return build

    return noted


def dim(model: Model, x: str, axis: int) -> str:
    """An extent of a value as a number."""
    return model.node("Gather", [model.node("Shape", [x]), model.constant(np.int64(axis))], axis=0)


def dim1(model: Model, x: str, axis: int) -> str:
    """An extent of a value as a list of one."""
    return model.node("Gather", [model.node("Shape", [x]), model.ints(axis)], axis=0)
