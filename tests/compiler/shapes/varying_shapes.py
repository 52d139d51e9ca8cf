"""Models that are right at all extents: shapes, cuts, pads, windows and constants that vary."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.compiler.shapes.varying_models import dim, dim1, served
from tests.models import Model


@served({"s": (1, 8)})
def min_ge(model: Model) -> None:
    x = model.input([2, "s"])
    n = model.node("Min", [dim1(model, x, 1), model.ints(100)])
    k = model.node("Cast", [n], to=1)
    model.output(model.node("Mul", [x, k]))


@served({"s": (5, 8)})
def slice_x_clamped_ok(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(2), model.ints(5), model.ints(1)])
    model.output(model.relu(k))


@served({"s": (4, 8)})
def slice_x_last(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(-3), model.ints(2**31 - 1), model.ints(1)])
    model.output(model.relu(k))


@served({"s": (1, 8)})
def slice_x_rev(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(-1), model.ints(-(2**31)), model.ints(1), model.ints(-1)])
    model.output(model.relu(k))


@served({"s": (1, 8)})
def slice_x_step(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(0), model.ints(2**31 - 1), model.ints(1), model.ints(2)])
    model.output(model.relu(k))


@served({"s": (1, 8)})
def range_rel(model: Model) -> None:
    # relative positions i-j
    x = model.input(["s", "s"])
    n = dim(model, x, 0)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    a = model.node("Unsqueeze", [r, model.ints(0)])
    b = model.node("Unsqueeze", [r, model.ints(1)])
    d = model.node("Sub", [a, b])
    model.output(model.node("Mul", [x, model.node("Cast", [d], to=1)]))


@served({"s": (1, 8)})
def range_rev(model: Model) -> None:
    x = model.input(["s"])
    n = dim(model, x, 0)
    r = model.node(
        "Range",
        [
            model.node("Sub", [n, model.constant(np.int64(1))]),
            model.constant(np.int64(-1)),
            model.constant(np.int64(-1)),
        ],
    )
    model.output(model.node("Mul", [x, model.node("Cast", [r], to=1)]))


@served({"s": (1, 8)})
def range_step(model: Model) -> None:
    x = model.input(["s"])
    n = dim(model, x, 0)
    r = model.node("Range", [model.constant(np.int64(0)), model.node("Mul", [n, n]), n])
    model.output(model.node("Mul", [x, model.node("Cast", [r], to=1)]))


@served({"s": (1, 8)})
def trilu_mask(model: Model) -> None:
    x = model.input(["s", "s"])
    n = model.node("Concat", [dim1(model, x, 0), dim1(model, x, 1)], axis=0)
    o = model.node("ConstantOfShape", [n], value=helper.make_tensor("v", 1, [1], [1.0]))
    t = model.node("Trilu", [o], upper=0)
    model.output(model.node("Mul", [x, t]))


@served({"s": (1, 8)})
def trilu_x(model: Model) -> None:
    x = model.input([2, "s", "s"])
    model.output(model.node("Trilu", [x], upper=1))


@served({"h": (2, 9), "w": (1, 7)})
def resize_to_size(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    y = model.conv(x, 3, 3, 3, stride=2)
    s = model.node("Shape", [x])
    model.output(model.node("Resize", [y, "", "", s], mode="nearest"))


@served({"h": (2, 9), "w": (1, 7)})
def resize_scale(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(
        model.node("Resize", [x, "", model.constant(np.array([1, 1, 1.5, 2], dtype=np.float32))], mode="linear")
    )


@served({"h": (2, 9), "w": (1, 7)})
def resize_half(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(
        model.node("Resize", [x, "", model.constant(np.array([1, 1, 1.7, 1.3], dtype=np.float32))], mode="nearest")
    )


@served({"h": (2, 9), "w": (1, 7)})
def resize_size_double(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    s = model.node("Mul", [model.node("Shape", [x]), model.ints(1, 1, 2, 3)])
    model.output(model.node("Resize", [x, "", "", s], mode="linear", coordinate_transformation_mode="align_corners"))


@served({"h": (1, 9)})
def resize_fixed(model: Model) -> None:
    x = model.input([1, 3, "h", 4])
    model.output(model.node("Resize", [x, "", "", model.ints(1, 3, 5, 5)], mode="linear"))


@served({"s": (1, 8)})
def pad_computed(model: Model) -> None:
    x = model.input([2, "s"])
    n = model.node("Sub", [model.ints(8), dim1(model, x, 1)])
    p = model.node("Concat", [model.ints(0, 0, 0), n], axis=0)
    model.output(model.node("Pad", [x, p]))


@served({"s": (1, 8)})
def pad_mod2(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim1(model, x, 1)
    n = model.node("Sub", [model.ints(4), model.node("Mod", [n, model.ints(4)])])
    p = model.node("Concat", [model.ints(0, 0, 0), n], axis=0)
    model.output(model.node("Pad", [x, p]))


@served({"s": (4, 9)})
def pad_reflect(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.node("Pad", [x, model.ints(0, 2, 0, 3)], mode="reflect"))


@served({"s": (1, 8)})
def pad_edge(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.node("Pad", [x, model.ints(0, 2, 0, 3)], mode="edge"))


@served({"s": (1, 8)})
def expand_const(model: Model) -> None:
    x = model.input(["s", 4])
    w = model.weight(1, 4)
    model.output(model.node("Add", [x, model.node("Expand", [w, model.node("Shape", [x])])]))


@served({"s": (1, 8), "b": (1, 4)})
def expand_x(model: Model) -> None:
    x = model.input(["b", 1, 4])
    z = model.input(["b", "s", 4])
    model.output(model.node("Add", [z, model.relu(model.node("Expand", [x, model.node("Shape", [z])]))]))


@served({"s": (1, 8)})
def squeeze_maybe(model: Model) -> None:
    x = model.input([1, "s", 4])
    model.output(model.relu(model.node("Squeeze", [x, model.ints(0)])))


@served({"s": (1, 8), "b": (1, 3)})
def reshape_merge(model: Model) -> None:
    x = model.input(["b", "s", 6])
    s = model.node("Shape", [x])
    y = model.node("Reshape", [model.relu(x), model.ints(-1, 6)])
    y = model.node("MatMul", [y, model.weight(6, 5)])
    t = model.node("Concat", [model.node("Slice", [s, model.ints(0), model.ints(2)]), model.ints(-1)], axis=0)
    model.output(model.node("Reshape", [y, t]))


@served({"s": (1, 8), "b": (1, 3)})
def reshape_zero(model: Model) -> None:
    x = model.input(["b", "s", 6])
    model.output(model.relu(model.node("Reshape", [x, model.ints(0, 0, 2, 3)])))


@served({"s": (1, 8)})
def reshape_fixed_const(model: Model) -> None:
    x = model.input(["s", 4])
    model.output(model.relu(model.node("Reshape", [x, model.ints(2, -1)])))


@served({"s": (1, 8)})
def reshape_minus(model: Model) -> None:
    x = model.input(["s", 4])
    model.output(model.relu(model.node("Reshape", [x, model.ints(-1)])))


@served({"s": (1, 8)})
def softmax_x(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.node("Softmax", [x], axis=1))
    model.output(model.node("Softmax", [x], axis=0))


@served({"s": (1, 8)})
def reducemean_x(model: Model) -> None:
    x = model.input([2, "s", 3])
    model.output(model.node("ReduceMean", [x], keepdims=1, axes=[1]))
    model.output(model.node("ReduceMean", [x], keepdims=0, axes=[1, 2]))


@served({"s": (1, 8)})
def cumsum_x(model: Model) -> None:
    x = model.input([2, "s", 3])
    model.output(model.node("CumSum", [x, model.constant(np.int64(1))]))
    model.output(model.node("CumSum", [x, model.constant(np.int64(1))], reverse=1, exclusive=1))


@served({"h": (1, 9), "w": (1, 9)})
def global_pool(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("GlobalAveragePool", [model.conv(x, 3, 4, 3)]))
    model.output(model.node("GlobalMaxPool", [x]))


@served({"h": (3, 9), "w": (3, 9)})
def avgpool_pad(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(
        model.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=0)
    )
    model.output(
        model.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=1)
    )


@served({"h": (3, 10), "w": (3, 9)})
def maxpool_ceil(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))


@served({"h": (3, 10), "w": (3, 9)})
def avgpool_ceil(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[1, 1, 1, 1]))


@served({"h": (1, 10), "w": (1, 9)})
def same_upper(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(
        model.node("Conv", [x, model.weight(4, 3, 3, 3)], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    )


@served({"h": (2, 10), "w": (2, 9)})
def same_pool(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("MaxPool", [x], auto_pad="SAME_LOWER", strides=[2, 2], kernel_shape=[2, 2]))


@served({"h": (1, 7), "w": (1, 6)})
def conv_t(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(
        model.node(
            "ConvTranspose", [x, model.weight(3, 4, 3, 3)], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]
        )
    )


@served({"h": (1, 7), "w": (1, 6)})
def conv_t_same(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("ConvTranspose", [x, model.weight(3, 4, 3, 3)], strides=[2, 2], auto_pad="SAME_UPPER"))


@served({"h": (2, 8), "w": (2, 8)})
def unet(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    a = model.relu(model.conv(x, 3, 4, 3))
    d = model.conv(a, 4, 4, 3, stride=2)
    u = model.node("ConvTranspose", [d, model.weight(4, 4, 2, 2)], strides=[2, 2])
    s = model.node("Shape", [a])
    e = model.node("Slice", [s, model.ints(2), model.ints(4)])
    u = model.node("Slice", [u, model.ints(0, 0), e, model.ints(2, 3)])
    model.output(model.conv(model.node("Concat", [a, u], axis=1), 8, 3, 1))


@served({"s": (1, 8), "t": (1, 5)})
def concat_dyn(model: Model) -> None:
    x = model.input([2, "s"])
    y = model.input([2, "t"])
    model.output(model.relu(model.node("Concat", [x, y, x], axis=1)))


@served({"s": (1, 8)})
def concat_const(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.relu(model.node("Concat", [x, model.weight(2, 3)], axis=1)))


@served({"s": (1, 8)})
def ceil_div3(model: Model) -> None:
    x = model.input(["s"])
    n = model.node(
        "Cast",
        [
            model.node(
                "Ceil",
                [
                    model.node(
                        "Div",
                        [
                            model.node("Cast", [dim1(model, x, 0)], to=1),
                            model.constant(np.array([4], dtype=np.float32)),
                        ],
                    )
                ],
            )
        ],
        to=7,
    )
    model.output(model.node("Mul", [x, model.node("Cast", [n], to=1)]))
