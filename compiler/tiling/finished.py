"""A complete tiling, priced and with its figures, as later stages see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compiler.cost.model import Cost
from compiler.tiling.addresses import OpTables, op_tables
from compiler.tiling.figures import Figures
from compiler.tiling.loads import op_weights
from compiler.tiling.memory import LevelMemory
from compiler.tiling.tile import LevelUse, Mode, Tiling
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.walk import walked_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen tiling of a group, its price, the figures that rules are checked against, and its address tables."""

    tiling: Tiling
    cost: Cost
    figures: Figures
    tables: tuple[OpTables, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A complete tiling with its figures and price."""

    group: TiledGroup
    figures: Figures
    cost: Cost


def finished(priced: Priced, levels: Iterable[LevelMemory]) -> Choice:
    """A complete tiling as later stages see it."""
    group, figures = priced.group, priced.figures
    output, walk = group.geometry.output, group.walk
    boxes = group.frustums
    configuration = replace(group.configuration, walk=walked_axes(group.geometry, group.configuration))
    tiling = Tiling(
        configuration=configuration,
        mode=Mode.WHOLE_MAP if figures.whole_map else Mode.PARTIAL_MAP,
        axes=output.axes,
        tile=tuple(group.tile.get(a, e) for a, e in zip(output.axes, output.shape, strict=True)),
        core_tile=group.core_extents,
        input_tiles=tuple((name, boxes.box_lengths(name)) for name in group.geometry.inputs),
        tile_bytes=int(group.ends_bytes[0]),
        tiles=walk.tiles,
        core_tiles=group.core_tiles,
        rounds=walk.rounds,
        weights=op_weights(group),
        kept_bytes=group.kept_bytes,
        memory=tuple(
            LevelUse(
                level=found.level,
                capacity_bytes=found.capacity_bytes,
                peak_bytes=found.allocation.peak_bytes,
                lower_bound_bytes=found.allocation.lower_bound_bytes,
            )
            for found in levels
        ),
    )
    return Choice(tiling=tiling, cost=priced.cost, figures=figures, tables=op_tables(group))
