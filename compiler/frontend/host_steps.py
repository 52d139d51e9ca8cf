"""Counts the steps of host nodes as far as known before the run, and finds the node that dominates the run time.

In: the nodes of a model or of a host segment, and what is known of the values that they read. Out: the node that
repeats others longest, or HostBoundError if the steps exceed the bound (compiler/host_bound.py).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

from compiler.frontend.inline_functions import Key, all_nodes, function_key, subgraphs
from compiler.frontend.node_attributes import node_names
from compiler.frontend.read import plain_domain
from compiler.host_bound import HostBound, HostBoundError

# ONNX Runtime's limit for a Loop that has neither a trip count nor an end by its condition.
_ENDLESS: Final = 2**63 - 1
_REPEATING: Final = frozenset(("Loop", "Scan", "SequenceMap"))
# Nodes that pass on a number unchanged.
_PASSING: Final = frozenset(("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze"))


class Known(NamedTuple):
    """What is known of a value: its extents (None if unknown), and its number if it has one element."""

    shape: tuple[int, ...] | None
    number: int | None = None


_UNKNOWN: Final = Known(None)


class Work(NamedTuple):
    """The minimum number of steps, and whether a loop among them may take more."""

    steps: int
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """The top-level node that repeats others longest, as far as known, and the bound on its run."""

    name: str
    op_type: str
    bound: HostBound

    def too_many_steps(self, steps: int) -> HostBoundError:
        """The error for a node with too many known steps."""
        return HostBoundError(
            "the host node repeats other nodes too often",
            stage="simulate",
            node=self.name,
            op_type=self.op_type,
            actual=f"at least {steps} steps",
            limit=f"{self.bound.steps} steps",
            hint="Lower its number of trips, or run the model on ONNX Runtime itself",
        )

    def too_slow(self) -> HostBoundError:
        """The error for a node that exceeded the time limit."""
        return HostBoundError(
            "the host node repeats other nodes and did not end in time",
            stage="simulate",
            node=self.name,
            op_type=self.op_type,
            actual=f"more than {self.bound.seconds:g} s",
            limit=f"{self.bound.seconds:g} s",
            hint="Check that its condition becomes false, or run the model on ONNX Runtime itself",
        )


def known_value(value: Any) -> Known:
    """What is known of a value that exists already."""
    if not isinstance(value, np.ndarray | np.generic):
        return Known(None)
    array = np.asarray(value)
    return Known(array.shape, int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "biu" else None)


def repeating_node(
    nodes: Sequence[onnx.NodeProto],
    names: Sequence[str],
    functions: Iterable[onnx.FunctionProto],
    known: Mapping[str, Known],
    bound: HostBound,
) -> Repeating | None:
    """The node that repeats others longest among `nodes`, called `names`; None if no node repeats others.

    `known` describes the values that they read. Raises HostBoundError if their known steps exceed the bound.
    """
    table = {(plain_domain(one.domain), one.name, one.overload): one for one in functions}
    everything = all_nodes([*nodes, *(node for function in table.values() for node in function.node)])
    if not nodes or not any(node.op_type in _REPEATING and plain_domain(node.domain) == "" for node in everything):
        return None
    counter, values = _Counter(functions=table), dict(known)
    works = [counter.work([node], values) for node in nodes]
    first = max(range(len(works)), key=lambda index: (works[index].open, works[index].steps))
    most = max(range(len(works)), key=lambda index: works[index].steps)
    total = sum(work.steps for work in works)
    if total > bound.steps:
        raise Repeating(name=names[most], op_type=nodes[most].op_type, bound=bound).too_many_steps(total)
    return Repeating(name=names[first], op_type=nodes[first].op_type, bound=bound)


def repeating_in_model(model: onnx.ModelProto, values: Mapping[str, Any], bound: HostBound) -> Repeating | None:
    """As `repeating_node`, for a model; `values` are its inputs and the initializers whose data it does not hold."""
    known = _initializers(model.graph) | {name: known_value(value) for name, value in values.items()}
    return repeating_node(model.graph.node, node_names(model.graph), model.functions, known, bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counter:
    """Counts steps; `found` caches functions by what is known of their inputs (None while counting)."""

    functions: Mapping[Key, onnx.FunctionProto]
    found: dict[tuple[Key, tuple[Known, ...]], Work | None] = field(default_factory=dict)

    def work(self, nodes: Iterable[onnx.NodeProto], values: MutableMapping[str, Known]) -> Work:
        """The steps of nodes in order; adds what becomes known of their results to `values`."""
        steps, is_open = 0, False
        for node in nodes:
            inner = self._inside(node, values)
            steps, is_open = steps + 1 + inner.steps, is_open or inner.open
            values.update(dict.fromkeys(node.output, _UNKNOWN))
            if node.output and (result := _result(node, values)) is not None:
                values[node.output[0]] = result
        return Work(steps, is_open)

    def _inside(self, node: onnx.NodeProto, values: MutableMapping[str, Known]) -> Work:
        """The steps inside a node: of the function that it calls, or of its subgraphs."""
        if function_key(node) in self.functions:
            return self._called(node, values)
        graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        if plain_domain(node.domain) == "":
            if node.op_type == "Loop" and "body" in graphs:
                return self._loop(node, graphs["body"], values)
            if node.op_type == "Scan" and "body" in graphs:
                trips = _scanned(node, graphs["body"], values)
                body = self._graph(graphs["body"], values, {})[0]
                return Work((trips or 0) * body.steps, trips is None or body.open)
            if node.op_type == "If":
                return self._branches(node, graphs, values)
        inner = [self._graph(graph, values, {})[0] for graph in subgraphs(node)]
        # an operator that repeats its graph once per element of a sequence, which may be empty
        return Work(0, bool(inner))

    def _called(self, node: onnx.NodeProto, values: MutableMapping[str, Known]) -> Work:
        function = self.functions[function_key(node)]
        given = {
            formal: values[actual]
            for formal, actual in zip(function.input, node.input, strict=False)
            if actual in values
        }
        key = (function_key(node), tuple(given.get(formal, Known(None)) for formal in function.input))
        if key not in self.found:
            self.found[key] = None
            self.found[key] = self.work(function.node, given)
        # None: a function that calls itself, which is no valid model
        return self.found[key] or Work(0, True)

    def _graph(
        self, graph: onnx.GraphProto, values: MutableMapping[str, Known], given: Mapping[str, Known]
    ) -> tuple[Work, Mapping[str, Known]]:
        """The steps of a subgraph, and what is known of its values; `given` describes its inputs."""
        own = {value.name: _UNKNOWN for value in graph.input} | _initializers(graph) | dict(given)
        inside = ChainMap(own, values)
        work = self.work(graph.node, inside)
        return work, inside

    def _loop(self, node: onnx.NodeProto, body: onnx.GraphProto, values: MutableMapping[str, Known]) -> Work:
        """The minimum number of trips of a Loop times the steps of its body."""
        count, start = (_operand(node, index, values) for index in (0, 1))
        most = _ENDLESS if count is None else count.number
        runs = 1 if start is None else start.number
        # a condition that stays true when it was true before the trip is always true
        truth = {body.input[1].name: Known((), 1)} if len(body.input) > 1 else {}
        work, inside = self._graph(body, values, truth)
        after = inside.get(body.output[0].name, Known(None)).number if body.output else None
        if runs == 0 or (most is not None and most <= 0):
            return Work(0, False)
        if runs is None or most is None:
            return Work(0, True)
        return Work((most if after else 1) * work.steps, after is None or work.open)

    def _branches(
        self, node: onnx.NodeProto, graphs: Mapping[str, onnx.GraphProto], values: MutableMapping[str, Known]
    ) -> Work:
        """The steps of the taken branch; of the shorter branch if the condition is unknown."""
        chosen = _operand(node, 0, values)
        name = {0: "else_branch", 1: "then_branch"}.get(chosen.number if chosen and chosen.number is not None else -1)
        works = [self._graph(graph, values, {})[0] for key, graph in graphs.items() if name in (None, key)]
        return Work(min((work.steps for work in works), default=0), any(work.open for work in works))


def _operand(node: onnx.NodeProto, index: int, values: Mapping[str, Known]) -> Known | None:
    """What is known of an input; None if it is omitted."""
    name = node.input[index] if index < len(node.input) else ""
    return values.get(name, Known(None)) if name else None


def _scanned(node: onnx.NodeProto, body: onnx.GraphProto, values: Mapping[str, Known]) -> int | None:
    """The trips of a Scan, which is the extent of the scanned input; None if unknown, and for the old batched form."""
    numbers = {a.name: a.i for a in node.attribute if a.type == onnx.AttributeProto.INT}
    axes = next((list(a.ints) for a in node.attribute if a.name == "scan_input_axes"), [])
    first = len(node.input) - numbers.get("num_scan_inputs", 0)
    if len(body.input) != len(node.input) or not 0 <= first < len(node.input):
        return None
    shape = values.get(node.input[first], Known(None)).shape
    axis = axes[0] if axes else 0
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _result(node: onnx.NodeProto, values: Mapping[str, Known]) -> Known | None:
    """What is known of a node's first result, for simple ops."""
    if plain_domain(node.domain) != "":
        return None
    if node.op_type == "Constant" and node.attribute:
        attribute = node.attribute[0]
        if attribute.name == "value" and not attribute.ref_attr_name:
            return _tensor(attribute.t)
        if attribute.name == "value_int" and not attribute.ref_attr_name:
            return Known((), attribute.i)
    if node.op_type in _PASSING and node.input:
        given = values.get(node.input[0], _UNKNOWN)
        number = given.number
        if node.op_type == "Cast" and number is not None:
            number = _cast(number, node)
        return given if node.op_type == "Identity" else Known(None, number)
    return None


def _cast(number: int, node: onnx.NodeProto) -> int | None:
    """A number in the element type of a Cast; None if the type cannot hold it."""
    code = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)
    try:
        with np.errstate(all="ignore"):
            found = np.array(number).astype(onnx.helper.tensor_dtype_to_np_dtype(code))
        return int(found)
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _initializers(graph: onnx.GraphProto) -> dict[str, Known]:
    return {tensor.name: _tensor(tensor) for tensor in graph.initializer}


def _tensor(tensor: onnx.TensorProto) -> Known:
    """What is known of a constant: its number only if the model holds it."""
    shape = tuple(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or any(extent != 1 for extent in shape):
        return Known(shape)
    try:
        return known_value(onnx.numpy_helper.to_array(tensor))
    except (KeyError, TypeError, ValueError):
        # its data lies in another file, or it is broken
        return Known(shape)
