"""Pictures of a plan's groups: one SVG each, of what the plan says, and only when asked for (TILE-4)."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from compiler.compile import Compilation, plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model, light_source

SVG = "{http://www.w3.org/2000/svg}"


def compiled(profile: str, *, pictures: bool, **options: object) -> Compilation:
    return plan_model(light_source("shufflenet"), builtin_profile(profile), parse_options(options), pictures=pictures)


def of_class(text: str, name: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(text).iter() if element.get("class") == name]


def test_no_picture_is_drawn_unless_asked_for() -> None:
    assert compiled("edge4", pictures=False, fusion="none").pictures == {}


@pytest.mark.parametrize(
    "profile", ["edge4", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cluster4x4", "manycore2x64"))]
)
def test_every_group_has_a_picture_with_its_units_and_tiles(profile: str) -> None:
    """TILE-4: the owners are the units that share out bands, one where none does."""
    found = compiled(profile, pictures=True, fusion="none")
    groups = {group.id: group for segment in found.plan.segments for group in segment.groups}
    assert set(found.pictures) == set(groups)
    for name, text in found.pictures.items():
        group = groups[name]
        by_bands = group.placement.spread == "bands"
        assert ET.fromstring(text).tag == f"{SVG}svg"
        title = ET.fromstring(text).findtext(f"{SVG}title") or ""
        assert title.startswith(f"{name}: ")
        assert len(of_class(text, "unit")) == min(group.placement.units if by_bands else 1, 16)


def test_the_picture_shows_the_planes_and_the_tile_grid() -> None:
    """A 3x3 convolution on 16x12 positions in tiles of 4x12: 4 rows of tiles, 6 rows needed by an inner one."""
    model = Model(name="grid")
    model.output(model.conv(model.input([1, 4, 16, 12], "image"), 4, 4, name="conv"))
    pinned = {"nodes": ["conv"], "tiling": {"tile": {"H": 4, "W": 12}}, "placement": {"spread": "single"}}
    found = plan_model(
        model.data(), builtin_profile("edge4"), parse_options({"schedule": {"groups": [pinned]}}), pictures=True
    )
    (text,) = found.pictures.values()
    words = " ".join(ET.fromstring(text).itertext())
    assert "input image" in words
    assert "N 1 × C 4 × H 16 × W 12, 3.00 KiB; H down, W across" in words
    assert "4 × 1 tiles of at most N 1 × C 4 × H 4 × W 12" in words
    assert "A: core, 4 tiles" in words


def words_of(model: Model, **options: object) -> str:
    found = plan_model(model.data(), builtin_profile("edge4"), parse_options(options), pictures=True)
    (text,) = found.pictures.values()
    return " ".join(ET.fromstring(text).itertext())


def test_a_matrix_is_drawn_along_its_own_axes() -> None:
    model = Model(name="flat")
    model.output(model.node("Gemm", [model.input([1, 32], "x"), model.weight(32, 16)], name="product"))
    words = words_of(model)
    assert "1 tile of N 1 × C 4;" in words
    assert "1 set of 4 cores that share channels" in words
    assert "also cut, which is not drawn: C (4 tiles)" in words
    assert "N 1 × C 32, 128 B; C across" in words
    assert "N 1 × C 16, 64 B; C across" in words


def test_a_sequence_is_drawn_by_position_and_channel() -> None:
    model = Model(name="sequence")
    model.output(model.node("MatMul", [model.input([1, 24, 32], "x"), model.weight(32, 16)], name="product"))
    words = words_of(model)
    assert "N 1 × H 24 × C 32, 3.00 KiB; H down, C across" in words
    assert "N 1 × H 24 × C 16, 1.50 KiB; H down, C across" in words
