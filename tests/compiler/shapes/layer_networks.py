"""One small network of each kind of layers: windows, weights, rows of tables, products along two open axes."""

from __future__ import annotations

from collections.abc import Callable

from tests.compiler.shapes.dynamic import Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model


def separable_convolutions() -> Model:
    """A convolution, one of each channel by itself, and a Concat of its result with a third one's."""
    model = Model()
    x = model.input(["n", 4, "h", 9], "x")
    wide = model.relu(model.conv(x, 4, 12, 3))
    apart = model.node("Conv", [wide, model.weight(12, 1, 3, 3)], group=12, pads=[1, 1, 1, 1])
    model.output(model.node("Concat", [apart, model.conv(apart, 12, 6, 1)], axis=1))
    return model


def classifier() -> Model:
    """A matrix product with bias and softmax."""
    model = Model()
    x = model.input(["rows", 24], "x")
    product = model.node("Add", [model.node("MatMul", [x, model.weight(24, 40)]), model.weight(40)])
    model.output(model.node("Softmax", [product], axis=-1))
    return model


def embedding() -> Model:
    """Rows of a table by index, and a matrix product of them."""
    model = Model()
    ids = model.input(["batch", "length"], "ids", dtype=7)
    rows = model.node("Gather", [model.weight(50, 16), ids], axis=0)
    model.output(model.node("Add", [model.node("MatMul", [rows, model.weight(16, 16)]), model.weight(16)]))
    return model


LAYERS: dict[str, tuple[Callable[[], Model], Ranges]] = {
    "convolutions": (separable_convolutions, {"n": (1, 3), "h": (1, 20)}),
    "classifier": (classifier, {"rows": (1, 50)}),
    "embedding": (embedding, {"batch": (1, 3), "length": (1, 15)}),
    "attention": (encoder_layer, {"batch": (1, 2), "length": (1, 9)}),
}
