"""The discrete choices of a tiling: what units and cores share out, depth order, channel slices, double buffering."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from compiler.cost.rates import units_are_connected
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Placement
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.units import ceil_div

# Each further slice count is at least this much finer: in between, little changes.
_FINER: Final = 2
_SLICES_MAX: Final = 4096
PARTS_MAX: Final = 4096


def simple_configurations(
    geometry: GroupGeometry, table: SizeTable, profile: Profile, halo: str = "auto", placement: str = "auto"
) -> tuple[Configuration, ...]:
    """One configuration per way of spreading, depth order and home of weights for the table's halo modes.

    `halo` and `placement` are the options: what they name is all that is tried.
    """
    units, cores, is_flat = profile.units.count, profile.units.cores, profile.units.are_cores
    orders = [(Order.DEPTH_FIRST, False)]
    if len(geometry.ops) > 1 or (not is_flat and geometry.ops[0].matrix is None):
        # a lone op that makes its channels one by one (a global pooling) may need pieces of them
        orders.append((Order.BREADTH_FIRST, False))
    if not is_flat and sum(op.weight_bytes for op in geometry.ops) > profile.weight_memory_bytes:
        orders.append((Order.BREADTH_FIRST, True))
    spreads = tuple(_unit_spreads(geometry, table, units, profile)), tuple(_core_spreads(table, cores))
    connected = units_are_connected(profile)
    key = ("configurations", *spreads, cores, tuple(orders), is_flat, connected, halo, placement)
    known = table.candidates.known
    found: tuple[Configuration, ...] | None = known.get(key)
    if found is None:
        bases: list[Configuration] = []
        for (spread_units, spread), core_spread, (order, in_sram) in product(*spreads, orders):
            if spread is Spread.INPUT_CHANNELS and not is_flat and order is Order.BREADTH_FIRST:
                # partial sums stay in the cores: a stage would have to put them into the SRAM after each part
                continue
            base = Configuration(
                units=spread_units,
                spread=spread,
                cores=cores,
                core_spread=core_spread,
                order=order,
                channel_slices=1,
                slices_outer=False,
                double_buffered=True,
                weights_in_sram=in_sram,
            )
            bases.extend(_with_halos(base, table, profile, halo, placement))
        found = known[key] = tuple(bases)
    return found


def _with_halos(
    base: Configuration, table: SizeTable, profile: Profile, halo: str, placement: str
) -> Iterator[Configuration]:
    """A configuration under each mode of the halos that the table keeps, in each placement that suits it."""
    modes = tuple(sorted(table.halo.items()))
    for mode in _halo_modes(base, bool(modes), profile, halo):
        marked = replace(base, halo=tuple((axis, mode) for axis, _ in modes)) if modes else base
        yield from _placed(marked, table, placement)


def _halo_modes(base: Configuration, kept: bool, profile: Profile, halo: str) -> list[HaloMode]:
    """The modes of halos that are kept: cached, and exchanged where units have neighbours and a way to them.

    Asked for by the option, exchange is also the mode of one unit, and of units that all work on every tile.
    """
    if not kept:
        return [HaloMode.RECOMPUTE]
    modes = [HaloMode.CACHED] if halo in ("auto", "cached") else []
    connected, in_bands = units_are_connected(profile), base.spread is Spread.BANDS
    possible = connected or base.spread not in (Spread.BANDS, Spread.IMAGES)
    if (halo == "auto" and in_bands and connected) or (halo == "exchange" and possible):
        modes.append(HaloMode.EXCHANGE)
    return modes


def _placed(base: Configuration, table: SizeTable, placement: str) -> list[Configuration]:
    """The placements of a spread over units: bands, and blocks where halos pass between units (TILE-4)."""
    if base.spread is not Spread.BANDS:
        return [base]
    if placement != "auto":
        return [replace(base, placement=Placement(placement))]
    wide = sum(table.grids[axis].extent > 1 for axis in table.axes if axis != "N") > 1
    if wide and any(mode is HaloMode.EXCHANGE for _, mode in base.halo):
        return [base, replace(base, placement=Placement.BLOCKS)]
    return [base]


def finer_configurations(table: SizeTable, base: Configuration) -> tuple[Configuration, ...]:
    """What a simple configuration can give up for a larger tile: double buffering, whole channels, whole sums."""
    product = table.geometry.product
    summed = 1
    if product is not None and product.matrix is not None and _is_classifier(table.geometry, product):
        summed = product.matrix.in_channels
    known, key = table.candidates.known, ("finer", base, table.channels_are_free, summed)
    found: tuple[Configuration, ...] | None = known.get(key)
    if found is None:
        found = known[key] = tuple(_finer(table, base, summed))
    return found


def _finer(table: SizeTable, base: Configuration, summed: int) -> Iterator[Configuration]:
    """As `finer_configurations`; `summed` input channels of a product may be summed in parts."""
    for sliced in _slices(table, base):
        if sliced is not base:
            yield sliced
        yield replace(sliced, double_buffered=False)
    if summed == 1 or not _may_sum(base):
        return
    for parts in (2, 4, 8, 16, 32, 64):
        if parts <= summed:
            in_parts = replace(base, input_slices=parts)
            *_, finest = _slices(table, in_parts)
            if finest.channel_slices > 1:
                # sums of all slices would wait together, or inputs come again: with slices outermost they do
                finest = replace(finest, slices_outer=True)
            changed = dict.fromkeys((in_parts, finest))
            yield from (replace(c, double_buffered=b) for c in changed for b in (True, False))


def summed_configurations(table: SizeTable, base: Configuration) -> tuple[Configuration, ...]:
    """A simple configuration with a product's sums taken in two parts, in any number of channel slices.

    The larger the tile that makes its sums part by part, the less often inputs and weights come again.
    """
    product = table.geometry.product
    if product is None or product.matrix is None or not _may_sum(base):
        return ()
    known, key = table.candidates.known, ("summed", base, table.channels_are_free)
    found: tuple[Configuration, ...] | None = known.get(key)
    if found is None:
        outer = [replace(c, slices_outer=c.channel_slices > 1) for c in _slices(table, replace(base, input_slices=2))]
        found = tuple(dict.fromkeys(replace(c, double_buffered=b) for c in outer for b in (True, False)))
        known[key] = found
    return found


def _may_sum(base: Configuration) -> bool:
    """Whether sums may be taken in parts.

    What is kept of an input would have to be kept part by part, and so would sums in the SRAM.
    """
    return not base.halo and (base.order is Order.DEPTH_FIRST or base.cores == 1)


def _is_classifier(geometry: GroupGeometry, product: OpFacts) -> bool:
    """True for a product whose weights exceed what it reads, so that they are what is worth reading once (TILE-6)."""
    read = sum(geometry.facts.tensor_bytes(o.tensor) for o in product.operands if not o.constant)
    return product.weight_bytes > read


def _unit_spreads(geometry: GroupGeometry, table: SizeTable, units: int, profile: Profile) -> list[tuple[int, Spread]]:
    spreads = [(1, Spread.SINGLE)]
    if units > 1:
        if "N" in table.grids and table.grids["N"].extent > 1:
            spreads.append((units, Spread.IMAGES))
        if table.band_axis is not None:
            spreads.append((units, Spread.BANDS))
        has_weights = any(op.weight_bytes for op in geometry.ops)
        if "C" in table.grids and table.grids["C"].extent > 1 and _channels_apart(geometry):
            # intermediates whose channels are needed whole have to get from unit to unit
            gathers = len(geometry.ops) > 1 and not table.channels_are_free
            if table.channels_are_free or (has_weights and (not gathers or units_are_connected(profile))):
                spreads.append((units, Spread.CHANNELS))
        product = geometry.product
        sums = product is not None and product.matrix is not None and product.matrix.in_channels >= units
        if product is not None and sums and units_are_connected(profile) and _is_classifier(geometry, product):
            spreads.append((units, Spread.INPUT_CHANNELS))
    return spreads


def _channels_apart(geometry: GroupGeometry) -> bool:
    """True if no op does again for each part of its channels what all have in common."""
    return all(op.channels_apart for op in geometry.ops)


def _core_spreads(table: SizeTable, cores: int) -> list[Spread]:
    if cores == 1:
        return [Spread.SINGLE]
    by_channels = [Spread.CHANNELS] if _channels_apart(table.geometry) else []
    return by_channels if table.band_axis is None else [Spread.BANDS, *by_channels]


def _slices(table: SizeTable, base: Configuration) -> Iterator[Configuration]:
    """The configuration with growing numbers of channel slices, where every op can make a slice for itself."""
    yield base
    if not table.channels_are_free:
        return
    extent, share = table.grids["C"].extent, channel_share(base)
    sizes = table.grids["C"].sizes
    part = ceil_div(extent, share)
    count = 1
    while count < min(part, _SLICES_MAX):
        count = min(part, max(count + 1, int(count * _FINER)))
        # beyond the finest exact parts the candidate is larger than asked for: as many slices as it makes
        size = int(sizes[table.index("C", ceil_div(extent, share * count))])
        yield replace(base, channel_slices=ceil_div(extent, share * size))


def channel_share(configuration: Configuration) -> int:
    """Into how many parts the output channels of one slice are spread over units and cores."""
    return unit_share(configuration) * core_share(configuration)


def unit_share(configuration: Configuration) -> int:
    """Parts of the output channels over units."""
    return configuration.units if configuration.spread is Spread.CHANNELS else 1


def core_share(configuration: Configuration) -> int:
    """Parts of a unit's output channels over its cores."""
    return configuration.cores if configuration.core_spread is Spread.CHANNELS else 1
