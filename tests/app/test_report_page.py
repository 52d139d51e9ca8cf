"""The HTML report: whole in one file, harmless, and the same from saved documents (docs/report.md)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from app.report_page.page import report_page
from compiler.compile import Compilation, plan_model
from compiler.profile import builtin_profile
from compiler.report.plan import Plan, Report, plan_json, report_json
from tests.models import Model

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028"


class Page(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def compilation() -> Compilation:
    """A network whose every name is markup."""
    model = Model(name=EVIL)
    hidden = model.conv(model.input([1, 4, 16, 12], f"image{EVIL}"), 4, 4, name=f"conv{EVIL}")
    model.output(model.node("Relu", [hidden], name=f"relu{EVIL}"))
    return plan_model(model.data(), builtin_profile("edge4"), pictures=True)


@pytest.fixture(scope="module")
def text(compilation: Compilation) -> str:
    return report_page(compilation.plan, compilation.report, compilation.pictures)


def test_names_of_a_model_add_no_element_to_the_page(text: str, compilation: Compilation) -> None:
    """API-7: they stand in the JSON of one script that is not run, and nowhere end it."""
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 5
    assert not any(tag == "img" for tag, _ in page.elements)
    data = json.loads(page.scripts[0])
    (group,) = data["plan"]["segments"][0]["groups"]
    assert group["nodes"] == [f"{kind}{EVIL}".replace("\u2028", "\\u2028") for kind in ("conv", "relu")]
    assert data["pictures"] == compilation.pictures


def test_nothing_in_the_page_loads_anything_and_only_its_own_scripts_may_run(text: str) -> None:
    page = Page(text)
    (policy,) = (at["content"] or "" for tag, at in page.elements if at.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "img-src data:" in policy
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts[1:]]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    links = [value for _, at in page.elements for name, value in at.items() if name in ("src", "href") and value]
    assert [link for link in links if not link.startswith("#")] == ["data:,"]
    assert "sourceMappingURL" not in text


def test_a_saved_compilation_gives_the_same_bytes(text: str, compilation: Compilation) -> None:
    plan = msgspec.json.decode(plan_json(compilation.plan), type=Plan)
    report = msgspec.json.decode(report_json(compilation.report), type=Report)
    again = dict(sorted(compilation.pictures.items(), reverse=True))
    assert report_page(plan, report, again).encode() == text.encode()


def test_a_plan_alone_has_a_page_too(compilation: Compilation) -> None:
    data = json.loads(Page(report_page(compilation.plan, None, {})).scripts[0])
    assert (data["report"], data["pictures"]) == (None, {})


def test_the_report_lists_the_ops_of_the_graph_with_what_they_read(compilation: Compilation) -> None:
    conv, relu = compilation.report.graph
    assert (conv.kind, conv.inputs, relu.kind, relu.inputs) == ("Conv", (), "Relu", (0,))
    assert (relu.axes, relu.shape, relu.bytes) == (("N", "C", "H", "W"), (1, 4, 16, 12), 4 * 16 * 12 * 4)
    assert {conv.group, relu.group} == {"s0.g0"}
