"""The cheapest of many configurations: which are priced, which stand aside, and that none is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from compiler.compile import plan_model
from compiler.cost.model import Cost, Traffic, price
from compiler.cost.objective import Totals
from compiler.fusion.segment_graph import bits
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.tiling.cheapest import Worked, cheapest, most_promising, ranked
from compiler.tiling.choose import _Found, _largest_tiles, _tilings
from compiler.tiling.estimate import TilePlan, estimates
from compiler.tiling.figures import PHYSICAL, Check
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import leasts
from compiler.tiling.tile import HaloMode
from compiler.tiling.traffic import GroupWork
from compiler.tiling.wishes import Wishes
from tests.compiler.fusion.test_search import case
from tests.models import Model

FULL = Check(rule="PROG-2:nram", holds=False, actual=2, limit=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The configurations of a group that have a tiling, the most promising first, with that tiling."""

    plans: tuple[TilePlan, ...]
    worked: tuple[Worked, ...]
    profile: Profile
    wishes: Wishes

    def only(self, places: list[int]) -> Tried:
        """Some of them."""
        plans, worked = tuple(self.plans[i] for i in places), tuple(self.worked[i] for i in places)
        return replace(self, plans=plans, worked=worked)

    def alike(self) -> Tried:
        """The first two that differ in their halos only, and keep the tiles that were estimated."""
        met: dict[object, int] = {}
        for place, (plan, worked) in enumerate(zip(self.plans, self.worked, strict=True)):
            modes = {mode for _, mode in plan.configuration.halo}
            if HaloMode.EXCHANGE in modes or worked.group.tile != plan.tile:
                continue
            key = replace(plan.configuration, halo=()), plan.configuration.placement
            if key in met:
                return self.only([met[key], place])
            met[key] = place
        raise AssertionError(self.plans)


def tried(seed: int, group: int) -> Tried:
    """The configurations of a group of a random case."""
    these = case(seed)
    geometry = GroupGeometry(these.graph.facts, tuple(bits(group)))
    wishes = Wishes(objective=these.options.objective)
    found, _ = _largest_tiles(geometry, these.profile, PHYSICAL, wishes)

    def first(entry: _Found) -> Worked | Check:
        return next(_tilings(entry, these.profile, PHYSICAL, wishes, is_thorough=False))

    pairs = []
    for _, number, plan in most_promising((entry.plan for entry in found), these.profile, wishes.objective):
        worked = first(found[number])
        if isinstance(worked, Worked):
            pairs.append((plan, worked))
    plans, done = zip(*pairs, strict=True)
    return Tried(plans=plans, worked=done, profile=these.profile, wishes=wishes)


@pytest.mark.parametrize(("seed", "group"), [(128, 50), (86, 7), (3, 3)])
def test_an_estimate_is_the_same_alone_and_among_others(seed: int, group: int) -> None:
    these = tried(seed, group)
    together = estimates(these.plans, these.profile)
    for number, plan in enumerate(these.plans):
        alone = estimates([replace(plan)], these.profile)
        for figure in ("dram_bytes", "cycles", "energy_pj"):
            assert getattr(alone, figure)[0] == pytest.approx(getattr(together, figure)[number], rel=1e-12)


@pytest.mark.parametrize(("seed", "group", "part"), [(128, 50, 0.04), (86, 7, 0.9), (12, 30, 0.9), (3, 3, 0.9)])
def test_no_price_is_below_what_it_is_said_to_be_at_least(seed: int, group: int, part: float) -> None:
    """A bound is at most the price; some bound of each case is at least `part` of it, little where units pass halos."""
    these = tried(seed, group)
    parts = []
    for worked in these.worked:
        cost = worked.priced(these.profile).cost
        alone, with_work = leasts(GroupWork(worked.group), these.profile)
        assert alone.dram_bytes == with_work.dram_bytes == cost.dram_bytes
        assert alone.cycles <= with_work.cycles <= cost.cycles
        assert alone.energy_pj <= with_work.energy_pj <= cost.energy_pj
        parts.append(with_work.cycles / cost.cycles)
    assert max(parts) > part


def one_each(outcomes: list[Worked | Check]) -> Callable[[int], Iterator[Worked | Check]]:
    """Each configuration has one tiling, or fails; then no smaller one."""
    return lambda number: iter([outcomes[number], FULL])


def priced_of(monkeypatch: pytest.MonkeyPatch, these: Tried) -> int:
    """How many of these are priced."""
    priced: list[Traffic] = []

    def counted(traffic: Traffic, profile: Profile) -> Cost:
        priced.append(traffic)
        return price(traffic, profile)

    monkeypatch.setattr("compiler.tiling.cheapest.price", counted)
    choice, _ = cheapest(these.plans, one_each(list(these.worked)), these.profile, these.wishes)
    assert choice is not None
    return len(priced)


def test_of_configurations_that_differ_in_halos_only_one_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert priced_of(monkeypatch, tried(12, 30).alike()) == 1


def test_other_halos_are_priced_where_the_tile_is_not_the_one_that_was_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An estimate is for its tile: of a smaller one of the same configuration it is not known to be better."""
    these = tried(12, 30).alike()
    first, *others = these.plans
    other = {axis: size + 1 for axis, size in first.tile.items()}
    assert priced_of(monkeypatch, replace(these, plans=(replace(first, tile=other), *others))) == 2


def test_the_best_of_each_depth_order_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates do not know core tiles, which decide between the orders."""
    these = tried(86, 7)
    order = these.plans[0].configuration.order
    first = [place for place, plan in enumerate(these.plans) if plan.configuration.order is order]
    other = next(place for place, plan in enumerate(these.plans) if plan.configuration.order is not order)
    monkeypatch.setattr("compiler.tiling.cheapest._PRICED", 1)
    assert priced_of(monkeypatch, these.only([*first, other])) == 2


def test_turns_beyond_many_have_to_save_something() -> None:
    """Of prices that are nearly equal the shorter program counts for less; below that the price alone does."""
    much, little = (Totals(dram_bytes=0, cycles=cycles, energy_pj=0.0) for cycles in (1_000_000, 999_990))
    assert ranked("latency", much, 1_024) < ranked("latency", little, 4_096)
    assert ranked("latency", little, 200) < ranked("latency", much, 100)


@pytest.mark.parametrize("extent", [8_190, 8_191])
def test_a_tile_is_sought_by_what_waits_of_all_its_channels(extent: int) -> None:
    """Running sums keep a row of each channel: with tiles that suppose one, a core would have no room for the axis."""
    model = Model()
    model.output(model.node("CumSum", [model.input([2, extent, 128]), model.ints(1)]))
    totals = plan_model(model.data(), builtin_profile("cluster4x4")).plan.totals
    assert totals.dram_bytes == totals.dram_bytes_floor
    assert totals.latency_gap_to_bound is not None
    assert totals.latency_gap_to_bound < 1.25


def test_other_halos_are_tried_where_memory_cannot_be_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROG-2: what stood aside for a configuration that does not fit comes back."""
    these = tried(12, 30).alike()
    checks = iter([FULL, None])
    monkeypatch.setattr("compiler.tiling.cheapest.allocation_check", lambda _levels: next(checks))
    choice, _ = cheapest(these.plans, one_each(list(these.worked)), these.profile, these.wishes)
    assert choice is not None
    assert choice.tiling.configuration.halo == these.plans[1].configuration.halo
