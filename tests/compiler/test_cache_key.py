"""The cache key changes with every input that changes the output, and with nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler import cache_key as module
from compiler.cache_key import cache_key, routine_key, simulation_key, table_key
from compiler.compile import compile_shapes
from compiler.options import Options, parse_options
from compiler.profile import builtin_profile
from compiler.shapes.model import ShapeModel
from tests.service.models import images

PROFILE = builtin_profile("edge4")
BASE = cache_key("a" * 64, PROFILE, Options(), name="m")

CHANGES: dict[str, Any] = {
    "objective": "energy",
    "fusion": "none",
    "start_rule": "B",
    "profit": "all",
    "rules": {"FUSE-11": {"limit": 50}},
    "halo": "recompute",
    "placement": "blocks",
    "schedule": {"fuse": [["conv1", "conv2"]]},
    "dims": {"batch": 2},
    "tables": [{}],
    "partition": ["conv1"],
    "merge": "forward",
    "min_macs": 1,
    "max_macs": 2,
    "min_weight_bytes": 1,
    "max_weight_bytes": 2,
    "min_vector_nodes": 1,
    "max_vector_nodes": 2,
    "chips": "single",
    "strict": True,
    "degraded": "error",
    "verify": "none",
    "precision": "int8",
    "layout": "NCHW",
    "batch": 2,
    "split": "top-down",
    "granularity": ["3/4"],
    "order": ["H", "W", "N"],
    "split_cycle": False,
}
BOUNDS: dict[str, Any] = {"time_limit_s": 3, "memory_limit_bytes": 10**9}


def test_the_key_is_a_digest_and_stable() -> None:
    assert len(BASE) == 64
    assert cache_key("a" * 64, PROFILE, Options(), name="m") == BASE


@pytest.mark.parametrize("option", CHANGES)
def test_the_key_changes_with_each_option(option: str) -> None:
    assert cache_key("a" * 64, PROFILE, parse_options({option: CHANGES[option]}), name="m") != BASE


@pytest.mark.parametrize("option", BOUNDS)
def test_the_key_does_not_change_with_bounds_on_the_job(option: str) -> None:
    assert cache_key("a" * 64, PROFILE, parse_options({option: BOUNDS[option]}), name="m") == BASE


def test_every_option_is_judged_here() -> None:
    """An option added later has to say whether it is part of the key."""
    assert set(Options.__struct_fields__) == {*CHANGES, *BOUNDS}


def test_the_key_changes_with_model_profile_and_name() -> None:
    keys = {
        BASE,
        cache_key("b" * 64, PROFILE, Options(), name="m"),
        cache_key("a" * 64, builtin_profile("cluster4x4"), Options(), name="m"),
        cache_key("a" * 64, PROFILE, Options(), name="other"),
    }
    assert len(keys) == 4


def test_the_key_changes_with_the_compiler_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPILER_VERSION", "999")
    assert cache_key("a" * 64, PROFILE, Options(), name="m") != BASE


def test_the_key_does_not_change_with_the_order_of_rules() -> None:
    rules = {"FUSE-19": {"limit": 3}, "FUSE-11": {"limit": 50}}
    first, second = (
        cache_key("a" * 64, PROFILE, parse_options({"rules": dict(order)}))
        for order in (rules.items(), reversed(rules.items()))
    )
    assert first == second


def test_the_key_of_a_simulation_changes_with_all_that_its_result_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    base = simulation_key("a" * 64, inputs_sha256=None, seed=5)
    given = simulation_key("a" * 64, inputs_sha256="c" * 64, seed=5)
    keys = {
        base,
        given,
        simulation_key("b" * 64, inputs_sha256=None, seed=5),
        simulation_key("a" * 64, inputs_sha256=None, seed=6),
        simulation_key("a" * 64, inputs_sha256="d" * 64, seed=5),
        simulation_key("a" * 64, inputs_sha256=None, seed=5, judge=("m", "r")),
        simulation_key("a" * 64, name="mine.tsx", inputs_sha256=None, seed=5),  # its problems may show the name
        BASE,
    }
    assert len(keys) == 8
    assert simulation_key("a" * 64, inputs_sha256="c" * 64, seed=6) == given  # given inputs need no seed
    monkeypatch.setattr(module, "COMPILER_VERSION", "999")
    assert simulation_key("a" * 64, inputs_sha256=None, seed=5) not in keys


def shape_model(profile: str = "edge4", most: int = 24, data: bytes | None = None) -> ShapeModel:
    ranges = {name: {"min": 1, "max": most} for name in ("n", "h", "w")}
    return compile_shapes(data or images(), builtin_profile(profile), parse_options({"dims": ranges}))


def test_the_key_of_a_table_changes_with_all_that_the_table_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shape_model()
    (library,) = model.libraries
    base = routine_key(model, 0)
    assert routine_key(shape_model(), 0) == base
    # another model with the same routine shares its tables
    assert routine_key(replace(model, model_name="other", model_digest="f" * 64), 0) == base
    changed_lows = np.zeros_like(library.units.lows)
    changes = [
        replace(library, units=replace(library.units, ids=(*library.units.ids[:-1], "other"))),
        replace(library, units=replace(library.units, signature="other")),
        replace(library, units=replace(library.units, lows=changed_lows, extents=library.units.extents + 1)),
        replace(library, cost=replace(library.cost, call_cycles=7.0)),
        replace(library, cost=replace(library.cost, compute=tuple(2 * one for one in library.cost.compute))),
        replace(library, cost=replace(library.cost, operands=library.cost.operands[:-1])),
    ]
    keys = {base, routine_key(shape_model("cluster4x4"), 0)}
    keys |= {routine_key(replace(model, libraries=(changed,)), 0) for changed in changes}
    assert len(keys) == 2 + len(changes)
    assert len({table_key(base, (1, 23)), table_key(base, (12, 3)), table_key("0" * 64, (1, 23))}) == 3
    monkeypatch.setattr(module, "COMPILER_VERSION", "999")
    assert routine_key(model, 0) not in keys
