"""API-8: what is taken over of a caller's `traceparent`."""

from __future__ import annotations

import pytest

from app.trace_context import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("given", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-bring", True),
    ],
)
def test_a_valid_parent_is_followed_under_a_span_of_our_own(given: str, sampled: bool) -> None:
    found = TraceContext.after(given)
    assert (found.trace_id, found.parent, found.sampled) == (TRACE, SPAN, sampled)
    assert found.span_id not in (SPAN, "0" * 16)
    assert found.text == f"00-{TRACE}-{found.span_id}-0{int(sampled)}"
    assert TraceContext.after(found.text).parent == found.span_id


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}é-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
        f"cc-{TRACE}-{SPAN}-01-\x1b[31m",
    ],
)
def test_anything_else_begins_a_trace_of_its_own(given: str) -> None:
    found = TraceContext.after(given)
    assert found.trace_id != TRACE
    assert (len(found.trace_id), len(found.span_id), found.parent) == (32, 16, "")
    assert TraceContext.after(found.text).trace_id == found.trace_id
