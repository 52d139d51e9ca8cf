"""Attention: softmax(Q·Kᵀ scaled and masked)·V (IMPORT-2). It is recorded, not replaced.

No single op represents it: its parts tile by query rows through their own axis maps. The record lists its ops, from the
scaling of Q and K, if any, to the product with V, so that later stages can keep them together.
"""

from __future__ import annotations

from typing import Final

from compiler.frontend.patterns.graph_queries import Lookup
from compiler.ir.graph import Op

# Largest number of ops between the products and the softmax.
_BEFORE: Final = 8
_AFTER: Final = 6


def find_attention(lookup: Lookup, index: int) -> tuple[int, ...] | None:
    """The ops of the attention around the softmax `index`, in execution order; None if there is no attention.

    1. The softmax is over the last axis. Its scores come from a matrix product whose second factor is computed.
    2. Between the two: a scaling by one constant, a mask (added, or chosen by Where against one constant), a soft
       cap (Tanh), a lower bound, conversions, and views that keep the last two axes.
    3. Its result is the left factor of one product with a computed matrix. In between it may be converted, viewed, or
       have NaN (or masked elements) replaced by a constant.
    4. No other op reads the values in between, and these are no graph outputs.
    """
    softmax = lookup.graph.ops[index]
    rank = len(lookup.tensor(softmax.output).shape)
    if dict(softmax.attributes).get("axes") != (rank - 1,):
        return None
    after = _weighted_sum(lookup, softmax.output)
    before = _scores(lookup, softmax.inputs[0], _BEFORE) if after is not None else None
    if before is None or after is None:
        return None
    ops = (*before, index, *after)
    return tuple(sorted(ops)) if lookup.is_closed(ops) else None


def _scores(lookup: Lookup, name: str, steps: int) -> tuple[int, ...] | None:
    """The ops from the scaling of Q and K to `name`."""
    maker = lookup.maker(name)
    if maker is None or not steps:
        return None
    op = lookup.graph.ops[maker]
    if op.kind == "MatMul":
        return (*_scalings(lookup, op, maker), maker) if _is_product(lookup, op) else None
    for operand in _operands(lookup, op):
        found = _scores(lookup, operand, steps - 1) if _keeps_rows(lookup, op, operand) else None
        if found is not None:
            return (*found, maker)
    return None


def _operands(lookup: Lookup, op: Op) -> tuple[str, ...]:
    """The inputs that may carry the scores, of an op between scores and softmax."""
    match op.kind:
        case "Cast" | "Tanh" | "Reshape":
            return op.inputs
        case "Mul" | "Div" | "Max":
            return _scaled(lookup, op)
        case "Add" | "Sum":
            return op.inputs if len(op.inputs) == 2 else ()
        case "Sub":
            return op.inputs[:1]
        case "Where":
            return _chosen(lookup, op)
        case _:
            return ()


def _scaled(lookup: Lookup, op: Op) -> tuple[str, ...]:
    """The input that an op multiplies with, divides by or compares with one constant; empty if there is none."""
    split = lookup.split(op)
    if split is None or (op.kind == "Div" and split[0] != op.inputs[0]):
        return ()
    return split[:1]


def _chosen(lookup: Lookup, op: Op) -> tuple[str, ...]:
    """The other choice of a Where with exactly one constant choice; empty for any other Where."""
    constants = [name for name in op.inputs[1:] if lookup.scalar(name) is not None]
    return tuple(name for name in op.inputs[1:] if name not in constants) if len(constants) == 1 else ()


def _keeps_rows(lookup: Lookup, op: Op, operand: str) -> bool:
    """True if the result has the rows and columns of the operand."""
    before, after = lookup.tensor(operand).shape, lookup.tensor(op.output).shape
    return before[-2:] == after[-2:] and (op.kind == "Reshape" or before == after)


def _is_product(lookup: Lookup, op: Op) -> bool:
    """True for a product of matrices (not vectors) whose second factor is computed."""
    left, right = (lookup.tensor(name) for name in op.inputs)
    return min(len(left.shape), len(right.shape)) >= 2 and right.constant is None


def _scalings(lookup: Lookup, product: Op, index: int) -> tuple[int, ...]:
    """The ops that scale Q and K by a constant for this product only."""
    found = []
    for name in product.inputs:
        maker = lookup.maker(name, "Mul", "Div")
        if maker is not None and lookup.sole_reader(name) == index and _scaled(lookup, lookup.graph.ops[maker]):
            found.append(maker)
    return tuple(found)


def _weighted_sum(lookup: Lookup, name: str) -> tuple[int, ...] | None:
    """The ops from the softmax's result `name` to the product with V, inclusive."""
    found: list[int] = []
    for _ in range(_AFTER):
        step = _step(lookup, name)
        if step is None:
            return None
        found.extend(step)
        op = lookup.graph.ops[step[-1]]
        if op.kind == "MatMul":
            return tuple(found) if op.inputs[0] == name != op.inputs[1] and _is_product(lookup, op) else None
        name = op.output
    return None


def _step(lookup: Lookup, name: str) -> tuple[int, ...] | None:
    """The ops that read the weights `name` before the product; the last one makes the next value."""
    readers = lookup.readers(name)
    ops = [lookup.graph.ops[reader] for reader in readers]
    if [op.kind for op in ops] == ["IsNaN", "Where"]:
        return readers if _chosen(lookup, ops[1]) == (name,) else None
    if len(readers) != 1:
        return None
    if ops[0].kind == "MatMul":
        return readers
    allowed = ops[0].kind in ("Cast", "Reshape", "Mul", "Div", "Where")
    return readers if allowed and name in _operands(lookup, ops[0]) and _keeps_rows(lookup, ops[0], name) else None
