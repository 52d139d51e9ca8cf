"""The picture of a tiling: well-formed, bounded, harmless, and true to the grid (TILE-4)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError
from compiler.ir.box import Ints
from compiler.report.picture import Plane, TilePicture, tile_picture
from compiler.tiling.placement import Placement, assign

SVG = "{http://www.w3.org/2000/svg}"
MOST_ELEMENTS = 2000
EVIL = "\"><script>alert('&amp;')</script>\x00\x1b[31m\n\ud800\ufffe]]>"


def drawn(name: str, plane: tuple[int, int]) -> Plane:
    """Eight channels of bytes, drawn along H and W."""
    rows, columns = plane
    return Plane(
        name=name, axes=("N", "C", "H", "W"), shape=(1, 8, *plane), size_bytes=8 * rows * columns, rows=2, columns=3
    )


def picture(
    plane: tuple[int, int], tile: tuple[int, int], placement: Placement, *, units: int = 4, halo: int = 1
) -> TilePicture:
    """A group that halves its input's extents and needs `halo` more elements on every side of a tile."""

    def cuts(axis: int) -> Ints:
        return np.minimum(np.arange(-(-plane[axis] // tile[axis]) + 1) * tile[axis], plane[axis])

    def needs(axis: int) -> tuple[Ints, Ints]:
        bounds = cuts(axis) * 2
        return np.maximum(bounds[:-1] - halo, 0), np.minimum(bounds[1:] + halo, plane[axis] * 2)

    rows, columns = cuts(0), cuts(1)
    assignment = assign(placement, len(rows) - 1, len(columns) - 1, units)
    return TilePicture(
        title="s0.g0: conv1 to pool1",
        output=drawn("pool1_out", plane),
        tile=(1, 8, *tile),
        tile_bytes=8 * 1024,
        row_cuts=rows,
        column_cuts=columns,
        owner=assignment.owner,
        step=assignment.step,
        input=drawn("image", (plane[0] * 2, plane[1] * 2)),
        input_rows=needs(0),
        input_columns=needs(1),
        halo_modes=("exchange", "cached"),
        placement=placement.value,
        units=units,
    )


def of_class(svg: ET.Element, name: str) -> list[ET.Element]:
    """Elements of one class."""
    return [element for element in svg.iter() if element.get("class") == name]


def texts(svg: ET.Element) -> list[str]:
    """All text that the picture shows."""
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def figures(element: ET.Element) -> list[float]:
    """Place and size of a rectangle: x, y, width, height."""
    return [float(element.attrib[name]) for name in ("x", "y", "width", "height")]


def test_quadrants_on_four_cores(golden: Callable[[str], None]) -> None:
    """G-10's assignment, with a last row and column of smaller tiles."""
    golden(tile_picture(picture((30, 30), (8, 8), Placement.QUADRANTS, halo=3)))


def test_every_tile_is_a_rectangle_with_its_owner_and_step() -> None:
    svg = ET.fromstring(tile_picture(picture((32, 32), (8, 8), Placement.BANDS)))
    assert len(of_class(svg, "tile")) == 16
    assert [label.text for label in of_class(svg, "label")] == [f"{u} {step}" for u in "ABCD" for step in range(4)]
    colours = [tile.get("fill") for tile in of_class(svg, "tile")]
    units = [unit.get("fill") for unit in of_class(svg, "unit")]
    assert colours == [colour for colour in units for _ in range(4)]
    assert len(set(units)) == 4


def test_tiles_are_drawn_to_scale() -> None:
    """A plane of 20 x 40 in tiles of 10 x 30: 9 pixels an element, so 90 x 270 and 90 x 90."""
    svg = ET.fromstring(tile_picture(picture((20, 40), (10, 30), Placement.BANDS)))
    first, second, third, _ = (figures(tile) for tile in of_class(svg, "tile"))
    assert first[2:] == [270, 90]
    assert second == [first[0] + 270, first[1], 90, 90]
    assert third == [first[0], first[1] + 90, 270, 90]


def test_needs_of_two_neighbours_overlap_in_the_hatched_halo() -> None:
    """Input of 64 x 64 at 360/64 pixels an element; tiles need 16 + 2·3 columns, of which 6 are common."""
    svg = ET.fromstring(tile_picture(picture((32, 32), (8, 8), Placement.BANDS, halo=3)))
    first, second = (figures(need) for need in of_class(svg, "need"))
    (halo,) = (figures(box) for box in of_class(svg, "halo"))
    assert first[2] == second[2] == pytest.approx(22 * 360 / 64, abs=0.01)
    assert halo == pytest.approx([second[0], first[1], 6 * 360 / 64, first[3]], abs=0.011)
    assert "hatched: 22 × 6 positions (1.03 KiB) that tiles 1 and 2 both need: kept from the tile before" in texts(svg)


@pytest.mark.parametrize(
    ("modes", "placement", "words"),
    [
        (("exchange", "exchange"), Placement.CHECKERBOARD, "exchanged"),
        (("exchange", "exchange"), Placement.BANDS, "kept, both being of one owner"),
        (("exchange", "recompute"), Placement.CHECKERBOARD, "recomputed by both"),
        (("exchange", "<b>"), Placement.CHECKERBOARD, "<b>"),
    ],
)
def test_the_legend_says_what_happens_to_the_halo(modes: tuple[str, str], placement: Placement, words: str) -> None:
    """TILE-3: of the axis along which the two tiles lie."""
    svg = ET.fromstring(tile_picture(replace(picture((32, 32), (8, 8), placement), halo_modes=modes)))
    assert f"hatched: 18 × 2 positions (288 B) that tiles 1 and 2 both need: {words}" in texts(svg)


def test_a_halo_between_rows_is_shown_where_columns_share_nothing() -> None:
    starts = np.arange(4) * 16
    shown = replace(picture((32, 32), (8, 8), Placement.BANDS), input_columns=(starts, starts + 16))
    svg = ET.fromstring(tile_picture(shown))
    assert "hatched: 2 × 16 positions (256 B) that tiles 1 and 2 both need: exchanged" in texts(svg)


def test_no_halo_is_hatched_where_there_is_none() -> None:
    svg = ET.fromstring(tile_picture(picture((32, 32), (8, 8), Placement.BANDS, halo=0)))
    assert of_class(svg, "halo") == []
    assert "tiles 1 and 2 need nothing in common" in texts(svg)


def test_a_single_tile_has_no_neighbour() -> None:
    svg = ET.fromstring(tile_picture(picture((8, 8), (8, 8), Placement.BANDS)))
    assert len(of_class(svg, "need")) == len(of_class(svg, "tile")) == 1
    assert "1 tile of N 1 × C 8 × H 8 × W 8; the inputs of a tile take 8.00 KiB" in texts(svg)
    assert "placement bands on 4 cores; 1 step" in texts(svg)
    assert not any(text.startswith("halo") for text in texts(svg))


def test_captions_name_tensors_their_axes_bytes_and_the_axes_drawn() -> None:
    shown = texts(ET.fromstring(tile_picture(picture((30, 20), (8, 8), Placement.BANDS))))
    assert {"input image", "N 1 × C 8 × H 60 × W 40, 18.75 KiB; H down, W across"} <= set(shown)
    assert {"output pool1_out", "N 1 × C 8 × H 30 × W 20, 4.69 KiB; H down, W across"} <= set(shown)
    assert "halo: along H exchange, along W cached" in shown


def test_axes_that_are_cut_but_not_drawn_are_said() -> None:
    shown = replace(picture((30, 20), (8, 8), Placement.BANDS), also_cut=(("N", 3), ("C", 2)))
    assert "also cut, which is not drawn: N (3 tiles), C (2 tiles)" in texts(ET.fromstring(tile_picture(shown)))


def test_the_whole_input_is_drawn_however_little_a_tile_needs() -> None:
    """Tiles of 2 of 200 rows and columns: 4 + 2·1 of 400 input rows at 360/400 pixels each."""
    svg = ET.fromstring(tile_picture(picture((200, 200), (2, 2), Placement.BLOCKS)))
    (plane,) = (figures(box) for box in of_class(svg, "plane"))
    assert plane[2:] == [360, 360]
    for need in of_class(svg, "need"):
        assert figures(need)[2:] == pytest.approx([6 * 360 / 400] * 2, abs=0.01)


@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("units", [3, 8])
def test_runs_show_each_tile_in_its_owners_colour(placement: Placement, units: int) -> None:
    """20 x 20 tiles of 18 pixels, painted from the rectangles."""
    shown = picture((20, 20), (1, 1), placement, units=units)
    svg = ET.fromstring(tile_picture(shown))
    boxes = of_class(svg, "tile")
    left, top = min(figures(box)[0] for box in boxes), min(figures(box)[1] for box in boxes)
    painted = np.full((20, 20), "", dtype="<U7")
    for box in boxes:
        x, y, width, height = figures(box)
        row, column = round((y - top) / 18), round((x - left) / 18)
        area = painted[row : row + round(height / 18), column : column + round(width / 18)]
        assert bool((area == "").all())
        area[...] = box.attrib["fill"]
    colours = np.array([unit.get("fill") for unit in of_class(svg, "unit")])
    assert painted.tolist() == colours[shown.owner].tolist()


def test_a_fine_grid_is_drawn_as_runs_of_one_owner() -> None:
    """10,000 tiles in four blocks are four rectangles, with lines between the tiles where those have room."""
    svg = ET.fromstring(tile_picture(picture((200, 200), (2, 2), Placement.BLOCKS)))
    assert len(of_class(svg, "tile")) == 4
    assert all(figures(tile)[2:] == [180, 180] for tile in of_class(svg, "tile"))
    assert len(of_class(svg, "cut")) == 2 * 99
    finer = ET.fromstring(tile_picture(picture((200, 200), (1, 1), Placement.BLOCKS)))
    assert of_class(finer, "cut") == []


def test_a_grid_of_too_many_runs_is_scaled_down_whole_and_says_so() -> None:
    """26 × 39 tiles in blocks of 2 × 2, the last ones of what is left."""
    shown = picture((26, 39), (1, 1), Placement.CHECKERBOARD, units=8)
    svg = ET.fromstring(tile_picture(shown))
    boxes = [figures(box) for box in of_class(svg, "tile")]
    down, across = max(box[1] + box[3] for box in boxes), max(box[0] + box[2] for box in boxes)
    top, left = min(box[1] for box in boxes), min(box[0] for box in boxes)
    assert [across - left, down - top] == pytest.approx([360, 26 * 360 / 39], abs=0.01)
    assert "scaled down: a block stands for 2 × 2 tiles and has the colour of its first" in texts(svg)
    colours = [unit.get("fill") for unit in of_class(svg, "unit")]
    first = min(of_class(svg, "tile"), key=lambda box: (figures(box)[1], figures(box)[0]))
    assert first.get("fill") == colours[shown.owner[0, 0]]


@settings(max_examples=40)
@given(
    st.sampled_from(list(Placement)),
    st.tuples(st.integers(1, 400), st.integers(1, 400)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(1, 70),
    st.integers(0, 5),
)
def test_pictures_are_bounded_and_cover_the_plane(
    placement: Placement, plane: tuple[int, int], tile: tuple[int, int], units: int, halo: int
) -> None:
    text = tile_picture(picture(plane, tile, placement, units=units, halo=halo))
    svg = ET.fromstring(text)
    assert len(list(svg.iter())) <= MOST_ELEMENTS
    boxes = [figures(box) for box in of_class(svg, "tile")]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    area = sum(box[2] * box[3] for box in boxes)
    # each coordinate is rounded to a hundredth of a pixel
    assert area == pytest.approx((right - left) * (bottom - top), rel=0.01)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    assert svg.get("viewBox") == f"0 0 {svg.get('width')} {svg.get('height')}"
    for box in svg.iter(f"{SVG}rect"):
        x, y, across, down = (float(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert min(x, y, across, down) >= 0
        assert x + across <= width + 0.02
        assert y + down <= height + 0.02


@pytest.mark.parametrize(("plane", "labels"), [((40, 25), 0), ((25, 25), 625)])
def test_as_many_runs_as_are_drawn_stay_below_the_bound(plane: tuple[int, int], labels: int) -> None:
    """As many runs as are drawn one by one, and as many as have room for a label, with lines besides."""
    svg = ET.fromstring(tile_picture(picture(plane, (1, 1), Placement.CHECKERBOARD, units=64)))
    assert len(of_class(svg, "tile")) == plane[0] * plane[1]
    assert len(of_class(svg, "label")) == labels
    assert len(list(svg.iter())) <= MOST_ELEMENTS


def test_names_of_a_model_stay_text() -> None:
    """API-7: no markup, no control characters, bounded lengths, in every line of the legend."""
    ordinary = replace(picture((200, 200), (2, 2), Placement.BLOCKS), also_cut=(("N", 2),))
    shown = replace(
        ordinary,
        title=EVIL * 50,
        output=replace(ordinary.output, name=EVIL * 50, axes=(EVIL * 50,) * 4),
        input=replace(ordinary.input, name=EVIL * 50, axes=(EVIL * 50,) * 4),
        also_cut=((EVIL * 50, 2),),
        placement=EVIL * 50,
        unit_word=EVIL * 50,
        halo_modes=(EVIL * 50, EVIL * 50),
    )
    text = tile_picture(shown)
    svg = ET.fromstring(text)
    plain = ET.fromstring(tile_picture(ordinary))
    assert [element.tag for element in svg.iter()] == [element.tag for element in plain.iter()]
    assert "<script" not in text
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.encode("utf-8")
    assert len(text) < len(tile_picture(ordinary)) + 4000


def test_nothing_in_a_picture_runs_or_loads() -> None:
    svg = ET.fromstring(tile_picture(picture((30, 30), (8, 8), Placement.QUADRANTS)))
    tags = {element.tag.removeprefix(SVG) for element in svg.iter()}
    assert tags <= {"svg", "title", "defs", "pattern", "path", "rect", "text", "line"}
    attributes = {name for element in svg.iter() for name in element.attrib}
    assert not any(name.startswith("on") or "href" in name or name == "style" for name in attributes)


def test_the_same_picture_is_the_same_text() -> None:
    first, second = (tile_picture(picture((30, 30), (8, 8), Placement.Z_ORDER)) for _ in range(2))
    assert first == second


def test_arrays_of_different_grids_are_refused() -> None:
    with pytest.raises(InternalError, match="not of one tile grid"):
        replace(picture((32, 32), (8, 8), Placement.BANDS), owner=np.zeros((3, 4), dtype=np.int64))
