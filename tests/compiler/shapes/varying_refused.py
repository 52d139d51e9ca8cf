"""Models of which nobody knows what they are below the maxima of their dimensions."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.compiler.shapes.varying_models import dim, dim1, refused
from tests.models import Model


@refused({"s": (1, 8)}, "known_at_maxima_only")
def max_clip(model: Model) -> None:
    x = model.input([2, "s"])
    n = model.node("Max", [dim1(model, x, 1), model.ints(4)])
    k = model.node("Cast", [n], to=1)
    model.output(model.node("Mul", [x, k]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def scale_sqrt(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Sqrt", [model.node("Cast", [dim1(model, x, 1)], to=1)])
    model.output(model.node("Div", [x, k]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def where_eq(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim1(model, x, 1)
    e = model.node("Equal", [n, model.ints(8)])
    k = model.node("Where", [e, model.weight(1), model.weight(1)])
    model.output(model.node("Mul", [x, k]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def cast_bool(model: Model) -> None:
    x = model.input([2, "s"])
    n = model.node("Sub", [dim1(model, x, 1), model.ints(8)])
    e = model.node("Cast", [n], to=9)
    k = model.node("Where", [e, model.weight(1), model.weight(1)])
    model.output(model.node("Mul", [x, k]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def where_cast_sub1(model: Model) -> None:
    x = model.input([2, "s"])
    n = model.node("Sub", [dim1(model, x, 1), model.ints(1)])
    e = model.node("Cast", [n], to=9)
    k = model.node("Where", [e, model.ints(3), model.ints(5)])
    model.output(model.node("Mul", [x, model.node("Cast", [k], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def slice_clamped(model: Model) -> None:
    # end = s+4 clamps at 8 for s>=4
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    n = model.node("Add", [dim1(model, x, 1), model.ints(4)])
    k = model.node("Slice", [w, model.ints(0), n, model.ints(1)])
    model.output(model.node("ReduceSum", [k], keepdims=0))
    model.output(model.node("Relu", [x]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def slice_x_clamped(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(2), model.ints(5), model.ints(1)])
    model.output(model.relu(k))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def slice_x_last1(model: Model) -> None:
    x = model.input([2, "s"])
    k = model.node("Slice", [x, model.ints(-3), model.ints(2**31 - 1), model.ints(1)])
    model.output(model.relu(k))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def broadcast_fixed_x(model: Model) -> None:
    x = model.input(["s", 4])
    y = model.input([8, 4])
    model.output(model.node("Add", [x, y]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def matmul_batch_bcast(model: Model) -> None:
    x = model.input(["s", 3, 4])
    y = model.input([8, 4, 2])
    model.output(model.node("MatMul", [x, y]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def squeeze_all(model: Model) -> None:
    x = model.input([1, "s", 4])
    model.output(model.relu(model.node("Squeeze", [x])))


@refused({"s": (1, 8)}, "illegal_extents")
def reshape_fixed_const2(model: Model) -> None:
    x = model.input(["s", 4])
    model.output(model.relu(model.node("Reshape", [x, model.ints(8, 4)])))


@refused({"s": (2, 8)}, "illegal_extents")
def reshape_div(model: Model) -> None:
    x = model.input(["s", 4])
    model.output(
        model.relu(
            model.node(
                "Reshape",
                [
                    x,
                    model.node(
                        "Concat", [model.node("Div", [dim1(model, x, 0), model.ints(2)]), model.ints(-1)], axis=0
                    ),
                ],
            )
        )
    )


@refused({"s": (1, 8)}, "known_at_maxima_only")
def gather_const_neg(model: Model) -> None:
    x = model.input([2, "s"])
    c = model.node("Slice", [model.weight(2, 8), model.ints(0), dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Add", [x, model.node("Gather", [c, model.ints(-1)], axis=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def if_shape(model: Model) -> None:
    x = model.input([3, "s"])
    c = model.node("Greater", [dim(model, x, 1), model.constant(np.int64(3))])
    th = helper.make_graph(
        [helper.make_node("Neg", [x], ["tt"])], "t", [], [helper.make_tensor_value_info("tt", 1, None)]
    )
    el = helper.make_graph(
        [helper.make_node("Abs", [x], ["ee"])], "e", [], [helper.make_tensor_value_info("ee", 1, None)]
    )
    model.output(model.node("If", [c], then_branch=th, else_branch=el))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def if_shape_eq(model: Model) -> None:
    x = model.input([3, "s"])
    c = model.node("Equal", [dim(model, x, 1), model.constant(np.int64(1))])
    th = helper.make_graph(
        [helper.make_node("Neg", [x], ["tt"])], "t", [], [helper.make_tensor_value_info("tt", 1, None)]
    )
    el = helper.make_graph(
        [helper.make_node("Abs", [x], ["ee"])], "e", [], [helper.make_tensor_value_info("ee", 1, None)]
    )
    model.output(model.node("If", [c], then_branch=th, else_branch=el))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def ceil_div(model: Model) -> None:
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
                            model.constant(np.array([2], dtype=np.float32)),
                        ],
                    )
                ],
            )
        ],
        to=7,
    )
    k = model.node("ConstantOfShape", [n], value=helper.make_tensor("v", 1, [1], [1.0]))
    model.output(model.node("ReduceSum", [k], keepdims=1))
    model.output(model.relu(x))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def neg_div(model: Model) -> None:
    x = model.input(["s"])
    f = model.node("Div", [model.node("Sub", [dim1(model, x, 0), model.ints(4)]), model.ints(2)])
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def neg_div2(model: Model) -> None:
    x = model.input(["s"])
    f = model.node("Div", [model.node("Sub", [model.ints(4), dim1(model, x, 0)]), model.ints(2)])
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def neg_mod(model: Model) -> None:
    x = model.input(["s"])
    f = model.node("Mod", [model.node("Sub", [dim1(model, x, 0), model.ints(5)]), model.ints(3)], fmod=1)
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def int_overflow2(model: Model) -> None:
    x = model.input(["s"])
    f = model.node(
        "Cast", [model.node("Sub", [model.ints(258), model.node("Mul", [dim1(model, x, 0), model.ints(20)])])], to=3
    )
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def cast_uint8(model: Model) -> None:
    x = model.input(["s"])
    f = model.node("Cast", [model.node("Sub", [dim1(model, x, 0), model.ints(3)])], to=2)
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def int32_mul(model: Model) -> None:
    x = model.input(["s"])
    f = model.node(
        "Sub",
        [
            model.constant(np.array([2**31 + 5], dtype=np.int64)),
            model.node("Mul", [dim1(model, x, 0), model.ints(2**28)]),
        ],
    )
    f = model.node("Cast", [f], to=6)
    model.output(model.node("Mul", [x, model.node("Cast", [f], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def reducemax_shape(model: Model) -> None:
    x = model.input([4, "s"])
    s = model.node("ReduceMax", [model.node("Shape", [x])], keepdims=1)
    model.output(model.node("Mul", [x, model.node("Cast", [s], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def scatter_shape(model: Model) -> None:
    x = model.input(["s"])
    t = model.node("ScatterND", [model.ints(1, 2, 3), model.constant([[0]], dtype=np.int64), dim1(model, x, 0)])
    t = model.node("ReduceSum", [t], keepdims=1)
    model.output(model.node("Mul", [x, model.node("Cast", [t], to=1)]))


@refused({"s": (1, 8)}, "known_at_maxima_only")
def concat_shape_reduce(model: Model) -> None:
    x = model.input(["s"])
    t = model.node("Concat", [model.ints(5), dim1(model, x, 0)], axis=0)
    t = model.node("ReduceMin", [t], keepdims=1)
    model.output(model.node("Mul", [x, model.node("Cast", [t], to=1)]))
