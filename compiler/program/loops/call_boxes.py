"""The boxes that calls need and those that they find bound: whether both move evenly over the tiles (PROG-4)."""

from __future__ import annotations

import numpy as np

from compiler.program.checked import CheckedProgram
from compiler.program.loops.changing_fields import Fields
from compiler.program.loops.instances import Window
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, ENTRY_START, ENTRY_SUM
from compiler.program.strided import Flags, Ints


def uneven_calls(fields: Fields, tile_counts: Ints, checked: CheckedProgram, window: Window) -> Flags:
    """Statements whose calls may need, or find bound, boxes that do not move evenly over the tiles."""
    program = checked.program
    result = np.zeros(len(tile_counts), dtype=np.bool_)
    part = (fields.fields - BINDING_ADDRESS) % BINDING_FIELDS
    of_box = (fields.fields >= ENTRY_START) & ((fields.fields < BINDING_ADDRESS) | (part > 0))
    result[fields.statements[of_box & (fields.sizes != 0)]] = True
    chosen = np.unique(fields.statements[of_box])
    if not len(chosen):
        return result
    calls = program.calls[program.commands["call"][: len(window)]]
    for table in np.unique(calls["table"][chosen]).tolist():
        its = chosen[calls["table"][chosen] == table]
        _mark_uneven(fields, tile_counts, checked, window, table, its, result)
    return result


def _mark_uneven(
    fields: Fields,
    tile_counts: Ints,
    checked: CheckedProgram,
    window: Window,
    table: int,
    its: Ints,
    result: Flags,
) -> None:
    """Mark those, among statements that call one table, whose boxes may not move evenly."""
    program = checked.program
    geometry = checked.book.geometry(table)
    calls = program.calls[program.commands["call"][: len(window)]]
    entries = calls["entry"][its]
    spans = tile_counts[its] - 1
    axes = geometry.starts.shape[2]
    entry_slopes = np.stack([fields.slopes_of(its, np.full(len(its), ENTRY_START + a)) for a in range(axes)], axis=1)
    # by slot, statement, axis and counter: how the begins and ends of needed boxes move
    begins = np.zeros((len(geometry.given), len(its), axes, tile_counts.shape[1]), dtype=np.int64)
    ends = np.zeros_like(begins)
    begins[0] = ends[0] = entry_slopes
    # by slot and statement: no tile reads the operand, as where all slices of a concat come from another one
    unneeded = np.zeros((len(geometry.given), len(its)), dtype=np.bool_)
    bad = np.zeros(len(its), dtype=np.bool_)
    is_part, summed = geometry.is_part[entries], fields.slopes_of(its, np.full(len(its), ENTRY_SUM))
    for slot, maps in enumerate(geometry.call.maps or (), start=1):
        for axis, axis_map in enumerate(maps or ()):
            if axis_map.axis is None:
                continue
            moves = entry_slopes[:, axis_map.axis]
            if axis_map.is_identity:
                begins[slot, :, axis] = ends[slot, :, axis] = moves
                continue
            bad |= (moves * axis_map.scale % axis_map.divisor != 0).any(axis=1)
            moves = moves * axis_map.scale // axis_map.divisor * axis_map.block
            first, last = axis_map.unclipped(
                geometry.starts[0, entries, axis_map.axis], geometry.stops[0, entries, axis_map.axis]
            )
            low, high = np.minimum(0, moves * spans).sum(axis=1), np.maximum(0, moves * spans).sum(axis=1)
            extent = int(geometry.shapes[slot, axis])
            unneeded[slot] |= (last + high <= 0) | (first + low >= extent)
            # clipped at no tile, or at all of them
            cut = (first + low < 0) & (first + high > 0) | (last + high > extent) & (last + low < extent)
            bad |= cut & ~unneeded[slot]
            begins[slot, :, axis] = np.where((first + high > 0)[:, None], moves, 0)
            ends[slot, :, axis] = np.where((last + low < extent)[:, None], moves, 0)
        if (axis_of := geometry.summed[slot - 1]) is not None:
            summed_axis = np.where(is_part[:, None], summed, begins[slot, :, axis_of])
            begins[slot, :, axis_of] = ends[slot, :, axis_of] = summed_axis
        begins[slot, unneeded[slot]] = ends[slot, unneeded[slot]] = 0
        moving = begins[slot].any(axis=(1, 2)) | ends[slot].any(axis=(1, 2))
        bad |= moving & (geometry.stops[slot, entries] <= geometry.starts[slot, entries]).any(axis=1)
    bad |= (begins != ends).any(axis=(0, 2, 3))
    # whatever else moves in another way shows at other tiles
    of = np.full(len(tile_counts), -1)
    of[its] = np.arange(len(its))
    probes = np.flatnonzero(of[window.statements] >= 0)
    rows, places = of[window.statements[probes]], window.places[probes]
    for moved, values in ((begins, geometry.starts), (ends, geometry.stops)):
        expected = values[:, entries[rows]] + (moved[:, rows] * places[:, None]).sum(axis=3)
        differ = (expected != values[:, calls["entry"][probes]]).any(axis=2) & ~unneeded[:, rows]
        bad[rows[differ.any(axis=0)]] = True
    # what is bound begins before what is needed at all tiles, or at none; the same of their ends
    counts = calls["count"][its].astype(np.int64)
    owners = np.repeat(np.arange(len(its)), counts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    bound = program.bindings[calls["first"][its][owners] + number]
    slots = bound["operand"].astype(np.int64) + 1
    kept = np.flatnonzero(slots >= 0)
    owners, number, bound, slots = owners[kept], number[kept], bound[kept], slots[kept]
    several = np.bincount(owners * len(geometry.given) + slots, minlength=1)[owners * len(geometry.given) + slots] > 1
    for axis in range(axes):
        is_axis = axis < geometry.ranks[slots]
        field = BINDING_ADDRESS + BINDING_FIELDS * number + 1 + axis
        moves = fields.slopes_of(its[owners], field)
        start = bound["starts"][:, axis]
        needed = begins[slots, owners, axis]
        ahead = needed - moves
        low = np.minimum(0, ahead * spans[owners]).sum(axis=1)
        high = np.maximum(0, ahead * spans[owners]).sum(axis=1)
        begin = geometry.starts[slots, entries[owners], axis] - start
        end = geometry.stops[slots, entries[owners], axis] - start - bound["lengths"][:, axis]
        mixed = ((begin + low < 0) & (begin + high > 0)) | ((end + low < 0) & (end + high > 0))
        # begins and ends follow the same of the two, else lengths change
        follows_need = begin + high > 0, end + low < 0
        mixed |= (ahead != 0).any(axis=1) & (follows_need[0] != follows_need[1])
        mixed |= several & (ahead != 0).any(axis=1) & ~follows_need[0]
        bad[owners[mixed & is_axis]] = True
    result[its[bad]] = True
