"""Rules about what fits, on figures set by hand: each accepts at its limit and refuses one byte beyond it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from compiler.fusion.rules.capacity import (
    added,
    fuse_11,
    fuse_12,
    fuse_13,
    fuse_14,
    fuse_15,
    fuse_16,
    fuse_18,
)
from compiler.fusion.rules.gain import fuse_20
from compiler.linear_rules import bounded, parsed
from compiler.rules import BY_ID
from compiler.tiling.figures import Check, Constraint, Figures, core_fits, tile_fits, weights_fit

ADDED = (
    bounded("few images", "maps", 12, at_least=False),
    bounded("long groups", "ops", 3, at_least=True),
    parsed("half", "step_weights_bytes + 2 * input_bytes - 40 <= 0.5 * sram_bytes + output_bytes"),
)


def figures(**changes: Any) -> Figures:
    """Figures of a roomy tiling with two steps, in whole-map mode."""
    values: dict[str, Any] = {
        "whole_map": True,
        "capacity": 1000,
        "inputs": 100,
        "outputs": 100,
        "staging": 0,
        "leaving": 0,
        "shared": False,
        "step_inputs": np.array([100, 50]),
        "step_outputs": np.array([50, 100]),
        "step_weights": np.array([10, 20]),
        "core_weights": np.array([10, 20]),
        "weight_memory": 1000,
        "needed_weights": 30,
        "core_tile": 100,
        "core_capacity": 1000,
        "images": 1,
        "loaded": 100,
        "needed": 100,
        "peak": 200,
    }
    return Figures(**{**values, **changes})


def verdict(check: Check) -> tuple[str, bool, float, float]:
    """A check as plain values."""
    return check.rule, bool(check.holds), float(check.actual), float(check.limit)


def test_weights_that_fill_the_weight_memory_fit_and_no_more() -> None:
    """FUSE-10 is the memory check TILE-2:weights: one function with two ids."""
    assert verdict(weights_fit(figures(needed_weights=600, weight_memory=600))) == ("TILE-2:weights", True, 600, 600)
    assert not weights_fit(figures(needed_weights=601, weight_memory=600)).holds
    assert BY_ID["FUSE-10"] is BY_ID["TILE-2:weights"]


@pytest.mark.parametrize(("loaded", "limit", "holds"), [(200, 100, True), (201, 100, False), (201, 150, True)])
def test_fuse_11_bounds_redundant_traffic_in_partial_map_mode(loaded: int, limit: float, holds: bool) -> None:
    check = fuse_11(figures(whole_map=False, loaded=loaded, needed=100), limit)
    assert verdict(check) == ("FUSE-11", holds, loaded - 100, limit)


def test_fuse_11_does_not_bind_whole_map_mode() -> None:
    assert fuse_11(figures(whole_map=True, loaded=900, needed=100), 100).holds


@pytest.mark.parametrize(("outputs", "shared", "holds"), [(900, False, True), (901, False, False), (901, True, True)])
def test_fuse_12_adds_input_and_output_unless_they_share_space(outputs: int, shared: bool, holds: bool) -> None:
    check = fuse_12(figures(outputs=outputs, shared=shared))
    assert (check.rule, bool(check.holds)) == ("FUSE-12", holds)
    assert check.actual == (max(100, outputs) if shared else 100 + outputs)


@pytest.mark.parametrize(("weights", "staging", "holds"), [(800, 100, True), (801, 100, False), (900, 0, True)])
def test_fuse_13_adds_weights_input_and_staging(weights: int, staging: int, holds: bool) -> None:
    check = fuse_13(figures(step_weights=np.array([5, weights]), staging=staging))
    assert verdict(check) == ("FUSE-13", holds, weights + 100 + staging, 1000)


@pytest.mark.parametrize(("step", "holds"), [(880, True), (881, False)])
def test_fuse_14_adds_a_steps_input_its_weights_and_staging(step: int, holds: bool) -> None:
    check = fuse_14(figures(step_inputs=np.array([100, step]), staging=100))
    assert verdict(check) == ("FUSE-14", holds, step + 20 + 100, 1000)


@pytest.mark.parametrize(("made", "holds"), [(880, True), (881, False)])
def test_fuse_15_adds_a_steps_result_and_the_next_steps_weights(made: int, holds: bool) -> None:
    check = fuse_15(figures(step_outputs=np.array([made, 100]), staging=100))
    assert verdict(check) == ("FUSE-15", holds, made + 20 + 100, 1000)


def test_fuse_15_asks_the_last_step_for_no_further_weights() -> None:
    assert fuse_15(figures(step_outputs=np.array([50, 1000]))).holds


@pytest.mark.parametrize(
    ("weights", "holds"), [((10, 500, 500), True), ((600, 10, 600), True), ((10, 500, 501), False)]
)
def test_fuse_16_wants_weights_of_consecutive_steps_resident(weights: tuple[int, ...], holds: bool) -> None:
    check = fuse_16(figures(core_weights=np.array(weights)))
    assert (check.rule, bool(check.holds), check.limit) == ("FUSE-16", holds, 1000)


@pytest.mark.parametrize("rule", [fuse_13, fuse_14, fuse_15, fuse_16])
def test_whole_map_rules_do_not_bind_partial_map_mode(rule: Any) -> None:
    """FUSE-13 to FUSE-16."""
    large = {name: np.array([5000, 5000]) for name in ("step_inputs", "step_outputs", "step_weights", "core_weights")}
    assert rule(figures(whole_map=False, **large)).holds
    assert not rule(figures(whole_map=True, **large)).holds


@pytest.mark.parametrize(("core_tile", "holds"), [(1000, True), (1001, False)])
def test_a_core_tile_fits_the_core_in_either_mode(core_tile: int, holds: bool) -> None:
    """FUSE-17 is the memory check TILE-2:core: one function with two ids."""
    for whole_map in (True, False):
        check = core_fits(figures(core_tile=core_tile, whole_map=whole_map))
        assert verdict(check) == ("TILE-2:core", holds, core_tile, 1000)
    assert BY_ID["FUSE-17"] is BY_ID["TILE-2:core"]


@pytest.mark.parametrize(
    ("images", "limit", "whole_map", "holds"),
    [(16, 16, True, True), (17, 16, True, False), (17, 32, True, True), (17, 16, False, True)],
)
def test_fuse_18_bounds_the_feature_maps_in_a_tile(images: int, limit: float, whole_map: bool, holds: bool) -> None:
    check = fuse_18(figures(images=images, whole_map=whole_map), limit)
    assert verdict(check) == ("FUSE-18", holds, images, limit)


@pytest.mark.parametrize(
    ("with_group", "without", "holds"), [(99.0, 100.0, True), (100.0, 100.0, True), (101.0, 100.0, False)]
)
def test_fuse_20_accepts_what_costs_no_more(with_group: float, without: float, holds: bool) -> None:
    assert verdict(fuse_20(with_group, without)) == ("FUSE-20", holds, with_group, without)


def test_an_added_rule_compares_sums_of_figures() -> None:
    """SPEC 5.3: rules can be added."""
    few, long, half = (added(figures(images=12, inputs=300), rule) for rule in ADDED)
    assert verdict(few) == ("few images", True, 12, 12)
    assert verdict(long) == ("long groups", False, 2, 3)
    assert verdict(half) == ("half", True, 20 + 600 - 40, 600)
    assert not added(figures(images=13), ADDED[0]).holds
    assert not added(figures(inputs=311), ADDED[2]).holds


def test_memory_counts_what_is_live_and_the_staging_buffer() -> None:
    """TILE-2."""
    assert tile_fits(figures(peak=900, staging=100)).holds
    assert not tile_fits(figures(peak=900, staging=101)).holds


def test_rules_judge_many_candidates_at_once_as_one_by_one() -> None:
    random = np.random.default_rng(3)
    count = 40
    many = figures(
        whole_map=random.random(count) < 0.5,
        inputs=random.integers(0, 800, count),
        outputs=random.integers(0, 800, count),
        staging=random.integers(0, 300, count),
        step_inputs=random.integers(0, 1200, (2, count)),
        step_outputs=random.integers(0, 1200, (2, count)),
        step_weights=random.integers(0, 1200, (2, count)),
        core_weights=random.integers(0, 1200, (2, count)),
        weight_memory=random.integers(500, 1500, count),
        needed_weights=random.integers(0, 1500, count),
        core_tile=random.integers(0, 1500, count),
        images=random.integers(1, 30, count),
        loaded=random.integers(100, 400, count),
        peak=random.integers(0, 1500, count),
    )
    rules: list[Constraint] = [fuse_12, fuse_13, fuse_14, fuse_15, fuse_16]
    rules += [tile_fits, core_fits, weights_fit]
    rules += [partial(fuse_11, limit=100), partial(fuse_18, limit=16)]
    rules += [partial(added, rule=rule) for rule in ADDED]
    for rule in rules:
        together = rule(many)
        for row in range(count):
            single = rule(many.at(row))
            assert bool(np.broadcast_to(together.holds, count)[row]) == bool(single.holds)
            assert float(np.broadcast_to(together.actual, count)[row]) == float(single.actual)
