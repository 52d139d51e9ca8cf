"""Where a unit's operands lie in a core: addresses relative to its memories, the same for every call (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final

from compiler.address.unit import block_of, largest_table_bytes
from compiler.memory.allocate import Buffer, allocate
from compiler.ops.base import Window
from compiler.profile.schema import Profile
from compiler.program.program import Level
from compiler.shapes.routine import RoutineGeometry
from compiler.shapes.unit_library import Placed, UnitBuffers
from compiler.units import ceil_div

# Buffers begin at multiples of this: the widest words of transfers.
_ALIGNMENT: Final = 8


def weight_level(profile: Profile) -> Level:
    """The memory of a core that weights lie in."""
    if profile.wram is not None:
        return Level.WRAM
    return Level.NRAM_WEIGHTS if profile.nram.weight_bytes is not None else Level.NRAM


def unit_buffers(
    geometry: RoutineGeometry, tile: Sequence[int], profile: Profile, others: Sequence[RoutineGeometry] = ()
) -> UnitBuffers | None:
    """Buffers for a tile of the result; None where they do not fit a core.

    Inputs, weights and the result have two where there is room, so that transfers go on beside the call. `others` are
    the routine at other extents, where a tile may need more of a tensor than at the largest.
    """
    extents = geometry.extents(tile)
    for other in others:
        # rows of a table that come one by one elsewhere need no buffer of their own
        its = other.extents(tile)
        extents = {name: tuple(map(max, mine, its.get(name, mine))) for name, mine in extents.items()}
    size = {name: max(_ALIGNMENT, prod(extents[name]) * geometry.facts.tensors[name].element_bytes) for name in extents}
    blocks = _blocks(geometry, extents, profile)
    of_tables = sum(_aligned(placed.size_bytes) for placed in blocks.values())
    between, peak = _between(geometry, size)
    held = (*geometry.inputs, geometry.result)
    level = weight_level(profile)
    activations, weights = profile.nram.capacity_bytes, profile.weight_memory_bytes
    single = _total(size, held) + peak
    of_weights = _total(size, geometry.weights)
    if level is Level.NRAM:
        activations -= of_tables
        copies = next((n for n in (2, 1) if single + (n - 1) * _total(size, held) + of_weights <= activations), 0)
        rest = activations - single - (copies - 1) * _total(size, held)
        weight_copies = 2 if rest >= 2 * of_weights else 1
    else:
        copies = next((n for n in (2, 1) if single + (n - 1) * _total(size, held) <= activations), 0)
        weight_copies = next((n for n in (2, 1) if n * of_weights + of_tables <= weights), 0)
    if not copies or not weight_copies:
        return None
    placed, end = _placed(held, size, extents, Level.NRAM, copies, peak)
    for name, address in between.items():
        placed[name] = Placed(level=Level.NRAM, extents=extents[name], addresses=(address,), size_bytes=size[name])
    begin = end if level is Level.NRAM else 0
    of_them, weight_end = _placed(geometry.weights, size, extents, level, weight_copies, begin)
    for name, block in blocks.items():
        of_them[name] = replace(block, level=level, addresses=(weight_end,))
        weight_end += _aligned(block.size_bytes)
    return UnitBuffers(
        placed=MappingProxyType(placed | of_them),
        activation_bytes=end,
        weight_bytes=weight_end - begin,
    )


def addresses_name(geometry: RoutineGeometry, output: str) -> str:
    """What the address table of the op that makes a tensor is called among the buffers of a unit: no tensor is."""
    name = f"{output}:addresses"
    while name in geometry.facts.tensors:
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
        found[addresses_name(geometry, op.output)] = Placed(
            level=Level.NRAM,
            extents=block_of(output),
            addresses=(0,),
            size_bytes=largest_table_bytes(op.window, output),
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
