"""Stationary weights in the cores before a program runs: which part of each lies where (PROF-2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import NamedTuple

from compiler.ir.layout import strides_of
from compiler.ops.slab import lengths
from compiler.profile.schema import Profile, beside_residents
from compiler.program.buffers import in_slot
from compiler.program.context import Context
from compiler.program.emitter import Box, overlap
from compiler.program.known import Known
from compiler.program.program import Level, Resident
from compiler.program.slots import Slot
from compiler.tiling.stationary import resident_boxes, resident_weights


class ResidentPart(NamedTuple):
    """A box of a weight in one core: its address there, and the byte stride of each axis."""

    name: str
    core: int
    address: int
    box: Box
    strides: tuple[int, ...]


def weight_level(profile: Profile) -> Level:
    """The memory of a core that weights lie in."""
    if profile.wram is not None:
        return Level.WRAM
    return Level.NRAM_WEIGHTS if profile.nram.weight_bytes is not None else Level.NRAM


def resident_parts(
    context: Context,
    profile: Profile,
    ops: Sequence[int],
    resident_bytes: int,
    without: Collection[str] = (),
) -> tuple[ResidentPart, ...]:
    """The weights of a segment at the top of each core's memory, spread by output channels, widest elements first.

    `resident_bytes`: what they take in the fullest core. `without`: weights that are left where they are.
    """
    facts, level = context.facts, weight_level(profile)
    weights = {name: reader for name, reader in resident_weights(facts, ops).items() if name not in without}
    names = sorted(weights, key=lambda name: -facts.tensors[name].element_bytes)
    boxes = {name: resident_boxes(facts, *weights[name], profile) for name in names}
    # by weight and lengths of a part: most cores have as much
    strides = Known[tuple[str, tuple[int, ...]], tuple[int, ...]](
        lambda key: strides_of(key[1], context.weight_order(key[0]), facts.tensors[key[0]].element_bytes)
    )
    found: list[ResidentPart] = []
    for core in range(profile.cores):
        place = context.machine.place_of[level, core]
        at = beside_residents(context.machine.places[place].capacity_bytes, resident_bytes)
        for name in names:
            box = boxes[name][core]
            sides = lengths(box)
            if min(sides, default=1) <= 0:
                continue
            found.append(ResidentPart(name, core, at, box, strides[name, sides]))
            at += prod(sides) * facts.tensors[name].element_bytes
    return tuple(found)


def place_residents(context: Context, profile: Profile, parts: Iterable[ResidentPart]) -> list[Resident]:
    """Tell a program of the parts: the context of who holds them, the result of what lies there before it runs.

    Where a weight is smaller than the parts were made for, those hold its leading part.
    """
    level = weight_level(profile)
    numbers: dict[str, int] = {}
    wholes = Known[str, Box](lambda name: tuple([(0, extent) for extent in context.shape(name)]))
    found: list[Resident] = []
    for part in parts:
        box = overlap(part.box, wholes[part.name])
        if box is None:
            continue
        context.region(part.name)
        if part.name not in numbers:
            numbers |= {region.name: number for number, region in enumerate(context.region_list)}
        place = context.machine.place_of[level, part.core]
        slot = Slot(place, part.address, context.element_bytes(part.name))
        held = in_slot(slot, part.strides, part.box).part(box)
        context.residents.setdefault(part.name, []).append((part.core, held))
        found.append(
            Resident(
                place=place,
                address=held.at(box),
                region=numbers[part.name],
                starts=tuple([start for start, _ in box]),
                lengths=lengths(box),
                strides=part.strides,
            )
        )
    return found
