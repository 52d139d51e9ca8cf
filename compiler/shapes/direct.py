"""Runs a model for ranges of shapes by its parameter tables, call by call, on arrays (SHAPE-10).

This is what a small loader does: no commands, no addresses, but the same tables, the same boxes and the same
definitions of ops that programs are made and simulated with. It needs numpy and the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.errors import RequestError, printable
from compiler.ir.constant import Opaque
from compiler.ir.graph import Graph
from compiler.ops import call_of, definition
from compiler.ops.base import Call, OpKind
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.ops.slab import Box, Slab, is_empty
from compiler.shapes.instance import Values, graph_at
from compiler.shapes.model import ShapeModel
from compiler.shapes.prepared import ShapeTables, tables_for
from compiler.shapes.routine import Calls, RoutineGeometry
from compiler.units import numpy_dtype

Array = NDArray[Any]


def run_directly(
    model: ShapeModel, values: Values, inputs: Mapping[str, Array], prepared: Sequence[ShapeTables] = ()
) -> dict[str, Array]:
    """The outputs of a model, by ONNX name, for inputs by ONNX name; `values` gives the elements of constants.

    Tables that were made beforehand for the shape are used, else simple ones.

    Raises RequestError for inputs that the model does not have or take, for indices outside of the table that an op
    reads, and for a model with nodes of the host.
    """
    for part in model.parts:
        if part.is_host:
            node = model.graph.ops[part.ops[0]].node
            raise RequestError(
                f"node {printable(node, 120)!r} runs on the host, which a loader has no runtime for",
                code="host_node",
                stage="run",
                node=node,
                hint="Run the package with an installation of Tessera",
            )
    dims = model.dims_of({name: a.shape for name, a in inputs.items()}, partial=False)
    graph = graph_at(model.graph, dims, values)
    arrays: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        given = np.asarray(inputs[name])
        if given.dtype != numpy_dtype(tensor.dtype):
            raise RequestError(
                f"input {printable(name, 80)!r} is of another element type",
                code="wrong_input",
                stage="run",
                actual=str(given.dtype),
                limit=tensor.dtype,
            )
        arrays[name] = given
    for name, tensor in graph.tensors.items():
        if tensor.constant is not None and not isinstance(tensor.constant.data, Opaque):
            arrays[name] = values(tensor.constant)
    facts = graph_facts(graph)
    tables = tables_for(prepared, dims)
    for part in model.parts:
        for number in part.routines:
            result = graph.ops[model.libraries[number].routine.ops[-1]].output
            shape = graph.tensors[result].shape
            table = model.simple_table(number, model.problem(number, dims)) if tables is None else tables[number]
            calls = model.calls(number, shape, table)
            arrays[result] = _run_routine(facts, graph, calls, arrays)
    return {
        name: np.array(arrays[tensor]) for name, tensor in zip(graph.output_names, graph.output_tensors, strict=True)
    }


def _run_routine(facts: GraphFacts, graph: Graph, calls: Calls, arrays: Mapping[str, Array]) -> Array:
    """The result of a routine, box by box; what lies between its ops is nowhere but in the call."""
    geometry = RoutineGeometry(facts, calls.routine.ops)
    tensor = graph.tensors[geometry.result]
    made = np.zeros(tensor.shape, dtype=numpy_dtype(tensor.dtype))
    ops = [_with_maps(graph, op) for op in calls.routine.ops]
    if any(kind.gathered(call) for kind, call in ops):
        return _whole(ops, arrays)
    boxes = geometry.boxes(calls.starts, calls.lengths)
    ranges = {name: np.stack([begin, end], axis=2).tolist() for name, (begin, end) in boxes.items()}
    for row in range(len(calls.starts)):
        at_hand: dict[str, Slab] = {}
        for kind, call in ops:
            box = _box(ranges[call.result.name][row])
            operands = tuple(
                None if one is None else _operand(one.name, ranges, row, at_hand, arrays) for one in call.inputs
            )
            known = {
                i: slab.values for i, slab in enumerate(operands) if slab is not None and i in kind.constant_inputs
            }
            use = replace(call, values=known) if known else call
            with _indices_inside(call):
                at_hand[call.result.name] = Slab(box, kind.compute_box(use, box, operands))
        box = at_hand[geometry.result].ranges
        made[tuple(slice(start, stop) for start, stop in box)] = at_hand[geometry.result].values
    return made


def _whole(ops: list[tuple[OpKind, Call]], arrays: Mapping[str, Array]) -> Array:
    """Ops that read rows of a table through indices, all at once: their rows come from anywhere."""
    at_hand = dict(arrays)
    for kind, call in ops:
        with _indices_inside(call):
            found = kind.evaluate(call, tuple(None if one is None else at_hand[one.name] for one in call.inputs))
        assert found is not None
        at_hand[call.result.name] = found
    return at_hand[ops[-1][1].result.name]


@contextmanager
def _indices_inside(call: Call) -> Iterator[None]:
    """Raises RequestError for an index that the inputs give an op and that lies outside of what it reads."""
    try:
        yield
    except IndexError as error:
        raise RequestError(
            "an index is outside of the table that the op reads",
            code="index_out_of_range",
            stage="run",
            node=call.node,
            op_type=call.op_type,
            actual=str(error),
            limit="from minus the extent to below it",
            hint="Indices are part of the model's inputs: give others",
        ) from error


def _with_maps(graph: Graph, number: int) -> tuple[OpKind, Call]:
    op = graph.ops[number]
    kind, call = definition(op), call_of(graph, op)
    return kind, replace(call, maps=kind.access(call))


def _operand(
    name: str, ranges: Mapping[str, list[Any]], row: int, at_hand: Mapping[str, Slab], arrays: Mapping[str, Array]
) -> Slab | None:
    """An operand's box: made by an op of the routine before, or cut from the whole tensor."""
    if name in at_hand:
        return at_hand[name]
    if name not in ranges:
        return Slab(tuple((0, extent) for extent in arrays[name].shape), arrays[name])
    box = _box(ranges[name][row])
    if is_empty(box):
        return None
    return Slab(box, arrays[name][tuple(slice(start, stop) for start, stop in box)])


def _box(ranges: Any) -> Box:
    return tuple((start, stop) for start, stop in ranges)
