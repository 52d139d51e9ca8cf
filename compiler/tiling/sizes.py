"""Sizes of a group's boxes for every candidate size of every axis of its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.lazy import lazy
from compiler.tiling.axis_tiles import AxisTiles, Share
from compiler.tiling.geometry import Grid, GroupGeometry
from compiler.tiling.projection import Box, Projections, Volume
from compiler.tiling.ranges import Column, Reals
from compiler.tiling.tile import HaloMode

# Up to this extent every tile size of an axis is a candidate; beyond, one size per number of tiles.
ALL_SIZES_UP_TO: Final = 512
_PARTS_MAX: Final = 512
# The most tiles that one axis is cut into; so many core tiles, too, in all SRAM tiles.
RANGES_MAX: Final = 1 << 16
# About as many core tiles has an axis for all their sizes together, and tables of more ranges are kept one at a time:
# of an axis of 2^24 there were 10^7 for a single SRAM tile, and 49 SRAM tiles were tried.
_CORE_RANGES: Final = 1 << 19
_KEPT_RANGES: Final = 1 << 16
# Groups of more tensors than this (a Concat of thousands) share out so many ranges among them.
_MANY_TENSORS: Final = 1024
_RANGES_OF_MANY: Final = 1 << 23


def candidate_sizes(extent: int, tensors: int = 1) -> Ints:
    """Tile sizes to consider for an axis, ascending, in a group of so many tensors."""
    if extent <= ALL_SIZES_UP_TO and tensors <= _MANY_TENSORS:
        return np.arange(1, extent + 1, dtype=np.int64)
    return part_sizes(extent, tensors)


def part_sizes(extent: int, tensors: int = 1, times: int = 1) -> Ints:
    """The distinct values of ceil(extent / k), ascending; below extent / _PARTS_MAX powers of two.

    Each candidate has a range per tile and tensor, so a group of very many tensors gets fewer of them, and so does an
    extent that is cut so many `times`; no axis is cut into more than RANGES_MAX tiles.
    """
    most = _PARTS_MAX if tensors <= _MANY_TENSORS else max(8, isqrt(_RANGES_OF_MANY // tensors))
    most = min(most, max(8, isqrt(2 * _CORE_RANGES // times)))
    counts = np.arange(1, min(extent, most) + 1, dtype=np.int64)
    sizes = -(-extent // counts)
    finer = 2 ** np.arange(int(sizes[-1]).bit_length(), dtype=np.int64)
    finer = finer[(finer < sizes[-1]) & (-(-extent // finer) <= (RANGES_MAX if tensors <= _MANY_TENSORS else most))]
    return np.unique(np.concatenate((sizes, finer)))


def _inner(extent: int, tile: int) -> Ints:
    """The sizes of core tiles in an SRAM tile: none so small that there were too many of them on the whole axis."""
    tiles = -(-extent // tile)
    sizes = part_sizes(tile, times=tiles)
    few = (tiles * -(-tile // sizes) <= RANGES_MAX) | (sizes == sizes[-1])
    return np.asarray(sizes[few])


def tensors_of(geometry: GroupGeometry) -> int:
    """The number of tensors of a group for which ranges are held."""
    return max(len(geometry.lifetimes[0]), sum(len(op.operands) for op in geometry.ops))


class _Sized(Protocol):
    """What holds the ranges of all candidates."""

    @property
    def is_large(self) -> bool:
        """Whether these take much memory."""


T = TypeVar("T", bound=_Sized)


def _kept(known: dict[tuple[int, ...], T], key: tuple[int, ...], found: T) -> T:
    """Keep what was found for a key; of what takes much memory only the latest."""
    if found.is_large:
        for other in [own for own, its in known.items() if its.is_large]:
            del known[other]
    known[key] = found
    return found


class CandidateGrids:
    """The candidate sizes of each axis of an output under halo modes, and what groups with such an output share.

    Figures of tensors by what their boxes are along an axis; stages; the candidates inside a chosen tile.
    """

    def __init__(self, projections: Projections, grids: Mapping[str, Grid], halo: Mapping[str, HaloMode]) -> None:
        self.grids = grids
        self.halo = halo
        self.known: dict[object, Any] = {}
        self.projections = projections
        self.projection = projections.of(
            {
                axis: AxisTiles(
                    starts=grid.starts,
                    stops=grid.stops,
                    begins=grid.begins,
                    # candidates stand side by side: what units pass each other is as what one of them keeps
                    mode=HaloMode.RECOMPUTE
                    if halo.get(axis, HaloMode.RECOMPUTE) is HaloMode.RECOMPUTE
                    else HaloMode.CACHED,
                    times=1 if axis == "C" else None,
                )
                for axis, grid in grids.items()
            }
        )
        self.counts = {axis: grid.counts for axis, grid in grids.items()}
        self._inside: dict[tuple[int, ...], CandidateGrids] = {}

    def column(self, axis: str, share: Share) -> Column:
        """Figures along an axis of a tensor that has this share of it."""
        ranges = self.projection.axes[axis]
        found = ranges.columns.get(share)
        if found is None:
            # imported where it is used alone: it brings a compiler with it
            from compiler.tiling.kernels import figures_of_sizes

            grid = self.grids[axis]
            if len(share.made) < len(grid.starts):
                # a tensor that does not follow the channels is the same for all slices of them
                one = np.ones(len(grid.sizes))
                found = Column(largest=one, needed=one, kept=np.zeros_like(one), total=one.astype(np.int64))
            else:
                keeps = len(share.waiting) > 1
                waiting = share.waiting if keeps else share.made
                most, total = figures_of_sizes(grid.offsets, share.needed, share.made, waiting, keeps)
                found = Column(largest=most[0], needed=most[1], kept=most[2], total=total)
            # elsewhere shares are not kept, so each is another object
            if ranges.is_kept:
                ranges.columns[share] = found
        return found

    def inside(self, tile: tuple[int, ...], axes: tuple[str, ...]) -> CandidateGrids:
        """Candidates for core tiles: each of the axes of a chosen SRAM tile cut into equal parts."""
        found = self._inside.get(tile)
        if found is None:
            sizes = dict(zip(axes, tile, strict=True))
            grids = {
                axis: grid if axis == "C" else Grid.nested(grid.extent, sizes[axis], _inner(grid.extent, sizes[axis]))
                for axis, grid in self.grids.items()
            }
            found = _kept(self._inside, tile, CandidateGrids(self.projections, grids, self.halo))
        return found

    @property
    def is_large(self) -> bool:
        """Whether the ranges of all candidates take much memory."""
        return sum(len(grid.starts) for grid in self.grids.values()) > _KEPT_RANGES


class SizeTable:
    """Box bytes of a group's activations (`names`) for candidate sizes of each axis of its output.

    `axes` is the splitting order, channels apart (FUSE-S1). `constant[t]` × the product over axes of
    `largest[axis][t, k]` is what the largest tile makes anew of tensor t; `kept` and `union` (see `Share`) say in the
    same way what waits for later tiles of one walk. `halo` are the modes that the table is for.
    """

    def __init__(self, geometry: GroupGeometry, candidates: CandidateGrids) -> None:
        """Project the group once for all candidates of all axes."""
        output = geometry.output
        axes = sorted((a for a in output.axes if a != "C"), key=lambda a: (a != "N", output.axes.index(a)))
        self.geometry = geometry
        self.candidates = candidates
        self.axes: tuple[str, ...] = tuple(axes)
        self.grids = candidates.grids
        self.halo = candidates.halo
        self.names = geometry.lifetimes[0]
        self._boxes = geometry.boxes_under(candidates.projection)
        self._inside: dict[tuple[int, ...], SizeTable] = {}
        # the table without kept halos, where this one is searched beside it
        self.recomputed: SizeTable | None = None
        # core tiles found, by what they were asked for
        self.core_tiles: dict[tuple[object, ...], dict[str, int] | int] = {}

    @lazy
    def boxes(self) -> Mapping[str, Box]:
        """The boxes of every activation for all candidates of all axes side by side."""
        return {name: boxes.ranges for name, boxes in self._boxes.items()}

    @lazy
    def _volumes(self) -> Mapping[str, Volume]:
        tensors = self.geometry.facts.tensors
        return {name: self._boxes[name].volume(tensors[name].element_bytes) for name in self.names}

    @lazy
    def constant(self) -> Reals:
        """Bytes of each activation that no candidate cuts."""
        return np.array([self._volumes[name].constant for name in self.names], dtype=np.float64)

    @lazy
    def largest(self) -> Mapping[str, Reals]:
        """By axis what the largest tile makes anew [tensor, candidate]."""
        return self._rows("largest", 1.0)

    @lazy
    def needed(self) -> Mapping[str, Reals]:
        """By axis what the largest tile needs [tensor, candidate]."""
        return self._rows("needed", 1.0)

    @lazy
    def kept(self) -> Mapping[str, Reals]:
        """By axis what waits for later tiles [tensor, candidate]."""
        return self._rows("kept", 0.0)

    @lazy
    def union(self) -> Mapping[str, Reals]:
        """By axis what all tiles make together [tensor, candidate]; 1 for a tensor that does not follow it."""
        return self._rows("total", 1.0, only_followed=True)

    @lazy
    def _columns(self) -> Mapping[str, tuple[list[Column], list[int]]]:
        """By axis that is cut the figures of all tensors, and which of these do not follow it."""
        column, boxes, volumes = self.candidates.column, self._boxes, self._volumes
        return {
            axis: (
                [column(axis, volumes[name].shares[axis]) for name in self.names],
                [row for row, name in enumerate(self.names) if axis not in boxes[name].followed],
            )
            for axis in self.candidates.projection.tiles
        }

    def _rows(self, figure: str, otherwise: float, *, only_followed: bool = False) -> dict[str, Reals]:
        """A figure of all tensors, by axis; `otherwise` for an axis not cut, or (`only_followed`) not followed."""
        found = {}
        for axis, grid in self.grids.items():
            columns, others = self._columns.get(axis, ((), ()))
            if not columns:
                found[axis] = np.full((len(self.names), len(grid.sizes)), otherwise)
                continue
            rows = np.concatenate([getattr(column, figure) for column in columns], dtype=np.float64)
            found[axis] = rows.reshape(len(columns), -1)
            if only_followed:
                found[axis][others] = otherwise
        return found

    @classmethod
    def of_group(
        cls,
        geometry: GroupGeometry,
        halo: Mapping[str, HaloMode] | None = None,
        pinned: Mapping[str, int] | None = None,
        tried: Mapping[str, Ints] | None = None,
    ) -> SizeTable:
        """Candidates for SRAM tiles: every axis of the output from its beginning; one size where it is pinned.

        `tried`: the sizes of an axis that a split by steps can meet; they take the place of all sizes.
        """
        output, tensors = geometry.output, tensors_of(geometry)
        wanted = (tuple((halo or {}).items()), tuple((pinned or {}).items()))
        met = tuple((axis, sizes.tobytes()) for axis, sizes in (tried or {}).items())
        key = ("candidates", output.axes, output.shape, *wanted, met, max(tensors, _MANY_TENSORS))
        known = geometry.projections.known
        found = known.get(key)
        if not isinstance(found, CandidateGrids):
            grids = {}
            for axis, extent in zip(output.axes, output.shape, strict=True):
                if pinned and axis in pinned:
                    grids[axis] = Grid.of_sizes(extent, np.array([min(pinned[axis], extent)], dtype=np.int64))
                    continue
                if tried and axis in tried:
                    grids[axis] = Grid.of_sizes(extent, tried[axis])
                    continue
                sizes = part_sizes(extent, tensors) if axis == "C" else candidate_sizes(extent, tensors)
                grids[axis] = Grid.of_sizes(extent, sizes)
            found = known[key] = CandidateGrids(geometry.projections, grids, dict(halo or {}))
        return cls(geometry, found)

    def inside(self, tile: Mapping[str, int]) -> SizeTable:
        """Candidates for core tiles: each axis of a chosen SRAM tile cut into equal parts."""
        key = tuple(tile[axis] for axis in self.axes)
        known = self._inside.get(key)
        if known is None:
            known = _kept(self._inside, key, SizeTable(self.geometry, self.candidates.inside(key, self.axes)))
        return known

    @property
    def is_large(self) -> bool:
        """Whether the ranges of all candidates take much memory."""
        return self.candidates.is_large

    def waiting(self, at: Mapping[str, Ints], rows: int) -> Reals:
        """Bytes [tensor, row] that wait for later tiles; `at` gives the candidates of the rows by axis."""
        total = np.zeros((len(self.names), rows))
        for number, walked in enumerate(self.axes):
            if self.halo.get(walked, HaloMode.RECOMPUTE) is HaloMode.RECOMPUTE or walked not in self._keeping:
                continue
            part = self.constant[:, None] * self.kept[walked][:, at[walked]]
            # of a slice of the channels the next one keeps nothing
            for outer in (*self.axes[:number], *({"C"} & at.keys())):
                part *= self.needed[outer][:, at[outer]]
            for inner in self.axes[number + 1 :]:
                part *= self.union[inner][:, at[inner]]
            total += part
        return total

    @lazy
    def _keeping(self) -> frozenset[str]:
        """Axes along which anything waits for later tiles."""
        return frozenset(axis for axis, kept in self.kept.items() if kept.any())

    def index(self, axis: str, size: int) -> int:
        """Position of the smallest candidate of at least `size`; the last one if there is none."""
        sizes, extent = self.grids[axis].sizes, self.grids[axis].extent
        if len(sizes) == extent:
            return size - 1
        return min(int(np.searchsorted(sizes, size)), len(sizes) - 1)

    def volumes(self, at: Mapping[str, Ints], rows: int) -> Reals:
        """Bytes [tensor, row] of the largest boxes; `at` gives the candidates of the rows by axis."""
        result = np.repeat(self.constant[:, None], rows, axis=1)
        for axis, places in at.items():
            result *= self.largest[axis][:, places]
        return result

    def boxes_of(self, at: Mapping[str, int], axis: str | None, count: int) -> Reals:
        """Bytes [tensor, candidate] of whole boxes, with what was made before.

        Candidates are the first `count` sizes of `axis`, others are fixed by `at`.
        """
        fixed = self.constant.copy()
        for other, position in at.items():
            if other != axis:
                fixed *= self.needed[other][:, position]
        if axis is None:
            return fixed[:, None]
        return np.asarray(fixed[:, None] * self.needed[axis][:, :count])

    def totals(self, name: str, at: Mapping[str, Ints], rows: int) -> Ints:
        """Bytes [row] that all tiles make anew of a tensor; an axis that it does not follow repeats them.

        `at` gives the candidates of the rows by axis. Channel slices do not repeat: within a tile they work on the same
        data.
        """
        followed = self._boxes[name].followed
        total = np.full(rows, self._volumes[name].constant, dtype=np.int64)
        for axis in followed:
            total *= self.made_along(name, axis)[at[axis]]
        for axis in self.axes:
            if axis not in followed and self.halo.get(axis, HaloMode.RECOMPUTE) is HaloMode.RECOMPUTE:
                total *= self.counts(axis)[at[axis]]
        return total

    def made_along(self, name: str, axis: str) -> Ints:
        """Positions along an axis that all tiles of each candidate size make anew of a tensor that follows the axis."""
        return self.candidates.column(axis, self._volumes[name].shares[axis]).total

    def counts(self, axis: str) -> Ints:
        """Number of tiles of each candidate size along an axis."""
        return self.candidates.counts[axis]

    def indices(self, axis: str, sizes: Ints) -> Ints:
        """As `index`, for many sizes."""
        known = self.grids[axis].sizes
        return np.minimum(np.searchsorted(known, sizes), len(known) - 1)

    def follows(self, name: str, axis: str) -> bool:
        """True if the tensor's box changes with the tile's range on `axis`."""
        return axis in self._boxes[name].followed

    def is_straight(self, axis: str) -> bool:
        """False if two axes of one tensor follow `axis`: what tiles make anew there is no box, so no halo is kept."""
        return all(len(boxes.followed.get(axis, ())) < 2 for boxes in self._boxes.values())

    @lazy
    def channels_are_free(self) -> bool:
        """True if every op of the group can make a slice of its output channels for itself (FUSE-S1)."""
        if "C" not in self.grids or self.grids["C"].extent == 1:
            return False
        return self.geometry.channels_follow_in(self.boxes)

    @lazy
    def band_axis(self) -> str | None:
        """The axis that bands cut: the first after N with more than one position."""
        return next((a for a in self.axes if a != "N" and self.grids[a].extent > 1), None)

    def tile_count(self, sizes: Mapping[str, int]) -> int:
        """Number of tiles, channels apart."""
        return prod(-(-self.grids[axis].extent // sizes[axis]) for axis in self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tiles that differ in the size of one axis: N down to one image, then each further axis (FUSE-S1).

    `at` fixes the other axes: earlier ones at their smallest, later ones at their cap. `count` sizes, ascending;
    `even` marks those that fill the array's lanes along every axis.
    """

    axis: str | None
    at: Mapping[str, int]
    count: int
    even: NDArray[np.bool_]


def stages(
    table: SizeTable, caps: Mapping[str, int], channel_size: int | None, lanes: Mapping[str, int]
) -> tuple[Stage, ...]:
    """The stages of splitting under caps per axis (what one unit gets).

    `lanes` are the array's lanes along an axis: tiles of fewer positions come last, as they leave lanes idle.
    """
    key = ("stages", *caps.items(), channel_size, *lanes.items())
    known = table.candidates.known
    found: tuple[Stage, ...] | None = known.get(key)
    if found is None:
        found = known[key] = _stages(table, caps, channel_size, lanes)
    return found


def _stages(
    table: SizeTable, caps: Mapping[str, int], channel_size: int | None, lanes: Mapping[str, int]
) -> tuple[Stage, ...]:
    channel = {} if channel_size is None else {"C": table.index("C", channel_size)}
    least = {axis: min(lanes.get(axis, 1), caps[axis]) for axis in table.axes}
    result = []
    for smallest in (least, dict.fromkeys(table.axes, 1)):
        for number, axis in enumerate(table.axes):
            at = dict(channel)
            for other_number, other in enumerate(table.axes):
                at[other] = table.index(other, smallest[other] if other_number < number else caps[other])
            result.append(Stage(axis=axis, at=at, count=at[axis] + 1, even=_even(table, at, axis, caps, lanes)))
        if all(size == 1 for size in least.values()):
            break
    if not result:
        result.append(Stage(axis=None, at=channel, count=1, even=np.ones(1, dtype=np.bool_)))
    return tuple(result)


def _even(
    table: SizeTable, at: Mapping[str, int], axis: str, caps: Mapping[str, int], lanes: Mapping[str, int]
) -> NDArray[np.bool_]:
    result = np.ones(at[axis] + 1, dtype=np.bool_)
    for other, lane in lanes.items():
        if other in at:
            sizes = table.grids[other].sizes
            sizes = sizes[: at[axis] + 1] if other == axis else sizes[at[other]]
            result &= (sizes % lane == 0) | (sizes >= caps[other])
    return result


def stage_sizes(table: SizeTable, stage: Stage, position: int) -> dict[str, int]:
    """The tile of one candidate: size per axis."""
    sizes = {axis: int(table.grids[axis].sizes[index]) for axis, index in stage.at.items()}
    if stage.axis is not None:
        sizes[stage.axis] = int(table.grids[stage.axis].sizes[position])
    return sizes
