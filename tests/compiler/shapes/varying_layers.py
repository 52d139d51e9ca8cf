"""Models that are right at all extents: joins, lookups, layers, shape arithmetic."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.compiler.shapes.varying_models import dim, dim1, served
from tests.models import Model


@served({"s": (1, 8)})
def concat_const_front(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.relu(model.node("Concat", [model.weight(2, 3), x], axis=1)))


@served({"s": (2, 8)})
def split_dyn(model: Model) -> None:
    x = model.input([2, "s"])
    a, b = model.nodes_out(
        "Split",
        [x, model.node("Concat", [model.ints(1), model.node("Sub", [dim1(model, x, 1), model.ints(1)])], axis=0)],
        ["p", "q"],
        axis=1,
    )
    model.output(model.relu(a))
    model.output(model.relu(b))


@served({"s": (2, 8)})
def split_half(model: Model) -> None:
    x = model.input(["s", 4])
    a, b = model.nodes_out("Split", [x], ["p", "q"], axis=0)
    model.output(model.relu(a))
    model.output(model.relu(b))


@served({"s": (1, 8)})
def gather_pos(model: Model) -> None:
    x = model.input(["s", 4])
    n = dim(model, x, 0)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    model.output(model.node("Add", [x, model.node("Gather", [model.weight(16, 4), r], axis=0)]))


@served({"s": (1, 8)})
def gather_ids(model: Model) -> None:
    x = model.input([2, "s"], dtype=7)
    model.output(model.relu(model.node("Gather", [model.weight(10, 4), x], axis=0)))


@served({"s": (1, 8)})
def gather_last(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.relu(model.node("Gather", [x, model.ints(-1)], axis=1)))


@served({"s": (1, 8)})
def gather_last_scalar(model: Model) -> None:
    x = model.input([2, "s"])
    model.output(model.relu(model.node("Gather", [x, model.constant(np.int64(-1))], axis=1)))


@served({"s": (1, 8)})
def gather_computed(model: Model) -> None:
    x = model.input([2, "s"])
    i = model.node("Sub", [dim1(model, x, 1), model.ints(1)])
    model.output(model.relu(model.node("Gather", [x, i], axis=1)))


@served({"s": (1, 8)})
def transpose_const(model: Model) -> None:
    x = model.input(["s", 3])
    c = model.node("Slice", [model.weight(3, 8), model.ints(0), dim1(model, x, 0), model.ints(1)])
    model.output(model.node("Add", [x, model.node("Transpose", [c], perm=[1, 0])]))


@served({"s": (1, 8)})
def layernorm(model: Model) -> None:
    x = model.input(["s", 3, 6])
    model.output(model.node("LayerNormalization", [x, model.weight(6), model.weight(6)], axis=-1))


@served({"s": (1, 8)})
def layernorm_dyn(model: Model) -> None:
    x = model.input([3, "s"])
    mean = model.node("ReduceMean", [x], axes=[1], keepdims=1)
    d = model.node("Sub", [x, mean])
    v = model.node("ReduceMean", [model.node("Mul", [d, d])], axes=[1], keepdims=1)
    model.output(model.node("Div", [d, model.node("Sqrt", [model.node("Add", [v, model.constant(np.float32(1e-5))])])]))


@served({"h": (1, 8), "w": (1, 8)})
def instnorm(model: Model) -> None:
    x = model.input([1, 3, "h", "w"])
    model.output(model.node("InstanceNormalization", [x, model.weight(3), model.weight(3)]))


@served({"s": (1, 8), "b": (1, 3)})
def attention(model: Model) -> None:
    x = model.input(["b", "s", 8])
    s = model.node("Shape", [x])

    target = model.node("Concat", [model.node("Slice", [s, model.ints(0), model.ints(2)]), model.ints(2, 4)], axis=0)
    products = [model.node("MatMul", [x, model.weight(8, 8)]) for _ in range(3)]
    q, k, v = (model.node("Transpose", [model.node("Reshape", [each, target])], perm=[0, 2, 1, 3]) for each in products)
    a = model.node("MatMul", [q, model.node("Transpose", [k], perm=[0, 1, 3, 2])])
    a = model.node("Softmax", [model.node("Div", [a, model.constant(np.float32(2))])], axis=-1)
    o = model.node("Transpose", [model.node("MatMul", [a, v])], perm=[0, 2, 1, 3])
    o = model.node("Reshape", [o, model.ints(0, 0, 8)])
    model.output(model.node("Add", [x, model.node("MatMul", [o, model.weight(8, 8)])]))


@served({"s": (1, 8)})
def host_between(model: Model) -> None:
    x = model.input([2, "s"])
    y = model.relu(x)
    y = model.node("Tan", [y])
    model.output(model.node("Add", [x, y]))


@served({"s": (3, 8)})
def topk(model: Model) -> None:
    x = model.input([2, "s"])
    a, _ = model.nodes_out("TopK", [model.relu(x), model.ints(3)], ["v", "i"])
    model.output(model.node("Exp", [a]))


@served({"s": (1, 8)})
def topk_s(model: Model) -> None:
    x = model.input([2, "s"])
    a, _ = model.nodes_out("TopK", [model.relu(x), dim1(model, x, 1)], ["v", "i"])
    model.output(model.node("Exp", [a]))


@served({"s": (1, 8)})
def tile_dyn(model: Model) -> None:
    x = model.input(["s", 3])
    model.output(model.relu(model.node("Tile", [x, model.ints(2, 2)])))


@served({"s": (1, 8)})
def tile_by(model: Model) -> None:
    x = model.input([1, 3])
    z = model.input(["s", 3])
    model.output(
        model.node(
            "Add", [z, model.node("Tile", [x, model.node("Concat", [dim1(model, z, 0), model.ints(1)], axis=0)])]
        )
    )


@served({"h": (2, 6), "w": (2, 6)})
def d2s(model: Model) -> None:
    x = model.input([1, 8, "h", "w"])
    model.output(model.relu(model.node("DepthToSpace", [x], blocksize=2)))


@served({"h": (1, 6), "w": (2, 6)})
def s2d(model: Model) -> None:
    x = model.input([1, 2, "h", "w"])
    y = model.node("Concat", [x, x], axis=2)
    y = model.node("Concat", [y, y], axis=3)
    model.output(model.relu(model.node("SpaceToDepth", [y], blocksize=2)))


@served({"s": (1, 8)})
def onehot(model: Model) -> None:
    x = model.input(["s"], dtype=7)
    model.output(
        model.node("OneHot", [x, model.constant(np.int64(5)), model.constant(np.array([0, 1], dtype=np.float32))])
    )


@served({"s": (1, 8)})
def argmax(model: Model) -> None:
    x = model.input([3, "s"])
    model.output(model.node("Cast", [model.node("ArgMax", [x], axis=1)], to=1))


@served({"s": (1, 8)})
def einsum(model: Model) -> None:
    x = model.input([3, "s"])
    model.output(model.node("Einsum", [x, x], equation="ij,kj->ik"))


@served({"b": (1, 3), "s": (1, 8)})
def einsum_of_vectors(model: Model) -> None:
    """Matrices of one column or row, which a view makes of vectors: its extents vary."""
    x, weights = model.input(["b", "s", 4]), model.input(["b", "s"])
    pooled = model.node("Einsum", [weights, x], equation="bs,bsd->bd")
    model.output(model.node("Einsum", [pooled, x], equation="bd,bsd->bs"))


@served({"b": (1, 3), "s": (1, 8)})
def einsum_of_rows(model: Model) -> None:
    x = model.input(["b", "s", 8])
    model.output(model.node("Einsum", [x, model.weight(8, 2, 3)], equation="bsd,dhe->bshe"))


@served({"s": (1, 8)})
def size_scale(model: Model) -> None:
    x = model.input([3, "s"])
    model.output(model.node("Mul", [x, model.node("Cast", [model.node("Size", [x])], to=1)]))


@served({"s": (1, 8)})
def expand_where_minus1(model: Model) -> None:
    x = model.input([3, "s"])
    w = model.weight(1, 1)
    sh = model.node("Concat", [model.ints(-1), dim1(model, x, 1)], axis=0)
    c = model.node("Equal", [sh, model.ints(-1, -1)])
    t = model.node("Where", [c, model.ints(1, 1), sh])
    model.output(model.node("Add", [x, model.node("Expand", [w, t])]))


@served({"s": (1, 8)})
def float_mod(model: Model) -> None:
    x = model.input(["s"])
    f = model.node("Cast", [dim1(model, x, 0)], to=1)
    n = model.node("Mod", [f, model.constant(np.array([3], dtype=np.float32))], fmod=1)
    model.output(model.node("Mul", [x, n]))


@served({"s": (1, 8)})
def shape_slice(model: Model) -> None:
    x = model.input([2, "s", 3])
    s = model.node("Shape", [x], start=1)
    model.output(model.node("Mul", [x, model.node("Cast", [model.node("ReduceProd", [s], keepdims=1)], to=1)]))


@served({"s": (1, 8)})
def mask_where2(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim(model, x, 1)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    c = model.node("Less", [r, model.constant(np.int64(3))])
    model.output(model.node("Where", [c, x, model.constant(np.float32(-1))]))


@served({"s": (1, 8)})
def range_mod(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim(model, x, 1)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    c = model.node("Mod", [model.node("Add", [r, model.constant(np.int64(1))]), n])
    model.output(model.node("Mul", [x, model.node("Cast", [c], to=1)]))


@served({"s": (1, 8)})
def range_sub_n(model: Model) -> None:
    x = model.input([2, "s"])
    n = dim(model, x, 1)
    r = model.node("Range", [model.constant(np.int64(0)), n, model.constant(np.int64(1))])
    c = model.node("Sub", [n, r])
    model.output(model.node("Mul", [x, model.node("Cast", [c], to=1)]))


@served({"s": (1, 8)})
def lrn(model: Model) -> None:
    x = model.input([1, 5, "s", 3])
    model.output(model.node("LRN", [x], size=3))


@served({"s": (1, 4), "t": (1, 4)})
def flatten(model: Model) -> None:
    x = model.input(["s", "t", 3])
    model.output(model.relu(model.node("Flatten", [x], axis=2)))


@served({"s": (1, 8)})
def gemm_c_dyn(model: Model) -> None:
    x = model.input(["s", 4])
    z = model.input(["s", 5])
    model.output(model.node("Gemm", [x, model.weight(4, 5), z]))


@served({"s": (1, 8)})
def gemm_of_a_transposed(model: Model) -> None:
    x = model.input([4, "s"])
    model.output(model.node("Gemm", [x, model.weight(4, 5)], transA=1))


@served({"s": (1, 8)})
def mm_contract(model: Model) -> None:
    x = model.input([4, "s"])
    y = model.input(["s", 3])
    model.output(model.node("MatMul", [x, y]))


@served({"s": (1, 8)})
def mm_contract_const(model: Model) -> None:
    x = model.input([4, "s"])
    c = model.node("Slice", [model.weight(8, 3), model.ints(0), dim1(model, x, 1), model.ints(0)])
    model.output(model.node("MatMul", [x, c]))


@served({"s": (1, 64)})
def conv1d(model: Model) -> None:
    x = model.input([1, 3, "s"])
    model.output(model.node("Conv", [x, model.weight(4, 3, 3)], pads=[2, 0], strides=[2], kernel_shape=[3]))


@served({"b": (1, 4)})
def batch_bn(model: Model) -> None:
    x = model.input(["b", 3, 6, 6])
    y = model.relu(model.norm(model.conv(x, 3, 8, 3), 8))
    y = model.pool(y)
    y = model.node("Add", [model.conv(y, 8, 8, 3), y])
    y = model.node("GlobalAveragePool", [y])
    model.output(model.node("Gemm", [model.node("Flatten", [y]), model.weight(8, 5), model.weight(5)]))


@served({"b": (1, 4)})
def batch_reshape_fixed(model: Model) -> None:
    x = model.input(["b", 3, 4, 4])
    y = model.node("Reshape", [model.conv(x, 3, 8, 3), model.ints(-1, 128)])
    model.output(model.node("Gemm", [y, model.weight(128, 5), model.weight(5)]))


@served({"b": (1, 4)})
def batch_shuffle(model: Model) -> None:
    x = model.input(["b", 6, 4, 4])
    y = model.node("Reshape", [x, model.ints(0, 2, 3, 4, 4)])
    y = model.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
    y = model.node("Reshape", [y, model.ints(0, 6, 4, 4)])
    model.output(model.conv(y, 6, 6, 3, group=2))


@served({"b": (1, 4)})
def groupnorm_reshape(model: Model) -> None:
    x = model.input(["b", 6, "b", 4])
    y = model.node("Reshape", [x, model.ints(0, 2, -1)])
    y = model.node("InstanceNormalization", [y, model.weight(2), model.weight(2)])
    model.output(model.node("Reshape", [y, model.node("Shape", [x])]))


@served({"n": (1, 3)})
def resized_images(model: Model) -> None:
    x = model.input(["n", 2, 4, 5])
    sizes = model.node("Concat", [dim1(model, x, 0), model.ints(2, 7, 9)], axis=0)
    for mode in ("align_corners", "pytorch_half_pixel"):
        model.output(model.node("Resize", [x, "", "", sizes], mode="linear", coordinate_transformation_mode=mode))


@served({"b": (1, 3), "s": (1, 6)})
def repeated_positions(model: Model) -> None:
    x = model.input(["b", "s", "s"])
    ends = [model.constant(np.int64(0)), dim(model, x, 1), model.constant(np.int64(1))]
    positions = model.node("Range", ends)
    repeats = model.node("Concat", [dim1(model, x, 0), dim1(model, x, 1), model.ints(1)], axis=0)
    columns = model.node("Tile", [model.node("Unsqueeze", [positions, model.ints(0, 1)]), repeats])
    hidden = model.node("Greater", [columns, model.node("Unsqueeze", [positions, model.ints(0, 2)])])
    model.output(model.node("Add", [x, model.node("Cast", [hidden], to=1)]))


@served({"p": (1, 7), "s": (1, 4)})
def positions_behind_a_past(model: Model) -> None:
    x, past = model.input(["s", 80], "x"), model.input(["p", 80], "past")
    begin = dim(model, past, 0)
    end = model.node("Add", [begin, dim(model, x, 0)])
    positions = model.node("Range", [begin, end, model.constant(np.int64(1))])
    table = model.weight(20, 80)
    for rows in (positions, model.node("Unsqueeze", [positions, model.ints(0)])):
        model.output(model.node("Add", [x, model.node("Gather", [table, rows])]))
    model.output(model.relu(past))


@served({"s": (1, 8)})
def tile_const(model: Model) -> None:
    z = model.input(["s", 3])
    model.output(
        model.node(
            "Add",
            [
                z,
                model.node(
                    "Tile", [model.weight(1, 3), model.node("Concat", [dim1(model, z, 0), model.ints(1)], axis=0)]
                ),
            ],
        )
    )


@served({"s": (1, 4)})
def tile_const2(model: Model) -> None:
    z = model.input(["s", 3])
    z2 = model.node("Concat", [z, z], axis=0)
    model.output(
        model.node(
            "Add",
            [
                z2,
                model.node(
                    "Tile", [model.weight(2, 3), model.node("Concat", [dim1(model, z, 0), model.ints(1)], axis=0)]
                ),
            ],
        )
    )


@served({"s": (1, 8)})
def slice_end_max(model: Model) -> None:
    # at maxima begin=0
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    n = model.node("Sub", [model.ints(8), dim1(model, x, 1)])
    k = model.node("Slice", [w, n, model.ints(8), model.ints(1)])
    model.output(model.node("Mul", [x, k]))


@served({"s": (1, 8)})
def slice_const_rev(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    k = model.node("Slice", [w, model.ints(0), dim1(model, x, 1), model.ints(1)])
    k = model.node("Slice", [k, model.ints(-1), model.ints(-(2**31)), model.ints(1), model.ints(-1)])
    model.output(model.node("Mul", [x, k]))


@served({"s": (1, 8)})
def trilu_k(model: Model) -> None:
    x = model.input(["s", "s"])
    n = model.node("Concat", [dim1(model, x, 0), dim1(model, x, 1)], axis=0)
    o = model.node("ConstantOfShape", [n], value=helper.make_tensor("v", 1, [1], [1.0]))
    t = model.node("Trilu", [o, model.node("Sub", [dim(model, x, 0), model.constant(np.int64(3))])], upper=1)
    model.output(model.node("Mul", [x, t]))


@served({"s": (1, 8)})
def mean_const(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    c = model.node("Slice", [w, model.ints(0), dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Sub", [x, model.node("ReduceMean", [c], keepdims=1, axes=[1])]))


@served({"s": (1, 8)})
def cumsum_const(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    c = model.node("Slice", [w, model.ints(0), dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Sub", [x, model.node("CumSum", [c, model.constant(np.int64(1))])]))


@served({"s": (1, 8)})
def softmax_const(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(1, 8)
    c = model.node("Slice", [w, model.ints(0), dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Sub", [x, model.node("Softmax", [c], axis=1)]))


@served({"s": (1, 8)})
def concat_two_consts(model: Model) -> None:
    x = model.input([2, "s"])
    w = model.weight(2, 8)
    c = model.node("Slice", [w, model.ints(0), dim1(model, x, 1), model.ints(1)])
    k = model.node("Concat", [c, model.weight(2, 2)], axis=1)
    y = model.node("Concat", [x, model.weight(2, 2)], axis=1)
    model.output(model.node("Add", [y, k]))


@served({"s": (1, 8)})
def gather_const_last(model: Model) -> None:
    x = model.input([2, "s"])
    i = model.node("Sub", [dim1(model, x, 1), model.ints(1)])
    model.output(model.node("Add", [x, model.node("Gather", [model.weight(2, 8), i], axis=1)]))


@served({"p": (1, 5), "s": (1, 3)})
def mask_named_as_a_sum(model: Model) -> None:
    x, past = model.input(["s", 4], "x"), model.input(["p", 4], "past")
    mask, one = model.input(["p + s"], "mask"), model.input(["p+1"], "one")
    keys = model.node("Concat", [past, x], axis=0)
    scores = model.node("MatMul", [x, model.node("Transpose", [keys], perm=[1, 0])])
    model.output(model.node("Add", [scores, mask]))
    model.output(model.relu(one))


@served({"n": (1, 5), "l": (1, 6)})
def row_at_the_largest_token(model: Model) -> None:
    """As CLIP takes a text's end: tokens look rows up, and say which of these are taken."""
    tokens = model.input(["n", "l"], dtype=TensorProto.INT64)
    rows = model.node("Reshape", [model.node("Gather", [model.weight(10, 8), tokens]), model.ints(-1, 8)])
    model.output(model.node("Gather", [rows, model.node("ArgMax", [tokens], axis=1, keepdims=0)]))


@served({"h": (8, 40)})
def edges_up_to_a_multiple(model: Model) -> None:
    """At the ends of the range there is nothing to pad, and in between up to seven rows."""
    x = model.input([1, 2, "h", 8])
    rows = dim1(model, x, 2)
    over = model.node(
        "Mod", [model.node("Sub", [model.ints(8), model.node("Mod", [rows, model.ints(8)])]), model.ints(8)]
    )
    pads = model.node("Concat", [model.ints(0, 0, 0, 0, 0, 0), over, model.ints(0)], axis=0)
    padded = model.node("Pad", [x, pads], mode="edge")
    model.output(model.relu(model.conv(padded, 2, 4, 3, stride=2)))
