"""Small files that ask for much: memory, time, or depth; none may cost more than its refusal (IMPORT-4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper

from tests.corpus.build import written
from tests.corpus.case import Case, case, either, reject
from tests.models import Model

Fill = Callable[[Model], str]
_TOO_LARGE: Final = "tensor_too_large expansion_too_large"
_CAPACITY: Final = "does_not_fit chip_capacity op_too_large segment_too_large too_few_chips"
_WORK: Final = f"program_too_large {_TOO_LARGE} {_CAPACITY} invalid_shape invalid_model unknown_shape"


def _splat(model: Model, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
    """A constant of any size in a few bytes."""
    value = helper.make_tensor("value", dtype, [1], [1])
    return model.node("ConstantOfShape", [model.ints(*shape)], name="splat", value=value)


def _constant(model: Model, value: float) -> str:
    return model.constant(value, dtype="float32")


def _range(start: object, limit: object, step: object, dtype: str) -> Fill:
    def fill(model: Model) -> str:
        bounds = [model.constant(value, dtype=dtype) for value in (start, limit, step)]
        return model.node("Cast", [model.node("Range", bounds, name="node")], to=TensorProto.FLOAT)

    return fill


def _with_ints(op_type: str, shape: tuple[int, ...], *operands: tuple[int, ...], **attributes: Any) -> Fill:
    def fill(model: Model) -> str:
        inputs = [model.input(shape), *(model.ints(*values) for values in operands)]
        return model.node(op_type, inputs, name="node", **attributes)

    return fill


def _doubling(op_type: str, times: int, *, constant: bool) -> Fill:
    """A value joined to itself again and again: 2^times elements."""

    def fill(model: Model) -> str:
        value = model.constant([1.0], dtype="float32") if constant else model.input([1])
        for _ in range(times):
            value = model.node(op_type, [value, value], axis=0)
        return model.node("Relu", [value], name="node")

    return fill


def _outer(times: int, *, constant: bool) -> Fill:
    """Operands along axes of their own: each addition multiplies the size by 64."""

    def fill(model: Model) -> str:
        total = ""
        for axis in range(times):
            shape = [64 if axis == other else 1 for other in range(times)]
            part = model.constant(np.ones(shape, np.float32)) if constant else model.input(shape)
            total = model.node("Add", [total, part]) if total else part
        return total

    return fill


def _squaring(times: int) -> Fill:
    """Kronecker's product of a vector with itself by broadcasting and Reshape; the shape is computed too."""

    def fill(model: Model) -> str:
        value = model.input([16])
        for _ in range(times):
            column = model.node("Unsqueeze", [value, model.ints(1)])
            value = model.node("Reshape", [model.node("Mul", [column, value]), model.ints(-1)])
        return value

    return fill


def _shape_doubling(model: Model) -> str:
    """An extent doubled 70 times in shape arithmetic."""
    size = model.node("Shape", [model.input([2], "x")])
    for _ in range(70):
        size = model.node("Add", [size, size])
    return model.node("Expand", ["x", size], name="node")


def _resize(scale: float) -> Fill:
    def fill(model: Model) -> str:
        scales = model.constant([1.0, 1.0, scale, scale], dtype="float32")
        return model.node("Resize", [model.input([1, 1, 8, 8]), "", scales], name="node", mode="nearest")

    return fill


def _one_hot(depth: int) -> Fill:
    def fill(model: Model) -> str:
        values = model.constant([0.0, 1.0], dtype="float32")
        return model.node(
            "OneHot", [model.input([1024], dtype=TensorProto.INT64), model.ints(depth), values], name="node"
        )

    return fill


def _gathered(model: Model) -> str:
    """A constant gathered by many indices, twice."""
    once = model.node(
        "Gather", [model.constant(np.ones((1, 20_000), np.float32)), model.constant(np.zeros(3_000, np.int64))]
    )
    twice = model.node("Gather", [once, model.constant(np.zeros(3_000_000, np.int64))], name="node")
    return model.node("Add", [model.input([1]), model.node("ReduceSum", [twice], keepdims=0)])


def _folded_arithmetic(model: Model) -> str:
    """Arithmetic on constants of 32 GiB each: kept as descriptions or left alone, never computed."""
    first, second = _splat(model, 2**33), _splat(model, 2**33)
    return model.node("Add", [model.input([1]), model.node("Mul", [first, second])])


def _folded_matmul(model: Model) -> str:
    first, second = _splat(model, 2**18, 2**18), _splat(model, 2**18, 2**18)
    return model.node("MatMul", [model.input([1, 2**18]), model.node("MatMul", [first, second])])


def _folded_range(model: Model) -> str:
    """A constant of 2^16 elements, folded once more for each of 500 nodes."""
    value = model.constant(np.ones(2**16, np.float32))
    for _ in range(500):
        value = model.node("Sin", [value])
    return model.node("Add", [model.input([1]), value])


def _many_folds(model: Model) -> str:
    """Two hundred constants of 256 KiB: folding each is small, keeping all is not."""
    one = model.constant(np.ones(2**16, np.float32))
    total = model.input([1])
    for index in range(200):
        total = model.node("Add", [total, model.node("Mul", [one, _constant(model, float(index))])])
    return total


def _reduced(model: Model) -> str:
    """All elements of a splat of 2^40 summed while folding."""
    return model.node("Add", [model.input([1]), model.node("ReduceSum", [_splat(model, 2**20, 2**20)])])


def _non_zero(model: Model) -> str:
    """The places of the non-zero elements of a splat: data-dependent, and 2^36 of them."""
    places = model.node("NonZero", [_splat(model, 2**36)], name="node")
    return model.node("Cast", [places], to=TensorProto.FLOAT)


def _random(op_type: str, shape: tuple[int, ...]) -> Fill:
    return lambda m: m.node("Add", [m.input([1]), m.node(op_type, [], name="node", shape=list(shape))])


def _window(op_type: str, size: int) -> Fill:
    return lambda m: m.node("Add", [m.input([1]), m.node(op_type, [m.constant(size, dtype="int64")], name="node")])


def _transposed(stride: int) -> Fill:
    return lambda m: m.node(
        "ConvTranspose", [m.input([1, 1, 8, 8]), m.weight(1, 1, 3, 3)], name="node", strides=[stride] * 2
    )


def _strings(model: Model) -> str:
    """Text joined to itself 40 times."""
    value = model.node("Constant", [], value_strings=[b"bomb"])
    for _ in range(40):
        value = model.node("StringConcat", [value, value], name=model.fresh("join"))
    sizes = model.node("Shape", [value])
    return model.node("Add", [model.input([1]), model.node("Cast", [sizes], to=TensorProto.FLOAT)])


def _sequence_parts(model: Model) -> str:
    """A tensor of 2^30 elements split into as many parts."""
    parts = model.node("SplitToSequence", [model.input([2**30], "x")], name="node", keepdims=0)
    return model.node("ConcatFromSequence", [parts], axis=0, new_axis=1)


def _sequence_doubling(model: Model) -> str:
    """A sequence made of its own concatenation, 40 times."""
    value = model.input([1], "x")
    for _ in range(40):
        sequence = model.node("SequenceConstruct", [value, value], name=model.fresh("pair"))
        value = model.node("ConcatFromSequence", [sequence], axis=0)
    return value


EXPANSIONS: Final[Mapping[str, Fill]] = MappingProxyType(
    {
        "constant of shape": lambda m: m.node("Add", [m.input([1]), _splat(m, 2**31, 2**31)]),
        "constant of shape of extents that overflow": lambda m: m.node("Add", [m.input([1]), _splat(m, 2**62, 8)]),
        "constant of shape of 60 axes": lambda m: m.node("Add", [m.input([1]), _splat(m, *[4] * 60)]),
        "expand": _with_ints("Expand", (1, 1), (2**30, 2**30)),
        "expand to extents that overflow": _with_ints("Expand", (1, 1), (2**62, 4)),
        "tile": _with_ints("Tile", (8,), (2**60,)),
        "tile on many axes": _with_ints("Tile", (2, 2, 2, 2), (2**15, 2**15, 2**15, 2**15)),
        "pad": _with_ints("Pad", (1,), (2**60, 2**60)),
        "pad to extents that overflow": _with_ints("Pad", (1,), (2**63 - 1, 2**63 - 1)),
        "resize": _resize(2.0**30),
        "resize to the edge of floats": _resize(3e38),
        "resize by sizes": lambda m: m.node("Resize", [m.input([1, 1, 8, 8]), "", "", m.ints(1, 1, 2**31, 2**31)]),
        "concat doubling 60 times": _doubling("Concat", 60, constant=False),
        "concat of constants doubling 60 times": _doubling("Concat", 60, constant=True),
        "outer sums of inputs": _outer(8, constant=False),
        "outer sums of constants": _outer(8, constant=True),
        "products of a vector with itself": _squaring(5),
        "shapes doubling 70 times": _shape_doubling,
        "one-hot of a huge depth": _one_hot(2**40),
        "one-hot of the largest depth": _one_hot(2**63 - 1),
        "random numbers": _random("RandomNormal", (2**31, 2**31)),
        "uniform random numbers that overflow": _random("RandomUniform", (2**62, 8)),
        "transposed convolution of a huge stride": _transposed(2**40),
        "matmul of a column by a row": lambda m: m.node(
            "MatMul", [m.input([2**22, 1]), m.input([1, 2**22])], name="node"
        ),
        "a constant output of 2 to the 40": lambda m: m.node("ConstantOfShape", [m.ints(2**40)], name="node"),
        "a random output of 2 to the 40": lambda m: m.node("RandomNormal", [], name="node", shape=[2**40]),
        "a unit matrix of 2 to the 40": lambda m: m.node(
            "EyeLike", [m.node("ConstantOfShape", [m.ints(2**20, 2**20)])], name="node"
        ),
        "an input of 2 to the 62 elements": lambda m: m.relu(m.input([2**31, 2**31], "x"), "node"),
        "an input of extents that overflow": lambda m: m.relu(m.input([2**62, 8], "x"), "node"),
        "an input of the largest extent": lambda m: m.relu(m.input([2**63 - 1], "x"), "node"),
    }
)

# Either refused, or cheap because nobody computes it.
WORK: Final[Mapping[str, Fill]] = MappingProxyType(
    {
        "gather of huge indices": lambda m: m.node(
            "Gather", [m.input([2**20, 2**15]), m.input([2**20], "i", 7)], name="node"
        ),
        "range of 2 to the 60": _range(0, 2**60, 1, "int64"),
        "range of tiny steps": _range(0.0, 1.0, 1e-300, "float64"),
        "range without a limit": _range(0.0, np.inf, 1.0, "float32"),
        "range of NaN": _range(np.nan, np.nan, np.nan, "float32"),
        "range of step 0": _range(0, 10, 0, "int64"),
        "range of the smallest integers": _range(-(2**63), 2**63 - 1, 1, "int64"),
        "range that never moves": _range(0, 10, -1, "int64"),
        "range of a million": _range(0, 10**6, 1, "int64"),
        "constants gathered large": _gathered,
        "arithmetic on huge constants": _folded_arithmetic,
        "matmul of huge constants": _folded_matmul,
        "a constant folded 500 times": _folded_range,
        "200 folded constants": _many_folds,
        "a huge constant summed": _reduced,
        "places of a huge constant": _non_zero,
        "concat doubling 30 times": _doubling("Concat", 30, constant=False),
        "concat of constants doubling 30 times": _doubling("Concat", 30, constant=True),
        "outer sums of constants to 2 to the 30": _outer(5, constant=True),
        "a window of 2 to the 50": _window("HannWindow", 2**50),
        "a window of a negative size": _window("BlackmanWindow", -5),
        "text joined 40 times": _strings,
        "a sequence of 2 to the 30 parts": _sequence_parts,
        "sequences doubling 40 times": _sequence_doubling,
        "cumulative sum of a huge input": lambda m: m.node("CumSum", [m.input([2**36]), m.constant(0, dtype="int64")]),
        "a unit matrix of 2 to the 36": lambda m: m.node("EyeLike", [m.input([2**18, 2**18])]),
        "a triangle of a huge constant": lambda m: m.node(
            "Add", [m.input([1]), m.node("Trilu", [_splat(m, 2**18, 2**18)])]
        ),
        "top k of a huge input": lambda m: m.nodes_out("TopK", [m.input([2**36]), m.ints(2**35)], ["v", "i"])[0],
        "a convolution with a kernel of 2 to the 15": lambda m: m.node(
            "Conv", [m.input([1, 1, 2**15, 2**15]), m.node("ConstantOfShape", [m.ints(1, 1, 2**15, 2**15)])]
        ),
        "a pooling of a huge map": lambda m: m.pool(m.input([1, 1, 2**18, 2**18]), 2**17, 1),
        "convolutions of a huge map": lambda m: m.conv(m.conv(m.input([1, 3, 2**17, 2**17]), 3, 8), 8, 8),
        "an image of extreme proportions": lambda m: m.conv(m.input([1, 3, 1, 2**36]), 3, 4),
        "a batch of 2 to the 31": lambda m: m.conv(m.input([2**31, 1, 4, 4]), 1, 1),
        "a power of huge exponents": lambda m: m.node(
            "Cast", [m.node("Pow", [m.ints(2**62), m.ints(2**62)])], to=TensorProto.FLOAT
        ),
        "a transform of a huge length": lambda m: m.node("DFT", [m.input([1, 8, 1]), m.constant(2**50, dtype="int64")]),
        "filters of a huge spectrum": lambda m: m.node(
            "MelWeightMatrix",
            [m.constant(v, dtype="int64") for v in (2**40, 2**40, 8000)] + [_constant(m, 0.0), _constant(m, 4000.0)],
        ),
        "draws without end": lambda m: m.node(
            "Cast", [m.node("Multinomial", [m.input([2, 4])], sample_size=2**50)], to=TensorProto.FLOAT
        ),
    }
)


def _output(fill: Fill) -> Callable[[Model], object]:
    return lambda model: model.output(fill(model))


def _slug(text: str) -> str:
    return text.replace(" ", "-")


CASES: Final[tuple[Case, ...]] = (
    *(
        case(
            f"bomb-{_slug(name)}",
            written(_output(fill)),
            reject(f"{_TOO_LARGE} invalid_shape invalid_model"),
            f"a bomb: {name}",
        )
        for name, fill in EXPANSIONS.items()
    ),
    *(
        case(
            f"work-{_slug(name)}",
            written(_output(fill), opset=21, ir_version=10),
            either(_WORK),
            f"work: {name}",
        )
        for name, fill in WORK.items()
    ),
)
