"""Equal groups: the first is lowered, the others have its statements at their own addresses (PROG-5)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest

from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.decode import Decoders
from compiler.program.loops.proof import prove
from compiler.program.loops.time import time_of
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup
from compiler.program.steps import equal_groups
from compiler.program.steps.equal_groups import EqualGroups
from compiler.program.steps.group_steps import TooManyActionsError
from compiler.program.steps.segment import SegmentSteps
from tests.compiler.program.lowered import Lowered, Network
from tests.models import Model, partition_of

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen


def chain(x: str, model: Model) -> str:
    """Relus one after another."""
    for _ in range(5):
        x = model.relu(x)
    return x


def blocks(x: str, model: Model) -> str:
    """Residual blocks; sums wait for what was made long before them."""
    for _ in range(3):
        made = model.conv(model.relu(model.conv(x, 8, 8, bias=True)), 8, 8)
        x = model.node("Add", [made, x])
    return x


def shared(x: str, model: Model) -> str:
    """One matrix for all products, and one early value that each of them is added to."""
    matrix, first = model.weight(9, 9), model.node("Sigmoid", [x])
    for _ in range(4):
        x = model.node("Add", [model.node("MatMul", [x, matrix]), first])
    return x


def looked_up(x: str, model: Model) -> str:
    """Rows of tables, the indices made of the values before."""
    found = x
    for _ in range(3):
        flat = model.node("Reshape", [found, model.ints(-1)])
        indices = model.node("Cast", [model.node("Clip", [flat, model.constant(np.float32(0)), ""])], to=7)
        rows = model.node("Gather", [model.weight(600, 9), indices])
        found = model.node("ReduceMean", [rows], axes=[1], keepdims=0)
    return found


def network_of(build: Callable[[str, Model], str]) -> Network:
    """A network whose groups repeat if each op is one."""
    model = Model(seed=3)
    model.output(build(model.input([1, 8, 9, 9], "x"), model))
    return Network(model, seed=3)


def segments_of(network: Network, chip: str) -> list[tuple[Any, ...]]:
    """What its segments are lowered from, with a group for each op."""
    profile, options = builtin_profile(chip), parse_options({"fusion": "none", "verify": "none"})
    compilers = SegmentCompilers(profile, options)
    partitioned = partition_of(network.facts.graph, profile, options)
    fused = FuseSegments(options=options, compilers=compilers).run(partitioned)
    found: list[tuple[Any, ...]] = []
    for segment in fused.segments:
        groups = [
            PlannedGroup(name=f"g{number}", ops=group.ops, tiling=group.choice.tiling)
            for number, group in enumerate(segment.groups)
        ]
        outputs = handed_out(fused.facts, [op for group in groups for op in group.ops])
        resident = compilers.of(fused.facts).resident_bytes(segment.segment.ops)
        decoders = Decoders(fused.facts.graph, network.source)
        found.append((fused.facts, profile, "s", groups, outputs, resident, decoders))
    return found


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("chip", ["cluster4x4", "edge4"])
@pytest.mark.parametrize("build", [chain, blocks, shared, looked_up])
def test_an_equal_group_does_what_it_would_do_if_it_were_lowered(
    build: Callable[[str, Model], str], chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network_of(build)
    for segment in segments_of(network, chip):
        profile = segment[1]
        steps = SegmentSteps(*segment)
        assert any(group.original is not None for group in steps.groups)
        ours = steps.lowered()
        proof = prove(ours, shared=profile.engines.shared)
        Lowered(network=network, groups=(), program=ours, proof=proof).check_values()
        with monkeypatch.context() as patch:
            # no group's content is that of another one
            patch.setattr(equal_groups, "content_of", lambda *_: object())
            each = SegmentSteps(*segment).lowered()
        for name in ("commands", "wait_offsets", "waits", "bindings", "calls"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(each, name), err_msg=name)
        for name in ("spaces", "statements", "runs", "terms", "rings", "distances"):
            np.testing.assert_array_equal(getattr(ours.loops, name), getattr(each.loops, name), err_msg=name)
        assert ours.regions == each.regions
        assert ours.units == each.units
        assert time_of(ours, profile).ticks == time_of(each, profile).ticks


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_program_that_takes_too_many_actions_is_given_up_and_can_be_made_afterwards(
    share: float, *, is_known: bool
) -> None:
    """Whether its groups were lowered before or not."""
    (segment,) = segments_of(network_of(blocks), "edge4")
    facts, profile, name, groups, outputs, resident_bytes, decoders = segment

    def steps_of(equals: EqualGroups) -> SegmentSteps:
        return SegmentSteps(facts, profile, name, groups, outputs, resident_bytes, decoders, None, equals)

    equals = EqualGroups()
    whole = steps_of(equals)
    expected = whole.lowered().commands
    steps = steps_of(equals if is_known else EqualGroups())
    most = int(share * whole.actions)
    if share < 1:
        with pytest.raises(TooManyActionsError):
            steps.lowered(actions_max=most)
    np.testing.assert_array_equal(steps.lowered(actions_max=inf if share < 1 else most).commands, expected)
    assert steps.actions == whole.actions > 0


def test_stationary_weights_have_places_of_their_own_so_no_group_of_a_segment_is_like_another() -> None:
    for segment in segments_of(network_of(blocks), "manycore2x64"):
        assert all(group.original is None for group in SegmentSteps(*segment).groups)


def test_groups_whose_stationary_weights_lie_where_they_lay_are_equal() -> None:
    """As of two plans of one segment, or of one group of it by itself."""
    equals = EqualGroups()
    for segment in segments_of(network_of(chain), "manycore2x64"):
        facts, profile, name, groups, _, resident_bytes, decoders = segment
        ops = sorted(op for group in groups for op in group.ops)
        for its in (groups, groups[1:], groups[:1]):
            outputs = handed_out(facts, [op for group in its for op in group.ops])
            again = SegmentSteps(facts, profile, name, its, outputs, resident_bytes, decoders, None, equals, ops)
            alone = SegmentSteps(facts, profile, name, its, outputs, resident_bytes, decoders, None, None, ops)
            assert its is groups or all(group.original is not None for group in again.groups)
            one, other = again.lowered(), alone.lowered()
            for field in ("commands", "wait_offsets", "waits", "bindings", "calls"):
                np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def test_groups_of_two_segments_may_be_equal() -> None:
    """Regions, tables and steps are each program's own; the second one's groups are all copies."""
    network, equals = network_of(chain), EqualGroups()
    (segment,) = segments_of(network, "edge4")
    facts, profile, name, groups, _, resident_bytes, decoders = segment
    for number, its in enumerate((groups[:3], groups[3:])):
        outputs = handed_out(facts, [op for group in its for op in group.ops])
        steps = SegmentSteps(facts, profile, name, its, outputs, resident_bytes, decoders, equal_groups=equals)
        if number:
            assert all(group.original is not None for group in steps.groups)
        ours = steps.lowered()
        proof = prove(ours, shared=profile.engines.shared)
        Lowered(network=network, groups=(), program=ours, proof=proof).check_values()


def windows(x: str, model: Model) -> str:
    """A wide window, then narrow ones."""
    x = model.conv(x, 8, 8, kernel=5)
    for _ in range(3):
        x = model.conv(x, 8, 8)
    return x


def test_address_tables_are_numbered_in_each_program() -> None:
    """The narrow window's table is the second one where the wide window comes first, and the only one without it."""
    network, equals = network_of(windows), EqualGroups()
    (segment,) = segments_of(network, "edge4")
    facts, profile, name, groups, _, resident_bytes, decoders = segment
    for its, tables in ((groups[:2], 2), (groups[2:], 1)):
        outputs = handed_out(facts, [op for group in its for op in group.ops])
        steps = SegmentSteps(facts, profile, name, its, outputs, resident_bytes, decoders, equal_groups=equals)
        ours = steps.lowered()
        assert len(ours.addresses) == tables
        proof = prove(ours, shared=profile.engines.shared)
        Lowered(network=network, groups=(), program=ours, proof=proof).check_values()
    assert all(group.original is not None for group in steps.groups)
