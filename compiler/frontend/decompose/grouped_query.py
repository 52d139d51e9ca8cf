"""GroupQueryAttention, as exporters of language models write it, by operators of the standard (IMPORT-8).

Operand lists are those of the operator's documentation in the domain com.microsoft. `seqlens_k` says of each text where
its last key lies: the keys of a step lie behind those of the past that count. It is read at run time, so caches and
masks compare positions with it, unless its values are known and say that every position counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Final

import onnx
from onnx import helper

from compiler.frontend.decompose.attention import attend, why_not_attended
from compiler.frontend.decompose.node_builder import NodeList
from compiler.frontend.decompose.rotary import ROTARY_EMBEDDING
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, is_always_least
from compiler.ops.base import FLOATS, Call, Refusal, default_axes

# Operands by position.
_KEY: Final = 1
_PAST_KEY: Final = 3
_PAST_VALUE: Final = 4
_LAST_KEYS: Final = 5
_TOTAL: Final = 6
_COSINES: Final = 7
_SINES: Final = 8
_POSITIONS: Final = 9
_BIAS: Final = 10
_SINK: Final = 11
# Scales of a quantised cache, weights of a normalisation of queries and keys: these are not written.
_BEYOND: Final = range(12, 16)
# The first operator set that orders and bounds integers of 32 bits.
_ORDERS: Final = 12
_FLAT: Final = 3
# Axes of a table of angles.
_TABLE: Final = 2
# The largest number of int32, in which positions are counted.
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Extents of one call, [batch, tokens, heads · size], and what is known of where its keys lie.

    `total`: positions of the keys that come out. `is_prompt`: nothing of the past counts. `is_full`: every position
    counts in every text. `grows`: keys come out behind those of the past, else in the past's places.
    """

    heads: int
    kv_heads: int
    size: int
    batch: int
    queries: int
    past: int
    total: int
    is_prompt: bool
    is_full: bool
    grows: bool
    dtype: str


def grouped_query_attention(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool | Refusal:
    """Writes the operator; a Refusal says what keeps it on the host."""
    form = _form(node, call)
    if isinstance(form, Refusal):
        return form
    last = nodes.reshape(node.input[_LAST_KEYS], (-1, 1, 1, 1))
    first = None if form.is_prompt else _first(nodes, form, last)
    query, key, value = _rotated(node, call, nodes, form, first)
    presents = [name for name in node.output[1:3] if name]
    is_plain = form.is_full and call.integer("causal", 1) and not (call.has(_BIAS) or _window(call))
    if is_plain and (form.is_prompt or form.grows) and (form.grows or form.total == form.queries):
        past = [call.tensor(index) for index in (_PAST_KEY, _PAST_VALUE) if not form.is_prompt]
        return _attended(
            node, call, nodes, form, [query, key, value, None, *past], [node.output[0], *presents], causal=1
        )
    is_whole = form.is_prompt and form.total == form.queries
    if not is_whole:
        key, value = _caches(node, nodes, form, (key, value), first, last, presents)
        moved = nodes.transpose(nodes.reshape(query.name, (0, 0, form.heads, form.size)), (0, 2, 1, 3))
        query = _tensor(moved, (form.batch, form.heads, form.queries, form.size), form.dtype)
    mask, seeing = _mask(node, call, nodes, form, first, last, (key.name, 1 if is_whole else 2))
    last_output = node.output[0] if seeing is None else nodes.fresh(f"{nodes.stem}/attended")
    if is_whole:
        is_written = _attended(node, call, nodes, form, [query, key, value, mask], [last_output, *presents])
    else:
        by_head = nodes.fresh(f"{nodes.stem}/heads")
        is_written = _attended(node, call, nodes, form, [query, key, value, mask], [by_head])
        nodes.reshape(nodes.transpose(by_head, (0, 2, 1, 3)), (0, 0, form.heads * form.size), out=last_output)
    if seeing is not None:
        seeing = nodes.reshape(nodes.transpose(seeing, (0, 2, 1, 3)), (0, 0, 1))
        nodes.add("Where", seeing, last_output, nodes.number(0, form.dtype), out=node.output[0])
    return is_written


# What is known at compile time ---------------------------------------------------------------------------------------


def _form(node: onnx.NodeProto, call: Call) -> _Form | Refusal:
    found = _unwritten(node, call)
    if found is not None:
        return found
    data, heads, kv_heads = call.tensor(0), call.integer("num_heads", 0), call.integer("kv_num_heads", 0)
    width = int(data.shape[2])
    is_packed = not call.has(_KEY)
    parts = heads + 2 * kv_heads if is_packed else heads
    if min(heads, kv_heads) < 1 or heads % kv_heads or width % parts:
        call.fail("heads must divide the hidden size, and those of keys those of queries", actual=(width, heads))
    size, batch, queries = width // parts, data.shape[0], data.shape[1]
    if not is_packed and any(call.tensor(i).shape != (batch, queries, kv_heads * size) for i in (_KEY, 2)):
        shapes = tuple(call.tensor(index).shape for index in (_KEY, 2))
        return Refusal(reason="keys and values come with every query", actual=shapes)
    known = call.values.get(_TOTAL)
    if known is None or known.size != 1:
        return Refusal(
            reason="total_sequence_length is known at compile time: give it as a constant, or by the shape of the mask",
            actual=call.tensor(_TOTAL).name,
        )
    given = known.reshape(-1).tolist()[0]
    tables = [call.tensor(index).shape for index in (_COSINES, _SINES) if _turns(call)]
    if any(len(shape) != _TABLE or 2 * shape[1] != size or shape[0] < given for shape in tables):
        return Refusal(reason="whole heads are turned, and all positions have angles", actual=tables)
    past = call.tensor(_PAST_KEY).shape[2] if call.has(_PAST_KEY) else 0
    grows, total = _is_same(given, past + queries), given
    if not grows:
        if not is_always_least(given, past):
            return Refusal(
                reason="total_sequence_length is the past's length plus that of the queries, or fits the past",
                actual=f"{_written(given)}, with a past of {_written(past)} and {_written(queries)} queries",
            )
        total = past
    lasts = call.values.get(_LAST_KEYS)
    is_full = lasts is not None and all(_is_same(number + 1, total) for number in lasts.reshape(-1).tolist())
    form = _Form(
        heads=heads,
        kv_heads=kv_heads,
        size=size,
        batch=batch,
        queries=queries,
        past=past,
        total=total,
        is_prompt=_is_same(given, queries),
        is_full=is_full,
        grows=grows,
        dtype=data.dtype,
    )
    return _unknown_places(node, call, form, given) or form


def _unwritten(node: onnx.NodeProto, call: Call) -> Refusal | None:
    """The first part of the operator that is not written."""
    data = call.tensor(0)
    window = call.integer("local_window_size", -1)
    for reason, actual in (
        ("the operator set is 12 or newer", call.opset if call.opset < _ORDERS else None),
        ("its input is of float32, float16 or bfloat16", None if data.dtype in FLOATS else data.dtype),
        ("queries have 3 axes", None if len(data.shape) == _FLAT else data.shape),
        ("the cache is not quantised, and queries are not normalised", next(filter(call.has, _BEYOND), None)),
        ("the cache holds all keys", call.integer("sliding_window_cache", 0) or None),
        ("the scores are no output", next((name for name in node.output[3:] if name), None)),
        (
            "lengths are of int32",
            next((call.tensor(i).dtype for i in (_LAST_KEYS, _TOTAL) if _is_other(call, i)), None),
        ),
        ("the result is used, and both caches or none come out", None if _hands_out(node) else list(node.output)),
        ("a window looks back only", window if window > 0 and not call.integer("causal", 1) else None),
        ("a window is that of some text", window if window > _LARGEST else None),
        ("a window holds a key", window if window == 0 or window < -1 else None),
        ("a rotation has angles", "none" if _turns(call) and not (call.has(_COSINES) and call.has(_SINES)) else None),
        ("a past has keys and values", "one" if call.has(_PAST_KEY) != call.has(_PAST_VALUE) else None),
    ):
        if actual is not None:
            return Refusal(reason=reason, actual=actual)
    return None


def _unknown_places(node: onnx.NodeProto, call: Call, form: _Form, given: int) -> Refusal | None:
    """What keeps keys from having a place that can be computed."""
    if form.is_prompt:
        empty = form.total - form.queries
        if isinstance(empty, Dim):
            return Refusal(reason="a prompt leaves a fixed part of the cache empty", actual=_written(empty))
    elif not is_always_least(form.queries + 1, given):
        reason = "total_sequence_length is that of the queries at all shapes, or is longer at all"
        return Refusal(reason=reason, actual=f"{_written(given)} of {_written(form.queries)} queries")
    elif isinstance(form.queries, Dim):
        reason = "the number of queries behind a past is fixed: give it one extent (option dims)"
        return Refusal(reason=reason, actual=_written(form.queries))
    elif not any(node.output[1:3]):
        return Refusal(reason="the caches that come out are used", actual="none")
    elif form.queries != 1 and form.batch != 1:
        return Refusal(
            reason="one query, or one text, comes behind a past",
            actual=f"{_written(form.queries)} of {_written(form.batch)} texts",
        )
    if call.has(_BIAS) and isinstance(form.total, Dim):
        return Refusal(reason="what is added to scores has a fixed number of keys", actual=_written(form.total))
    return None


def _is_same(one: int, other: int) -> bool:
    """Whether two numbers are equal at all extents."""
    return bool(is_always_least(one, other) and is_always_least(other, one))


def _is_other(call: Call, index: int) -> bool:
    return call.tensor(index).dtype != "int32"


def _hands_out(node: onnx.NodeProto) -> bool:
    """Whether the operator makes its result, and keys and values or neither, as ONNX Runtime asks for."""
    key, value = [*node.output[1:3], "", ""][:2]
    return bool(node.output and node.output[0]) and bool(key) == bool(value)


def _written(extent: int) -> str:
    """An extent as an expression of the model's dimensions, not as their maxima."""
    return str(extent.expression) if isinstance(extent, Dim) else str(extent)


def _has_sink(call: Call) -> bool:
    return call.has(_SINK) or call.integer("smooth_softmax", 0) == 1


def _turns(call: Call) -> bool:
    return call.integer("do_rotary", 0) == 1


def _window(call: Call) -> int:
    """How many keys up to its own a query sees, 0 if it sees all.

    A window that is longer than the texts stays one: other extents of the same model must give the same operators.
    """
    return max(call.integer("local_window_size", -1), 0)


# What is written -----------------------------------------------------------------------------------------------------


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(name=name, shape=shape, dtype=dtype, axes=default_axes(len(shape)))


def _places(nodes: NodeList, extent: int, value: str, axis: int) -> str:
    """Positions along an axis of `value` with this extent, int32."""
    return nodes.cast(nodes.positions(extent, value, axis), "int32")


def _first(nodes: NodeList, form: _Form, last: str) -> str:
    """Where each text's first new key lies behind a past, [batch, 1, 1, 1]."""
    return last if form.queries == 1 else nodes.add("Sub", last, nodes.number(form.queries - 1, "int32"))


def _rotated(
    node: onnx.NodeProto, call: Call, nodes: NodeList, form: _Form, first: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values side by side, [batch, tokens, heads · size], queries and keys turned if asked for."""
    counts, parts = (form.heads, form.kv_heads, form.kv_heads), []
    for number, count in enumerate(counts):
        begin = sum(counts[:number]) * form.size
        is_packed = not call.has(_KEY)
        name = nodes.slice(node.input[0], 2, begin, begin + count * form.size) if is_packed else node.input[number]
        parts.append(_tensor(name, (form.batch, form.queries, count * form.size), form.dtype))
    if _turns(call):
        rows, has_batch = _rows(node, nodes, form, first, has_positions=call.has(_POSITIONS))
        angles = []
        for index in (_COSINES, _SINES):
            name = nodes.add("Gather", node.input[index], rows, axis=0)
            shape = (form.batch if has_batch else 1, form.queries, call.tensor(index).shape[-1])
            angles.append(_tensor(name if has_batch else nodes.unsqueeze(name, 0), shape, form.dtype))
        parts[:2] = [_turned(call, nodes, form, part, angles) for part in parts[:2]]
    return parts[0], parts[1], parts[2]


def _rows(
    node: onnx.NodeProto, nodes: NodeList, form: _Form, first: str | None, *, has_positions: bool
) -> tuple[str, bool]:
    """Which angles turn the tokens: rows of the tables, and whether texts differ in them.

    All texts of a prompt count from the first position that is given, else from 0.
    """
    if first is None:
        rows = nodes.positions(form.queries, node.input[0], 1)
        if has_positions:
            begin = nodes.slice(nodes.reshape(node.input[_POSITIONS], (-1,)), 0, 0, 1)
            rows = nodes.add("Add", rows, begin)
        return rows, False
    if has_positions:
        return node.input[_POSITIONS], True
    begin = nodes.reshape(first, (-1, 1))
    return nodes.add("Add", begin, _places(nodes, form.queries, node.input[0], 1)), True


def _turned(call: Call, nodes: NodeList, form: _Form, part: Tensor, angles: list[Tensor]) -> Tensor:
    """The part, each head turned by the angles of its token."""
    turned = 2 * int(angles[0].shape[-1])
    attributes: dict[str, Any] = {
        "num_heads": int(part.shape[2]) // form.size,
        "rotary_embedding_dim": turned if turned < form.size else 0,
        "interleaved": call.integer("rotary_interleaved", 0),
    }
    inputs = (part, *angles)
    out = nodes.fresh(f"{nodes.stem}/turned")
    written = helper.make_node("RotaryEmbedding", [tensor.name for tensor in inputs], [out], **attributes)
    standard = replace(call, op_type="RotaryEmbedding", attributes=attributes, inputs=inputs, values={})
    ROTARY_EMBEDDING.replace(written, standard, nodes)
    return replace(part, name=out)


def _caches(
    node: onnx.NodeProto,
    nodes: NodeList,
    form: _Form,
    new: tuple[Tensor, Tensor],
    first: str | None,
    last: str,
    presents: list[str],
) -> tuple[Tensor, Tensor]:
    """Keys and values of all places, [batch, heads, total, size]: past ones, new ones, and zeros behind these."""
    made = []
    zero = nodes.number(0, form.dtype)
    heads = [nodes.transpose(nodes.reshape(t.name, (0, 0, form.kv_heads, form.size)), (0, 2, 1, 3)) for t in new]
    outs = presents or [nodes.fresh(f"{nodes.stem}/present") for _ in new]
    if first is None:
        pads = nodes.integers([0, 0, 0, 0, 0, 0, form.total - form.queries, 0])
        made = [nodes.add("Pad", part, pads, zero, out=out) for part, out in zip(heads, outs, strict=True)]
    else:
        past = [node.input[index] for index in (_PAST_KEY, _PAST_VALUE)]
        if form.grows:
            past = [nodes.add("Concat", old, part, axis=2) for old, part in zip(past, heads, strict=True)]
        places = _places(nodes, form.total, past[0], 2)
        if form.queries != 1:
            # the only text's new keys, each at the place where it belongs
            from_first = nodes.add("Sub", places, nodes.reshape(first, (1,)))
            inside = nodes.add("Min", from_first, nodes.number(form.queries - 1, "int32"))
            inside = nodes.add("Max", inside, nodes.number(0, "int32"))
            heads = [nodes.add("Gather", part, inside, axis=2) for part in heads]
        column = nodes.unsqueeze(places, 1)
        is_past, is_used = nodes.add("Less", column, first), nodes.add("LessOrEqual", column, last)
        for old, part, out in zip(past, heads, outs, strict=True):
            made.append(nodes.add("Where", is_past, old, nodes.add("Where", is_used, part, zero), out=out))
    shape = (form.batch, form.kv_heads, form.total, form.size)
    return _tensor(made[0], shape, form.dtype), _tensor(made[1], shape, form.dtype)


def _mask(
    node: onnx.NodeProto,
    call: Call,
    nodes: NodeList,
    form: _Form,
    first: str | None,
    last: str,
    keys: tuple[str, int],
) -> tuple[Tensor, str | None]:
    """Which keys a query sees, or what is added to its scores, [batch, heads or 1, queries, total].

    Also which queries see a key at all, [batch, 1, queries, 1], unless all do. `keys`: a value of all keys, their axis.
    """
    columns = _places(nodes, form.total, *keys)
    own = nodes.unsqueeze(_places(nodes, form.queries, node.input[0], 1), 1)
    if first is not None:
        own = nodes.add("Add", first, own)
    end = last
    if call.integer("causal", 1):
        # queries behind the last token of a prompt fill it up
        end = nodes.add("Min", own, last) if form.is_prompt else own
    allowed, seeing = nodes.add("LessOrEqual", columns, end), None
    window = _window(call)
    if window:
        before = nodes.add("Sub", own, nodes.number(window, "int32"))
        if form.is_prompt and _counts_from_own(node, call, form):
            seeing = nodes.add("Less", before, end)
            before = nodes.add("Min", before, nodes.add("Sub", end, nodes.number(1, "int32")))
        elif form.is_prompt:
            before = nodes.add("Sub", end, nodes.number(window, "int32"))
        allowed = nodes.add("And", allowed, nodes.add("Greater", columns, before))
    shape = (form.batch, 1, form.queries, form.total)
    if not call.has(_BIAS):
        return _tensor(allowed, shape, "bool"), seeing
    bias, given = node.input[_BIAS], call.tensor(_BIAS).shape
    missing = int(form.total - given[-1])
    if missing:
        bias = nodes.add("Pad", bias, nodes.integers([0] * 7 + [missing]), nodes.number(0, form.dtype))
    added = nodes.add("Where", allowed, bias, nodes.number(float("-inf"), form.dtype))
    return _tensor(added, (form.batch, given[1], form.queries, form.total), form.dtype), seeing


def _counts_from_own(node: onnx.NodeProto, call: Call, form: _Form) -> bool:
    """True if the window of a query that fills up a prompt ends at its own place, not at the last token.

    Such queries then may see no key, and their result is 0. It is a matter of ONNX Runtime's kernel for the form.
    """
    is_plain = call.number("softcap", 0.0) == 0 and not _has_sink(call)
    return form.dtype == "float32" and any(node.output[1:3]) and is_plain


def _attended(
    node: onnx.NodeProto,
    call: Call,
    nodes: NodeList,
    form: _Form,
    inputs: list[Tensor | None],
    outputs: list[str],
    *,
    causal: int = 0,
) -> bool:
    """The standard's attention over query, key, value, mask and past ones; every query sees a key."""
    attributes: dict[str, Any] = {"q_num_heads": form.heads, "kv_num_heads": form.kv_heads, "is_causal": causal}
    attributes["scale"] = call.number("scale", 0.0) or 1 / sqrt(form.size)
    if call.number("softcap", 0.0) > 0:
        attributes["softcap"] = call.number("softcap", 0.0)
    names = ["" if tensor is None else tensor.name for tensor in inputs]
    standard = replace(call, op_type="Attention", attributes=attributes, inputs=tuple(inputs), values={})
    written = helper.make_node("Attention", names, outputs, **attributes)
    if why_not_attended(written, standard) is not None:
        return False
    attend(written, standard, nodes, is_finite=True, sink=_sink(node, call, nodes, form))
    return True


def _sink(node: onnx.NodeProto, call: Call, nodes: NodeList, form: _Form) -> str:
    """A score beside those of the keys, [1, heads, 1, 1], heads in two axes if several share a key; "" if none is."""
    if not _has_sink(call):
        return ""
    if not call.has(_SINK):
        return nodes.number(0, form.dtype)
    group = form.heads // form.kv_heads
    shape = (1, form.kv_heads, group, 1, 1) if group > 1 else (1, form.heads, 1, 1)
    return nodes.reshape(node.input[_SINK], shape)
