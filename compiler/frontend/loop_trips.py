"""How often a Loop runs, if that does not depend on the model's inputs (IMPORT-5).

In: a Loop, and the values that are known before it. Out: its number of trips. A condition that the body computes is
followed: the nodes behind it, and what they carry from trip to trip, run by themselves if all of it starts from known
numbers. TensorFlow and JAX write a loop over a text as `while step < steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.runtimes import run_model
from compiler.host_bound import HostBoundError
from compiler.ops.base import Array

_IR_VERSION: Final = 10
# What counts and compares: of single numbers these make single numbers.
_COMPARING: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Not", "Or", "Xor")
_COMPUTING: Final = ("Abs", "Add", "Div", "Max", "Min", "Mod", "Mul", "Neg", "Sub", "Where")
_PASSING: Final = ("Cast", "Constant", "Identity", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trips:
    """How often a loop runs.

    `number` is None if that is not known, and the least if `is_open`. `counting` are the values that nodes of the body
    make at compile time. `failure` says why trips that follow from known numbers could not be counted.
    """

    number: int | None
    is_open: bool = False
    counting: frozenset[str] = frozenset()
    failure: str = ""


def counting_nodes(body: onnx.GraphProto, carries: Mapping[str, str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The nodes behind the condition that the body hands out, in order, and the carried values that they read.

    `carries`: which output of the body each carried input takes over.
    """
    makers = {value: node for node in body.node for value in node.output if value}
    needed: list[str] = []
    found: set[str] = set()
    todo = [body.output[0].name]
    while todo:
        value = todo.pop()
        if value in found or not value:
            continue
        found.add(value)
        if value in carries:
            needed.append(value)
            todo.append(carries[value])
        elif value in makers:
            todo.extend(makers[value].input)
    return [node for node in body.node if found & set(node.output)], sorted(needed)


def trips_of(
    body: onnx.GraphProto,
    *,
    most: int,
    carried: Mapping[str, Array],
    outside: Mapping[str, Array],
    opset: int,
) -> Trips:
    """The trips of a Loop with this body whose first condition holds, counted up to `most`; and what its nodes make
    that only count.

    Their number is not known if its condition depends on values that are not known. `carried` and `outside` are known
    values by their names in the body: what it carries from trip to trip, at first, and what it reads from outside.
    """
    if most <= 0:
        return Trips(number=0)
    carries = {body.input[2 + n].name: body.output[1 + n].name for n in range(len(body.input) - 2)}
    nodes, needed = counting_nodes(body, carries)
    counter, condition = body.input[0].name, body.input[1].name
    made = frozenset(value for node in nodes for value in node.output if value)
    last = [body.output[0].name, *(carries[name] for name in needed)]
    reads = {value for node in nodes for value in node.input if value}.union(last) - made
    reads -= {counter, condition, *needed}
    own = {tensor.name: tensor for tensor in body.initializer if tensor.name in reads}
    reads -= own.keys()
    if not all(map(_counts, nodes)) or not all(prod(tensor.dims) == 1 for tensor in own.values()):
        return Trips(number=None)
    if not reads <= outside.keys() or not set(needed) <= carried.keys():
        return Trips(number=None)
    first, given = {name: carried[name] for name in needed}, {name: outside[name] for name in reads}
    if any(value.size != 1 for value in (*first.values(), *given.values())):
        return Trips(number=None)
    counting = _Counting(nodes=nodes, counter=counter, condition=condition, last=last, own=[*own.values()])
    return replace(_run(counting, most, first, given, opset), counting=made)


def _counts(node: onnx.NodeProto) -> bool:
    """Whether a node makes single numbers of single numbers."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Constant":
        (value,) = node.attribute if len(node.attribute) == 1 else (onnx.AttributeProto(),)
        return value.name in ("value_float", "value_int") or (value.name == "value" and prod(value.t.dims) == 1)
    return node.op_type in (*_COMPARING, *_COMPUTING, *_PASSING)


class _Counting(NamedTuple):
    """The part of a body that counts: its nodes, initializers, and the names of its inputs; `last`: the condition and
    the carried values that it hands out.
    """

    nodes: list[onnx.NodeProto]
    counter: str
    condition: str
    last: list[str]
    own: list[onnx.TensorProto]


def _run(
    counting: _Counting, most: int, carried: Mapping[str, Array], outside: Mapping[str, Array], opset: int
) -> Trips:
    """Runs a loop of single numbers; their number is not known if ONNX Runtime fails or takes too long."""
    taken = {counting.counter, counting.condition, *counting.last, *carried, *outside}
    taken |= {value for node in counting.nodes for value in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in counting.own}

    def fresh(stem: str) -> str:
        name = next(name for number in count() if (name := f"{stem} {number}") not in taken)
        taken.add(name)
        return name

    kinds = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in carried.values()]
    # the condition is handed out twice: as such, and as a row for each trip, which tells how many there were
    handed = [*counting.last, counting.last[0]]
    results = [fresh("out") for _ in handed]
    body = helper.make_graph(
        [
            *counting.nodes,
            *(helper.make_node("Identity", [value], [out]) for value, out in zip(handed, results, strict=True)),
        ],
        "count",
        [
            helper.make_tensor_value_info(counting.counter, onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(counting.condition, onnx.TensorProto.BOOL, []),
            *(
                helper.make_tensor_value_info(name, kind, list(value.shape))
                for (name, value), kind in zip(carried.items(), kinds, strict=True)
            ),
        ],
        [
            helper.make_tensor_value_info(out, kind, None)
            for out, kind in zip(results, (onnx.TensorProto.BOOL, *kinds, onnx.TensorProto.BOOL), strict=True)
        ],
        initializer=counting.own,
    )
    given = {fresh("most"): np.array(most, np.int64), fresh("starts"): np.array(True)}
    given |= {fresh("first"): value for value in carried.values()}
    rows = fresh("rows")
    loop = helper.make_node("Loop", list(given), [*(fresh("last") for _ in carried), rows], body=body)
    graph = helper.make_graph(
        [loop],
        "count",
        [],
        [helper.make_tensor_value_info(rows, onnx.TensorProto.BOOL, None)],
        initializer=[numpy_helper.from_array(value, name) for name, value in (*given.items(), *outside.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    try:
        run = run_model(model, {}, runtimes=("onnxruntime",))
    except HostBoundError as error:
        return Trips(number=None, failure=f"counting them took {error.actual}")
    if run.values is None:
        return Trips(number=None, failure=run.reason)
    return Trips(number=int(np.asarray(run.values[0]).shape[0]))
