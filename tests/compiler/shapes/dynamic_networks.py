"""Networks with dynamic dimensions, small enough to be simulated, that have what real ones have."""

from __future__ import annotations

import numpy as np

from tests.models import Model


def residual_network(*, opset: int = 17) -> Model:
    """A residual convolutional network over images of free batch, height and width."""
    model = Model(opset=opset)
    x = model.input(["batch", 3, "height", "width"], "image")
    stem = model.pool(model.relu(model.norm(model.conv(x, 3, 8, 3, stride=2), 8)))
    block = model.conv(model.relu(model.conv(stem, 8, 8, 3)), 8, 8, 3)
    joined = model.relu(model.node("Add", [block, stem]))
    wide = model.node("Concat", [joined, model.conv(joined, 8, 4, 1)], axis=1)
    mean = model.node("Flatten", [model.node("GlobalAveragePool", [wide])])
    model.output(model.node("Gemm", [mean, model.weight(12, 5), model.weight(5)]))
    up = model.node("ConvTranspose", [joined, model.weight(8, 2, 2, 2)], strides=[2, 2])
    model.output(up)
    return model


def encoder_layer(*, hidden: int = 16, heads: int = 2, layers: int = 1, words: int = 20, places: int = 64) -> Model:
    """Layers of a transformer encoder over token ids of free batch and length, with positions of its own."""
    model = Model()

    def matrix(rows: int, columns: int) -> str:
        # scaled as trained ones are: products of unscaled ones make softmax choose by rounding alone
        values = model.random.standard_normal((rows, columns)) / np.sqrt(rows)
        return model.constant(values.astype(np.float32))

    ids = model.input(["batch", "length"], "ids", dtype=7)
    length = model.node("Shape", [ids])
    size = model.node("Gather", [length, model.constant(np.int64(1))], axis=0)
    zero, one = model.constant(np.int64(0)), model.constant(np.int64(1))
    table = model.node("Gather", [model.weight(places, hidden), model.node("Range", [zero, size, one])], axis=0)
    x = model.node("Add", [model.node("Gather", [model.weight(words, hidden), ids], axis=0), table])
    for _ in range(layers):
        target = model.node("Concat", [length, model.ints(heads, hidden // heads)], axis=0)

        def projected(value: str, target: str = target) -> str:
            product = model.node("Add", [model.node("MatMul", [value, matrix(hidden, hidden)]), bias()])
            return model.node("Transpose", [model.node("Reshape", [product, target])], perm=[0, 2, 1, 3])

        def bias(extent: int = hidden) -> str:
            return model.weight(extent)

        q, k, v = projected(x), projected(x), projected(x)
        scores = model.node("MatMul", [q, model.node("Transpose", [k], perm=[0, 1, 3, 2])])
        scaled = model.node("Div", [scores, model.constant(np.float32(np.sqrt(hidden // heads)))])
        mixed = model.node("MatMul", [model.node("Softmax", [scaled], axis=-1), v])
        joined = model.node("Reshape", [model.node("Transpose", [mixed], perm=[0, 2, 1, 3]), model.ints(0, 0, hidden)])
        x = model.node("Add", [x, model.node("MatMul", [joined, matrix(hidden, hidden)])])
        x = model.node("LayerNormalization", [x, bias(), bias()], axis=-1)
        inner = model.relu(model.node("Add", [model.node("MatMul", [x, matrix(hidden, 2 * hidden)]), bias(2 * hidden)]))
        x = model.node("Add", [x, model.node("MatMul", [inner, matrix(2 * hidden, hidden)])])
    model.output(x)
    return model
