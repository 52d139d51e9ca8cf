"""API-8: the figures, each defined once; durations that workers record, on a real Redis."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
import redis

from app.metrics import FIGURES, WORK_BUCKETS, Observation, exposed_name, record, recorded

ROOT = Path(__file__).parents[2]


def test_every_count_of_the_scripts_and_of_the_code_is_a_figure() -> None:
    """One that is not defined would be counted and never shown."""
    sources = chain((ROOT / "app").rglob("*.lua"), (ROOT / "app").rglob("*.py"))
    counted = set()
    for path in sources:
        for arguments in re.findall(
            r"""(?:HINCRBY'|hincrby\()\W*(?:COUNTS_KEY|"tessera:counts"),\s*(.+?), """, path.read_text()
        ):
            counted |= set(re.findall(r"""['"]([a-z_]+)""", arguments))
    assert {"jobs_accepted", "attempts_lost", "attempts_given_back", "cache_failures"} <= counted
    assert counted <= {one.name for one in FIGURES if one.kind == "counter" and one.of == "service"}


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({one.name for one in FIGURES}) == len(FIGURES)
    for one in FIGURES:
        assert re.fullmatch(r"tessera_[a-z_]+[a-z]", exposed_name(one))
        assert exposed_name(one).endswith("_total") == (one.kind == "counter")
        assert one.kind != "histogram" or one.name.endswith("_seconds")
        assert one.buckets == tuple(sorted(one.buckets))


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        ((), None),
        ((0.0,), (1,) * 9),
        ((WORK_BUCKETS[0],), (1,) * 9),
        ((WORK_BUCKETS[0] + 1e-6,), (0, *(1,) * 8)),
        ((0.05, 0.05, 1e4), (0, 0, 2, 2, 2, 2, 2, 2, 3)),
    ],
)
def test_a_histogram_counts_what_is_at_most_as_long_as_each_bound(
    client: redis.Redis, seconds: tuple[float, ...], counts: tuple[int, ...] | None
) -> None:
    record(client, [Observation("phase_seconds", ("compilation", "package: tile"), one) for one in seconds])
    found = list(recorded(client))
    if counts is None:
        assert found == []
        return
    (series,) = found
    assert (series.name, series.labels) == ("phase_seconds", ("compilation", "package: tile"))
    assert series.counts == counts
    assert series.sum_s == pytest.approx(sum(seconds), abs=1e-5)
