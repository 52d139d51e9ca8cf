"""One tiling of a group in full: every tile's boxes, what each tile makes anew, keeps and needs (TILE-1, TILE-3).

A *walk* goes over the tiles axis by axis, outermost first. Along an axis whose halo is recomputed every tile makes all
that it needs. Along one whose halo is cached or exchanged it makes only what no tile before it made. Both are ranges
per axis, so a box made anew is a product of ranges too: a position is new if it is new along every such axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.ir.box import Ints
from compiler.lazy import lazy
from compiler.ops.op_facts import Operand, OpFacts
from compiler.tiling.axis_tiles import AxisTiles, Share
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.projection import Box, TensorBoxes, Volume


class Frustums:
    """All frustums of a group under one tiling; sizes in bytes, over all tiles or of the largest."""

    def __init__(self, geometry: GroupGeometry, tiles: Mapping[str, AxisTiles]) -> None:
        """`tiles` by axis of the group's output, outermost of the walk first; axes not named are whole."""
        self.geometry = geometry
        self.projection = geometry.projections.of(tiles)
        self.tiles = self.projection.tiles
        self.of_tensor = geometry.boxes_under(self.projection)
        # what cores make of them, by what decides it
        self.worked_out: dict[tuple[object, ...], Any] = {}
        self._volumes: dict[str, Volume] = {}
        self._core_volumes: dict[frozenset[str], dict[str, int]] = {}

    @lazy
    def boxes(self) -> Mapping[str, Box]:
        """The boxes of every tensor."""
        found = self.geometry.boxes_under(self.projection, constants=True)
        return {name: boxes.ranges for name, boxes in found.items()}

    def _boxes_of(self, name: str) -> TensorBoxes:
        found = self.of_tensor.get(name)
        if found is None:
            # a constant, of which most do not ask
            found = self.geometry.boxes_under(self.projection, constants=True)[name]
        return found

    def volume(self, name: str) -> Volume:
        """Bytes of a tensor, over all tiles and of the largest, and what of them waits."""
        known = self._volumes.get(name)
        if known is None:
            element_bytes = self.geometry.facts.tensors[name].element_bytes
            known = self._volumes[name] = self._boxes_of(name).volume(element_bytes)
        return known

    def factors(self, name: str) -> tuple[int, dict[str, Share]]:
        """Bytes of a tensor that no axis of the walk cuts, and its shares along each axis."""
        volume = self.volume(name)
        return volume.constant, volume.shares

    def fresh(self, entry: tuple[str | None, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
        """For an axis of a box: where what each tile makes anew starts and stops, and how much of it waited before."""
        axis, starts, stops = entry
        ranges = self.projection.axes[axis]
        return ranges.fresh(ranges.known(starts, stops))

    def needed_bytes(self, name: str) -> int:
        """Bytes of a tensor that tiles need, over all tiles."""
        return self.volume(name).needed_bytes

    def made_bytes(self, name: str) -> int:
        """Bytes of a tensor that tiles make anew (of an input: load), over all tiles."""
        return self.volume(name).made_bytes

    def largest_made(self, name: str) -> int:
        """Bytes that a tile makes anew at most."""
        return self.largest[name]

    @lazy
    def largest(self) -> Mapping[str, int]:
        """Per activation the bytes that a tile makes anew at most."""
        return {name: self.volume(name).largest_made for name in self.geometry.lifetimes[0]}

    @lazy
    def kept(self) -> Mapping[str, int]:
        """Bytes of each activation that a unit keeps for later tiles of its walk, along all axes."""
        if self.projection.is_recomputed:
            return {}
        return {name: size for name in self.geometry.lifetimes[0] if (size := self.volume(name).kept_bytes)}

    def core_volumes(self, kept: frozenset[str]) -> Mapping[str, int]:
        """Per activation the bytes of its largest box that are not kept: of results only what is new along `kept`."""
        found = self._core_volumes.get(kept)
        if found is None:
            inputs, of = self.geometry.inputs, self.volume
            # inputs of the group come from the SRAM as whole boxes
            found = {name: of(name).not_kept(() if name in inputs else kept) for name in self.geometry.lifetimes[0]}
            self._core_volumes[kept] = found
        return found

    def usual_needed(self, name: str) -> tuple[int, float]:
        """Bytes of a tensor's usual box, and the part of all that tiles need which lies in larger boxes.

        The first tile of a walk is larger than the others where halos are kept.
        """
        return self.volume(name).usual_needed

    def kept_along(self, name: str) -> dict[str, int]:
        """Bytes of a tensor that wait for later tiles of a unit's walk, by the axis along which they are shared."""
        return self.volume(name).kept_along

    def kept_bytes(self, name: str) -> int:
        """Bytes of a tensor that wait for later tiles of a unit's walk, along all axes."""
        return self.kept.get(name, 0)

    def reused_along(self, name: str) -> dict[str, int]:
        """Bytes of a tensor that tiles need and do not make anew, over all tiles, by the axis along which they waited.

        They add up to what is needed less what is made.
        """
        return self.volume(name).reused_along

    def read_bytes(self, op: OpFacts, operand: Operand) -> int:
        """Bytes of an operand that an op reads to make what it makes anew, over all tiles, box by box."""
        return self._operand(op, operand, largest=False)

    def largest_read(self, op: OpFacts, operand: Operand) -> int:
        """Bytes of an operand that an op reads for its largest box."""
        return self._operand(op, operand, largest=True)

    def _operand(self, op: OpFacts, operand: Operand, *, largest: bool) -> int:
        boxes, tensor = self.of_tensor[op.output], self.geometry.facts.tensors[operand.tensor]
        return boxes.read_bytes(self.geometry.reading(operand), tensor.element_bytes, largest=largest)

    def steps(self, op: OpFacts, lanes: Mapping[str, int], divide: Mapping[str, int]) -> int:
        """Array steps of an op's output positions, over all tiles.

        `lanes` are the array's lanes by axis, `divide` into how many parts cores cut an axis of each tile; the steps
        are those of one such part.
        """
        axes = self.geometry.facts.tensors[op.output].axes
        parts = tuple([(divide.get(axis, 1), lanes.get(axis, 1)) for axis in axes])
        return self.of_tensor[op.output].steps(op.channel_axis, parts)

    def positions(self, op: OpFacts) -> int:
        """Output positions of an op over all tiles, channels apart."""
        boxes = self.of_tensor[op.output]
        return boxes.steps(op.channel_axis, ((1, 1),) * len(boxes.ranges))

    def channels(self, op: OpFacts) -> int:
        """Output channels of an op in its largest box."""
        return 1 if op.channel_axis is None else self.of_tensor[op.output].lengths[op.channel_axis]

    def lengths(self, name: str) -> tuple[int, ...]:
        """The longest range per axis of what a tile makes anew of a tensor."""
        return self._boxes_of(name).fresh_lengths

    def box_lengths(self, name: str) -> tuple[int, ...]:
        """The longest range per axis of a tensor's boxes."""
        return self._boxes_of(name).lengths
