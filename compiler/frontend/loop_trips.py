"""How often a Loop runs, if that does not depend on the model's inputs (IMPORT-5).

In: a Loop, and the values that are known before it. Out: its number of trips. A condition that the body computes is
followed: the nodes behind it, and what they carry from trip to trip, run by themselves if all of it starts from known
numbers. TensorFlow and JAX write a loop over a text as `while step < steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.runtimes import run_model
from compiler.ops.base import Array

_IR_VERSION: Final = 10
# What counts and compares: of single numbers these make single numbers.
_COMPARING: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Not", "Or", "Xor")
_COMPUTING: Final = ("Abs", "Add", "Div", "Max", "Min", "Mod", "Mul", "Neg", "Sub", "Where")
_PASSING: Final = ("Cast", "Constant", "Identity", "Reshape", "Squeeze", "Unsqueeze")


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
) -> tuple[int | None, frozenset[str]]:
    """How often a Loop of this body runs that begins, `most` at most, and what its nodes make that only count.

    None if its condition depends on values that are not known. `carried` and `outside` are known values by their names
    in the body: what it carries from trip to trip, at first, and what it reads from outside.
    """
    if most <= 0:
        return 0, frozenset()
    fixed = len(body.input) - 2
    carries = {body.input[2 + n].name: body.output[1 + n].name for n in range(fixed)}
    nodes, needed = counting_nodes(body, carries)
    own = {tensor.name: tensor for tensor in body.initializer}
    counter, condition = body.input[0].name, body.input[1].name
    made = {value for node in nodes for value in node.output}
    reads = {value for node in nodes for value in node.input if value} | {carries[name] for name in needed}
    reads = (reads | {body.output[0].name}) - made - {counter, condition, *needed, *own}
    if any(
        node.op_type not in (*_COMPARING, *_COMPUTING, *_PASSING) or node.domain not in ("", "ai.onnx")
        for node in nodes
    ):
        return None, frozenset()
    if not reads <= outside.keys() or not set(needed) <= carried.keys():
        return None, frozenset()
    if any(value.size != 1 for value in (*(outside[n] for n in reads), *(carried[n] for n in needed))):
        return None, frozenset()
    handed = [body.output[0].name, *(carries[name] for name in needed), condition]
    kinds = {name: helper.np_dtype_to_tensor_dtype(carried[name].dtype) for name in needed}
    inner = helper.make_graph(
        [*nodes, *(helper.make_node("Identity", [value], [f"{value} out"]) for value in dict.fromkeys(handed))],
        "count",
        [
            helper.make_tensor_value_info(counter, onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, kinds[name], list(carried[name].shape)) for name in needed),
        ],
        [
            helper.make_tensor_value_info(f"{value} out", kind, None)
            for value, kind in zip(handed, (onnx.TensorProto.BOOL, *kinds.values(), onnx.TensorProto.BOOL), strict=True)
        ],
        initializer=list(own.values()),
    )
    first, given = {name: carried[name] for name in needed}, {name: outside[name] for name in reads}
    return _run(inner, most, first, given, opset), frozenset(made)


def _run(
    body: onnx.GraphProto, most: int, carried: Mapping[str, Array], outside: Mapping[str, Array], opset: int
) -> int | None:
    """Runs a loop of single numbers; None if no runtime runs it."""
    limit, start = np.array(most, np.int64), np.array(True)
    given = {"most trips": limit, "condition at first": start}
    given |= {f"first {name}": value for name, value in carried.items()}
    outputs = [f"last {name}" for name in carried] + ["trips"]
    loop = helper.make_node("Loop", list(given), outputs, body=body)
    graph = helper.make_graph(
        [loop],
        "count",
        [],
        [helper.make_tensor_value_info("trips", onnx.TensorProto.BOOL, None)],
        initializer=[numpy_helper.from_array(value, name) for name, value in (given | dict(outside)).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    values = run_model(model, {}).values
    return None if values is None else int(np.asarray(values[0]).shape[0])
