"""Control flow whose way is known, as nodes of the outer graph: branches that are taken, loops (IMPORT-5).

In: an If, Loop or Scan and what is known of its inputs. Out: nodes that make the same results. A loop is written out if
it is short and every node of its body may run on the accelerator: otherwise the host has to run the body anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.decompose import DECOMPOSED
from compiler.frontend.decompose.node_builder import MAX_UNROLLED, NodeList
from compiler.frontend.fold import COMPILE_TIME
from compiler.frontend.inline_functions import branch_nodes, captured, rename
from compiler.frontend.loop_trips import Trips, trips_of
from compiler.frontend.read import plain_domain
from compiler.frontend.sequences import SEQUENCE_OPS
from compiler.frontend.tensor_table import ValueTable
from compiler.ir.symbol import Dim
from compiler.ops import OP_KINDS
from compiler.ops.base import Array, Call

# Scan has its present form from this operator set on.
_SCANS: Final = 9
# ... and axes may count from the end, of Unsqueeze and Concat, too, from this one on.
_NEGATIVE_AXES: Final = 11
# ... and Identity, which hands on what a loop carries, also takes sequences from this one on.
_CARRIES_SEQUENCES: Final = 14
# Nodes that become no ops.
_FREE: Final = ("Constant", "Identity")
# So many nodes are written at most for a loop, those that become no ops among them.
WRITTEN_MAX: Final = 2 * MAX_UNROLLED
# ... and so many for all loops of a model, with what takes their inputs apart and puts their results together, and for
# other nodes each of which becomes many: layers with a step at a time, writes one after another.
WRITTEN_IN_MODEL: Final = 8 * WRITTEN_MAX
# Nodes that take the place of another one count if they are more than this.
_MANY: Final = 128
_REASON: Final = "control flow runs on the host"
NO_ROOM: Final = f"loops, layers and writes of a model become at most {WRITTEN_IN_MODEL} nodes together"
_ON_CHIP: Final = frozenset((*OP_KINDS, *DECOMPOSED, *COMPILE_TIME, "Split"))


class ControlFlow:
    """Writes out the control flow of one model, and counts what it wrote; lives as long as one walk over the model."""

    def __init__(self) -> None:
        self._room = WRITTEN_IN_MODEL
        self._reasons: dict[str, str] = {}

    def nodes(
        self, node: onnx.NodeProto, call: Call, fresh: Callable[[str], str], name: str, table: ValueTable
    ) -> list[onnx.NodeProto] | None:
        """The nodes in place of control flow; None if its way is not known, or it stays a loop.

        `table`: what is known of the values that bodies read from outside. Notes why control flow stays.
        """
        if node.op_type == "If" and 0 in call.values and not call.tensor(0).at_maxima:
            branch = "then_branch" if call.values[0].reshape(-1)[0] else "else_branch"
            return branch_nodes(_graph(node, branch), node, name, fresh)
        made: list[onnx.NodeProto] | str = _REASON
        if node.op_type == "Loop":
            made = _loop(node, call, name, fresh, table, self._room)
        elif node.op_type == "Scan" and call.opset >= _SCANS:
            made = _scan(node, call, name, fresh, self._room)
        if isinstance(made, str):
            self._reasons[name] = made
            return None
        self._room -= len(made)
        return _named(made, name)

    def within_room(self, replaced: NodeList | None) -> NodeList | None:
        """What replaces a node, counted if that is many nodes; None if so many may not be written any more."""
        count = 0 if replaced is None else len(replaced.nodes)
        if count <= _MANY:
            return replaced
        if count > self._room:
            return None
        self._room -= count
        return replaced

    def why_on_host(self, name: str) -> str:
        """Why the control flow of this name, for which `nodes` last gave None, stays on the host."""
        return self._reasons[name]


def _named(nodes: list[onnx.NodeProto], name: str) -> list[onnx.NodeProto]:
    """The nodes, each with a name of its own, as the plan calls it."""
    for number, node in enumerate(nodes):
        node.name = node.name or f"{name}/{node.op_type}_{number}"
    return nodes


def _graph(node: onnx.NodeProto, attribute: str) -> onnx.GraphProto:
    graph: onnx.GraphProto = next(item.g for item in node.attribute if item.name == attribute)
    return graph


def _loop(
    node: onnx.NodeProto, call: Call, name: str, fresh: Callable[[str], str], table: ValueTable, room: int
) -> list[onnx.NodeProto] | str:
    """A Loop whose number of trips does not depend on the model's inputs, in at most `room` nodes; or why it stays."""
    body = _graph(node, "body")
    carried = list(node.input[2:])
    trips = _counted(node, call, body, table)
    reason = _why_not(node, body, trips, call.opset, room)
    if reason or trips.number is None:
        return reason
    nodes = NodeList(call=call, fresh=fresh)
    kept = _kept(nodes, body)
    stacked: list[list[str]] = [[] for _ in node.output[len(carried) :]]
    for trip in range(trips.number):
        given = [nodes.number(trip, "int64"), nodes.constant(np.array(True)), *carried]
        made = _step(nodes, body, f"{name}/{trip}", given, kept)
        carried = made[1 : 1 + len(carried)]
        for results, value in zip(stacked, made[1 + len(carried) :], strict=True):
            results.append(value)
    _hand_out(nodes, carried, node.output)
    for results, out in zip(stacked, node.output[len(carried) :], strict=True):
        if out:
            nodes.add("Concat", *(nodes.unsqueeze(value, 0) for value in results), out=out, axis=0)
    return nodes.nodes


def _scan(
    node: onnx.NodeProto, call: Call, name: str, fresh: Callable[[str], str], room: int
) -> list[onnx.NodeProto] | str:
    """A Scan over inputs of a fixed length, in at most `room` nodes; or why it stays."""
    body, count = _graph(node, "body"), call.integer("num_scan_inputs", 1)
    states, scanned = list(node.input[:-count]), list(node.input[-count:])
    outputs = node.output[len(states) :]
    tensors = [call.tensor(len(states) + number) for number in range(count)]
    axes = call.integers("scan_input_axes") or (0,) * count
    turned = call.integers("scan_input_directions") or (0,) * count
    out_axes = call.integers("scan_output_axes") or (0,) * len(outputs)
    out_turned = call.integers("scan_output_directions") or (0,) * len(outputs)
    if any(not tensor.is_known or not tensor.shape for tensor in tensors):
        return _REASON
    if call.opset < _NEGATIVE_AXES and any(axis < 0 for axis in out_axes):
        return _REASON
    lengths = [tensor.shape[axis] for tensor, axis in zip(tensors, axes, strict=True)]
    if any(isinstance(length, Dim) for length in lengths) or len(set(lengths)) != 1:
        return _REASON
    reason = _why_not(node, body, Trips(number=int(lengths[0])), call.opset, room)
    if reason:
        return reason
    nodes = NodeList(call=call, fresh=fresh)
    kept = _kept(nodes, body)
    stacked: list[list[str]] = [[] for _ in outputs]
    for trip in range(int(lengths[0])):
        given = list(states)
        for value, tensor, axis, is_turned in zip(scanned, tensors, axes, turned, strict=True):
            place = int(lengths[0]) - 1 - trip if is_turned else trip
            given.append(nodes.add("Gather", value, nodes.number(place, "int64"), axis=axis % len(tensor.shape)))
        made = _step(nodes, body, f"{name}/{trip}", given, kept)
        states = made[: len(states)]
        for results, value in zip(stacked, made[len(states) :], strict=True):
            results.append(value)
    _hand_out(nodes, states, node.output)
    for results, out, axis, is_turned in zip(stacked, outputs, out_axes, out_turned, strict=True):
        if out:
            parts = [nodes.unsqueeze(value, axis) for value in (reversed(results) if is_turned else results)]
            nodes.add("Concat", *parts, out=out, axis=axis)
    return nodes.nodes


def _why_not(node: onnx.NodeProto, body: onnx.GraphProto, trips: Trips, opset: int, room: int) -> str:
    """Why a loop may not be written out, "" if it may: it is short, the accelerator may run the nodes of its body, and
    these hide no name. `room`: how many nodes may still be written for this model.
    """
    kind, number = f"a {node.op_type}", trips.number
    if number is None:
        failed = f" (here {trips.failure})" if trips.failure else ""
        return f"{_REASON} unless {kind}'s number of trips is known at compile time{failed}"
    if number <= 0:
        return f"{_REASON} unless {kind} runs at least once"
    of = f"{'at least ' if trips.is_open else ''}{number} trip{'s' if number > 1 else ''} of"
    work = _work(body, trips.counting)
    if number > MAX_UNROLLED or number * work > MAX_UNROLLED:
        made = f"{of} {work} nodes" if number <= MAX_UNROLLED else f"more than {MAX_UNROLLED} trips"
        return f"{_REASON} unless all trips of {kind} have at most {MAX_UNROLLED} nodes (here {made})"
    if number * len(body.node) > WRITTEN_MAX:
        made = f"{of} {len(body.node)} nodes"
        return f"{_REASON} unless all trips have at most {WRITTEN_MAX} nodes, what only counts among them (here {made})"
    may_run = _ON_CHIP | SEQUENCE_OPS if opset >= _CARRIES_SEQUENCES else _ON_CHIP
    foreign = [inner.op_type for inner in body.node if inner.op_type not in may_run or plain_domain(inner.domain)]
    if foreign:
        return f"{_REASON} unless the accelerator may run all nodes of a body (here not {foreign[0]})"
    hidden = sorted(_made_by(body.node).intersection(node.input))
    if hidden:
        return f"{_REASON} unless the nodes of a body make other names than {kind} reads (here {hidden[0]!r})"
    # an input may be a Gather or a number, an output an Identity and an Unsqueeze, each with a constant
    step = len(body.node) + 2 * len(body.input) + 3 * len(body.output)
    if number * step > room:
        most = f"the loops of a model are written out in at most {WRITTEN_IN_MODEL} nodes together"
        return f"{_REASON} unless {most} (here {of} up to {step} nodes, with {room} left)"
    return ""


def _counted(node: onnx.NodeProto, call: Call, body: onnx.GraphProto, table: ValueTable) -> Trips:
    """The trips of a loop, and what its body makes at compile time: constants, counters.

    No more trips are counted than show that a loop is too long to be written out.
    """
    most, starts = _number(call, 0), _number(call, 1)
    if starts == 0 or (most is not None and most <= 0):
        return Trips(number=0)
    if (call.has(0) and most is None) or (call.has(1) and starts is None):
        return Trips(number=None)
    fixed = _fixed(node, body, table)
    if _goes_on(body):
        return Trips(number=most, counting=fixed)
    limit = min(MAX_UNROLLED, WRITTEN_MAX // max(1, len(body.node))) + 1
    is_cut = most is None or most > limit
    if limit == 1:  # the first trip, which takes place, is too long
        return Trips(number=1, is_open=is_cut, counting=fixed)
    inputs = zip(node.input[2:], body.input[2:], strict=True)
    carried = {inner.name: value for outer, inner in inputs if (value := _value(table, outer)) is not None}
    outside = {name: value for name in captured(node) if (value := _value(table, name)) is not None}
    found = trips_of(
        body, most=limit if most is None else min(most, limit), carried=carried, outside=outside, opset=call.opset
    )
    return replace(found, is_open=is_cut and found.number == limit, counting=fixed | found.counting)


def _fixed(node: onnx.NodeProto, body: onnx.GraphProto, table: ValueTable) -> frozenset[str]:
    """What nodes of a loop's body make of constants alone: slices of weights that every trip takes anew."""
    kept = zip(node.input[2:], body.input[2:], body.output[1:], strict=False)
    outside = {name: name for name in captured(node)}
    outside |= {inner.name: outer for outer, inner, last in kept if inner.name == last.name}
    known = {inner for inner, outer in outside.items() if _is_constant(table, outer)}
    known |= {tensor.name for tensor in body.initializer}
    made: set[str] = set()
    for inner in body.node:
        if all(value in known for value in inner.input if value):
            known.update(inner.output)
            made |= _made_by([inner])
    return frozenset(made)


def _made_by(nodes: Iterable[onnx.NodeProto]) -> frozenset[str]:
    """The names of what nodes make, without outputs that are left out."""
    return frozenset(value for node in nodes for value in node.output if value)


def _is_constant(table: ValueTable, name: str) -> bool:
    tensor = table.tensors.get(table.resolved(name))
    return tensor is not None and tensor.constant is not None


def _number(call: Call, position: int) -> int | None:
    """The single number of an input; None if it is not known, or varies."""
    if position not in call.values or call.tensor(position).at_maxima:
        return None
    number = call.values[position].reshape(-1)[0]
    return None if isinstance(number, Dim) else int(number)


def _value(table: ValueTable, name: str) -> Array | None:
    """A small constant; None if it is not known, or varies."""
    tensor = table.resolved(name)
    varies = tensor in table.symbolic or tensor not in table.values or table.tensors[tensor].at_maxima
    return None if varies else table.values[tensor]


def _work(body: onnx.GraphProto, counting: frozenset[str]) -> int:
    """How many nodes of a body may become ops; `counting`: what is evaluated at compile time."""
    return sum(node.op_type not in _FREE and not counting & set(node.output) for node in body.node)


def _goes_on(body: onnx.GraphProto) -> bool:
    """True if the condition that the body hands out is the one that it gets, or a constant that is true."""
    makers = {value: node for node in body.node for value in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    constants = {tensor.name: tensor for tensor in body.initializer}
    if name in makers and makers[name].op_type == "Constant":
        constants.update((name, item.t) for item in makers[name].attribute if item.name == "value")
    if name in constants:
        return bool(numpy_helper.to_array(constants[name]).reshape(-1)[:1].all())
    return len(body.input) > 1 and name == body.input[1].name


def _kept(nodes: NodeList, body: onnx.GraphProto) -> dict[str, str]:
    """Writes the constants of a body, once for all trips; their new names."""
    names = {tensor.name: nodes.add("Constant", value=tensor) for tensor in body.initializer}
    names |= {tensor.values.name: nodes.add("Constant", sparse_value=tensor) for tensor in body.sparse_initializer}
    for node in filter(_is_constant_node, body.node):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name, copy.output[0] = "", nodes.fresh(f"{nodes.stem}/Constant")
        names[node.output[0]] = copy.output[0]
        nodes.nodes.append(copy)
    return names


def _is_constant_node(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and not plain_domain(node.domain) and [*map(bool, node.output)] == [True]


def _step(
    nodes: NodeList, body: onnx.GraphProto, name: str, given: Sequence[str], kept: Mapping[str, str]
) -> list[str]:
    """One trip through the body, for these inputs and constants; the names of its outputs."""
    names = dict(kept) | {value.name: its for value, its in zip(body.input, given, strict=True)}
    copy = onnx.GraphProto(node=[its for its in body.node if not _is_constant_node(its)], output=body.output)
    for inner in copy.node:
        rename(inner, names)
    for value in copy.output:
        value.name = names.get(value.name, value.name)
    results = [nodes.fresh(f"{name}/{value.name}") for value in body.output]
    nodes.nodes += branch_nodes(copy, helper.make_node("If", [], results), name, nodes.fresh)
    return results


def _hand_out(nodes: NodeList, values: Sequence[str], outputs: Sequence[str]) -> None:
    """Ends with these values under the names of the first outputs."""
    for value, out in zip(values, outputs, strict=False):
        if out:
            nodes.add("Identity", value, out=out)
