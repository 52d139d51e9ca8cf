"""A picture of one group's tiling as SVG: what a tile needs, who owns which tile, in which order (TILE-4, UI).

To the left the plane of the input with what two neighbouring tiles need of it, to the right the plane of the output
with its tiles coloured by owner. The text is deterministic, holds no script and no reference to anything outside it,
and its size is bounded: a fine grid is drawn as merged runs of one owner, and where even those are many, its first
tiles are shown and the picture says so.
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
_TOP: Final = 74.0
_LINE: Final = 17.0
_LEAST_FOR_LABEL: Final = 14.0
_LEAST_FOR_STEP: Final = 26.0
_LEAST_FOR_GRID: Final = 3.0
# An axis is shown whole unless the example needs less than this part of it.
_LITTLE: Final = 6

# So many tiles get a rectangle each, so many a label, so many runs are drawn before the picture is cut.
_TILES_DRAWN: Final = 256
_RUNS_DRAWN: Final = 1000
_TILES_SHOWN: Final = 24
_UNITS_LISTED: Final = 16

_WHAT_HAPPENS: Final = (
    ("recompute", "recomputed by both"),
    ("cached", "kept from the tile before"),
    ("exchange", "exchanged"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TilePicture:
    """What a picture of one group's tiling shows.

    Planes are (rows, columns) in elements. `row_cuts` and `column_cuts` are the borders of the tiles of the output
    plane, from 0 to its extent, one more than there are tiles. `owner` and `step` are arrays [tile row, tile
    column]. `input_rows` and `input_columns` are starts and stops of what each tile row and tile column needs of the
    input plane. `halo_modes` are those of rows and of columns (TILE-3). Names may hold any text.
    """

    title: str
    output_name: str
    output_plane: tuple[int, int]
    row_cuts: Ints
    column_cuts: Ints
    owner: Ints
    step: Ints
    input_name: str
    input_plane: tuple[int, int]
    input_rows: tuple[Ints, Ints]
    input_columns: tuple[Ints, Ints]
    halo_modes: tuple[str, str]
    placement: str
    units: int
    unit_word: str = "core"

    def __post_init__(self) -> None:
        """InternalError if the arrays are not of one tile grid."""
        rows, columns = len(self.row_cuts) - 1, len(self.column_cuts) - 1
        needs = {len(array) for array in self.input_rows}, {len(array) for array in self.input_columns}
        if (
            min(rows, columns, *self.output_plane, *self.input_plane) < 1
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


def tile_picture(picture: TilePicture) -> str:
    """The picture as the text of an SVG document, at most about 2000 elements whatever the grid (TILE-4)."""
    rows, columns = _shown(picture)
    shown = (0, int(picture.row_cuts[rows])), (0, int(picture.column_cuts[columns]))
    example = _example(picture, rows, columns)
    source = _Frame.fit(_surroundings(picture, example), _MARGIN)
    target = _Frame.fit(shown, source.left + max(source.size[1], 160) + _GAP)
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": "sans-serif"})
    ET.SubElement(svg, "title").text = printable(picture.title, 200)
    _hatching(svg)
    background = ET.SubElement(svg, "rect", {"class": "background", "fill": "#ffffff"})
    _text(svg, printable(picture.title, 90), x=_MARGIN, y=28, size=16)
    _text(svg, _plane_caption("needed of", picture.input_name, picture.input_plane), x=source.left, y=_TOP - 12)
    _text(svg, _plane_caption("tiles of", picture.output_name, picture.output_plane), x=target.left, y=_TOP - 12)
    _draw_needs(svg, picture, source, example)
    _draw_tiles(svg, picture, target, rows, columns)
    for number, tile in enumerate(example.tiles, start=1):
        _outline(svg, target.box(_tile_box(picture, tile)), number)
    bottom = _TOP + max(source.size[0], target.size[0]) + 28
    for line in _legend(picture, example, source, (rows, columns)):
        _text(svg, line, x=_MARGIN, y=bottom)
        bottom += _LINE
    bottom = _draw_units(svg, picture, bottom + 4)
    width = _number(max(target.left + max(target.size[1], 160) + _MARGIN, 760))
    for element in (svg, background):
        element.set("width", width)
        element.set("height", _number(bottom))
    svg.set("viewBox", f"0 0 {width} {_number(bottom)}")
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _shown(picture: TilePicture) -> tuple[int, int]:
    """How many tile rows and columns are drawn: all, unless their runs are too many."""
    rows, columns = picture.owner.shape
    if rows * columns <= _TILES_DRAWN or sum(1 for _ in _runs(picture.owner, _RUNS_DRAWN + 1)) <= _RUNS_DRAWN:
        return rows, columns
    return min(rows, _TILES_SHOWN), min(columns, _TILES_SHOWN)


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


def _example(picture: TilePicture, rows: int, columns: int) -> _Example:
    """A tile in the middle and the one after it, along the first axis on which the two share something."""
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


def _surroundings(picture: TilePicture, example: _Example) -> _Area:
    """The part of the input plane that is drawn: of an axis of which the example needs little, what lies near."""
    needs = [_needs(picture, tile) for tile in example.tiles]
    area = []
    for axis, extent in enumerate(picture.input_plane):
        start, stop = min(need[axis][0] for need in needs), max(need[axis][1] for need in needs)
        reach = max(stop - start, 1)
        near = max(0, start - reach), min(extent, stop + reach)
        area.append(near if reach * _LITTLE < extent else (0, extent))
    return area[0], area[1]


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


def _draw_tiles(svg: ET.Element, picture: TilePicture, frame: _Frame, rows: int, columns: int) -> None:
    down, across = picture.row_cuts, picture.column_cuts
    owner = picture.owner[:rows, :columns]
    one_by_one = rows * columns <= _TILES_DRAWN
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
            label += f" {int(picture.step[top, left])}"
        style = {"class": "label", "font-size": "10", "text-anchor": "middle", "dominant-baseline": "central"}
        ET.SubElement(svg, "text", {**middle, **style, "fill": _ink_on(unit)}).text = label
    if not one_by_one:
        _grid_lines(svg, frame, down[: rows + 1], across[: columns + 1])


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


def _legend(picture: TilePicture, example: _Example, source: _Frame, shown: tuple[int, int]) -> Iterator[str]:
    """Lines of text below the planes; `shown` are the tile rows and columns drawn."""
    count = picture.owner.shape
    sizes = tuple(int(np.diff(cuts).max()) for cuts in (picture.row_cuts, picture.column_cuts))
    tiles = "1 tile of" if picture.owner.size == 1 else f"{count[0]} × {count[1]} tiles of at most"
    yield (
        f"{tiles} {sizes[0]} × {sizes[1]} elements; placement {printable(picture.placement, 40)} on"
        f" {_count(picture.units, printable(picture.unit_word, 60))}; {_count(int(picture.step.max()) + 1, 'step')}"
    )
    modes = tuple(printable(mode, 40) for mode in picture.halo_modes)
    yield f"halo between rows: {modes[0]}; between columns: {modes[1]}"
    height, width = example.halo_extents
    if height:
        mode = picture.halo_modes[example.axis]
        what = dict(_WHAT_HAPPENS).get(mode, printable(mode, 40))
        first, second = (int(picture.owner[tile]) for tile in example.tiles)
        if mode == "exchange" and first == second:
            what = "kept, both being of one owner"
        yield f"hatched: {height} × {width} elements that tiles 1 and 2 both need: {what}"
    elif len(example.tiles) == 2:
        yield "tiles 1 and 2 need nothing in common"
    if picture.owner.size <= _TILES_DRAWN:
        yield f"in each tile that has room: its {printable(picture.unit_word, 60)} and the step at which it is done"
    if shown != count:
        yield f"only the first {shown[0]} × {shown[1]} tiles are drawn"
    rows, columns = source.area
    if (rows, columns) != ((0, picture.input_plane[0]), (0, picture.input_plane[1])):
        name = printable(picture.input_name, 32)
        yield f"of {name} only rows {rows[0]} to {rows[1] - 1} and columns {columns[0]} to {columns[1] - 1} are drawn"


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
        name = f"{word} {unit}" if label == str(unit) else f"{label}: {word} {unit}"
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


def _plane_caption(what: str, name: str, plane: tuple[int, int]) -> str:
    return f"{what} {printable(name, 32)}, {plane[0]} × {plane[1]}"


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
