"""Control flow whose way is known, as nodes of the outer graph: branches that are taken, loops (IMPORT-5).

In: an If, Loop or Scan and what is known of its inputs. Out: nodes that make the same results. A loop is written out if
it is short and every node of its body may run on the accelerator: otherwise the host has to run the body anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.decompose import DECOMPOSED
from compiler.frontend.decompose.node_builder import MAX_UNROLLED, NodeList
from compiler.frontend.fold import COMPILE_TIME
from compiler.frontend.inline_functions import branch_nodes, captured, rename
from compiler.frontend.loop_trips import trips_of
from compiler.frontend.read import plain_domain
from compiler.frontend.sequences import SEQUENCE_OPS
from compiler.frontend.tensor_table import ValueTable
from compiler.ir.symbol import Dim
from compiler.ops import OP_KINDS
from compiler.ops.base import Array, Call

# Scan has its present form from this operator set on.
_SCANS: Final = 9
# ... and Identity, which hands on what a loop carries, also takes sequences from this one on.
_CARRIES_SEQUENCES: Final = 14
# Nodes that become no ops.
_FREE: Final = ("Constant", "Identity")
# So many nodes are written at most for a loop, those that become no ops among them.
WRITTEN_MAX: Final = 2 * MAX_UNROLLED
_ON_CHIP: Final = frozenset((*OP_KINDS, *DECOMPOSED, *COMPILE_TIME, "Split"))


def known_body(
    node: onnx.NodeProto, call: Call, name: str, fresh: Callable[[str], str], table: ValueTable
) -> list[onnx.NodeProto] | None:
    """The nodes in place of control flow; None if its way is not known, or it stays a loop.

    `table`: what is known of the values that bodies read from outside.
    """
    match node.op_type:
        case "If" if 0 in call.values and not call.tensor(0).at_maxima:
            branch = "then_branch" if call.values[0].reshape(-1)[0] else "else_branch"
            return branch_nodes(_graph(node, branch), node, name, fresh)
        case "Loop":
            return _named(_loop(node, call, name, fresh, table), name)
        case "Scan" if call.opset >= _SCANS:
            return _named(_scan(node, call, name, fresh), name)
    return None


def _named(nodes: list[onnx.NodeProto] | None, name: str) -> list[onnx.NodeProto] | None:
    """The nodes, each with a name of its own, as the plan calls it."""
    for number, node in enumerate(nodes or ()):
        node.name = node.name or f"{name}/{node.op_type}_{number}"
    return nodes


def _graph(node: onnx.NodeProto, attribute: str) -> onnx.GraphProto:
    graph: onnx.GraphProto = next(item.g for item in node.attribute if item.name == attribute)
    return graph


def _loop(
    node: onnx.NodeProto, call: Call, name: str, fresh: Callable[[str], str], table: ValueTable
) -> list[onnx.NodeProto] | None:
    """A Loop whose number of trips does not depend on the model's inputs."""
    body = _graph(node, "body")
    carried = list(node.input[2:])
    trips, counting = _counted(node, call, body, table)
    if trips is None or not _may_unroll(body, trips, node.input, call.opset, counting):
        return None
    nodes = NodeList(call=call, fresh=fresh)
    stacked: list[list[str]] = [[] for _ in node.output[len(carried) :]]
    for trip in range(trips):
        given = [nodes.number(trip, "int64"), nodes.constant(np.array(True)), *carried]
        made = _step(nodes, body, f"{name}/{trip}", given)
        carried = made[1 : 1 + len(carried)]
        for results, value in zip(stacked, made[1 + len(carried) :], strict=True):
            results.append(value)
    _hand_out(nodes, carried, node.output)
    for results, out in zip(stacked, node.output[len(carried) :], strict=True):
        if out:
            nodes.add("Concat", *(nodes.unsqueeze(value, 0) for value in results), out=out, axis=0)
    return nodes.nodes


def _scan(node: onnx.NodeProto, call: Call, name: str, fresh: Callable[[str], str]) -> list[onnx.NodeProto] | None:
    """A Scan over inputs of a fixed length."""
    body, count = _graph(node, "body"), call.integer("num_scan_inputs", 1)
    states, scanned = list(node.input[:-count]), list(node.input[-count:])
    outputs = node.output[len(states) :]
    tensors = [call.tensor(len(states) + number) for number in range(count)]
    axes = call.integers("scan_input_axes") or (0,) * count
    turned = call.integers("scan_input_directions") or (0,) * count
    out_axes = call.integers("scan_output_axes") or (0,) * len(outputs)
    out_turned = call.integers("scan_output_directions") or (0,) * len(outputs)
    if any(not tensor.is_known or not tensor.shape for tensor in tensors) or any(axis < 0 for axis in out_axes):
        return None
    lengths = [tensor.shape[axis] for tensor, axis in zip(tensors, axes, strict=True)]
    if any(isinstance(length, Dim) for length in lengths) or len(set(lengths)) != 1:
        return None
    if not _may_unroll(body, int(lengths[0]), node.input, call.opset):
        return None
    nodes = NodeList(call=call, fresh=fresh)
    stacked: list[list[str]] = [[] for _ in outputs]
    for trip in range(int(lengths[0])):
        given = list(states)
        for value, tensor, axis, is_turned in zip(scanned, tensors, axes, turned, strict=True):
            place = int(lengths[0]) - 1 - trip if is_turned else trip
            given.append(nodes.add("Gather", value, nodes.number(place, "int64"), axis=axis % len(tensor.shape)))
        made = _step(nodes, body, f"{name}/{trip}", given)
        states = made[: len(states)]
        for results, value in zip(stacked, made[len(states) :], strict=True):
            results.append(value)
    _hand_out(nodes, states, node.output)
    for results, out, axis, is_turned in zip(stacked, outputs, out_axes, out_turned, strict=True):
        if out:
            parts = [nodes.unsqueeze(value, axis) for value in (reversed(results) if is_turned else results)]
            nodes.add("Concat", *parts, out=out, axis=axis)
    return nodes.nodes


def why_on_host(node: onnx.NodeProto, call: Call, table: ValueTable) -> str:
    """Why control flow that `known_body` leaves stays on the host."""
    reason = "control flow runs on the host"
    if node.op_type != "Loop":
        return reason
    body = _graph(node, "body")
    trips, counting = _counted(node, call, body, table)
    if trips is None:
        return f"{reason} unless a Loop's number of trips is known at compile time"
    if not trips:
        return f"{reason} unless a Loop runs at least once"
    work = _work(body, counting)
    if trips > MAX_UNROLLED or trips * work > MAX_UNROLLED:
        made = f"{trips} trips of {work} nodes" if trips <= MAX_UNROLLED else f"more than {MAX_UNROLLED} trips"
        return f"{reason} unless all trips of a Loop have at most {MAX_UNROLLED} nodes (here {made})"
    if not _is_short(body, trips, counting):
        made = f"{trips} trips of {len(body.node)} nodes"
        return f"{reason} unless all trips have at most {WRITTEN_MAX} nodes, what only counts among them (here {made})"
    foreign = [inner.op_type for inner in body.node if inner.op_type not in _ON_CHIP or plain_domain(inner.domain)]
    return f"{reason} unless the accelerator may run all nodes of a body (here not {foreign[0]})" if foreign else reason


def _counted(
    node: onnx.NodeProto, call: Call, body: onnx.GraphProto, table: ValueTable
) -> tuple[int | None, frozenset[str]]:
    """The trips of a loop, None if they are not known, and what its body makes at compile time: constants, counters.

    More trips than MAX_UNROLLED are not counted to their end.
    """
    most, starts = _number(call, 0), _number(call, 1)
    if starts == 0 or (most is not None and most <= 0):
        return 0, frozenset()
    if (call.has(0) and most is None) or (call.has(1) and starts is None):
        return None, frozenset()
    fixed = _fixed(node, body, table)
    if _goes_on(body):
        return most, fixed
    inputs = zip(node.input[2:], body.input[2:], strict=True)
    carried = {inner.name: value for outer, inner in inputs if (value := _value(table, outer)) is not None}
    outside = {name: value for name in captured(node) if (value := _value(table, name)) is not None}
    limit = MAX_UNROLLED + 1 if most is None else min(most, MAX_UNROLLED + 1)
    trips, counting = trips_of(body, most=limit, carried=carried, outside=outside, opset=call.opset)
    return trips, fixed | counting


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
            made.update(inner.output)
    return frozenset(made)


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


def _may_unroll(
    body: onnx.GraphProto, trips: int, given: Sequence[str], opset: int, counting: frozenset[str] = frozenset()
) -> bool:
    """True for a body that may be written out so often: its nodes may run on the accelerator, and it hides no name."""
    made = {value for node in body.node for value in node.output}
    may_run = _ON_CHIP | SEQUENCE_OPS if opset >= _CARRIES_SEQUENCES else _ON_CHIP
    on_chip = all(node.op_type in may_run and not plain_domain(node.domain) for node in body.node)
    return on_chip and trips > 0 and _is_short(body, trips, counting) and not made & set(given)


def _is_short(body: onnx.GraphProto, trips: int, counting: frozenset[str]) -> bool:
    """Whether all trips of a body have few nodes: those that may become ops, and all that are written."""
    few = trips <= MAX_UNROLLED and trips * _work(body, counting) <= MAX_UNROLLED
    return few and trips * len(body.node) <= WRITTEN_MAX


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


def _step(nodes: NodeList, body: onnx.GraphProto, name: str, given: Sequence[str]) -> list[str]:
    """One trip through the body, for these inputs; the names of its outputs."""
    names = {value.name: its for value, its in zip(body.input, given, strict=True)}
    copy = onnx.GraphProto()
    copy.CopyFrom(body)
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
