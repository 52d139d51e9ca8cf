"""Attention as products and a softmax: values by the definitions against ONNX's reference (IMPORT-5)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from compiler.errors import ModelError
from tests.compiler.frontend.decompose.replacing import agree, reference, replacement, results
from tests.compiler.ops.calls import Values
from tests.compiler.shapes.dynamic import misses
from tests.models import Model


@settings(max_examples=60)
@given(st.data())
def test_attention_keeps_its_values(data: st.DataObject) -> None:
    """IMPORT-5: layouts, grouped queries, causal and other masks, caps, caches, against ONNX's reference."""
    flat, heads, group = data.draw(st.booleans()), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    batch, queries, keys = (data.draw(st.integers(1, 3)) for _ in range(3))
    size, value_size, past = 4, 2, data.draw(st.sampled_from([0, 0, 2]))
    random = np.random.default_rng(11)

    def normal(*shape: int) -> Values:
        return random.standard_normal(shape).astype(np.float32)

    if flat:
        feeds = {
            "q": normal(batch, queries, heads * group * size),
            "k": normal(batch, keys, heads * size),
            "v": normal(batch, keys, heads * value_size),
        }
    else:
        feeds = {
            "q": normal(batch, heads * group, queries, size),
            "k": normal(batch, heads, keys, size),
            "v": normal(batch, heads, keys, value_size),
        }
    total = keys + past
    shapes = [(queries, total), (1, queries, total), (batch, 1, queries, total), (batch, heads * group, queries, total)]
    masked = data.draw(st.sampled_from(["", "bool", "float", "blocked", "constant"]))
    if masked:
        shape = data.draw(st.sampled_from(shapes))
        allowed = random.random(shape) < 0.7
        allowed[..., 0] = True
        if masked == "blocked":
            allowed[..., 0, :] = False
        feeds["m"] = np.where(allowed, 0.5, -np.inf).astype(np.float32) if masked == "float" else allowed
    if past:
        feeds["pk"], feeds["pv"] = normal(batch, heads, past, size), normal(batch, heads, past, value_size)
    attributes: dict[str, Any] = {"q_num_heads": heads * group, "kv_num_heads": heads} if flat else {}
    attributes["is_causal"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans()):
        attributes["softcap"] = 2.0
    if data.draw(st.booleans()):
        attributes["scale"] = 0.3
    inputs = ["q", "k", "v", "m" if masked else "", *(["pk", "pv"] if past else [])]
    outputs = ["y", "present_k", "present_v"] if past else ["y"]
    node = helper.make_node("Attention", inputs, outputs, **attributes)
    values, used = results(node, feeds, 23, (3,) if masked == "constant" else ())
    expected = reference(node, feeds, 23)
    for name, wanted in zip(outputs, expected, strict=True):
        agree(values[name], wanted, 1e-4)
    assert used["MatMul"] == 2
    assert used["Expand"] + used["Tile"] == 0


def test_plain_attention_is_two_products_and_a_softmax() -> None:
    feeds = {name: np.ones((1, 2, 3, 4), np.float32) for name in "qkv"}
    _, used = results(helper.make_node("Attention", ["q", "k", "v"], ["y"]), feeds, 23)
    assert used == Counter(Transpose=1, Mul=1, MatMul=2, Softmax=1)


@pytest.mark.parametrize("first", [(True, False, True), (False, False, True), (False, False, False)])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_constant_mask_that_leaves_every_query_a_key_needs_no_guard(
    first: tuple[bool, ...], dtype: Any, causal: int
) -> None:
    """Only rows that forbid every key have weights of 0 where a softmax has none."""
    feeds: dict[str, Values] = {name: np.ones((1, 2, 3, 4), np.float32) for name in "qkv"}
    allowed = np.array([first, (True, False, True), (False, True, True)])
    blocked = not (first[0] if causal else any(first))
    feeds["m"] = allowed if dtype is np.bool_ else np.where(allowed, np.float32(0), np.float32(-np.inf))
    node = helper.make_node("Attention", list(feeds), ["y"], is_causal=causal)
    values, used = results(node, feeds, 23, (3,))
    agree(values["y"], reference(node, feeds, 23)[0])
    assert used["ReduceMax"] == int(blocked)


def test_softmax_precision_is_that_of_the_attribute() -> None:
    feeds = {name: np.ones((1, 1, 2, 4), np.float16) for name in "qkv"}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], softmax_precision=onnx.TensorProto.FLOAT)
    values, used = results(node, feeds, 23)
    assert used["Cast"] == 2
    assert values["y"].dtype == np.float16


@pytest.mark.parametrize("attribute", ["left_window_size", "qk_matmul_output", "softmax in double"])
def test_rarer_attention_is_left_to_its_function(attribute: str) -> None:
    feeds = {name: np.ones((1, 1, 2, 4), np.float32) for name in "qkv"}
    attributes: dict[str, dict[str, Any]] = {
        "left_window_size": {"left_window_size": 1},
        "softmax in double": {"softmax_precision": 11},
    }
    chosen: dict[str, Any] = attributes.get(attribute, {})
    outputs = ["y", "", "", "scores"] if attribute == "qk_matmul_output" else ["y"]
    node = helper.make_node("Attention", ["q", "k", "v"], outputs, **chosen)
    assert replacement(node, feeds, 25, ()) is None


def test_heads_that_do_not_divide_are_the_models_fault() -> None:
    feeds = {"q": np.ones((1, 3, 2, 4), np.float32), **{n: np.ones((1, 2, 2, 4), np.float32) for n in "kv"}}
    with pytest.raises(ModelError, match="heads"):
        replacement(helper.make_node("Attention", ["q", "k", "v"], ["y"]), feeds, 23, ())


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("has_past", [False, True])
def test_causal_attention_serves_lengths_that_vary(has_past: bool) -> None:
    """Which keys come after a query follows from the extents at hand, not from the largest ones."""
    model = Model(opset=23, ir_version=10)
    inputs = [model.input(["n", "s", 16]) for _ in range(3)]
    outputs = ["attended"]
    if has_past:
        inputs += ["", *(model.input(["n", 2, "p", 8]) for _ in range(2))]
        outputs += ["keys", "values"]
    heads: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}
    for name in model.nodes_out("Attention", inputs, outputs, **heads):
        model.output(name)
    ranges = {"n": (1, 3), "s": (1, 6), **({"p": (1, 5)} if has_past else {})}
    assert not misses(model, ranges, count=3)
