"""Limits of decompositions: stated once, enforced, and given as the reason when a node stays what it is (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.frontend.decompose import DECOMPOSITIONS, decompose, why_not_decomposed
from tests.compiler.ops.calls import Values, call_of_node

Feeds = dict[str, Values]


def ones(*names: str, shape: tuple[int, ...] = (1, 1, 2, 4), dtype: Any = np.float32) -> Feeds:
    """Values of 1 under each name."""
    return {name: np.ones(shape, dtype) for name in names}


ATTENTION: Feeds = ones("q", "k", "v")
QUANTISED: Feeds = {
    **ones("a", shape=(2, 3), dtype=np.uint8),
    **ones("as", shape=(1,)),
    **ones("az", shape=(1,), dtype=np.uint8),
    **ones("b", shape=(3, 2), dtype=np.uint8),
    **ones("bs", shape=(1,)),
    **ones("bz", shape=(1,), dtype=np.uint8),
    **ones("ys", shape=(1,)),
    **ones("yz", shape=(1,), dtype=np.uint8),
}
IMAGE: Feeds = ones("a", shape=(1, 3, 2, 2), dtype=np.uint8) | ones("b", shape=(2, 3, 1, 1), dtype=np.uint8)
TWO_AXES: Feeds = ones("bs", shape=(1, 2)) | ones("bz", shape=(1, 2), dtype=np.uint8)
INTEGERS: Feeds = {name: QUANTISED[name] for name in ("a", "b")} | ones("az", shape=(2, 1), dtype=np.uint8)
STEPS: Feeds = {name: np.ones((3, 1, 2), np.float32) for name in ("x", "w", "r")} | {"b": np.ones((1, 4), np.float32)}
PEEPHOLES: Feeds = {name: np.zeros(0) for name in ("", " ", "  ")} | {"p": np.ones((1, 3), np.float32)}
SIGNAL: Feeds = {**ones("x", shape=(1, 9, 1)), "constant step": np.array(1), "": np.zeros(0), "constant": np.array(4)}
POSITION: Values = np.zeros((1, 1), np.int64)
PADDED: Feeds = ATTENTION | {"": np.zeros(0), " ": np.zeros(0), "  ": np.zeros(0)} | ones("n", shape=(1,), dtype=int)

# Kind, a part of the limit's text, inputs (in order), outputs, attributes.
CASES: dict[str, tuple[str, str, Feeds, list[str], dict[str, Any]]] = {
    "mixed attention": ("Attention", "one element type", ATTENTION | ones("v", dtype=np.float16), ["y"], {}),
    "padded caches": ("Attention", "not padded", PADDED, ["y"], {}),
    "window": ("Attention", "sliding window", ATTENTION, ["y"], {"left_window_size": 1}),
    "scores": ("Attention", "scores", ATTENTION, ["y", "", "", "s"], {}),
    "double softmax": ("Attention", "softmax", ATTENTION, ["y"], {"softmax_precision": TensorProto.DOUBLE}),
    "integer attention": ("Attention", "input 0 is of", ones("q", "k", "v", dtype=np.int32), ["y"], {}),
    "given statistics": ("BatchNormalization", "statistics are computed", ones(*"xsbmv"), ["y"], {}),
    "diagonal": ("Einsum", "twice", ones("a", shape=(2,)), ["y"], {"equation": "i->ii"}),
    "broadcast": (
        "Einsum",
        "ellipsis",
        ones("a", shape=(2, 1)) | ones("b", shape=(3, 2)),
        ["y"],
        {"equation": "ij,jk->ik"},
    ),
    "cubes": ("LpNormalization", "p is 1 or 2", ones("x"), ["y"], {"p": 3}),
    "integer vectors": ("LpNormalization", "input 0 is of", ones("x", dtype=np.int32), ["y"], {}),
    "quantised by two axes": ("QLinearMatMul", "at most one axis", QUANTISED | TWO_AXES, ["y"], {}),
    "convolved by two axes": ("QLinearConv", "at most one axis", QUANTISED | IMAGE | TWO_AXES, ["y"], {}),
    "integers by two axes": ("MatMulInteger", "at most one axis", INTEGERS, ["y"], {}),
    "integer convolution by two axes": ("ConvInteger", "at most one axis", INTEGERS | IMAGE, ["y"], {}),
    "16-bit product": (
        "QLinearMatMul",
        "input 7 is of",
        QUANTISED | ones("yz", shape=(1,), dtype=np.uint16),
        ["y"],
        {},
    ),
    **{
        f"{kind} {what}": (kind, text, STEPS | more, ["y"], attributes)
        for kind, most, functions in (("LSTM", 97, 3), ("GRU", 120, 2), ("RNN", 512, 1))
        for what, text, more, attributes in (
            ("of many steps", f"at most {most} in all", {"x": np.ones((most + 1, 1, 2), np.float32)}, {}),
            ("of an impossible length", "from 1 to", {"constant": np.array([4], np.int32)}, {}),
            (
                "of many steps and several lengths",
                "several lengths are",
                {"x": np.ones((most, 1, 2), np.float32)} | ones("l", shape=(1,), dtype=np.int32),
                {},
            ),
            ("of another function", "functions are", {}, {"activations": ["ScaledTanh"] * functions}),
            ("clipped", "clip, layout", {}, {"clip": 3.0}),
        )
    },
    **{
        f"{kind} {what}": (kind, text, ones("x", shape=shape) | {name: POSITION} | written, ["y"], {})
        for kind, written in (
            ("GatherND", {}),
            ("GatherElements", {}),
            ("ScatterND", ones("u", shape=(1, 1))),
            ("ScatterElements", ones("u", shape=(1, 1))),
            ("Scatter", ones("u", shape=(1, 1))),
        )
        for what, text, shape, name in (
            ("of many elements", "of fixed number", (1 << 17, 1), "constant"),
            ("at run time in many elements", "of fixed number", (1 << 17, 1), "i"),
        )
        if name != "i" or kind not in ("Scatter", "ScatterElements")
    },
    **{
        f"{kind} of many at run time": (
            kind,
            "there is one",
            ones("x", shape=(40, 1)) | ones("i", shape=(33, 1), dtype=int) | ones("u", shape=(33, 1)),
            ["y"],
            {},
        )
        for kind in ("ScatterND", "ScatterElements", "Scatter")
    },
    **{
        f"{kind} that {reduction}s twice": (
            kind,
            "reduction",
            ones("x", shape=(2, 1)) | {"constant": np.array([[1], [-1]])} | ones("u", shape=(2, 1)),
            ["y"],
            {"reduction": reduction},
        )
        for kind in ("ScatterND", "ScatterElements", "Scatter")
        for reduction in ("add", "mul")
    },
    "a pool of roots": ("LpPool", "p is at least 1", ones("x"), ["y"], {"p": 0}),
    "a pool of an old model": ("LpPool", "operator set is 7", ones("x"), ["y"], {"kernel_shape": [1, 1]}),
    "a pool beyond its padding": ("LpPool", "ceil_mode", ones("x"), ["y"], {"ceil_mode": 1}),
    "a spread pool": ("LpPool", "dilations", ones("x"), ["y"], {"dilations": [1, 2]}),
    "a whole pool of roots": ("GlobalLpPool", "p is at least 1", ones("x"), ["y"], {"p": 0}),
    "a pool of no maps": ("GlobalLpPool", "has maps", ones("x", shape=(2, 3)), ["y"], {}),
    **{
        f"{kind} outside": (
            kind,
            "lie in the data",
            ones("x", shape=(2, 1)) | {"constant": np.array([[9]])} | written,
            ["y"],
            {},
        )
        for kind, written in (
            ("GatherND", {}),
            ("GatherElements", {}),
            ("ScatterND", ones("u", shape=(1, 1))),
            ("ScatterElements", ones("u", shape=(1, 1))),
            ("Scatter", ones("u", shape=(1, 1))),
        )
    },
    "LSTM of many steps with peepholes": (
        "LSTM",
        "steps with peepholes are at most 75",
        STEPS | {"x": np.ones((76, 1, 2), np.float32)} | PEEPHOLES,
        ["y"],
        {},
    ),
    "rows of many lengths": (
        "ReverseSequence",
        "runs of rows",
        ones("x", shape=(2, 17)) | {"constant": np.arange(17) % 2},
        ["y"],
        {},
    ),
    "half a spectrum back": ("DFT", "one side", ones("x"), ["y"], {"inverse": 1, "onesided": 1}),
    "a long transform": ("DFT", "the points are", ones("x", shape=(1, 1025, 1)), ["y"], {}),
    "a complex signal": ("STFT", "signal is real", SIGNAL | ones("x", shape=(1, 9, 2)), ["y"], {}),
    "a long frame": ("STFT", "frames have", SIGNAL | {"constant": np.array(1025)}, ["y"], {}),
    "top of an old model": ("TopK", "operator set is", ones("x") | {"constant": np.array([1])}, ["y"], {}),
    "top in any order": ("TopK", "sorted is 1", ones("x") | {"constant": np.array([1])}, ["y"], {"sorted": 0}),
    "top of many": ("TopK", "pairs", ones("x", shape=(1, 1025)) | {"constant": np.array([1])}, ["y"], {}),
    "rotary in double": ("RotaryEmbedding", "input 0 is of", ones("x", "c", "s", dtype=np.float64), ["y"], {}),
    "diagonal of another type": ("Trilu", "input 1 is of", ones("x", "k", shape=(2, 2)), ["y"], {}),
    "a long row": ("Trilu", "rows and columns", ones("x", shape=(1, 2**20 + 1), dtype=np.int8), ["y"], {}),
    "a large depth": (
        "OneHot",
        "depth is at most",
        ones("i", shape=(2,), dtype=np.int64) | {"constant": np.array(2**20 + 1)} | ones("v", shape=(2,)),
        ["y"],
        {},
    ),
    "hardmax of nothing": ("Hardmax", "extents are fixed", ones("x", shape=(0, 3)), ["y"], {}),
    "a large hardmax": ("Hardmax", "elements at most", ones("x", shape=(2**20 + 1,)), ["y"], {}),
    "a large unit matrix": ("EyeLike", "extents are fixed", ones("x", shape=(300, 300)), ["y"], {}),
    "nearest pixels": ("GridSample", "mode is linear", ones("x", "g"), ["y"], {"mode": "nearest"}),
    "large images": (
        "GridSample",
        "1 to 32768 pixels",
        ones("x", shape=(1, 1, 256, 256)) | ones("g", shape=(1, 1, 1, 2)),
        ["y"],
        {},
    ),
    "many images of nothing": (
        "GridSample",
        "1 to 32768 pixels",
        ones("x", shape=(1 << 20, 1, 0, 1)) | ones("g", shape=(1 << 20, 1, 1, 2)),
        ["y"],
        {},
    ),
    "a write along a long axis": (
        "ScatterElements",
        "along the axis that is written along",
        ones("x", shape=(1 << 17,)) | {"i": np.zeros(1, np.int64)} | ones("u", shape=(1,)),
        ["y"],
        {},
    ),
    "a unit matrix of words": (
        "EyeLike",
        "an element type that the accelerator has",
        ones("x", shape=(3, 3)),
        ["y"],
        {"dtype": TensorProto.STRING},
    ),
    "large grids": (
        "AffineGrid",
        "coordinates at most",
        ones("t", shape=(1, 2, 3)) | {"constant": np.array([1, 1, 256, 256])},
        ["y"],
        {},
    ),
    "grids of one column": (
        "AffineGrid",
        "two positions",
        ones("t", shape=(1, 2, 3)) | {"constant": np.array([1, 1, 2, 1])},
        ["y"],
        {"align_corners": 1},
    ),
    "large blocks": (
        "Col2Im",
        "rows times a block",
        ones("x", shape=(1, 1 << 17, 1)) | {"constant": np.array([2, 2]), "constant block": np.array([2, 2])},
        ["y"],
        {},
    ),
    "depth at run time": (
        "OneHot",
        "depth (input 1) is known",
        ones("i", shape=(2,), dtype=np.int64) | ones("d", shape=(), dtype=np.int64) | ones("v", shape=(2,)),
        ["y"],
        {},
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_node_beyond_a_limit_stays_what_it_is_and_the_limit_says_why(case: str) -> None:
    kind, text, feeds, outputs, attributes = CASES[case]
    node = helper.make_node(kind, [name.strip() for name in feeds], outputs, **attributes)
    opset = {"operator set is": 8, "operator set is 7": 6}.get(text, 25)
    call = call_of_node(
        node, feeds, opset, constants=[i for i, name in enumerate(feeds) if name.startswith("constant")]
    )
    assert decompose(node, call, str) is None
    found = why_not_decomposed(node, call)
    assert found is not None
    assert text in found.reason
    assert found.actual is not None


def test_every_limit_has_a_case() -> None:
    stated = {(kind, limit.text) for kind, rule in DECOMPOSITIONS.items() for limit in rule.limits}
    tested = {
        (kind, limit.text)
        for kind, text, *_ in CASES.values()
        for limit in DECOMPOSITIONS[kind].limits
        if text in limit.text
    }
    assert stated == tested


def test_the_texts_of_the_documentation_are_those_that_refuse() -> None:
    assert set(DECOMPOSITIONS["Attention"].constraints) >= {limit.text for limit in DECOMPOSITIONS["Attention"].limits}
    assert "input 0 is of int8 or uint8" in DECOMPOSITIONS["QLinearConv"].constraints


def test_other_ops_have_nothing_to_say() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    assert why_not_decomposed(node, call_of_node(node, {"x": np.ones(2, np.float32)}, 14)) is None
