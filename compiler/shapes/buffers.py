"""Where a unit's operands lie in a core: addresses relative to its memories, the same for every call (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Final

from compiler.address.unit import block_of, largest_table_bytes
from compiler.memory.allocate import Buffer, allocate
from compiler.ops.base import Window
from compiler.profile.schema import Profile
from compiler.program.program import Level
from compiler.program.residents import weight_level
from compiler.shapes.routine import RoutineGeometry
from compiler.shapes.unit_library import Placed, UnitBuffers
from compiler.units import ceil_div

# Buffers begin at multiples of this: the widest words of transfers.
_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Needs:
    """What a call needs of a core: bytes by tensor, room for address tables, and what lies between ops.

    `held` come and go with the call, `brought` are the weights that do; `alone`: bytes of activations if each has one
    buffer.
    """

    extents: Mapping[str, tuple[int, ...]]
    size: Mapping[str, int]
    held: tuple[str, ...]
    brought: tuple[str, ...]
    tables: Mapping[str, Placed]
    between: Mapping[str, int]
    peak: int
    alone: int
    weights: int
    table_bytes: int


def unit_buffers(
    geometry: RoutineGeometry,
    tile: Sequence[int],
    profile: Profile,
    others: Sequence[RoutineGeometry] = (),
    in_place: Collection[str] = (),
) -> UnitBuffers | None:
    """Buffers for a tile of the result; None where they do not fit a core.

    Inputs, weights and the result have two where there is room, so that transfers go on beside the call. `others` are
    the routine at other extents, where a tile may need more of a tensor than at the largest. `in_place`: weights that
    lie in every core anyway and need no buffer.
    """
    needs, level = _needs(geometry, tile, profile, others, in_place), weight_level(profile)
    activations, weights = profile.nram.capacity_bytes, profile.weight_memory_bytes
    again = _total(needs.size, needs.held)
    if level is Level.NRAM:
        activations -= needs.table_bytes
        copies = next((n for n in (2, 1) if needs.alone + (n - 1) * again + needs.weights <= activations), 0)
        rest = activations - needs.alone - (copies - 1) * again
        weight_copies = 2 if rest >= 2 * needs.weights else 1
    else:
        copies = next((n for n in (2, 1) if needs.alone + (n - 1) * again <= activations), 0)
        weight_copies = next((n for n in (2, 1) if n * needs.weights + needs.table_bytes <= weights), 0)
    if not copies or not weight_copies:
        return None
    size, extents = needs.size, needs.extents
    placed, end = _placed(needs.held, size, extents, Level.NRAM, copies, needs.peak)
    for name, address in needs.between.items():
        placed[name] = Placed(level=Level.NRAM, extents=extents[name], addresses=(address,), size_bytes=size[name])
    begin = end if level is Level.NRAM else 0
    of_them, weight_end = _placed(needs.brought, size, extents, level, weight_copies, begin)
    for name, block in needs.tables.items():
        of_them[name] = replace(block, level=level, addresses=(weight_end,))
        weight_end += _aligned(block.size_bytes)
    return UnitBuffers(
        placed=MappingProxyType(placed | of_them),
        activation_bytes=end,
        weight_bytes=weight_end - begin,
    )


def shortage(
    geometry: RoutineGeometry,
    tile: Sequence[int],
    profile: Profile,
    others: Sequence[RoutineGeometry] = (),
    in_place: Collection[str] = (),
) -> tuple[str, int, int] | None:
    """The field of the profile that a tile's buffers exceed, bytes needed and available; None where they fit."""
    needs, level = _needs(geometry, tile, profile, others, in_place), weight_level(profile)
    of_weights = needs.weights + needs.table_bytes
    activations = needs.alone + (of_weights if level is Level.NRAM else 0)
    if activations > profile.nram.capacity_bytes:
        return "nram.capacity_bytes", activations, profile.nram.capacity_bytes
    if level is not Level.NRAM and of_weights > profile.weight_memory_bytes:
        field = "wram.capacity_bytes" if level is Level.WRAM else "nram.weight_bytes"
        return field, of_weights, profile.weight_memory_bytes
    return None


def _needs(
    geometry: RoutineGeometry,
    tile: Sequence[int],
    profile: Profile,
    others: Sequence[RoutineGeometry],
    in_place: Collection[str],
) -> _Needs:
    extents = geometry.extents(tile)
    for other in others:
        # rows of a table that come one by one elsewhere need no buffer of their own
        its = other.extents(tile)
        extents = {name: tuple(map(max, mine, its.get(name, mine))) for name, mine in extents.items()}
    size = {name: max(_ALIGNMENT, prod(extents[name]) * geometry.facts.tensors[name].element_bytes) for name in extents}
    held = (*geometry.inputs, geometry.result)
    brought = tuple(name for name in geometry.weights if name not in in_place)
    tables = _blocks(geometry, extents, profile)
    between, peak = _between(geometry, size)
    return _Needs(
        extents=extents,
        size=size,
        held=held,
        brought=brought,
        tables=tables,
        between=between,
        peak=peak,
        alone=_total(size, held) + peak,
        weights=_total(size, brought),
        table_bytes=sum(_aligned(placed.size_bytes) for placed in tables.values()),
    )


def addresses_name(tensors: Collection[str], output: str) -> str:
    """What the address table of the op that makes a tensor is called among the buffers of a unit: no tensor is."""
    name = f"{output}:addresses"
    while name in tensors:
        name += "'"
    return name


def _blocks(geometry: RoutineGeometry, extents: Mapping[str, tuple[int, ...]], profile: Profile) -> dict[str, Placed]:
    """By name room for the address tables of ops with windows, each for a block of output positions (ADDR-5).

    They lie with the weights and depend on the buffers' strides alone, so all calls of a unit use them.
    """
    found: dict[str, Placed] = {}
    for op in geometry.ops if profile.addressing == "tables" else ():
        if op.window is None or op.operands[0].constant or _is_plain(op.window):
            continue
        output = extents[op.output]
        data = geometry.facts.tensors[op.operands[0].tensor]
        size = largest_table_bytes(op.window, output, data.shape, data.order)
        if size:
            found[addresses_name(geometry.facts.tensors, op.output)] = Placed(
                level=Level.NRAM, extents=block_of(output), addresses=(0,), size_bytes=size
            )
    return found


def _is_plain(window: Window) -> bool:
    """True if each position reads one element at its own place: no table is needed."""
    return set(window.kernel) | set(window.strides) == {1}


def _between(geometry: RoutineGeometry, size: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Addresses of what lies between ops, by lifetimes, and how much they take."""
    last = {name: step for step, op in enumerate(geometry.ops) for name in (o.tensor for o in op.operands)}
    buffers = [
        Buffer(name=name, size_bytes=size[name], begin=step, end=last.get(name, step) + 1, alignment_bytes=_ALIGNMENT)
        for step, name in enumerate(geometry.made[:-1])
    ]
    if not buffers:
        return {}, 0
    found = allocate(buffers)
    return dict(found.addresses), _aligned(found.peak_bytes)


def _placed(
    names: Sequence[str],
    size: Mapping[str, int],
    extents: Mapping[str, tuple[int, ...]],
    level: Level,
    copies: int,
    begin: int,
) -> tuple[dict[str, Placed], int]:
    """Buffers one after another, and where they end."""
    placed = {}
    for name in names:
        step = _aligned(size[name])
        addresses = tuple(begin + turn * step for turn in range(copies))
        placed[name] = Placed(level=level, extents=extents[name], addresses=addresses, size_bytes=size[name])
        begin += copies * step
    return placed, begin


def _total(size: Mapping[str, int], names: Sequence[str]) -> int:
    return sum(_aligned(size[name]) for name in names)


def _aligned(size: int) -> int:
    return ceil_div(size, _ALIGNMENT) * _ALIGNMENT
