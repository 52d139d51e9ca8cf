"""What a reader does with a report, in a real browser; `make page` runs these, which need Chromium and playwright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.report_page.page import report_page
from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model
from tests.page.browser import Opened, browser, opened

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
CONVOLUTIONS = 6


PICTURES = ("image", "img", "figure", "SvgRoot", "graphics-symbol", "graphics-document", "Canvas", "Iframe")


def report(folder: Path, **options: object) -> Path:
    """The report of a small network in several groups; its names are markup."""
    model = Model(name=EVIL)
    value = model.input([1, 8, 32, 32], f"image{EVIL}")
    for number in range(CONVOLUTIONS):
        value = model.conv(value, 8 << number // 2, 8 << (number + 1) // 2, name=f"conv{number}{EVIL}")
        value = model.node("Relu", [value], name=f"relu{number}")
    model.output(value)
    found = compile_model(
        model.data(), builtin_profile("edge4"), parse_options({"fusion": "none", **options}), pictures=True
    )
    path = folder / "report.html"
    path.write_text(report_page(found.plan, found.report, found.pictures), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture
def shown(chromium: Any, file: Path) -> Iterator[Opened]:
    """The report open; at the end nothing was complained of and nothing but the file asked for."""
    with opened(chromium, file) as found:
        yield found
        assert found.complaints == []
        assert [url for url in found.requests if not url.startswith("data:image/svg+xml")] == [file.as_uri()]


def test_names_of_a_model_are_shown_as_text(shown: Opened) -> None:
    assert shown.page.title().endswith("on edge4")
    assert f"conv0{EVIL}" in shown.page.locator("#groups").inner_text()
    assert shown.page.locator("main script, main img:not(.tiling)").count() == 0


def test_every_section_shows_something_in_light_and_dark(shown: Opened, chromium: Any, file: Path) -> None:
    figures = {"time": 2, "stalls": 2, "roofline": 1, "memory": 2}
    for section, count in figures.items():
        assert shown.page.locator(f"#{section} svg.plot").count() >= count, section
    for section in ("groups", "boundaries", "above-floor"):
        assert shown.page.locator(f"#{section} tbody tr").count() > 0, section
    # latency, throughput, energy, what limits
    assert shown.page.locator("#summary").get_by_text(" simulated").count() == 4
    assert shown.page.locator("img.tiling").evaluate("image => image.complete && image.naturalWidth") > 0
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(chromium, file, scheme="dark") as dark:
        assert dark.complaints == []
        assert (shown.page.evaluate(ground), dark.page.evaluate(ground)) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")


def test_the_page_is_not_wider_than_a_laptop_or_a_narrow_window(chromium: Any, file: Path) -> None:
    for width in (1366, 700):
        with opened(chromium, file, width=width) as found:
            assert found.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_graph_shows_groups_or_ops_and_edges_between_them(shown: Opened) -> None:
    nodes, edges = (shown.page.locator(f"#drawing {kind}") for kind in ("g.node", "path.edge"))
    groups = shown.page.locator("#groups tbody tr").count()
    assert (nodes.count(), edges.count()) == (groups, groups - 1)
    shown.page.get_by_role("button", name="Ops (").click()
    assert (nodes.count(), edges.count()) == (2 * CONVOLUTIONS, 2 * CONVOLUTIONS - 1)
    nodes.nth(3).click()
    chosen = nodes.nth(3).get_attribute("aria-label").split(", ")[0].split()[-1]
    assert shown.page.locator("#group-title ~ div h3").first.inner_text().startswith(f"{chosen}:")


def test_the_keyboard_reaches_the_graph_and_a_group(shown: Opened) -> None:
    """One stop for the whole graph; arrows go along its edges; Enter shows the group."""
    assert shown.page.locator("#drawing g.node[tabindex='0']").count() == 1
    shown.page.locator("#drawing g.node[tabindex='0']").focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowDown")
    second = shown.page.evaluate("document.activeElement.getAttribute('aria-label')").split()[0]
    assert second == "s0.g1"
    shown.page.keyboard.press("Enter")
    assert shown.page.locator("#group h3").first.inner_text().startswith("s0.g1:")
    assert shown.page.locator("tr[aria-selected='true']").first.get_attribute("data-group") == "s0.g1"


def test_a_table_sorts_by_a_column_with_the_keyboard_too(shown: Opened) -> None:
    column = shown.page.locator("#groups th").all_inner_texts().index("Cycles") + 1
    button = shown.page.locator(f"#groups th:nth-child({column}) button")
    button.focus()
    shown.page.keyboard.press("Enter")
    cells = shown.page.locator(f"#groups tbody td:nth-child({column})").all_inner_texts()
    cycles = [int(cell.replace(",", "")) for cell in cells]
    assert cycles == sorted(cycles, reverse=True)
    assert len(set(cycles)) > 1
    button.click()
    assert shown.page.locator("#groups th[aria-sort='ascending']").count() == 1


def nameless(page: Any) -> tuple[dict[str, int], list[str]]:
    """How many controls and pictures assistive technology sees, by role, and the markup of those without a name."""
    session = page.context.new_cdp_session(page)
    counts: dict[str, int] = {}
    found: list[str] = []
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        is_control = any(each["name"] == "focusable" and each["value"]["value"] for each in node.get("properties", ()))
        role = node.get("role", {}).get("value", "")
        if node["ignored"] or not (is_control or role in PICTURES):
            continue
        counts[role] = counts.get(role, 0) + 1
        if not node.get("name", {}).get("value", "").strip():
            place = {"backendNodeId": node["backendDOMNodeId"]}
            found.append(f"{role}: {session.send('DOM.getOuterHTML', place)['outerHTML'][:200]}")
    session.detach()
    return counts, found


def test_every_control_and_picture_has_a_name_for_assistive_technology(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, report(tmp_path, partition=[f"conv2{EVIL}"])) as found:
        counts, missing = nameless(found.page)
        assert missing == []
        assert counts["combobox"] == 4  # the segment of each section about programs
        for role in ("button", "link", "region", "figure", "SvgRoot", "image"):
            assert counts[role] > 0, role
        found.page.get_by_role("button", name="Ops (").click()
        found.page.locator("#memory").get_by_role("group", name="Memory level").get_by_role("button").last.click()
        found.page.get_by_role("combobox").first.select_option(index=0)
        assert nameless(found.page)[1] == []
        labels = found.page.locator("figure > figcaption").all_inner_texts()
        assert all(found.page.get_by_role("figure", name=label, exact=True).count() for label in labels)
