"""Pictures of a fused graph's tilings: one SVG per group, made only when asked for (TILE-4)."""

from __future__ import annotations

import numpy as np

from compiler.fusion.groups import FusedGraph, Group
from compiler.ir.box import Ints
from compiler.ops.facts import GraphFacts
from compiler.picture import TilePicture, tile_picture
from compiler.profile.schema import Profile
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Configuration, Spread
from compiler.tiling.walk import Walk, unit_walk


def pictures_of(fused: FusedGraph, profile: Profile) -> dict[str, str]:
    """The SVG text of every group by its id in the plan."""
    return {
        f"{found.segment.id}.g{number}": picture_of(fused.facts, profile, f"{found.segment.id}.g{number}", group)
        for found in fused.segments
        for number, group in enumerate(found.groups)
    }


def picture_of(facts: GraphFacts, profile: Profile, name: str, group: Group) -> str:
    """The SVG text of one group: the tiles of its output with their owners, and what they need of its first input.

    Drawn are the two axes that the placement deals out; of an output without such axes the picture is one tile.
    """
    geometry = GroupGeometry(facts, group.ops)
    tiling = group.choice.tiling
    walk = unit_walk(geometry, tiling.configuration, dict(zip(tiling.axes, tiling.tile, strict=True)))
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    source = geometry.inputs[0] if geometry.inputs else geometry.primary
    rows, columns = _needs(geometry, walk, source, walk.rows), _needs(geometry, walk, source, walk.columns)
    configuration = tiling.configuration
    modes = ["recompute" if axis is None else configuration.halo_of(axis).value for axis in (walk.rows, walk.columns)]
    nodes = list(dict.fromkeys(facts.graph.ops[op].node for op in group.ops))
    return tile_picture(
        TilePicture(
            title=f"{name}: {nodes[0]}" + (f" to {nodes[-1]}" if len(nodes) > 1 else ""),
            output_name=geometry.primary,
            output_plane=(_extent(extents, walk.rows), _extent(extents, walk.columns)),
            row_cuts=_cuts(walk, walk.rows, extents),
            column_cuts=_cuts(walk, walk.columns, extents),
            owner=walk.assignment.owner,
            step=walk.assignment.step,
            input_name=source,
            input_plane=(rows[0], columns[0]),
            input_rows=rows[1:],
            input_columns=columns[1:],
            halo_modes=(modes[0], modes[1]),
            placement=configuration.placement.value if configuration.spread is Spread.BANDS else "one after another",
            units=walk.assignment.units,
            unit_word=_unit_word(profile, configuration),
        )
    )


def _unit_word(profile: Profile, configuration: Configuration) -> str:
    """What a tile's owner is: a unit, or several that share every tile."""
    unit = "cluster" if profile.sram is not None else "core"
    if configuration.spread in (Spread.BANDS, Spread.SINGLE):
        return unit
    return f"set of {configuration.units} {unit}s that share {configuration.spread.value}"


def _extent(extents: dict[str, int], axis: str | None) -> int:
    return 1 if axis is None else extents[axis]


def _cuts(walk: Walk, axis: str | None, extents: dict[str, int]) -> Ints:
    """The borders of the tiles along an axis, from 0 to its extent."""
    if axis is None:
        return np.array([0, 1], dtype=np.int64)
    return np.append(walk.axes[axis].starts, extents[axis])


def _needs(geometry: GroupGeometry, walk: Walk, name: str, axis: str | None) -> tuple[int, Ints, Ints]:
    """Of the input axis that follows an axis of the output its extent, and what each tile needs of it.

    Where none follows, all tiles need the whole of what is then drawn as one position.
    """
    count = 1 if axis is None else walk.axes[axis].count
    tensor = geometry.facts.tensors[name]
    for place, (followed, starts, stops) in enumerate(Frustums(geometry, walk.axes).boxes[name]):
        if axis is not None and (followed == axis or (followed is None and tensor.axes[place] == axis)):
            return tensor.shape[place], np.resize(starts, count), np.resize(stops, count)
    return 1, np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
