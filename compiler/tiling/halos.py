"""Halos that units pass each other: bytes, and bytes times the links they cross (TILE-3, TILE-4)."""

from __future__ import annotations

import numpy as np

from compiler.cost.rates import mesh_columns
from compiler.ir.box import Ints
from compiler.ops.op_facts import OpFacts
from compiler.tiling.placement import AxisOverlap, Placement, exchange_matrix, exchanged_elements, mesh_hops
from compiler.tiling.tile import HaloMode
from compiler.tiling.tiled import TiledGroup


def halos_of(group: TiledGroup, op: OpFacts) -> tuple[int, int]:
    """Halo bytes that units pass each other of an op's result and of the inputs it reads first, and bytes × links."""
    if not group.exchanges or group.walk.units == 1:
        return 0, 0
    names = [op.output, *group.geometry.first_readers.get(op.index, ())]
    total = hops = 0
    for name in names:
        moved, linked = exchanged_halo(group, name)
        total, hops = total + moved, hops + linked
    return total, hops


def halos_between_cores(group: TiledGroup, name: str) -> int:
    """Bytes of a tensor that cores of one unit pass each other in exchange mode: what each would else make again.

    In step they pass all that they need and do not make; where it waits in the SRAM it is counted there.
    """
    inside, rows = group.core_frustums, group.walk.rows or ""
    if rows in inside.tiles and inside.tiles[rows].both_ways:
        passed = inside.reused_along(name).get(rows, 0) if rows in group.core_kept_axes else 0
        return max(0, passed - group.frustums.reused_along(name).get(rows, 0))
    return group.cached_core_frustums.made_bytes(name) - group.core_frustums.made_bytes(name)


def exchanged_halo(group: TiledGroup, name: str) -> tuple[int, int]:
    """Bytes of a tensor that pass between units because a tile needs what another unit's tile made; bytes × links.

    In bands a unit fetches once what it needs of its neighbour's rows. Otherwise every tile fetches what it needs.
    """
    walk = group.walk
    known = group.frustums.of_tensor[name].known
    width = group.geometry.facts.tensors[name].element_bytes
    mesh = mesh_columns(group.profile.cores) if _is_mesh(group) else None
    key = ("halo", width, walk.rows, walk.columns, group.configuration.placement, *walk.grid, walk.dealt_to, mesh)
    found = known.get(key)
    if not isinstance(found, tuple):
        found = known[key] = _exchanged_halo(group, name, mesh)
    return found


def _exchanged_halo(group: TiledGroup, name: str, mesh: int | None) -> tuple[int, int]:
    """Bytes of a tensor that pass between units, and bytes × links; `mesh`: columns of the mesh of units, if any."""
    walk, frustums = group.walk, group.frustums
    constant, shares = frustums.factors(name)
    for axis, share in shares.items():
        if axis not in (walk.rows, walk.columns):
            constant *= share.made_sum
    along = {Placement.BANDS: (walk.rows, walk.columns), Placement.BAND_COLUMNS: (walk.columns, walk.rows)}
    dealt, other = along.get(group.configuration.placement, (None, None))
    if dealt is not None:
        if dealt not in shares:
            return 0, 0
        begins = np.flatnonzero(frustums.tiles[dealt].begins)
        waiting = shares[dealt].waiting
        positions = waiting[begins] if len(waiting) > 1 else np.zeros(len(begins), dtype=np.int64)
        constant *= shares[other].made_sum if other in shares else 1
        moved = constant * int(positions.sum())
        if mesh is None:
            return moved, moved
        # bands are dealt to units in order, which lie on the mesh row by row
        row, column = np.divmod(np.arange(len(begins)), mesh)
        links = np.abs(np.diff(row, prepend=0)) + np.abs(np.diff(column, prepend=0))
        if shares[dealt].both_ways:
            # the links to the tile behind are those that it has to this one
            behind = shares[dealt].behind
            return moved, constant * int(((positions - behind) * links + behind * np.append(links[1:], 0)).sum())
        return moved, constant * int((positions * links).sum())
    rows, columns = _overlap(group, name, walk.rows), _overlap(group, name, walk.columns)
    if mesh is None:
        moved = exchanged_elements(walk.assignment, rows, columns) * constant
        return moved, moved
    matrix = exchange_matrix(walk.assignment, rows, columns)
    np.fill_diagonal(matrix, 0)
    moved = int(matrix.sum()) * constant
    return moved, mesh_hops(matrix, mesh) * constant


def _is_mesh(group: TiledGroup) -> bool:
    """True if units are cores on a mesh."""
    link = group.profile.engines.link
    return link is not None and group.is_flat and link.topology == "mesh"


def _overlap(group: TiledGroup, name: str, axis: str | None) -> AxisOverlap:
    """Which tiles along an axis made what each of them needs of a tensor."""
    frustums = group.frustums
    _, shares = frustums.factors(name)
    if axis is None or axis not in shares:
        return _whole_overlap()
    exchanged = frustums.tiles[axis].mode is HaloMode.EXCHANGE
    entry = next((e for e in frustums.boxes[name] if e[0] == axis), None)
    if exchanged and entry is None:
        # the same for all tiles: the first makes it
        zeros = np.zeros(len(shares[axis].made), dtype=np.int64)
        return AxisOverlap.of(zeros, shares[axis].needed, zeros, shares[axis].made)
    if exchanged and entry is not None:
        first, last, _ = frustums.fresh(entry)
        if first is not entry[1]:
            return AxisOverlap.of(entry[1], entry[2], first, last)
    # along other axes, and where ranges do not rise, units make for themselves what they need
    stops = np.cumsum(shares[axis].needed)
    starts = stops - shares[axis].needed
    return AxisOverlap.of(starts, stops, starts, stops)


def _whole_overlap() -> AxisOverlap:
    zero: Ints = np.zeros(1, dtype=np.int64)
    one: Ints = np.ones(1, dtype=np.int64)
    return AxisOverlap.of(zero, one, zero, one)
