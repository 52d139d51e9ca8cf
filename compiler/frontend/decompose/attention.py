"""Attention as matrix products and a softmax, with only the extra ops that the node's options need.

Query heads that share a key and a value (grouped queries) get their own axis, along which keys and values broadcast:
nothing is copied. Causal masks compare row and column numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call, Refusal

# Inputs by position.
_MASK: Final = 3
_PAST_KEY: Final = 4
_PAST_VALUE: Final = 5
_VALID_KEYS: Final = 6
_PRECISIONS: Final[Mapping[int, str | None]] = MappingProxyType({0: None, 1: "float32", 10: "float16", 16: "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Extents of one attention: `group` query heads share each of the `heads` keys and values."""

    flat: bool  # inputs are [batch, tokens, heads·size], not [batch, heads, tokens, size]
    heads: int
    group: int
    queries: int
    keys: int
    past: int
    size: int
    value_size: int
    dtype: str

    @property
    def total(self) -> int:
        """Number of keys that a query may attend, past ones included."""
        return self.past + self.keys


def attend(node: onnx.NodeProto, call: Call, nodes: NodeList, *, is_finite: bool = False, sink: str = "") -> None:
    """Attention of operator sets from 23 on; `is_finite`: the mask leaves every query a key.

    `sink`: one more score per query, whose weight no value gets; it broadcasts to those of one key.
    """
    if call.has(_PAST_KEY) != call.has(_PAST_VALUE):
        call.fail("past_key and past_value must be given together", code="missing_input")
    form = _form(call)
    query, key, value = _heads(node, call, nodes, form)
    bias = _bias(node, call, nodes, form, is_finite=is_finite)
    scores = _scores(call, nodes, form, query, key)
    if bias is not None:
        scores = bias.applied(nodes, scores)
    softmax_dtype = _PRECISIONS[call.integer("softmax_precision", 0)] or form.dtype
    if sink:
        weights = _beside(nodes, scores, sink)
    elif softmax_dtype != form.dtype:
        weights = nodes.cast(nodes.add("Softmax", nodes.cast(scores, softmax_dtype), axis=-1), form.dtype)
    else:
        weights = nodes.add("Softmax", scores, axis=-1)
    if bias is not None:
        weights = bias.guarded(nodes, weights, form)
    is_last = not form.flat and form.group == 1
    product = nodes.add("MatMul", weights, value, out=node.output[0] if is_last else None)
    if not is_last:
        _joined(nodes, form, product, node.output[0])


def _form(call: Call) -> _Form:
    query, key, value = (call.tensor(position).shape for position in range(3))
    if len({len(query), len(key), len(value)}) > 1 or len(query) not in (3, 4):
        call.fail("query, key and value must have 3 axes each, or 4", actual=f"{query}, {key}, {value}")
    flat = len(query) == 3
    query_heads = call.integer("q_num_heads", 0) if flat else int(query[1])
    heads = call.integer("kv_num_heads", 0) if flat else int(key[1])
    if heads < 1 or query_heads < 1 or query_heads % heads:
        call.fail("the heads of keys must divide those of queries", actual=f"{query_heads} and {heads}")
    if flat and (query[2] % query_heads or key[2] % heads or value[2] % heads):
        call.fail("heads must divide the hidden sizes", actual=f"{query}, {key}, {value}")
    size = query[2] // query_heads if flat else query[3]
    if (key[2] // heads if flat else key[3]) != size:
        call.fail("queries and keys have different head sizes", actual=f"{query} and {key}")
    return _Form(
        flat=flat,
        heads=heads,
        group=query_heads // heads,
        queries=query[1] if flat else query[2],
        keys=key[1] if flat else key[2],
        past=call.tensor(_PAST_KEY).shape[2] if call.has(_PAST_KEY) else 0,
        size=int(size),
        value_size=int(value[2] // heads if flat else value[3]),
        dtype=call.tensor(0).dtype,
    )


def _heads(node: onnx.NodeProto, call: Call, nodes: NodeList, form: _Form) -> tuple[str, str, str]:
    """Query [batch, heads, (group,) queries, size], key transposed [.., size, total], value [.., total, size]."""
    query, key, value = node.input[:3]
    present = [node.output[i] if len(node.output) > i and node.output[i] else None for i in (1, 2)]
    cached = call.has(_PAST_KEY) or any(present)
    if form.flat:
        query = nodes.reshape(query, (0, 0, form.heads * form.group, form.size))
        query = nodes.transpose(query, (0, 2, 1, 3))
        value = nodes.transpose(nodes.reshape(value, (0, 0, form.heads, form.value_size)), (0, 2, 1, 3))
        key = nodes.reshape(key, (0, 0, form.heads, form.size))
        # a key that is no output is transposed from tokens first to tokens last in one step
        key = nodes.transpose(key, (0, 2, 1, 3) if cached else (0, 2, 3, 1))
    if call.has(_PAST_KEY):
        key = nodes.add("Concat", node.input[_PAST_KEY], key, axis=2, out=present[0])
        value = nodes.add("Concat", node.input[_PAST_VALUE], value, axis=2, out=present[1])
    else:
        for made, wanted in ((key, present[0]), (value, present[1])):
            if wanted is not None:
                nodes.add("Identity", made, out=wanted)
    if cached or not form.flat:
        key = nodes.transpose(key, (0, 1, 3, 2))
    if form.group > 1:
        query = nodes.reshape(query, (0, form.heads, form.group, -1, form.size))
        key, value = nodes.unsqueeze(key, 2), nodes.unsqueeze(value, 2)
    return query, key, value


def _scores(call: Call, nodes: NodeList, form: _Form, query: str, key: str) -> str:
    """Scaled and capped products of queries and keys."""
    scale = call.number("scale", 1 / sqrt(form.size))
    if scale != 1:
        query = nodes.add("Mul", query, nodes.number(scale, form.dtype))
    scores = nodes.add("MatMul", query, key)
    cap = call.number("softcap", 0.0)
    if cap:
        scores = nodes.add("Tanh", nodes.add("Div", scores, nodes.number(cap, form.dtype)))
        scores = nodes.add("Mul", scores, nodes.number(cap, form.dtype))
    return scores


def _beside(nodes: NodeList, scores: str, sink: str) -> str:
    """The softmax of the scores and of one more, without the weight of that one."""
    largest = nodes.add("Max", nodes.reduce("ReduceMax", scores, -1), sink)
    parts = nodes.add("Exp", nodes.add("Sub", scores, largest))
    beside = nodes.add("Exp", nodes.add("Sub", sink, largest))
    return nodes.add("Div", parts, nodes.add("Add", nodes.unsqueeze(nodes.reduce_sum(parts, -1), -1), beside))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bias:
    """The mask of forbidden keys: either `allowed`, a boolean value, or `added`, a float value; the other is None.

    `may_block` is True if a row may forbid every key. Its weights are then 0 by definition, while a softmax gives NaN.
    """

    allowed: str | None
    added: str | None
    dtype: str
    may_block: bool

    def applied(self, nodes: NodeList, scores: str) -> str:
        """The scores, −∞ for forbidden keys."""
        if self.added is not None:
            return nodes.add("Add", scores, self.added)
        return nodes.add("Where", self.allowed or "", scores, nodes.number(float("-inf"), self.dtype))

    def guarded(self, nodes: NodeList, weights: str, form: _Form) -> str:
        """The weights, 0 in rows that forbid every key."""
        if not self.may_block:
            return weights
        last = nodes.integers([-1])
        if self.added is not None:
            lowest = nodes.number(float("-inf"), form.dtype)
            open_rows = nodes.add("Greater", nodes.add("ReduceMax", self.added, last, keepdims=1), lowest)
        else:
            open_rows = nodes.add("ReduceMax", self.allowed or "", last, keepdims=1)
        return nodes.add("Where", open_rows, weights, nodes.number(0, form.dtype))


def _bias(node: onnx.NodeProto, call: Call, nodes: NodeList, form: _Form, *, is_finite: bool) -> _Bias | None:
    """The mask and the causal limit combined."""
    causal = bool(call.integer("is_causal", 0))
    after = _causal(node, nodes, form) if causal else None
    if not call.has(_MASK):
        # every query may attend itself or an earlier key, so no row is blocked
        return None if after is None else _Bias(allowed=after, added=None, dtype=form.dtype, may_block=False)
    mask = _aligned(node, call, nodes, form)
    blocks = not is_finite and _may_block(call, form, causal=causal)
    if call.tensor(_MASK).dtype == "bool":
        allowed = mask if after is None else nodes.add("And", mask, after)
        return _Bias(allowed=allowed, added=None, dtype=form.dtype, may_block=blocks)
    if after is not None:
        mask = nodes.add("Where", after, mask, nodes.number(float("-inf"), form.dtype))
    return _Bias(allowed=None, added=mask, dtype=form.dtype, may_block=blocks)


def _causal(node: onnx.NodeProto, nodes: NodeList, form: _Form) -> str:
    """[queries, total]: True where the key is not after the query."""
    if not any(isinstance(extent, Dim) for extent in (form.queries, form.keys, form.past)):
        queries = np.arange(form.queries, dtype=np.int64).reshape(-1, 1) + int(form.past)
        keys = np.arange(form.total, dtype=np.int64).reshape(1, -1)
        return nodes.add("LessOrEqual", nodes.constant(keys), nodes.constant(queries))
    axis = 1 if form.flat else 2
    rows, length = nodes.positions(form.queries, node.input[0], axis), nodes.extent(node.input[1], axis)
    if form.past:
        past = nodes.extent(node.input[_PAST_KEY], 2)
        rows, length = nodes.add("Add", rows, past), nodes.add("Add", length, past)
    columns = nodes.add("Range", nodes.number(0, "int64"), length, nodes.number(1, "int64"))
    return nodes.add("LessOrEqual", columns, nodes.unsqueeze(rows, 1))


def _aligned(node: onnx.NodeProto, call: Call, nodes: NodeList, form: _Form) -> str:
    """The mask with one column per key, and its axes aligned to those of the scores."""
    mask: str = node.input[_MASK]
    shape = call.tensor(_MASK).shape
    is_bool = call.tensor(_MASK).dtype == "bool"
    if len(shape) > 4 or not shape:
        call.fail("the mask must have 1 to 4 axes", actual=shape)
    if 1 < shape[-1] < form.total:
        pads = [0] * (2 * len(shape))
        pads[-1] = int(form.total - shape[-1])
        nothing = nodes.number(False, "bool") if is_bool else nodes.number(float("-inf"), form.dtype)
        mask = nodes.add("Pad", mask, nodes.integers(pads), nothing)
    if form.group == 1 or len(shape) < 3:
        return mask
    if shape[-3] == 1:
        return nodes.unsqueeze(mask, len(shape) - 3)
    batch = (0,) * (len(shape) - 3)
    return nodes.reshape(mask, (*batch, form.heads, form.group, -1, int(form.total) if shape[-1] > 1 else 1))


def _may_block(call: Call, form: _Form, *, causal: bool) -> bool:
    """True unless the mask is a constant that allows at least one key for every query."""
    if _MASK not in call.values:
        return True
    mask = call.values[_MASK]
    allowed: NDArray[np.bool_] = mask.astype(np.float32) > (0 if mask.dtype == np.bool_ else float("-inf"))
    if causal:
        rows, columns = np.arange(form.queries)[:, None] + int(form.past), np.arange(allowed.shape[-1])[None, :]
        allowed = allowed & (columns <= rows)
    return not bool(allowed.any(axis=-1).all())


def _joined(nodes: NodeList, form: _Form, product: str, out: str) -> None:
    """Puts the attended values into the layout of the inputs."""
    if not form.flat:
        nodes.reshape(product, (0, form.heads * form.group, -1, form.value_size), out=out)
        return
    order = (0, 3, 1, 2, 4) if form.group > 1 else (0, 2, 1, 3)
    joined = nodes.transpose(product, order)
    nodes.reshape(joined, (0, 0, form.heads * form.group * form.value_size), out=out)


def _window(_: onnx.NodeProto, call: Call) -> object | None:
    sizes = (call.integer("left_window_size", -1), call.integer("right_window_size", -1))
    return None if sizes == (-1, -1) else sizes


def _other_type(_: onnx.NodeProto, call: Call) -> object | None:
    dtype = call.tensor(0).dtype
    return next((t.dtype for t in call.inputs[1:3] if t is not None and t.dtype != dtype), None)


def _precision(_: onnx.NodeProto, call: Call) -> object | None:
    code = call.integer("softmax_precision", 0)
    return None if code in _PRECISIONS else code


# Nodes beyond these limits use ONNX's own function body, which covers more.
ATTENTION: Final = Decomposition(
    op_type="Attention",
    replace=attend,
    dtypes=MappingProxyType(
        {**dict.fromkeys((0, 1, 2, _PAST_KEY, _PAST_VALUE), FLOATS), _MASK: (*FLOATS, "bool"), _VALID_KEYS: ("int64",)}
    ),
    limits=(
        Limit("query, key and value have one element type", _other_type),
        Limit("caches are not padded", lambda node, call: node.input[_VALID_KEYS] if call.has(_VALID_KEYS) else None),
        Limit("there is no sliding window", _window),
        Limit("the scores are no output", lambda node, _: next((name for name in node.output[3:] if name), None)),
        Limit("the softmax is in float32, float16 or bfloat16", _precision),
    ),
)


def why_not_attended(node: onnx.NodeProto, call: Call) -> Refusal | None:
    """The first limit that an attention breaks, None if `attend` writes it."""
    return ATTENTION.unsupported(node, call)
