"""SIM-5: grids, fronts, targets and the search for a size."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from app.sweeps.figures import Figures
from app.sweeps.front import pareto_front
from app.sweeps.grid import MAX_POINTS, parse_grid, parse_words, points_of
from app.sweeps.report import PointReport, SweepHead, sweep_report
from app.sweeps.sizing import Amount, Range, curve_of, is_interrupted, range_of, smallest
from app.sweeps.target import parse_target
from compiler.errors import ProfileError, RequestError
from compiler.profile import Profile, builtin_profile
from compiler.profile.fields import field_named
from compiler.report.plan import ModelRef


def figures(
    latency_s: float = 1.0, energy_j: float = 1.0, dram_bytes: int = 100, on_chip_bytes: int = 1, **changes: Any
) -> Figures:
    values: dict[str, Any] = {
        "estimated_latency_s": latency_s / 2,
        "simulated_latency_s": latency_s,
        "latency_bound_s": 0.1,
        "energy_j": energy_j,
        "dram_bytes": dram_bytes,
        "dram_bytes_floor": 100,
        "on_chip_bytes": on_chip_bytes,
        "groups": 1,
    }
    return Figures(**{**values, **changes})


def row(found: Figures | None, value: Amount = 0) -> PointReport:
    state: Any = "failed" if found is None else "succeeded"
    return PointReport(
        profile="edge4", values={"nram.capacity_bytes": value}, job=None, state=state, figures=found, problem=None
    )


# the grid


def test_points_stand_in_grid_order_the_last_field_changing_first() -> None:
    grid = parse_words(["nram=64KiB,128KiB", "cores=1,2,4"])
    profiles = [builtin_profile("edge4"), builtin_profile("manycore2x64")]
    points = points_of(profiles, grid)
    assert [point.base.name for point in points] == ["edge4"] * 6 + ["manycore2x64"] * 6
    found = [
        (profile.nram.capacity_bytes, profile.cores_per_cluster)
        for profile in (point.profile for point in points[:6])
        if isinstance(profile, Profile)
    ]
    assert found == [(65536, 1), (65536, 2), (65536, 4), (131072, 1), (131072, 2), (131072, 4)]
    assert points[11].values == {"nram.capacity_bytes": 131072, "cores_per_cluster": 4}


def test_without_a_grid_the_points_are_the_profiles() -> None:
    profiles = [builtin_profile("edge4"), builtin_profile("cluster4x4")]
    assert [point.profile for point in points_of(profiles, ())] == profiles


def test_a_point_that_is_no_profile_keeps_its_place_with_its_problem() -> None:
    points = points_of([builtin_profile("edge4")], parse_grid({"nram": [0, 262144]}))
    assert isinstance(points[0].profile, ProfileError)
    assert points[1].profile == builtin_profile("edge4")


@pytest.mark.parametrize(
    "words",
    [
        ["nram"],
        ["nram="],
        ["nram=1,1KiB,1024"],
        ["nram=1", "nram=2"],
        ["nram=1", "nram.capacity_bytes=2"],
        ["nonesuch=1"],
        [f"{name}=1" for name in ("sram", "nram", "wram", "dram", "cores", "clusters", "chips", "clock", "lanes")],
    ],
)
def test_a_grid_that_means_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(RequestError):
        parse_words(words)


def test_a_grid_of_more_points_than_a_sweep_may_have_is_refused_before_any_is_made() -> None:
    grid = parse_grid({"nram": list(range(1000, 1033)), "clock": list(range(1000, 1032))})
    with pytest.raises(RequestError) as refused:
        points_of([builtin_profile("edge4")], grid)
    assert (refused.value.actual, refused.value.limit) == (33 * 32, MAX_POINTS)


# the front


def brute_front(rows: Sequence[Sequence[float]]) -> list[int]:
    def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))

    return [number for number, one in enumerate(rows) if not any(dominates(other, one) for other in rows)]


@pytest.mark.matrix(first=15, rest=15)
@pytest.mark.parametrize("seed", range(40))
def test_the_front_of_a_random_table_is_that_of_brute_force(seed: int) -> None:
    dice = random.Random(seed)
    values = dice.choice((2, 5, 1000))  # few values make ties and equal rows
    rows = [[float(dice.randrange(values)) for _ in range(4)] for _ in range(dice.randrange(1, 60))]
    assert pareto_front(np.array(rows)).tolist() == brute_front(rows)


def test_equal_rows_are_all_in_the_front_and_of_no_rows_there_is_none() -> None:
    assert pareto_front(np.array([[1.0, 2], [1, 2], [2, 2]])).tolist() == [0, 1]
    assert pareto_front(np.zeros((0, 4))).tolist() == []


HEAD = SweepHead(
    model=ModelRef(name="m", sha256="0" * 64), profiles=(), grid=(), options={"verify": "none"}, compiler_version="0"
)


def test_the_front_numbers_rows_and_leaves_out_those_without_figures() -> None:
    rows = [row(None), row(figures(2, 1)), row(figures(1, 2)), row(figures(2, 2))]
    report = sweep_report(HEAD, "running", rows)
    assert (report.front, report.latency, report.done, report.total) == ((1, 2), "simulated", 4, 4)


def test_degraded_plans_are_in_no_front_and_reach_no_target() -> None:
    """IMPORT-7: what runs on the host takes no time in the figures, so a defect of ours would look like a gain."""
    better = figures(1, 1, dram_bytes=1, degraded=1)
    assert sweep_report(HEAD, "succeeded", [row(better), row(figures(2, 2))]).front == (1,)
    assert not parse_target("dram_bytes=104").reached(better)


def test_latency_is_estimated_for_all_rows_where_one_has_no_program() -> None:
    # simulated alone the first would be the best; as estimates the second is
    rows = [row(figures(2)), row(figures(1, estimated_latency_s=0.5, simulated_latency_s=None))]
    report = sweep_report(HEAD, "succeeded", rows)
    assert (report.latency, report.front) == ("estimated", (1,))


# targets and sizes


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("dram_bytes=1.05xfloor", [True, True, False]),
        ("dram_bytes=1.0 x floor", [True, False, False]),
        ("1.05xminimum", [True, True, False]),
        ("dram_bytes=104", [True, True, False]),
        ("dram_bytes=0.1KiB", [True, False, False]),
        ("latency=1500ms", [True, True, True]),
        ("latency=999.9ms", [False, False, False]),
        ("energy=1", [True, True, True]),
    ],
)
def test_a_target_is_reached_by_what_is_at_most_it(text: str, reached: list[bool]) -> None:
    target = parse_target(text)
    assert [target.reached(figures(dram_bytes=count)) for count in (100, 104, 106)] == reached
    assert not target.reached(None)


@pytest.mark.parametrize(
    "text", ["dram_bytes", "dram_bytes=", "latency=1.05xfloor", "cycles=5", "energy=1MiB", "dram_bytes=-1", "=1"]
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_target(text)


def searched(within: Range, dram_bytes: Callable[[Amount], int | None]) -> tuple[list[Amount], list[Amount]]:
    """All values tried, rising, and those that reach 1.05 × the floor of 100 bytes."""

    def evaluate(values: Sequence[Amount]) -> list[PointReport]:
        amounts = [dram_bytes(value) for value in values]
        return [row(None if amount is None else figures(dram_bytes=amount)) for amount in amounts]

    target = parse_target("dram_bytes=1.05xfloor")
    curve = curve_of(within, target, smallest(within, target, evaluate))
    return [point.value for point in curve], [point.value for point in curve if point.reached]


@pytest.mark.matrix(first=40, rest=40)
@pytest.mark.parametrize("threshold", range(1, 130))
def test_of_a_monotone_curve_the_least_multiple_is_found_in_few_values(threshold: int) -> None:
    within = Range(granularity=4, first=2, last=128)
    tried, reaching = searched(within, lambda value: 105 if value >= 4 * threshold else 200)
    expected = max(threshold, 2)
    assert (min(reaching) if reaching else None) == (4 * expected if threshold <= 128 else None)
    assert len(tried) <= 7 + 6


@pytest.mark.parametrize("values_before", range(1, 13))
def test_an_interrupted_search_keeps_what_was_finished_and_tries_nothing_more(values_before: int) -> None:
    begun: list[Amount] = []

    def evaluate(values: Sequence[Amount]) -> list[PointReport]:
        begun.extend(values)
        first = len(begun) - len(values)
        rows = [row(figures(dram_bytes=100 if value > 40 else 200)) for value in values]
        return [
            found if first + number < values_before else structs.replace(found, figures=None, state="cancelled")
            for number, found in enumerate(rows)
        ]

    within, target = Range(granularity=1, first=1, last=64), parse_target("dram_bytes=1.05xfloor")
    rows = smallest(within, target, evaluate)
    finished = [point.value for point in curve_of(within, target, rows)]
    assert is_interrupted(rows) == (values_before < 7 + 5)  # seven rungs, five halvings
    assert (finished, len(begun)) == (sorted(begun[:values_before]), max(7, min(values_before + 1, 7 + 5)))


def test_points_that_fail_do_not_reach_and_do_not_stop_the_search() -> None:
    tried, reaching = searched(Range(granularity=1, first=1, last=64), lambda value: None if value < 20 else 100)
    assert (min(reaching), max(tried)) == (20, 64)


def test_a_curve_that_misses_again_is_told_apart_from_one_that_does_not() -> None:
    tried, reaching = searched(
        Range(granularity=1, first=1, last=64), lambda value: 100 if 10 <= value < 30 or value == 64 else 300
    )
    assert min(reaching) == 10
    assert [value for value in tried if value > 10 and value not in reaching] == [32]


def test_the_range_is_around_what_the_profile_has_unless_it_is_given() -> None:
    profile, nram = builtin_profile("edge4"), field_named("nram")
    own = range_of(profile, nram, low=None, high=None, granularity=None)
    assert (own.granularity, own.value(own.first), own.value(own.last)) == (4096, 16384, 4 * 2**20)
    given = range_of(profile, nram, low="10KiB", high="1MiB", granularity="3KiB")
    assert (given.value(given.first), given.value(given.last)) == (12 * 1024, 1023 * 1024)
    cores = range_of(profile, field_named("cores"), low=None, high=None, granularity=None)
    assert (cores.granularity, cores.first, cores.last) == (1, 1, 64)
    clock = range_of(profile, field_named("clock"), low=None, high="1GHz", granularity=None)
    assert clock.value(clock.last) == 1_000_000_000


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("weights.mode", None, None), ("nram", "2MiB", "1MiB"), ("dram.multicast", None, None)],
)
def test_a_range_without_values_is_refused(field: str, low: str | None, high: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        range_of(builtin_profile("edge4"), field_named(field), low=low, high=high, granularity=None)
    assert refused.value.code == "invalid_range"
