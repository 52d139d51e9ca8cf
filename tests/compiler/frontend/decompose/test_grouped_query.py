"""GroupQueryAttention: written out, with the values of ONNX Runtime at lengths that are read at run time (IMPORT-8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import InternalError
from compiler.frontend.decompose import grouped_query
from compiler.frontend.decompose.node_builder import NodeList
from compiler.frontend.source import ModelSource
from compiler.options import DimRange, Options
from compiler.profile import builtin_profile
from compiler.simulator.reference import reference_of_graph
from tests.compiler.frontend.decompose.test_contributed_fused import Contributed
from tests.compiler.shapes.dynamic import Compiled, corners_and
from tests.decoders import Decoder
from tests.models import Model

HEADS, SIZE = 4, 16


@dataclass(frozen=True, kw_only=True)
class Form:
    """One call: where the keys of each text end, its tokens, the past's length (None: no past), the length of all."""

    lasts: list[int]
    queries: int = 1
    past: int | None = 5
    total: int = 6
    kv_heads: int = 2
    packs: bool = False
    turned: int = 0
    positions: bool = False
    bias: tuple[int, int] | None = None
    sink: bool = False
    outputs: int = 3
    known: tuple[str, ...] = ("total",)
    attributes: dict[str, Any] = field(default_factory=dict)

    def feeds(self) -> dict[str, NDArray[Any]]:
        """Random operands in the operator's order; an omitted one has no name."""
        random, texts = np.random.default_rng(0), len(self.lasts)

        def floats(*shape: int) -> NDArray[np.float32]:
            return random.standard_normal(shape).astype(np.float32)

        width = [HEADS * SIZE, *[self.kv_heads * SIZE] * 2]
        widths = [sum(width)] if self.packs else width
        given: dict[str, NDArray[Any]] = {
            name: floats(texts, self.queries, each) for name, each in zip("qkv", widths, strict=False)
        }
        if self.past is not None:
            given |= {name: floats(texts, self.kv_heads, self.past, SIZE) for name in ("past key", "past value")}
        given |= {"lasts": np.array(self.lasts, np.int32), "total": np.array([self.total], np.int32)}
        if self.turned:
            angles = floats(40, self.turned // 2)
            given |= {"cos": np.cos(angles), "sin": np.sin(angles)}
        if self.positions:
            given["positions"] = random.integers(0, 30, (texts, self.queries))
        if self.bias:
            given["bias"] = floats(*self.bias, self.queries, self.total)
        if self.sink:
            given["sink"] = floats(HEADS)
        return given

    def model(self) -> Model:
        """A model of the operator alone; operands in `known` are constants."""
        model, given = Contributed(opset=17), self.feeds()
        order = ("q", "k", "v", "past key", "past value", "lasts", "total", "cos", "sin", "positions", "bias", "sink")
        for name in given:
            if name in self.known:
                model.constant(given[name], name)
            else:
                model.input(given[name].shape, name, helper.np_dtype_to_tensor_dtype(given[name].dtype))
        names = ["y", "present key", "present value"][: self.outputs]
        inputs = [name if name in given else "" for name in order]
        given_attributes = {"num_heads": HEADS, "kv_num_heads": self.kv_heads, "do_rotary": int(self.turned > 0)}
        attributes = given_attributes | self.attributes
        node = helper.make_node("GroupQueryAttention", inputs, names, "gqa", domain="com.microsoft", **attributes)
        model.nodes.append(node)
        for name in names:
            model.output(name)
        return model


PROMPT: dict[str, Any] = {"queries": 6, "past": None}
FORMS: dict[str, Form] = {
    "a prompt": Form(lasts=[5, 5], **PROMPT, turned=16),
    "a prompt that is known to fill its texts": Form(lasts=[5, 5], **PROMPT, packs=True, known=("total", "lasts")),
    "a prompt with shorter texts": Form(lasts=[5, 2], **PROMPT, packs=True, turned=16),
    "a prompt from a given position": Form(lasts=[5, 5], **PROMPT, turned=16, positions=True),
    "a prompt in a shared cache": Form(lasts=[3, 5], queries=6, past=9, turned=16, kv_heads=1),
    "a prompt with a window": Form(lasts=[5, 2], **PROMPT, attributes={"local_window_size": 2}),
    "a capped prompt with a window": Form(
        lasts=[5, 2], **PROMPT, attributes={"local_window_size": 2, "softcap": 1.5, "scale": 0.4}
    ),
    "a prompt without caches": Form(lasts=[4, 5], **PROMPT, outputs=1, attributes={"local_window_size": 3}),
    "a token behind pasts of two lengths": Form(
        lasts=[5, 3], turned=16, packs=True, attributes={"rotary_interleaved": 1}
    ),
    "a token with a window": Form(lasts=[5, 3], kv_heads=4, attributes={"local_window_size": 3}),
    "a token in a shared cache": Form(lasts=[5, 8], past=9, turned=16, positions=True, kv_heads=4),
    "a token behind a whole past": Form(lasts=[5, 5], turned=16, known=("total", "lasts")),
    "tokens behind a past": Form(lasts=[7], queries=3, total=8, turned=16),
    "tokens behind half a past": Form(lasts=[4], queries=3, total=8, attributes={"local_window_size": 2}),
    "tokens in a shared cache": Form(lasts=[7], queries=3, past=10, total=8, turned=16, packs=True),
    "a bias by head": Form(lasts=[5, 3], bias=(2, HEADS), attributes={"softcap": 2.0}),
    "a bias in a shared cache": Form(lasts=[5, 2], past=9, bias=(1, 1)),
    "sinks": Form(lasts=[5, 2], **PROMPT, sink=True, attributes={"local_window_size": 2}),
    "a smooth softmax": Form(lasts=[5, 3], kv_heads=4, attributes={"smooth_softmax": 1}),
    "keys in both directions": Form(lasts=[5, 3], **PROMPT, attributes={"causal": 0}),
}


@pytest.mark.parametrize("name", FORMS)
def test_queries_see_the_keys_that_onnx_runtime_lets_them_see(name: str) -> None:
    form = FORMS[name]
    model, feeds = form.model(), form.feeds()
    expected = model.run({key: value for key, value in feeds.items() if key not in form.known})
    graph = model.graph()
    assert not graph.host
    found = reference_of_graph(graph, ModelSource.from_bytes(model.data()), feeds, wanted=set(graph.output_tensors))
    for tensor, values in zip(graph.output_tensors, expected, strict=True):
        assert found[tensor].shape == values.shape
        np.testing.assert_allclose(found[tensor], values, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (Form(lasts=[5], known=()), "total_sequence_length is known at compile time"),
        (Form(lasts=[5], past=7, total=9), "the past's length plus that of the queries"),
        (Form(lasts=[5], outputs=1), "the caches that come out are used"),
        (Form(lasts=[5], attributes={"local_window_size": 0}), "a window holds a key"),
        (Form(lasts=[5], attributes={"do_rotary": 1}), "a rotation has angles"),
        (Form(lasts=[5, 5], queries=2, past=4), "one query, or one text"),
        (Form(lasts=[5], outputs=2), "both caches or none come out"),
        (Form(lasts=[5], turned=8), "whole heads are turned"),
        (Form(lasts=[40], past=40, total=41, turned=16), "all positions have angles"),
        (Form(lasts=[5, 3], **PROMPT, attributes={"causal": 0, "local_window_size": 2}), "a window looks back only"),
        (Form(lasts=[5], attributes={"local_window_size": 2**40}), "a window is that of some text"),
        (Form(lasts=[5], attributes={"kv_cache_bit_width": 8}), "its attributes are among"),
        (Form(lasts=[5], attributes={"k_quant_type": "PER_TENSOR"}), "its attributes are among"),
        (Form(lasts=[5], attributes={"sliding_window_cache": 1, "local_window_size": 3}), "the cache holds all keys"),
    ],
)
def test_what_is_not_written_stays_on_the_host_with_a_reason(form: Form, reason: str) -> None:
    (host,) = form.model().graph().host.values()
    assert reason in host.reason


def test_attributes_that_ask_for_nothing_are_passed_over() -> None:
    assert not Form(lasts=[5], attributes={"kv_cache_bit_width": 0, "k_quant_type": "NONE"}).model().graph().host


def test_a_node_that_makes_no_sense_is_the_hosts() -> None:
    """Its table of angles has no axis."""
    model = Form(lasts=[5, 3], turned=16).model()
    model.nodes[-1].input[7] = model.constant(np.float32(0))
    (host,) = model.graph().host.values()
    assert "whole heads are turned" in host.reason


def test_lengths_that_do_not_fit_are_named_as_the_model_names_them() -> None:
    dims: dict[str, int] = {"batch_size": 2, "sequence_length": 1, "past_sequence_length": 7}
    hosts = Decoder(layers=1).graph(dims | {"total_sequence_length": 8}).host.values()
    assert any("total_sequence_length, with a past of past_sequence_length" in host.reason for host in hosts)


DECODE: dict[str, int | DimRange] = {
    "batch_size": 2,
    "sequence_length": 1,
    "past_sequence_length": 7,
    "total_sequence_length": 8,
}
PREFILL: dict[str, int | DimRange] = {
    "batch_size": 1,
    "sequence_length": 5,
    "past_sequence_length": 0,
    "total_sequence_length": 5,
}


@pytest.mark.parametrize(
    ("profile", "packs", "bits", "dims"),
    [("edge4", True, 8, DECODE), ("cluster4x4", False, 0, PREFILL)],
    ids=["decode", "prompt"],
)
def test_a_decoder_runs_whole_on_the_chip(
    profile: str, packs: bool, bits: int, dims: dict[str, int | DimRange]
) -> None:
    data = Decoder(packs=packs, bits=bits).data()
    compiled = compile_model(data, builtin_profile(profile), Options(fusion="rules", dims=dims))
    assert [segment.kind for segment in compiled.plan.segments] == ["chip"]
    values = compiled.report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert len(values.outputs) == 5
    assert all(output.holds for output in values.outputs)


def test_the_check_of_values_sees_a_decoder_that_leaves_no_key_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One query sees all keys up to its own, so only a text that is shorter than the cache tells."""

    def at_the_end(nodes: NodeList, form: Any, last: str) -> str:
        whole = nodes.number(form.total - form.queries, "int32")
        return nodes.add("Add", nodes.add("Mul", last, nodes.number(0, "int32")), whole)

    monkeypatch.setattr(grouped_query, "_first", at_the_end)
    with pytest.raises(InternalError, match="other values than the model"):
        compile_model(
            Decoder(layers=1).data(),
            builtin_profile("edge4"),
            Options(fusion="rules", dims=DECODE, degraded="error"),
        )


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    ("packs", "past", "attributes"),
    [(True, "past", {}), (False, "past", {"local_window_size": 3}), (True, 12, {"smooth_softmax": 1})],
)
def test_tokens_are_decoded_behind_pasts_that_vary(packs: bool, past: str | int, attributes: dict[str, Any]) -> None:
    model = Contributed(opset=21, ir_version=10)
    widths = [(HEADS + 4) * SIZE] if packs else [HEADS * SIZE, 2 * SIZE, 2 * SIZE]
    total = "past + 1" if isinstance(past, str) else "total"
    data = [model.input(["batch", 1, width]) for width in widths] + ["", ""] * packs
    caches = [model.input(["batch", 2, past, SIZE]) for _ in range(2)]
    mask = model.input(["batch", total], dtype=TensorProto.INT64)
    counted = model.node("Sub", [model.node("ReduceSum", [mask, model.ints(1)], keepdims=0), model.ints(1)])
    length = model.node("Gather", [model.node("Shape", [mask]), model.ints(1)])
    lengths = [model.node("Cast", [value], to=TensorProto.INT32) for value in (counted, length)]
    tables = [model.weight(32, SIZE // 2) for _ in range(2)]
    model.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [*data, *caches, *lengths, *tables],
            ["y", "present key", "present value"],
            domain="com.microsoft",
            **{"num_heads": HEADS, "kv_num_heads": 2, "do_rotary": 1, **attributes},
        )
    )
    for name in ("y", "present key", "present value"):
        model.output(name)
    ranges = {"batch": (1, 3), **({"past": (1, 6)} if isinstance(past, str) else {"total": (2, 12)})}
    compiled = Compiled.of(model, ranges)
    assert not compiled.has_host
    assert not [miss for extents in corners_and(ranges, 1) for miss in compiled.misses(extents)]
