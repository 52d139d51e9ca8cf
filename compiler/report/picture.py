"""A picture of one group's tiling as SVG: what a tile needs, who owns which tile, in which order (TILE-4, UI).

To the left the input with what two neighbouring tiles need of it, to the right the output with its tiles coloured by
owner: of both two axes, which the captions name, and always the whole of them. The text is deterministic, holds no
script and no reference to anything outside it, and its size is bounded: a fine grid is drawn as merged runs of one
owner, and where even those are many, scaled down: a block has the colour of its first tile, and the picture says so.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from compiler.errors import InternalError, printable
from compiler.ir.box import Ints

# Okabe and Ito's colours, which the colour-blind tell apart too; further units get lighter tones of them.
_COLOURS: Final = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (153, 153, 153),
)
_TONES: Final = (0.0, 0.4, 0.65, 0.8)
_INK: Final = "#222222"

# A half-open range of rows or columns.
_Range = tuple[int, int]
_Area = tuple[_Range, _Range]

# All in pixels.
_PLANE: Final = 360.0
_THINNEST: Final = 32.0
_MARGIN: Final = 20.0
_GAP: Final = 60.0
_TOP: Final = 90.0
_LINE: Final = 17.0
_LEAST_FOR_LABEL: Final = 14.0
_LEAST_FOR_STEP: Final = 26.0
_LEAST_FOR_GRID: Final = 3.0

# So many tiles get a rectangle each; a grid of more runs than are drawn is scaled down to so many blocks an axis.
_TILES_DRAWN: Final = 256
_RUNS_DRAWN: Final = 1000
_BLOCKS_DRAWN: Final = 24
_UNITS_LISTED: Final = 16

_WHAT_HAPPENS: Final = (
    ("recompute", "recomputed by both"),
    ("cached", "kept from the tile before"),
    ("exchange", "exchanged"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A tensor and the two of its axes that are drawn, by position: `rows` down, `columns` across.

    None stands for an axis that the tensor does not have: one position is drawn.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    size_bytes: int
    rows: int | None
    columns: int | None

    @property
    def extents(self) -> tuple[int, int]:
        """How many positions are drawn down and across."""
        rows, columns = (1 if place is None else self.shape[place] for place in (self.rows, self.columns))
        return rows, columns

    @property
    def drawn(self) -> tuple[str | None, str | None]:
        """The names of the axes down and across."""
        down, across = (None if place is None else self.axes[place] for place in (self.rows, self.columns))
        return down, across


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TilePicture:
    """What a picture of one group's tiling shows.

    `tile` are the extents of a tile along all axes of the output, `tile_bytes` what its inputs take. `row_cuts` and
    `column_cuts` are the borders of the tiles of the output's plane, from 0 to its extent, one more than there are
    tiles. `owner` and `step` are arrays [tile row, tile column]. `input_rows` and `input_columns` are starts and stops
    of what each tile row and tile column needs of the input's plane. `halo_modes` are those of rows and of columns
    (TILE-3). `also_cut`: axes that are cut but not drawn, with the number of tiles along each. Names may hold any text.
    """

    title: str
    output: Plane
    tile: tuple[int, ...]
    tile_bytes: int
    row_cuts: Ints
    column_cuts: Ints
    owner: Ints
    step: Ints
    input: Plane
    input_rows: tuple[Ints, Ints]
    input_columns: tuple[Ints, Ints]
    halo_modes: tuple[str, str]
    placement: str
    units: int
    unit_word: str = "core"
    also_cut: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """InternalError if the arrays are not of one tile grid."""
        rows, columns = len(self.row_cuts) - 1, len(self.column_cuts) - 1
        needs = {len(array) for array in self.input_rows}, {len(array) for array in self.input_columns}
        if (
            min(rows, columns, *self.output.extents, *self.input.extents) < 1
            or self.owner.shape != (rows, columns)
            or self.step.shape != (rows, columns)
            or needs != ({rows}, {columns})
        ):
            raise InternalError(
                "a picture's arrays are not of one tile grid",
                stage="picture",
                actual=f"owners {self.owner.shape}, steps {self.step.shape}",
                limit=f"{rows}x{columns} tiles",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where an area of a plane is drawn: its place in pixels and pixels per element along each axis."""

    left: float
    area: _Area
    scale: tuple[float, float]

    @classmethod
    def fit(cls, area: _Area, left: float) -> _Frame:
        """The area to scale, its longer side `_PLANE` long; very thin ones are drawn thicker than they are."""
        extents = tuple(stop - start for start, stop in area)
        scale = _PLANE / max(extents)
        down, across = (max(extent * scale, _THINNEST) / extent for extent in extents)
        return cls(left=left, area=area, scale=(down, across))

    @property
    def size(self) -> tuple[float, float]:
        """Height and width in pixels."""
        (top, bottom), (left, right) = self.area
        return (bottom - top) * self.scale[0], (right - left) * self.scale[1]

    def box(self, area: _Area) -> dict[str, str]:
        """Attributes of the rectangle of an area."""
        (down, across), ((top, bottom), (left, right)) = self.scale, area
        size = {"width": _number((right - left) * across), "height": _number((bottom - top) * down)}
        return {**self.at(top, left), **size}

    def at(self, row: float, column: float) -> dict[str, str]:
        """Attributes of a point."""
        (top, _), (left, _) = self.area
        x, y = self.left + (column - left) * self.scale[1], _TOP + (row - top) * self.scale[0]
        return {"x": _number(x), "y": _number(y)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Example:
    """Two neighbouring tiles, the axis (0: rows) along which the second follows, and what both need: the halo."""

    tiles: tuple[tuple[int, int], ...]
    axis: int
    halo: _Area

    @property
    def halo_extents(self) -> tuple[int, int]:
        """Rows and columns that both need; (0, 0) if they share nothing."""
        rows, columns = (max(0, stop - start) for start, stop in self.halo)
        return (rows, columns) if rows and columns else (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    """The tiles as they are drawn; `block` tiles (rows, columns) are one where the grid is scaled down."""

    block: tuple[int, int]
    down: Ints
    across: Ints
    owner: Ints
    step: Ints

    @classmethod
    def of(cls, picture: TilePicture) -> _Grid:
        """The grid whole, or scaled down where its runs are too many."""
        rows, columns = picture.owner.shape
        block = 1, 1
        few = rows * columns <= _TILES_DRAWN
        if not few and sum(1 for _ in _runs(picture.owner, _RUNS_DRAWN + 1)) > _RUNS_DRAWN:
            block = -(-rows // _BLOCKS_DRAWN), -(-columns // _BLOCKS_DRAWN)
        down, across = (
            np.append(cuts[:-1:size], cuts[-1])
            for cuts, size in ((picture.row_cuts, block[0]), (picture.column_cuts, block[1]))
        )
        first = np.s_[:: block[0], :: block[1]]
        return cls(block=block, down=down, across=across, owner=picture.owner[first], step=picture.step[first])

    @property
    def is_scaled(self) -> bool:
        """Whether a rectangle stands for several tiles."""
        return self.block != (1, 1)


def tile_picture(picture: TilePicture) -> str:
    """The picture as the text of an SVG document, at most about 2000 elements whatever the grid (TILE-4)."""
    grid, example = _Grid.of(picture), _example(picture)
    source = _Frame.fit(_whole(picture.input), _MARGIN)
    target = _Frame.fit(_whole(picture.output), source.left + max(source.size[1], 320) + _GAP)
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": "sans-serif"})
    ET.SubElement(svg, "title").text = printable(picture.title, 200)
    _hatching(svg)
    background = ET.SubElement(svg, "rect", {"class": "background", "fill": "#ffffff"})
    _text(svg, printable(picture.title, 90), x=_MARGIN, y=28, size=16)
    for what, plane, frame in (("input", picture.input, source), ("output", picture.output, target)):
        _text(svg, f"{what} {printable(plane.name, 40)}", x=frame.left, y=_TOP - 28)
        _text(svg, _plane_caption(plane), x=frame.left, y=_TOP - 11)
    _draw_needs(svg, picture, source, example)
    _draw_tiles(svg, picture, target, grid)
    for number, tile in enumerate(example.tiles, start=1):
        _outline(svg, target.box(_tile_box(picture, tile)), number)
    bottom = _TOP + max(source.size[0], target.size[0]) + 28
    for line in _legend(picture, example, grid):
        _text(svg, line, x=_MARGIN, y=bottom)
        bottom += _LINE
    bottom = _draw_units(svg, picture, bottom + 4)
    width = _number(max(target.left + max(target.size[1], 320) + _MARGIN, 760))
    for element in (svg, background):
        element.set("width", width)
        element.set("height", _number(bottom))
    svg.set("viewBox", f"0 0 {width} {_number(bottom)}")
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _whole(plane: Plane) -> _Area:
    rows, columns = plane.extents
    return (0, rows), (0, columns)


def _runs(owner: Ints, limit: int) -> Iterator[tuple[int, int, int, int]]:
    """Rectangles of tiles of one owner (first and end row, first and end column), at most `limit` of them.

    Equal neighbouring rows are one strip, and each strip is cut where its owner changes.
    """
    changes = np.flatnonzero((owner[1:] != owner[:-1]).any(axis=1)) + 1
    borders = [0, *changes[:limit].tolist(), len(owner)]
    for top, bottom in pairwise(borders):
        row = owner[top]
        cuts = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1)[:limit].tolist(), len(row)]
        for left, right in pairwise(cuts):
            if limit == 0:
                return
            limit -= 1
            yield top, bottom, left, right


def _example(picture: TilePicture) -> _Example:
    """A tile in the middle and the one after it, along the first axis on which the two share something."""
    rows, columns = picture.owner.shape
    row, column = (rows - 1) // 2, (columns - 1) // 2
    candidates = []
    for axis, follower in ((1, (row, column + 1)), (0, (row + 1, column))):
        if follower[0] < rows and follower[1] < columns:
            first, second = _needs(picture, (row, column)), _needs(picture, follower)
            shared = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(first, second, strict=True))
            candidates.append(_Example(tiles=((row, column), follower), axis=axis, halo=(shared[0], shared[1])))
    for candidate in candidates:
        if candidate.halo_extents != (0, 0):
            return candidate
    return candidates[0] if candidates else _Example(tiles=((row, column),), axis=0, halo=((0, 0), (0, 0)))


def _needs(picture: TilePicture, tile: tuple[int, int]) -> _Area:
    """Rows and columns of the input that a tile needs."""
    (row_starts, row_stops), (column_starts, column_stops) = picture.input_rows, picture.input_columns
    row, column = tile
    return (int(row_starts[row]), int(row_stops[row])), (int(column_starts[column]), int(column_stops[column]))


def _tile_box(picture: TilePicture, tile: tuple[int, int]) -> _Area:
    """Rows and columns of the output that a tile makes."""
    row, column = tile
    return (
        (int(picture.row_cuts[row]), int(picture.row_cuts[row + 1])),
        (int(picture.column_cuts[column]), int(picture.column_cuts[column + 1])),
    )


def _draw_needs(svg: ET.Element, picture: TilePicture, frame: _Frame, example: _Example) -> None:
    plane = {"class": "plane", "fill": "#f4f4f4", "stroke": _INK}
    ET.SubElement(svg, "rect", {**frame.box(frame.area), **plane})
    for tile in example.tiles:
        colour = {"fill": _colour(int(picture.owner[tile])), "fill-opacity": "0.45"}
        ET.SubElement(svg, "rect", {"class": "need", **frame.box(_needs(picture, tile)), **colour})
    if example.halo_extents != (0, 0):
        ET.SubElement(svg, "rect", {"class": "halo", **frame.box(example.halo), "fill": "url(#hatch)"})
    for number, tile in enumerate(example.tiles, start=1):
        _outline(svg, frame.box(_needs(picture, tile)), number)


def _draw_tiles(svg: ET.Element, picture: TilePicture, frame: _Frame, grid: _Grid) -> None:
    down, across, owner = grid.down, grid.across, grid.owner
    rows, columns = owner.shape
    one_by_one = rows * columns <= _TILES_DRAWN and not grid.is_scaled
    if one_by_one:
        parts = ((row, row + 1, column, column + 1) for row in range(rows) for column in range(columns))
    else:
        parts = ((top, bottom, left, right) for top, bottom, left, right in _runs(owner, _RUNS_DRAWN))
    for top, bottom, left, right in parts:
        unit = int(owner[top, left])
        box = frame.box(((int(down[top]), int(down[bottom])), (int(across[left]), int(across[right]))))
        edge = {"stroke": "#ffffff", "stroke-width": "1"} if one_by_one else {}
        ET.SubElement(svg, "rect", {"class": "tile", **box, "fill": _colour(unit), **edge})
        if min(float(box["width"]), float(box["height"])) < _LEAST_FOR_LABEL:
            continue
        middle = frame.at(int(down[top] + down[bottom]) / 2, int(across[left] + across[right]) / 2)
        label = _unit_label(picture.units, unit)
        if one_by_one and min(float(box["width"]), float(box["height"])) >= _LEAST_FOR_STEP:
            label += f" {int(grid.step[top, left])}"
        style = {"class": "label", "font-size": "10", "text-anchor": "middle", "dominant-baseline": "central"}
        ET.SubElement(svg, "text", {**middle, **style, "fill": _ink_on(unit)}).text = label
    if not one_by_one and not grid.is_scaled:
        _grid_lines(svg, frame, down, across)


def _grid_lines(svg: ET.Element, frame: _Frame, down: Ints, across: Ints) -> None:
    """Thin lines between tiles, where tiles are wide enough to tell them apart; at most 2·_PLANE/_LEAST_FOR_GRID."""
    lines = []
    (_, height), (_, width) = frame.area
    if (len(down) - 1) * _LEAST_FOR_GRID <= frame.size[0]:
        lines += [((cut, cut), (0, width)) for cut in down[1:-1].tolist()]
    if (len(across) - 1) * _LEAST_FOR_GRID <= frame.size[1]:
        lines += [((0, height), (cut, cut)) for cut in across[1:-1].tolist()]
    for (top, bottom), (left, right) in lines:
        start, end = frame.at(top, left), frame.at(bottom, right)
        ends = {"x1": start["x"], "y1": start["y"], "x2": end["x"], "y2": end["y"]}
        ET.SubElement(svg, "line", {"class": "cut", **ends, "stroke": "#ffffff", "stroke-width": "0.5"})


def _legend(picture: TilePicture, example: _Example, grid: _Grid) -> Iterator[str]:
    """Lines of text below the planes."""
    count, word = picture.owner.shape, printable(picture.unit_word, 60)
    tiles = "1 tile of" if picture.owner.size == 1 else f"{count[0]} × {count[1]} tiles of at most"
    yield (
        f"{tiles} {_extents(picture.output.axes, picture.tile)}; the inputs of a tile take {_size(picture.tile_bytes)}"
    )
    steps = _count(int(picture.step.max()) + 1, "step")
    yield f"placement {printable(picture.placement, 40)} on {_count(picture.units, word)}; {steps}"
    if picture.also_cut:
        cut = ", ".join(
            f"{printable(axis, 20)} ({_count(tiles_along, 'tile')})" for axis, tiles_along in picture.also_cut
        )
        yield f"also cut, which is not drawn: {cut}"
    modes = [
        f"along {printable(axis or 'no axis', 20)} {printable(mode, 40)}"
        for axis, mode, tiles_along in zip(picture.output.drawn, picture.halo_modes, count, strict=True)
        if tiles_along > 1
    ]
    if modes:
        yield f"halo: {', '.join(modes)}"
    tiles_meant = "tile 1 needs" if len(example.tiles) == 1 else "tiles 1 and 2 need"
    yield f"coloured on the left: what {tiles_meant} of this input"
    height, width = example.halo_extents
    if height:
        mode = picture.halo_modes[example.axis]
        what = dict(_WHAT_HAPPENS).get(mode, printable(mode, 40))
        first, second = (int(picture.owner[tile]) for tile in example.tiles)
        if mode == "exchange" and first == second:
            what = "kept, both being of one owner"
        rows, columns = picture.input.extents
        size = _size(picture.input.size_bytes * height * width // (rows * columns))
        yield f"hatched: {height} × {width} positions ({size}) that tiles 1 and 2 both need: {what}"
    elif len(example.tiles) == 2:
        yield "tiles 1 and 2 need nothing in common"
    if picture.owner.size <= _TILES_DRAWN:
        yield f"in each tile that has room: its {word} and the step at which it is done"
    if grid.is_scaled:
        yield f"scaled down: a block stands for {grid.block[0]} × {grid.block[1]} tiles and has the colour of its first"


def _draw_units(svg: ET.Element, picture: TilePicture, top: float) -> float:
    """Colour and name of each unit, four a line; returns where the next line would be."""
    word = printable(picture.unit_word, 60)
    listed = min(picture.units, _UNITS_LISTED)
    for unit in range(listed):
        x, y = _MARGIN + unit % 4 * 180, top + unit // 4 * _LINE
        box = {"x": _number(x), "y": _number(y - 10), "width": "12", "height": "12", "fill": _colour(unit)}
        ET.SubElement(svg, "rect", {"class": "unit", **box})
        tiles = _count(int(np.count_nonzero(picture.owner == unit)), "tile")
        label = _unit_label(picture.units, unit)
        name = word if picture.units == 1 else f"{word} {unit}"
        name = name if label == str(unit) else f"{label}: {name}"
        _text(svg, f"{name}, {tiles}", x=x + 18, y=y)
    top += -(-listed // 4) * _LINE
    if listed < picture.units:
        _text(svg, f"and {picture.units - listed} more", x=_MARGIN, y=top)
        top += _LINE
    return top


def _outline(svg: ET.Element, box: dict[str, str], number: int) -> None:
    """A thick border with the number of an example tile in its corner; the second one is dashed."""
    dash = {"stroke-dasharray": "5 3"} if number == 2 else {}
    thinner_side = min(float(box["width"]), float(box["height"]))
    width = "2" if thinner_side >= _LEAST_FOR_LABEL else "0.75"
    border = {"fill": "none", "stroke": _INK, "stroke-width": width, **dash}
    ET.SubElement(svg, "rect", {"class": "example", **box, **border})
    if thinner_side >= _LEAST_FOR_STEP:
        # the first in its top left corner, the second in its bottom right one, so that a halo hides neither
        x = float(box["x"]) + (4 if number == 1 else float(box["width"]) - 10)
        y = float(box["y"]) + (11 if number == 1 else float(box["height"]) - 4)
        _text(svg, str(number), x=x, y=y, size=10)


def _hatching(svg: ET.Element) -> None:
    pattern = {"id": "hatch", "width": "6", "height": "6", "patternUnits": "userSpaceOnUse"}
    hatch = ET.SubElement(ET.SubElement(svg, "defs"), "pattern", pattern)
    strokes = {"d": "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", "stroke": _INK, "stroke-width": "1"}
    ET.SubElement(hatch, "path", strokes)


def _text(svg: ET.Element, text: str, *, x: float, y: float, size: int = 12) -> None:
    place = {"x": _number(x), "y": _number(y), "font-size": str(size), "fill": _INK}
    ET.SubElement(svg, "text", place).text = text


def _plane_caption(plane: Plane) -> str:
    down, across = (None if axis is None else printable(axis, 20) for axis in plane.drawn)
    drawn = ", ".join(f"{axis} {way}" for axis, way in ((down, "down"), (across, "across")) if axis is not None)
    shape = printable(_extents(plane.axes, plane.shape), 60) or "scalar"
    return f"{shape}, {_size(plane.size_bytes)}; {drawn or 'one position'}"


def _extents(axes: tuple[str, ...], extents: tuple[int, ...]) -> str:
    return " × ".join(f"{printable(axis, 20)} {extent}" for axis, extent in zip(axes, extents, strict=True))


def _size(size_bytes: int) -> str:
    """Bytes for people."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.2f} {unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _unit_label(units: int, unit: int) -> str:
    """A letter, as in the specification's examples, or a number where letters do not suffice."""
    return chr(ord("A") + unit) if units <= 26 else str(unit)


def _tone(unit: int) -> tuple[int, int, int]:
    white = _TONES[unit // len(_COLOURS) % len(_TONES)]
    red, green, blue = (round(part + (255 - part) * white) for part in _COLOURS[unit % len(_COLOURS)])
    return red, green, blue


def _colour(unit: int) -> str:
    return "#{:02x}{:02x}{:02x}".format(*_tone(unit))


def _ink_on(unit: int) -> str:
    """Black or white, whichever stands out more."""
    red, green, blue = _tone(unit)
    return _INK if 299 * red + 587 * green + 114 * blue > 110_000 else "#ffffff"


def _number(value: float) -> str:
    """A coordinate to a hundredth of a pixel, without idle zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
