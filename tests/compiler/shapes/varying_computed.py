"""Models with numbers and constants that follow dynamic dimensions by more than sums and products."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.compiler.shapes.varying_models import dim, dim1, served
from tests.models import Model


@served({"h": (4, 19), "w": (4, 19)})
def padded_halves(model: Model) -> None:
    """Twice halved by windows, doubled, and padded by what the exporter works out: h // 2 - 2 * (h // 4)."""
    x = model.input([1, 3, "h", "w"])
    half = model.pool(x)
    doubled = model.node("ConvTranspose", [model.pool(half), model.weight(3, 3, 2, 2)], strides=[2, 2])
    missing = []
    for axis in (2, 3):
        extent = dim1(model, x, axis)
        quarter = model.node("Mul", [model.node("Div", [extent, model.ints(4)]), model.ints(2)])
        missing.append(model.node("Sub", [model.node("Div", [extent, model.ints(2)]), quarter]))
    pads = model.node("Concat", [model.ints(0, 0, 0, 0, 0, 0), *missing], axis=0)
    model.output(model.node("Concat", [half, model.node("Pad", [doubled, pads])], axis=1))


@served({"s": (2, 19)})
def padded_chunks(model: Model) -> None:
    """Padded by (-s) mod 4, in chunks of 4, and back."""
    x = model.input([2, "s", 3])
    missing = model.node("Mod", [model.node("Neg", [dim1(model, x, 1)]), model.ints(4)])
    pads = model.node("Concat", [model.ints(0, 0, 0, 0), missing, model.ints(0)], axis=0)
    padded = model.node("Pad", [x, pads])
    number = model.node("Div", [dim1(model, padded, 1), model.ints(4)])
    shape = model.node("Concat", [model.ints(2), number, model.ints(4), model.ints(3)], axis=0)
    sums = model.node("Mul", [model.node("Softmax", [model.node("Reshape", [padded, shape])], axis=2), model.weight(3)])
    whole = model.node("Reshape", [sums, model.node("Shape", [padded])])
    model.output(model.node("Slice", [whole, model.ints(0), dim1(model, x, 1), model.ints(1)]))


@served({"s": (3, 12)})
def rolled(model: Model) -> None:
    """Cut at (-2) mod s."""
    x = model.input([2, "s"])
    at = model.node("Mod", [model.ints(-2), dim1(model, x, 1)])
    first = model.node("Slice", [x, model.ints(0), at, model.ints(1)])
    last = model.node("Slice", [x, at, dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Add", [x, model.node("Concat", [last, first], axis=1)]))


@served({"s": (2, 12)})
def relative_positions(model: Model) -> None:
    """Floats from s - 1 down to 1 - s, and the scores of s of them."""
    x = model.input([2, "s", 4])
    length = dim(model, x, 1)
    first = model.node("Cast", [model.node("Sub", [length, model.constant(np.int64(1))])], to=1)
    last = model.node("Cast", [model.node("Neg", [length])], to=1)
    positions = model.node("Range", [first, last, model.constant(np.float32(-1.0))])
    column = model.node("Unsqueeze", [positions, model.ints(1)])
    waves = model.node("Sin", [model.node("Mul", [column, model.weight(4)])])
    scores = model.node("MatMul", [x, model.node("Transpose", [waves], perm=[1, 0])])
    model.output(model.node("Slice", [scores, model.ints(0), dim1(model, x, 1), model.ints(2)]))


@served({"s": (2, 12)})
def even_steps(model: Model) -> None:
    """From 0 to 2 in s steps."""
    x = model.input([2, "s"])
    length, one = dim(model, x, 1), model.constant(np.int64(1))
    step = model.node("Div", [model.constant(np.float32(2)), _float(model, model.node("Sub", [length, one]))])
    positions = model.node("Range", [model.constant(np.int64(0)), length, one])
    model.output(model.node("Add", [x, model.node("Mul", [_float(model, positions), step])]))


@served({"h": (8, 24)})
def positions_resized(model: Model) -> None:
    """A learned map of positions, resized to the map of patches by cubic polynomials on the host."""
    x = model.input([1, 3, "h", 8])
    patches = model.conv(x, 3, 4, 4, stride=4, pad=0)
    rows = model.node("Div", [dim1(model, x, 2), model.ints(4)])
    sizes = model.node("Concat", [model.ints(1, 4), rows, model.ints(2)], axis=0)
    positions = model.node("Resize", [model.weight(1, 4, 3, 3), "", "", sizes], mode="cubic")
    model.output(model.node("Add", [patches, positions]))


def _float(model: Model, x: str) -> str:
    return model.node("Cast", [x], to=1)


@served({"s": (1, 8)})
def slice_end(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(1, 16)
    n = model.node("Neg", [dim1(model, x, 1)])
    k = model.node("Slice", [w, n, model.ints(2**31 - 1), model.ints(1)])
    model.output(model.node("Mul", [x, k]))


@served({"s": (1, 8)})
def range_float(model: Model) -> None:
    x = model.input(["s"])
    n = model.node("Cast", [dim(model, x, 0)], to=1)
    r = model.node("Range", [model.constant(np.float32(0)), n, model.constant(np.float32(1))])
    model.output(model.node("Mul", [x, r]))


@served({"s": (1, 8)})
def range_float_norm(model: Model) -> None:
    x = model.input(["s"])
    n = model.node("Cast", [dim(model, x, 0)], to=1)
    r = model.node("Range", [model.constant(np.float32(0)), n, model.constant(np.float32(1))])
    model.output(model.node("Mul", [x, model.node("Div", [r, n])]))


@served({"s": (1, 8)})
def pad_mod(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim1(model, x, 1)
    n = model.node("Mod", [model.node("Neg", [n]), model.ints(4)])
    p = model.node("Concat", [model.ints(0, 0, 0), n], axis=0)
    model.output(model.node("Pad", [x, p]))


@served({"s": (1, 8)})
def range_reshape(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim(model, x, 1)
    r = model.node(
        "Range",
        [model.constant(np.int64(0)), model.node("Mul", [n, model.constant(np.int64(2))]), model.constant(np.int64(1))],
    )
    c = model.node("Reshape", [r, model.ints(2, -1)])
    model.output(model.node("Add", [x, model.node("Cast", [c], to=1)]))


@served({"s": (1, 8)})
def pow_scale(model: Model) -> None:
    x = model.input([2, "s", 3])
    n = model.node("Cast", [dim(model, x, 1)], to=1)
    model.output(model.node("Mul", [x, model.node("Pow", [n, model.constant(np.float32(-0.5))])]))


@served({"s": (1, 8)})
def nonzero_shape(model: Model) -> None:
    x = model.input(["s"])
    o = model.node("ConstantOfShape", [model.node("Shape", [x])], value=helper.make_tensor("v", 7, [1], [1]))
    nz = model.node("NonZero", [o])
    nz = model.node("Squeeze", [nz, model.ints(0)])
    model.output(model.node("Mul", [x, model.node("Cast", [nz], to=1)]))


@served({"s": (1, 8)})
def eyelike(model: Model) -> None:
    x = model.input(["s", "s"])
    o = model.node("ConstantOfShape", [model.node("Shape", [x])])
    model.output(model.node("Add", [x, model.node("EyeLike", [o])]))


@served({"s": (1, 8)})
def mask_where(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim(model, x, 1)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    c = model.node("Less", [r, model.node("Div", [n, model.constant(np.int64(2))])])
    model.output(model.node("Where", [c, x, model.constant(np.float32(-1))]))
