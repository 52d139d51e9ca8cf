"""The collector of cycles is paused for a while, and then as it was."""

from __future__ import annotations

import gc

import pytest

from compiler.fusion.evaluate import Evaluator
from compiler.garbage import collection_paused
from compiler.ops.op_facts import graph_facts
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.tiling.frustum import Frustums
from compiler.tiling.tiled import TiledGroup
from tests.models import import_graph
from tests.service.harness import conv_chain


def test_the_collector_runs_again_after_a_pause() -> None:
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_runs_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="failed"), collection_paused():
        raise ValueError("failed")
    assert gc.isenabled()


def test_a_pause_inside_a_pause_does_not_end_it() -> None:
    with collection_paused():
        with collection_paused():
            pass
        assert not gc.isenabled()


def test_a_group_that_is_priced_leaves_nothing_to_the_collector() -> None:
    """What tilings that are given up take is free at once, also while no cycles are looked for."""
    facts = graph_facts(import_graph(conv_chain(4)))
    evaluator = Evaluator(facts, builtin_profile("cluster4x4"), Options())
    gc.collect()
    before = {id(one) for one in gc.get_objects() if isinstance(one, Frustums | TiledGroup)}
    with collection_paused():
        price = evaluator.price((1 << len(facts.ops)) - 1)
        left = [one for one in gc.get_objects() if isinstance(one, Frustums | TiledGroup) and id(one) not in before]
    assert price is not None
    assert not left
