"""Sizes of a group's boxes for every candidate size of every axis of its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.tiling.geometry import BoxSizes, Grid, GroupGeometry, Lengths

# Up to this extent every tile size of an axis is a candidate; beyond, one size per number of tiles.
ALL_SIZES_UP_TO: Final = 512
_PARTS_MAX: Final = 512
# The most tiles that one axis is cut into.
_RANGES_MAX: Final = 1 << 16
# Groups of more tensors than this (a Concat of thousands) share out so many ranges among them.
_MANY_TENSORS: Final = 1024
_RANGES_OF_MANY: Final = 1 << 23

# Byte counts as doubles: exact up to 2^53, and matrix products of them are fast.
Reals = NDArray[np.float64]


def candidate_sizes(extent: int, tensors: int = 1) -> Ints:
    """Tile sizes to consider for an axis, ascending, in a group of so many tensors."""
    if extent <= ALL_SIZES_UP_TO and tensors <= _MANY_TENSORS:
        return np.arange(1, extent + 1, dtype=np.int64)
    return part_sizes(extent, tensors)


def part_sizes(extent: int, tensors: int = 1) -> Ints:
    """The distinct values of ceil(extent / k), ascending; below extent / _PARTS_MAX powers of two.

    Each candidate has a range per tile and tensor, so a group of very many tensors gets fewer of them, and no axis is
    cut into more than _RANGES_MAX tiles.
    """
    most = _PARTS_MAX if tensors <= _MANY_TENSORS else max(8, isqrt(_RANGES_OF_MANY // tensors))
    counts = np.arange(1, min(extent, most) + 1, dtype=np.int64)
    sizes = -(-extent // counts)
    finer = 2 ** np.arange(int(sizes[-1]).bit_length(), dtype=np.int64)
    finer = finer[(finer < sizes[-1]) & (-(-extent // finer) <= (_RANGES_MAX if tensors <= _MANY_TENSORS else most))]
    return np.unique(np.concatenate((sizes, finer)))


@dataclass(frozen=True, kw_only=True)
class SizeTable:
    """Box bytes of a group's activations (`names`) for candidate sizes of each axis of its output.

    `axes` is the splitting order, channels apart (FUSE-S1). `constant[t]` × the product over axes of
    `largest[axis][t, k]` is the largest box of tensor t.
    """

    geometry: GroupGeometry
    axes: tuple[str, ...]
    grids: Mapping[str, Grid]
    boxes: Mapping[str, BoxSizes]
    names: tuple[str, ...]
    constant: Reals
    largest: Mapping[str, Reals]
    _inside: dict[tuple[int, ...], SizeTable] = field(default_factory=dict)
    _lengths: dict[tuple[tuple[str, int], ...], Lengths] = field(default_factory=dict)

    @classmethod
    def build(cls, geometry: GroupGeometry, grids: Mapping[str, Grid]) -> SizeTable:
        """Project the group once for all candidates of all axes."""
        output = geometry.output
        boxes = geometry.sizes(grids)
        names = geometry.lifetimes[0]
        largest = {axis: np.ones((len(names), len(grid.sizes))) for axis, grid in grids.items()}
        for row, name in enumerate(names):
            for axis, factor in boxes[name].largest.items():
                largest[axis][row] = factor
        axes = sorted((a for a in output.axes if a != "C"), key=lambda a: (a != "N", output.axes.index(a)))
        return cls(
            geometry=geometry,
            axes=tuple(axes),
            grids=grids,
            boxes=boxes,
            names=names,
            constant=np.array([boxes[name].constant for name in names], dtype=np.float64),
            largest=largest,
        )

    @classmethod
    def of_group(cls, geometry: GroupGeometry) -> SizeTable:
        """Candidates for SRAM tiles: every axis of the output from its beginning."""
        grids = {}
        for axis, extent in zip(geometry.output.axes, geometry.output.shape, strict=True):
            tensors = max(len(geometry.lifetimes[0]), sum(len(op.operands) for op in geometry.ops))
            sizes = part_sizes(extent, tensors) if axis == "C" else candidate_sizes(extent, tensors)
            grids[axis] = Grid.of_sizes(extent, sizes)
        return cls.build(geometry, grids)

    def inside(self, tile: Mapping[str, int]) -> SizeTable:
        """Candidates for core tiles: each axis of a chosen SRAM tile cut into equal parts."""
        key = tuple(tile[axis] for axis in self.axes)
        known = self._inside.get(key)
        if known is None:
            grids = {
                axis: grid if axis == "C" else Grid.nested(grid.extent, tile[axis], part_sizes(tile[axis]))
                for axis, grid in self.grids.items()
            }
            known = self._inside[key] = SizeTable.build(self.geometry, grids)
        return known

    def index(self, axis: str, size: int) -> int:
        """Position of the smallest candidate of at least `size`."""
        sizes, extent = self.grids[axis].sizes, self.grids[axis].extent
        if len(sizes) == extent:
            return size - 1
        return int(np.searchsorted(sizes, size))

    def volumes(self, at: Mapping[str, int], axis: str | None, count: int) -> Reals:
        """Bytes [tensor, candidate] of the largest boxes: the first `count` sizes of `axis`, others fixed by `at`."""
        fixed = self.constant.copy()
        for other, position in at.items():
            if other != axis:
                fixed *= self.largest[other][:, position]
        if axis is None:
            return fixed[:, None]
        return np.asarray(fixed[:, None] * self.largest[axis][:, :count])

    def total(self, name: str, at: Mapping[str, int]) -> int:
        """Bytes of a tensor's boxes summed over all tiles; an axis that it does not follow repeats them.

        Channel slices do not repeat: within a tile they work on the same data.
        """
        entry = self.boxes[name]
        total = entry.constant * prod(int(sums[at[axis]]) for axis, sums in entry.total.items())
        for axis in self.axes:
            if axis not in entry.total:
                total *= int(self.grids[axis].counts[at[axis]])
        return total

    def largest_bytes(self, name: str, at: Mapping[str, int]) -> int:
        """Bytes of a tensor's largest box; for constants too."""
        entry = self.boxes[name]
        return entry.constant * prod(int(largest[at[axis]]) for axis, largest in entry.largest.items())

    def positions(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Candidate positions of sizes; axes not given are whole."""
        return {axis: self.index(axis, sizes.get(axis, grid.extent)) for axis, grid in self.grids.items()}

    def lengths(self, sizes: Mapping[str, int]) -> Lengths:
        """Longest range per axis of every tensor's box."""
        positions = self.positions(sizes)
        key = tuple(sorted(positions.items()))
        known = self._lengths.get(key)
        if known is None:
            known = self._lengths[key] = self.geometry.longest(self.boxes, self.grids, positions)
        return known

    def follows(self, name: str, axis: str) -> bool:
        """True if the tensor's box changes with the tile's range on `axis`."""
        return axis in self.boxes[name].largest

    @cached_property
    def channels_are_free(self) -> bool:
        """True if every op of the group can make a slice of its output channels for itself (FUSE-S1)."""
        if "C" not in self.grids or self.grids["C"].extent == 1:
            return False
        return all(self.follows(name, "C") for name in self.geometry.made)

    @cached_property
    def band_axis(self) -> str | None:
        """The axis that bands cut: the first after N with more than one position."""
        return next((a for a in self.axes if a != "N" and self.grids[a].extent > 1), None)

    def tile_count(self, sizes: Mapping[str, int]) -> int:
        """Number of tiles, channels apart."""
        return prod(-(-self.grids[axis].extent // sizes[axis]) for axis in self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tiles that differ in the size of one axis: N down to one image, then each further axis (FUSE-S1).

    `at` fixes the other axes: earlier ones at one position, later ones at their cap. `count` sizes, ascending.
    """

    axis: str | None
    at: Mapping[str, int]
    count: int


def stages(table: SizeTable, caps: Mapping[str, int], channel_size: int | None) -> tuple[Stage, ...]:
    """The stages of splitting under caps per axis (what one unit gets)."""
    channel = {} if channel_size is None else {"C": table.index("C", channel_size)}
    result = []
    for number, axis in enumerate(table.axes):
        at = dict(channel)
        for other_number, other in enumerate(table.axes):
            at[other] = table.index(other, 1 if other_number < number else caps[other])
        result.append(Stage(axis=axis, at=at, count=at[axis] + 1))
    if not result:
        result.append(Stage(axis=None, at=channel, count=1))
    return tuple(result)


def stage_sizes(table: SizeTable, stage: Stage, position: int) -> dict[str, int]:
    """The tile of one candidate: size per axis."""
    sizes = {axis: int(table.grids[axis].sizes[index]) for axis, index in stage.at.items()}
    if stage.axis is not None:
        sizes[stage.axis] = int(table.grids[stage.axis].sizes[position])
    return sizes
