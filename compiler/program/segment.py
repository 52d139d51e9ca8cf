"""Lowering of one segment: its groups, one after another, become one program (PROG-1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.garbage import collect_new
from compiler.ir.layout import strides_of
from compiler.ops.facts import GraphFacts
from compiler.profile.schema import Profile, beside_residents
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Held, Slot, machine_of, merged
from compiler.program.flat import FlatLowering
from compiler.program.group import GroupLowering
from compiler.program.nested import NestedLowering
from compiler.program.program import Level, Program, Resident, Step
from compiler.program.repeat import Repeats
from compiler.program.staged import StagedLowering
from compiler.program.timing.order import in_time
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of
from compiler.tiling.stationary import resident_part
from compiler.tiling.tile import Tiling


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """A group of a segment as the plan has it: its name, its ops and its tiling."""

    name: str
    ops: tuple[int, ...]
    tiling: Tiling


def lower_segment(
    facts: GraphFacts,
    profile: Profile,
    name: str,
    groups: Sequence[PlannedGroup],
    outputs: frozenset[str],
    resident_bytes: int = 0,
    decoders: Decoders | None = None,
) -> Program:
    """The program of a segment: `outputs` are its tensors that others read; stationary weights take `resident_bytes`.

    Raises LimitError where the plan does not hold what it says.
    """
    machine = machine_of(profile)
    ops = sorted(op for group in groups for op in group.ops)
    made = frozenset(facts.graph.ops[op].output for op in ops)
    context = Context(facts, machine, made, outputs, decoders)
    residents = _place_residents(context, profile, ops, resident_bytes) if profile.is_stationary else []
    beside = profile.beside(resident_bytes)
    steps: list[Step] = []
    repeats = Repeats(context, [(planned.ops, planned.tiling) for planned in groups])
    for number, planned in enumerate(groups):
        numbers = {}
        first = len(steps)
        for op in sorted(planned.ops):
            numbers[op] = len(steps)
            steps.append(Step(group=planned.name, nodes=facts.graph.ops[op].origin, tensor=facts.graph.ops[op].output))
        if repeats.write(number, first):
            continue
        before = repeats.slots
        group = group_of(GroupGeometry(facts, planned.ops), beside, planned.tiling)
        kind: type[GroupLowering] = FlatLowering
        if profile.sram is not None:
            kind = NestedLowering if group.is_nested else StagedLowering
        lowering = kind(context, group, numbers, before)
        lowering.lower()
        repeats.learn(_left(before, lowering.buffers.left()))
        # the two know each other: apart they are freed at once, with all that they know; the rest is found
        del lowering.weights
        del lowering, group
        collect_new()
    commands, streams, offsets, waits, calls, bindings = context.emitter.arrays()
    tables, units = context.finished()
    program = Program(
        name=name,
        places=machine.places,
        queues=machine.queues,
        steps=tuple(steps),
        commands=commands,
        wait_offsets=offsets,
        waits=waits,
        calls=calls,
        bindings=bindings,
        units=units,
        tables=tables,
        regions=tuple(context.region_list),
        residents=tuple(residents),
        addresses=tuple(context.addresses),
    )
    return in_time(program, profile, streams.astype(np.int64))


def _left(before: dict[int, list[Slot]], now: dict[int, list[Slot]]) -> dict[int, list[Slot]]:
    """What the next group has to wait for, place by place: this group's slots, and one slot for all before it."""
    result = dict(before)
    for place, slots in now.items():
        rest = Slot(place, 0, 1 << 62)
        for slot in before.get(place, []):
            rest.touched = merged(merged(rest.touched, slot.touched), slot.barrier)
        result[place] = [*slots, rest] if before.get(place) else list(slots)
    # slots that know each other would not be freed with the last that knows them
    for slots in (*result.values(), *before.values()):
        for slot in slots:
            slot.conflicts = []
    return result


def _place_residents(context: Context, profile: Profile, ops: Sequence[int], resident_bytes: int) -> list[Resident]:
    """Stationary weights at the top of each core's memory, spread by output channels (PROF-2)."""
    level = Level.NRAM
    if profile.wram is not None:
        level = Level.WRAM
    elif profile.nram.weight_bytes is not None:
        level = Level.NRAM_WEIGHTS
    facts = context.facts
    wanted = dict.fromkeys(
        operand.tensor
        for op in ops
        for operand in context.operands(op)
        if operand.constant and operand.gathered is None
    )
    names = sorted(wanted, key=lambda name: -facts.tensors[name].element_bytes)
    first_reader = {
        name: next(op for op in ops if any(o.tensor == name and o.constant for o in facts.ops[op].operands))
        for name in names
    }
    found: list[Resident] = []
    for core in range(profile.cores):
        place = context.machine.place_of[level, core]
        at = beside_residents(context.machine.places[place].capacity_bytes, resident_bytes)
        for name in names:
            op = facts.ops[first_reader[name]]
            operand = next(o for o in op.operands if o.tensor == name and o.constant)
            box = resident_part(facts, op, operand, profile, core)
            region = context.region(name)
            lengths = tuple(stop - start for start, stop in box)
            if any(length <= 0 for length in lengths):
                continue
            element = facts.tensors[name].element_bytes
            strides = strides_of(lengths, context.weight_order(name), element)
            slot = Slot(place, at, element)
            held = Held(slot, at, tuple(start for start, _ in box), strides, box)
            context.residents.setdefault(name, []).append((core, held))
            number = next(i for i, r in enumerate(context.region_list) if r.name == name)
            found.append(
                Resident(
                    place=place,
                    address=at,
                    region=number,
                    starts=tuple(start for start, _ in box),
                    lengths=lengths,
                    strides=strides,
                )
            )
            del region
            size = element
            for length in lengths:
                size *= length
            at += size
    return found
