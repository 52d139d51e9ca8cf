"""Sequences and optionals whose elements are known, as the elements themselves (IMPORT-5).

In: nodes in order, with what is known of their inputs. Out: nodes that make what a node reads from such a sequence.
PyTorch writes lists this way: `torch.split` becomes SplitToSequence and a SequenceAt for each part. Nodes that make
sequences stay the host's, and are dropped if nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import onnx

from compiler.frontend.constant_values import ONNX_CODES
from compiler.frontend.decompose.node_builder import MAX_UNROLLED, Fresh, NodeList
from compiler.frontend.read import plain_domain
from compiler.ir.symbol import Dim
from compiler.ops.base import Call

# Operators that disappear where the elements of the sequences that they read and make are known.
SEQUENCE_OPS: Final = frozenset(
    {
        "ConcatFromSequence",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Element:
    """A value, or positions [start, end) of one of its axes; `end` of None is a position alone, without the axis."""

    value: str
    axis: int | None = None
    start: int = 0
    end: int | None = None


class Sequences:
    """The elements of sequences and optionals by the value's name; lives as long as one walk over one model."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Element, ...]] = {}

    def nodes(self, node: onnx.NodeProto, call: Call, fresh: Fresh) -> list[onnx.NodeProto] | None:
        """The nodes in place of a node that reads a known sequence; None for any other node.

        Notes the elements of the sequence that the node makes.
        """
        if plain_domain(node.domain):
            return None
        made = self._made(node, call)
        if made is not None and len(made) <= MAX_UNROLLED:
            self._known[node.output[0]] = made
        nodes = NodeList(call=call, fresh=fresh)
        return nodes.nodes if self._is_read(node, call, nodes) else None

    def _made(self, node: onnx.NodeProto, call: Call) -> tuple[_Element, ...] | None:
        """The elements of the sequence or optional that the node makes; None if they are not known."""
        match node.op_type:
            case "SequenceConstruct" | "Optional" | "SequenceEmpty":
                return tuple(_Element(value=name) for name in node.input)
            case "SplitToSequence":
                return _parts(node, call)
            case "Identity":
                return self._known.get(node.input[0])
            case "SequenceInsert" | "SequenceErase" if node.input[0] in self._known:
                given, is_added = self._known[node.input[0]], node.op_type == "SequenceInsert"
                last = len(given) if is_added else len(given) - 1
                place = _place(call, 2 if is_added else 1, len(given), last)
                if place is None:
                    return None
                new = (_Element(value=node.input[1]),) if is_added else ()
                return (*given[:place], *new, *given[place + (not is_added) :])
        return None

    def _is_read(self, node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
        """Makes what the node reads from a known sequence or optional; False if it reads none."""
        if not node.input:
            return False
        if node.op_type.startswith("Optional") and call.tensor(0).dtype in ONNX_CODES:
            elements: tuple[_Element, ...] | None = (_Element(value=node.input[0]),)
        else:
            elements = self._known.get(node.input[0])
        if elements is None:
            return False
        out = node.output[0]
        match node.op_type:
            case "SequenceAt":
                place = _place(call, 1, len(elements), len(elements) - 1)
                if place is None:
                    return False
                nodes.add("Identity", _value(elements[place], nodes), out=out)
            case "OptionalGetElement" if elements:
                nodes.add("Identity", _value(elements[0], nodes), out=out)
            case "OptionalHasElement":
                nodes.add("Identity", nodes.constant(np.array(bool(elements))), out=out)
            case "SequenceLength":
                nodes.add("Identity", nodes.number(len(elements), "int64"), out=out)
            case "ConcatFromSequence" if elements:
                axis = call.integer("axis", 0)
                values = [_value(element, nodes) for element in elements]
                if call.integer("new_axis", 0):
                    values = [nodes.unsqueeze(value, axis) for value in values]
                nodes.add("Concat", *values, out=out, axis=axis)
            case _:
                return False
        return True


def _parts(node: onnx.NodeProto, call: Call) -> tuple[_Element, ...] | None:
    """The parts that a SplitToSequence cuts; None if their extents are not known."""
    data = call.tensor(0)
    axis = call.integer("axis", 0)
    if not data.is_known or not -len(data.shape) <= axis < len(data.shape):
        return None
    axis %= len(data.shape)
    extent = data.shape[axis]
    if isinstance(extent, Dim):
        return None
    if not call.has(1):
        is_kept = call.integer("keepdims", 1) != 0
        return tuple(
            _Element(value=node.input[0], axis=axis, start=start, end=start + 1 if is_kept else None)
            for start in range(min(extent, MAX_UNROLLED + 1))
        )
    lengths = _integers(call, 1)
    if lengths is None or any(length < 1 for length in lengths):
        return None
    if not call.tensor(1).shape:
        borders = [*range(0, extent, lengths[0]), extent]
    else:
        borders = list(accumulate(lengths, initial=0))
    if borders[-1] != extent:
        return None
    return tuple(_Element(value=node.input[0], axis=axis, start=a, end=b) for a, b in pairwise(borders))


def _integers(call: Call, index: int) -> Sequence[int] | None:
    """The integers of a constant operand; None if they are not known, or vary."""
    if index not in call.values or call.tensor(index).at_maxima:
        return None
    values = call.values[index].reshape(-1).tolist()
    return None if any(isinstance(value, Dim) for value in values) else values


def _place(call: Call, index: int, count: int, last: int) -> int | None:
    """The position at operand `index`, `last` if there is none; negative ones are counted from `count` on.

    None if it is not known, or not between 0 and `last`.
    """
    given = _integers(call, index) if call.has(index) else [last]
    if given is None or len(given) != 1:
        return None
    place = given[0] + count if given[0] < 0 else given[0]
    return place if 0 <= place <= last else None


def _value(element: _Element, nodes: NodeList) -> str:
    """The name of an element's value."""
    if element.axis is None:
        return element.value
    if element.end is None:
        return nodes.add("Gather", element.value, nodes.number(element.start, "int64"), axis=element.axis)
    return nodes.slice(element.value, element.axis, element.start, element.end)
