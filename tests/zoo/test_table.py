"""The table says what the results say, in a fixed order, and what changed since the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.zoo.compiling import Result
from tests.zoo.table import changes, page


def _result(name: str, **fields: Any) -> Result:
    settings: dict[str, Any] = {
        "family": "depth", "chip": "cluster4x4", "compiler": "abc", "state": "ok", "cpu_s": 2.0, "nodes": 10,
        "native": 1.0, "host_nodes": 0, "unknown_host_nodes": 0, "groups": 2, "segments": 1, "dram_over_floor": 1.0,
        "latency_over_bound": 2.0, "simulated_over_bound": 3.0, "values": 0.1,
    }  # fmt: skip
    return Result(name=name, **{**settings, **fields})


def _page(*results: Result, failed: bool = False) -> str:
    records = [{"name": name, "exporter": "dynamo"} for name in sorted({result.name for result in results})]
    reason = "\x1b[96man op | that no opset has: /home/someone/zoo/libraries.py:25"
    more = [{"name": "left-out", "reason": reason}] if failed else []
    return page([*records, *more], results, compiler="0 (abc)")


def test_rows_are_sorted_whatever_the_order_they_came_in() -> None:
    one, two, three = _result("a"), _result("b", family="alpha"), _result("a", chip="edge4")
    assert _page(one, two, three) == _page(three, two, one)
    rows = [line for line in _page(one, two, three).splitlines() if "| dynamo |" in line]
    assert [row.split(" | ")[1:3] for row in rows] == [["b", "cluster4x4"], ["a", "cluster4x4"], ["a", "edge4"]]


def test_a_family_has_the_median_of_those_that_compiled() -> None:
    failed = _result(
        "d", state="internal", latency_over_bound=None, simulated_over_bound=None, dram_over_floor=None, native=None
    )
    fine = [_result(name, latency_over_bound=ratio) for name, ratio in (("a", 1.0), ("b", 4.0), ("c", 9.0))]
    assert "| depth | cluster4x4 | 4 | 3 | 1.00 | 4.00 | 3.00 | 100.00 % |" in _page(failed, *fine)


def test_errors_degraded_groups_and_missing_exports_are_listed_with_their_reason() -> None:
    text = _page(
        _result("a", state="does_not_fit", message="op | Pad"),
        _result("b", degraded=("group g1: proof failed",)),
        failed=True,
    )
    assert "- a on cluster4x4: does_not_fit: op / Pad" in text
    assert "- b on cluster4x4: degraded: group g1: proof failed" in text
    assert "- left-out: an op / that no opset has: libraries.py:25" in text
    assert "1 degraded, 1 does_not_fit" in text


def test_changes_name_new_errors_mended_ones_and_ratios_that_moved() -> None:
    same, was, mended = _result("same"), _result("was"), _result("mended", state="internal", message="x")
    before = _page(same, was, mended, _result("slow"), _result("gone"))
    after = _page(
        replace(same, latency_over_bound=2.03),
        replace(was, state="does_not_fit"),
        replace(mended, state="ok"),
        _result("slow", simulated_over_bound=3.1),
        _result("fresh"),
    )
    assert changes(before, after) == [
        "new: fresh on cluster4x4: ok",
        "gone: gone on cluster4x4",
        "fixed: mended on cluster4x4: internal, now ok",
        "slower: slow on cluster4x4: simulated / bound 3.00, now 3.10",
        "worse: was on cluster4x4: ok, now does_not_fit",
    ]


def test_nothing_changed_between_two_equal_pages() -> None:
    assert changes(_page(_result("a")), _page(_result("a"))) == []
    assert changes("", _page(_result("a"))) == ["new: a on cluster4x4: ok"]
