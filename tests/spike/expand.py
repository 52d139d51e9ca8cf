"""Statements expanded to a program of today's commands, which today's verifier, clock and simulator judge."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Program, Step
from tests.spike.statements import ENTRY, Looped, Position, Statement

Instance = tuple[Position, int, Statement, tuple[int, ...]]


def expanded(found: Looped) -> list[Instance]:
    """All commands with their positions, in an order in which each comes after what it waits for."""
    result = []
    for statement in found.statements:
        result += [(position, statement.queue, statement, local) for position, local in found.instances(statement)]
    return sorted(result, key=lambda entry: (entry[0], entry[1]))


def target_of(wait: Position, position: Position, stage: int, entry: int) -> Position:
    """The position that an instance at a position waits for; `entry`: when what is done once is."""
    if wait.iteration <= ENTRY:
        return wait._replace(iteration=entry)
    return wait._replace(iteration=position.iteration + stage + wait.iteration)


def firsts_of(found: Looped) -> Program:
    """The first command of every statement, in the order of statements, without waits: what each of them takes."""
    order = []
    for statement in found.statements:
        local = tuple(run.first for run in statement.runs)
        order.append((Position(0, 0, 0), statement.queue, statement, local))
    return _program(found, order, has_waits=False)


def corners_of(found: Looped) -> Program:
    """The commands of every statement at the ends of all its runs, and beside the first for the other of two buffers.

    Between them addresses lie in between.
    """
    order = []
    for statement in found.statements:
        ends = ({r.first + r.step * at for at in (0, min(1, r.tiles - 1), r.tiles - 1)} for r in statement.runs)
        order += [(Position(0, 0, 0), statement.queue, statement, local) for local in product(*ends)]
    return _program(found, order, has_waits=False)


def program_of(found: Looped) -> Program:
    """The expanded program."""
    return _program(found, expanded(found), has_waits=True)


def _program(found: Looped, order: list[Instance], *, has_waits: bool) -> Program:
    context = found.actions.context
    positions: dict[int, list[Position]] = defaultdict(list)
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, (position, queue, _, _) in enumerate(order):
        positions[queue].append(position)
        numbers[queue].append(number)
    commands = np.zeros(len(order), dtype=COMMAND)
    calls: list[tuple[int, ...]] = []
    bindings: list[tuple[Any, ...]] = []
    waits: list[int] = []
    offsets = [0]
    for number, (position, _, statement, local) in enumerate(order):
        row, key = commands[number], statement.key
        values = statement.numbers(local) if statement.unit is not None else statement.base
        assert values is not None
        row["opcode"], row["queue"], row["step"], row["call"] = key[1], key[2], key[3], -1
        row["source"] = row["target"] = -1
        row["counts"] = 1
        if key[0] == "copy":
            row["source"], row["target"], row["targets"] = key[4:7]
            row["run_bytes"], row["counts"], row["source_strides"], row["target_strides"] = key[7]
            row["source_address"], row["target_address"] = values
        else:
            sides = key[5]
            box = tuple((start, start + side) for start, side in zip(values, sides, strict=False))
            entry = context.entry(key[4], box)
            row["call"], row["run_bytes"], row["counts"] = len(calls), 0, 0
            calls.append((key[4], entry, len(bindings), len(key[-1])))
            at = len(sides)
            for operand, place, lengths, strides, _ in key[-1]:
                rest = (0,) * (MAX_AXES - len(lengths))
                starts = values[at + 1 : at + 1 + len(lengths)]
                bindings.append((operand, place, values[at], (*starts, *rest), (*lengths, *rest), (*strides, *rest)))
                at += 1 + len(lengths)
        its = set()
        for wait in statement.waits if has_waits else ():
            target = target_of(wait.position, position, statement.stage, found.entry)
            past = bisect_left(positions[wait.queue], target._replace(place=target.place + 1))
            if past:
                its.add(numbers[wait.queue][past - 1])
        waits += sorted(its)
        offsets.append(len(waits))
    tables, units = context.finished()
    ops = found.actions.group.geometry.ops
    graph = context.graph
    steps = tuple(Step(group="g", nodes=graph.ops[op.index].origin, tensor=graph.ops[op.index].output) for op in ops)
    machine = context.machine
    return Program(
        name="spike",
        places=machine.places,
        queues=machine.queues,
        steps=steps,
        commands=commands,
        wait_offsets=np.array(offsets, dtype=np.int32),
        waits=np.array(waits, dtype=np.int32),
        calls=np.array(calls, dtype=CALL),
        bindings=np.array(bindings, dtype=BINDING),
        units=units,
        tables=tables,
        regions=tuple(context.region_list),
        residents=(),
        addresses=tuple(context.addresses),
    )
