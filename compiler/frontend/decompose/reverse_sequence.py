"""ReverseSequence of known lengths as slices that run backwards: a layer that reads a text from its end."""

from __future__ import annotations

from itertools import groupby
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import Call

# Stretches of equal lengths; each is a slice of the batch.
_MOST_STRETCHES: Final = 16


def _refused(_: onnx.NodeProto, call: Call) -> object | None:
    """What varies of the lengths, of the axis that they reverse, or of a batch of unequal ones; or how many
    stretches of equal lengths there are.
    """
    lengths = call.values[1].reshape(-1)
    stretches = len(list(groupby(map(int, lengths))))
    varying: list[Dim] = [length for length in lengths.tolist() if isinstance(length, Dim)]
    time = call.integer("time_axis", 0)
    for axis, extent in enumerate(call.tensor(0).shape[:2]):
        if isinstance(extent, Dim) and (stretches > 1 or axis == time):
            varying.append(extent)
    return varying[0] if varying else None if 1 <= stretches <= _MOST_STRETCHES else stretches


def _reverse_sequence(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Reverses the first positions of each row of the batch, as many as its length says."""
    shape, lengths = call.tensor(0).shape, [int(length) for length in call.value(1, "sequence_lens").reshape(-1)]
    batch, time = call.integer("batch_axis", 1), call.integer("time_axis", 0)
    if len(shape) < 2 or {batch, time} != {0, 1}:
        call.fail("batch_axis and time_axis must be the first two axes", actual=(batch, time), limit="0 and 1")
    if len(call.tensor(1).shape) != 1:
        call.fail("lengths have one axis", actual=len(call.tensor(1).shape), limit=1)
    if len(lengths) != shape[batch] or not all(0 <= length <= shape[time] for length in lengths):
        call.fail(
            "each row of the batch needs a length within the time axis",
            actual=lengths[:8],
            limit=f"{shape[batch]} lengths of at most {shape[time]}",
        )
    parts, first = [], 0
    for length, rows in groupby(lengths):
        count = len(list(rows))
        whole = count == len(lengths)
        part = node.input[0] if whole else nodes.slice(node.input[0], batch, first, first + count)
        parts.append(_reversed(nodes, part, time, length, shape[time]))
        first += count
    if len(parts) > 1:
        nodes.add("Concat", *parts, out=node.output[0], axis=batch)
    else:
        nodes.add("Identity", *parts, out=node.output[0])


def _reversed(nodes: NodeList, value: str, axis: int, length: int, extent: int) -> str:
    """The value with its first positions along an axis reversed."""
    if length < 2:
        return value
    turned = nodes.slice(value, axis, length - 1, -1 - int(extent), -1)
    if length == extent:
        return turned
    return nodes.add("Concat", turned, nodes.slice(value, axis, length, extent), axis=axis)


REVERSE_SEQUENCE: Final = Decomposition(
    op_type="ReverseSequence",
    replace=_reverse_sequence,
    dtypes=MappingProxyType({1: ("int64",)}),
    constant_inputs=MappingProxyType({1: "sequence_lens"}),
    limits=(
        Limit(
            "neither lengths nor the axis that they reverse vary, and the batch has at most"
            f" {_MOST_STRETCHES} runs of rows of equal length",
            _refused,
        ),
    ),
)
