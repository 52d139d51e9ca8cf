"""Runs of ops that a core takes piece by piece under an SRAM, breadth-first.

A run is an op with the position-wise ops that follow it: a piece of its result goes through them while it is in NRAM.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from compiler.ops.op_facts import GraphFacts, OpFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Ops of a group by their steps; `inputs` come from outside the run, `results` leave it."""

    steps: tuple[int, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]


def runs_of(facts: GraphFacts, ops: Sequence[OpFacts], outputs: Collection[str]) -> tuple[Run, ...]:
    """A group's ops cut into runs, in order; `outputs` leave the group."""
    members = {op.index for op in ops}
    consumers = facts.graph.consumers
    steps: list[list[int]] = []
    for step, op in enumerate(ops):
        before = ops[step - 1] if step else None
        joins = (
            before is not None
            and before.output not in outputs
            and {user for user in consumers.get(before.output, ()) if user in members} == {op.index}
            # units and cores that share out channels share out the same axis of all results
            and op.channel_axis == before.channel_axis
            and _is_pointwise(op, before.output, len(facts.tensors[op.output].shape))
        )
        if joins:
            steps[-1].append(step)
        else:
            steps.append([step])
    runs = []
    for part in steps:
        made = {ops[step].output for step in part}
        inputs = dict.fromkeys(
            o.tensor for step in part for o in ops[step].operands if not o.constant and o.tensor not in made
        )
        last = ops[part[-1]].output
        inside = [ops[step].output for step in part[:-1]]
        results = [name for name in inside if name in outputs]
        runs.append(Run(steps=tuple(part), inputs=tuple(inputs), results=(*results, last)))
    return tuple(runs)


def _is_pointwise(op: OpFacts, through: str, rank: int) -> bool:
    """True if the op goes position by position over the tensor, and over any other operand as well."""
    if op.matrix is not None:
        return False
    read = [operand for operand in op.operands if not operand.constant]
    return any(o.tensor == through for o in read) and all(operand.is_positionwise(rank) for operand in read)
