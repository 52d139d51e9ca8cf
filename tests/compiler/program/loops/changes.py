"""Programs of loops changed in one place: the proof has to find what is wrong with the expanded program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from compiler.program.loops.loops import MAX_COUNTERS, TERM
from compiler.program.program import Program

KINDS = (
    "wait dropped",
    "wait weakened",
    "wait for another",
    "address",
    "start",
    "term",
    "new term",
    "ring",
    "run",
    "stage",
    "queue",
    "extent",
)


def changed(program: Program, kind: str, random: np.random.Generator) -> Program | None:
    """The program with one number changed; None where it has none of the kind."""

    def pick(values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    loops = program.loops
    step = int(pick((-64, -16, -8, -4, -2, -1, 1, 2, 4, 8, 16, 64)))
    count = len(program.commands)
    if kind.startswith("wait"):
        if not len(program.waits):
            return None
        at = int(random.integers(len(program.waits)))
        if kind == "wait dropped":
            owner = int(np.searchsorted(program.wait_offsets, at, side="right")) - 1
            offsets = program.wait_offsets.copy()
            offsets[owner + 1 :] -= 1
            distances = np.delete(loops.distances, at)
            return replace(
                program,
                waits=np.delete(program.waits, at),
                wait_offsets=offsets,
                loops=replace(loops, distances=distances),
            )
        if kind == "wait weakened":
            distances = loops.distances.copy()
            distances[at] += abs(step) if random.random() < 0.3 else 1
            return replace(program, loops=replace(loops, distances=distances))
        waits = program.waits.copy()
        waits[at] = random.integers(count)
        return replace(program, waits=waits)
    if kind in ("address", "queue"):
        commands = program.commands.copy()
        at = int(random.integers(count))
        if kind == "queue":
            commands["queue"][at] = random.integers(len(program.queues))
        elif commands["call"][at] >= 0:
            call = program.calls[commands["call"][at]]
            bindings = program.bindings.copy()
            bindings["address"][call["first"] + random.integers(call["count"])] += step
            return replace(program, bindings=bindings)
        else:
            commands[pick(("source_address", "target_address"))][at] += step
        return replace(program, commands=commands)
    if kind in ("start", "extent"):
        if not len(program.bindings):
            return None
        bindings = program.bindings.copy()
        name = "starts" if kind == "start" else pick(("lengths", "strides"))
        bindings[name][random.integers(len(bindings)), random.integers(4)] += int(pick((-4, -1, 1, 4)))
        return replace(program, bindings=bindings)
    if kind == "stage":
        statements = loops.statements.copy()
        statements["stage"][random.integers(count)] += int(pick((-2, -1, 1, 2)))
        return replace(program, loops=replace(loops, statements=statements))
    if kind == "run":
        if not len(loops.runs):
            return None
        runs = loops.runs.copy()
        runs[pick(("first", "step", "count"))][random.integers(len(runs))] += int(pick((-2, -1, 1, 2)))
        return replace(program, loops=replace(loops, runs=runs))
    if kind == "ring":
        if not len(loops.rings):
            return None
        rings = loops.rings.copy()
        at, name = int(random.integers(len(rings))), pick(("size", "modulus", "base", "coefficients"))
        if name == "coefficients":
            rings[name][at, random.integers(max(1, int(loops.spaces["counters"].max())))] += int(pick((-1, 1, 2)))
        else:
            rings[name][at] += step if name == "size" else int(pick((-1, 1, 2)))
        return replace(program, loops=replace(loops, rings=rings))
    if kind == "term":
        if not len(loops.terms):
            return None
        terms = loops.terms.copy()
        terms["coefficient"][random.integers(len(terms))] += step
        return replace(program, loops=replace(loops, terms=terms))
    assert kind == "new term"
    at = int(random.integers(count))
    counters = int(loops.spaces["counters"][loops.statements["space"][at]])
    begin, stop = loops.term_offsets[at : at + 2].tolist()
    if not counters:
        return None
    is_call = program.commands["call"][at] >= 0
    bound = int(program.calls["count"][program.commands["call"][at]]) if is_call else 0
    field = int(random.integers(2, 2 + MAX_COUNTERS + 9 * bound)) if is_call else int(random.integers(2))
    new = (field, int(random.integers(counters)), step)
    its = [*loops.terms[begin:stop].tolist(), new]
    if len({row[:2] for row in its}) < len(its):
        return None
    offsets = loops.term_offsets.copy()
    offsets[at + 1 :] += 1
    terms = np.concatenate([loops.terms[:begin], np.array(sorted(its), dtype=TERM), loops.terms[stop:]])
    return replace(program, loops=replace(loops, terms=terms, term_offsets=offsets))
