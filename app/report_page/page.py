"""From the documents of a compilation to the text of report.html."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from compiler.errors import printable
from compiler.report.headline import headline
from compiler.report.plan import Plan, Report
from compiler.version import COMPILER_VERSION

FILE_NAME: Final = "report.html"
# In the order in which they are run: Plot needs d3.
_SCRIPTS: Final = ("libraries/d3.min.js", "libraries/plot.umd.min.js", "libraries/dagre.min.js", "page.js")
_TITLE_LIMIT: Final = 120
_TEXT_LIMIT: Final = 1000
_PLAN_PARTS: Final = (
    "model",
    "profile",
    "compiler_version",
    "provisional",
    "totals",
    "baseline",
    "gap",
    "native",
    "degraded",
    "segments",
)
_OPTIONS: Final = ("objective", "fusion", "precision")
_REPORT_PARTS: Final = ("values", "stream", "graph", "assumptions")
_PROGRAM_PARTS: Final = (
    "segment",
    "simulated_cycles",
    "estimated_cycles",
    "simulated_group_cycles",
    "engines",
    "roofline",
    "usage",
    "held",
)
_PRICE_PARTS: Final = ("id", "dram_read_bytes", "dram_write_bytes", "weight_read_bytes", "array_utilisation")


def report_page(plan: Plan, report: Report | None, pictures: Mapping[str, str]) -> str:
    """The HTML text of a compilation's report, deterministic to the byte.

    Without a report nothing simulated is shown; `pictures` are SVG texts by group id, and may be none or some.
    """
    scripts = [_asset(name) for name in _SCRIPTS]
    data = {
        "plan": _printable(_plan(plan)),
        "report": None if report is None else _printable(_report(report)),
        "headline": [list(line) for line in headline(plan, report)],
        "pictures": dict(sorted(pictures.items())),
        "licenses": _asset("libraries/LICENSES.txt"),
    }
    parts = {
        "policy": policy(),
        "title": html.escape(
            f"{printable(plan.model.name, _TITLE_LIMIT)} on {printable(plan.profile.name, _TITLE_LIMIT)}"
        ),
        "style": _asset("page.css"),
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    pieces = _asset("page.html").split("{{")
    found = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        found += [parts[name], rest]
    return "".join(found)


def policy() -> str:
    """The page's Content-Security-Policy: its own scripts alone, and no request."""
    digests = (hashlib.sha256(_asset(name).encode()).digest() for name in _SCRIPTS)
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def page_tag(*digests: str) -> str:
    """A digest of all that a page depends on, given the digests of its documents."""
    assets = [_asset(name) for name in ("page.html", "page.css", *_SCRIPTS)]
    return hashlib.sha256(repr((digests, assets, COMPILER_VERSION)).encode()).hexdigest()


def _plan(plan: Plan) -> dict[str, Any]:
    values = msgspec.to_builtins(plan)
    chosen = {name: values[name] for name in _PLAN_PARTS}
    chosen["options"] = {name: values["options"].get(name) for name in _OPTIONS}
    for segment in chosen["segments"]:
        for part in ("nodes", "continues", "units", "unit_cores", "search"):
            del segment[part]
    return chosen


def _report(report: Report) -> dict[str, Any]:
    values = msgspec.to_builtins(report)
    chosen = {name: values[name] for name in _REPORT_PARTS}
    chosen["programs"] = [{name: program[name] for name in _PROGRAM_PARTS} for program in values["programs"]]
    chosen["groups"] = [{name: group[name] for name in _PRICE_PARTS} for group in values["groups"]]
    return chosen


def _printable(value: Any) -> Any:
    """The value with every text in it bounded and on one line."""
    if isinstance(value, str):
        return printable(value, _TEXT_LIMIT)
    if isinstance(value, dict):
        return {printable(name, _TEXT_LIMIT): _printable(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(entry) for entry in value]
    return value


def _asset(name: str) -> str:
    return files("app.report_page").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")
