"""Pictures of a fused graph's tilings: one SVG per group, made only when asked for (TILE-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.fusion.groups import FusedGraph, Group
from compiler.ir.box import Ints
from compiler.ops.op_facts import GraphFacts, TensorFacts
from compiler.profile.schema import Profile
from compiler.report.picture import Plane, TilePicture, tile_picture
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.projection import Box
from compiler.tiling.tile import Configuration, Order, Spread
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

    Drawn are the two axes that the placement deals out; where there are fewer, others of the tensor, whole.
    """
    geometry = GroupGeometry(facts, group.ops)
    tiling = group.choice.tiling
    is_nested = tiling.configuration.order is Order.DEPTH_FIRST
    core = dict(zip(tiling.axes, tiling.core_tile, strict=True)) if is_nested else None
    walk = unit_walk(geometry, tiling.configuration, dict(zip(tiling.axes, tiling.tile, strict=True)), core)
    output = geometry.output
    source = geometry.inputs[0] if geometry.inputs else geometry.primary
    needs = _Needs(walk=walk, tensor=facts.tensors[source], box=Frustums(geometry, walk.axes).boxes[source])
    configuration = tiling.configuration
    dealt = walk.rows, walk.columns
    modes = ["recompute" if axis is None else configuration.halo_of(axis).value for axis in dealt]
    nodes = list(dict.fromkeys(facts.graph.ops[op].node for op in group.ops))
    cut = {axis: tiles.count for axis, tiles in walk.axes.items() if axis not in dealt and tiles.count > 1}
    target = _plane(geometry.primary, output, [None if axis is None else output.axes.index(axis) for axis in dealt])
    origin = _plane(source, needs.tensor, [needs.place(axis) for axis in dealt])
    return tile_picture(
        TilePicture(
            title=f"{name}: {nodes[0]}" + (f" to {nodes[-1]}" if len(nodes) > 1 else ""),
            output=target,
            tile=tiling.tile,
            tile_bytes=tiling.tile_bytes,
            row_cuts=_cuts(walk, walk.rows, target.extents[0]),
            column_cuts=_cuts(walk, walk.columns, target.extents[1]),
            owner=walk.assignment.owner,
            step=walk.assignment.step,
            input=origin,
            input_rows=needs.along(walk.rows, origin.rows),
            input_columns=needs.along(walk.columns, origin.columns),
            halo_modes=(modes[0], modes[1]),
            placement=configuration.placement.value if configuration.spread is Spread.BANDS else "one after another",
            units=walk.assignment.units,
            unit_word=_unit_word(profile, configuration),
            also_cut=tuple(cut.items()),
        )
    )


def _unit_word(profile: Profile, configuration: Configuration) -> str:
    """What a tile's owner is: a unit, or several that share every tile."""
    unit = profile.units.name
    if configuration.spread in (Spread.BANDS, Spread.SINGLE):
        return unit
    return f"set of {configuration.units} {unit}s that share {configuration.spread.value}"


def _plane(name: str, tensor: TensorFacts, places: Sequence[int | None]) -> Plane:
    """The plane of a tensor: the axes at these places, or for None the last ones that are left and not of extent 1."""
    rows, columns = places
    free = [place for place, extent in enumerate(tensor.shape) if extent > 1 and place not in places]
    if columns is None and free:
        columns = free.pop()
    if rows is None and free:
        rows = free.pop()
    size_bytes = prod(tensor.shape) * tensor.element_bytes
    return Plane(name=name, axes=tensor.axes, shape=tensor.shape, size_bytes=size_bytes, rows=rows, columns=columns)


def _cuts(walk: Walk, axis: str | None, extent: int) -> Ints:
    """The borders of the tiles along an axis, from 0 to its extent; one tile where it is not dealt out."""
    if axis is None:
        return np.array([0, extent], dtype=np.int64)
    return np.append(walk.axes[axis].starts, extent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """What the tiles of a walk need of an input, axis by axis."""

    walk: Walk
    tensor: TensorFacts
    box: Box

    def place(self, axis: str | None) -> int | None:
        """Which axis of the input follows an axis of the output, by position; None where none does."""
        for place, (followed, _, _) in enumerate(self.box):
            if axis is not None and (followed == axis or (followed is None and self.tensor.axes[place] == axis)):
                return place
        return None

    def along(self, axis: str | None, place: int | None) -> tuple[Ints, Ints]:
        """Starts and stops of what each tile along an axis of the output needs of an axis of the input.

        All tiles need the whole of an input axis that follows another one.
        """
        count = 1 if axis is None else self.walk.axes[axis].count
        if place is None or self.place(axis) != place:
            extent = 1 if place is None else self.tensor.shape[place]
            return np.zeros(count, dtype=np.int64), np.full(count, extent, dtype=np.int64)
        _, starts, stops = self.box[place]
        return np.resize(starts, count), np.resize(stops, count)
