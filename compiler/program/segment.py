"""Lowering of one segment: its groups, one after another, become one program (PROG-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.address.stored import AddressTables
from compiler.garbage import collect_new
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import machine_of
from compiler.program.flat import FlatLowering
from compiler.program.group import GroupLowering
from compiler.program.nested import NestedLowering
from compiler.program.program import Program, Resident, Step
from compiler.program.repeat import Repeats
from compiler.program.residents import place_residents, resident_parts
from compiler.program.slots import Slot, merged
from compiler.program.staged import StagedLowering
from compiler.program.timing.order import in_time
from compiler.program.timing.timeline import Timeline
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of
from compiler.tiling.tile import Tiling
from compiler.tiling.tiled import TiledGroup


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
    address_tables: AddressTables | None = None,
) -> Timeline:
    """A segment's program and its timeline.

    `outputs` are its tensors that others read; stationary weights take `resident_bytes`.

    Raises LimitError where the plan does not hold what it says.
    """
    machine = machine_of(profile)
    ops = sorted(op for group in groups for op in group.ops)
    made = frozenset(facts.graph.ops[op].output for op in ops)
    context = Context(facts, machine, made, outputs, decoders, address_tables)
    residents: list[Resident] = []
    if profile.is_stationary:
        residents = place_residents(context, profile, resident_parts(context, profile, ops, resident_bytes))
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
        lowering = lowering_of(context, group, numbers, before)
        lowering.lower()
        repeats.learn(_left(before, lowering.buffers.left()))
        # the two know each other: apart they are freed at once, with all that they know; the rest is found
        del lowering.weights, lowering.brings, lowering.body
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


def lowering_of(
    context: Context, group: TiledGroup, steps: Mapping[int, int], before: dict[int, list[Slot]]
) -> GroupLowering:
    """The lowering of a group, by how its chip and its tiling have it worked on; arguments as `GroupLowering` has."""
    kind: type[GroupLowering] = FlatLowering
    if group.profile.sram is not None:
        kind = NestedLowering if group.is_nested else StagedLowering
    return kind(context, group, steps, before)


def _left(before: dict[int, list[Slot]], now: dict[int, list[Slot]]) -> dict[int, list[Slot]]:
    """What the next group has to wait for, place by place: one slot for all of this group at the same bytes, and one
    for all before it."""
    result = dict(before)
    for place, slots in now.items():
        found: dict[tuple[int, int], Slot] = {}
        for slot in slots:
            key = (slot.address, slot.size_bytes)
            known = found[key] = found.get(key) or Slot(place, *key)
            known.succeed(slot)
            known.barrier = merged(known.barrier, slot.barrier)
            slot.part()
        rest = Slot(place, 0, 1 << 62)
        for slot in before.get(place, []):
            rest.touched = merged(merged(rest.touched, slot.touched), slot.barrier)
        for slot in found.values():
            slot.touched = slot.writers = slot.before
        result[place] = [*found.values(), rest] if before.get(place) else list(found.values())
    return result
