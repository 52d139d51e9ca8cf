"""The tiling of a pinned group: what is pinned as pinned, what is open by cost, or what cannot hold (TILE-9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from compiler.cost.objective import Totals, ranking
from compiler.cost.rates import units_are_connected
from compiler.errors import RequestError, printable
from compiler.fusion.gap_fields import amounts
from compiler.profile.schema import Profile
from compiler.rules import called
from compiler.schedule import PinnedGroup
from compiler.tiling.choose import Refusal, choose_tiling
from compiler.tiling.figures import Constraint
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.handed import may_hand_over
from compiler.tiling.placement import Placement
from compiler.tiling.tile import NOTHING_HANDED, Configuration, HaloMode, Handover, Order, Spread, Tiling, WeightLoads
from compiler.tiling.wishes import Wishes
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What is pinned of one group's tiling: extents, halo modes by axis, fields of the configuration, weight loads.

    `loads` is by place of the op in the group, so that equal groups under equal pins are one question. `handover`: what
    stays on the chip between the group and others.
    """

    sizes: tuple[tuple[str, int], ...] = ()
    core: tuple[tuple[str, int], ...] = ()
    modes: tuple[tuple[str, HaloMode], ...] = ()
    fixed: tuple[tuple[str, object], ...] = ()
    loads: tuple[tuple[int, WeightLoads], ...] = ()
    handover: Handover = NOTHING_HANDED

    @classmethod
    def of(
        cls, group: PinnedGroup, loads: tuple[tuple[int, WeightLoads], ...], handover: Handover = NOTHING_HANDED
    ) -> Pin:
        """The pin of a group of a schedule; `loads` and `handover` by place, as its ops and tensors were found."""
        tiling, placement = group.tiling, group.placement
        fixed: dict[str, object] = {}
        if tiling is not None:
            fixed |= {
                "channel_slices": tiling.channel_slices,
                "input_slices": tiling.input_slices,
                "slices_outer": None if tiling.outer_loop is None else tiling.outer_loop == "slices",
                "order": None if tiling.order is None else Order(tiling.order),
                "double_buffered": tiling.double_buffered,
                "weights_in_sram": tiling.weights_in_sram,
            }
        if placement is not None:
            fixed |= {
                "units": placement.units,
                "spread": None if placement.spread is None else Spread(placement.spread),
                "cores": placement.cores,
                "core_spread": None if placement.core_spread is None else Spread(placement.core_spread),
                "placement": None if placement.placement is None else Placement(placement.placement),
                "walk": placement.walk,
            }
        return cls(
            sizes=() if tiling is None else tuple(tiling.tile.items()),
            core=() if tiling is None else tuple(tiling.core_tile.items()),
            modes=tuple((axis, HaloMode(mode)) for axis, mode in group.halo.items()),
            fixed=tuple((name, value) for name, value in fixed.items() if value is not None),
            loads=loads,
            handover=handover,
        )

    @property
    def is_open(self) -> bool:
        """True if nothing is pinned but the group itself."""
        return self == Pin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheld:
    """What of a pinned group cannot hold: the constraint, the op (its place in the group), needed and available."""

    rule: str
    place: int
    needed: str
    available: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One way of filling what is open so that the search may answer: halo modes of all axes, slices, loads."""

    modes: dict[str, HaloMode] | None
    fixed: dict[str, object] = field(default_factory=dict)


def choose_pinned(
    geometry: GroupGeometry, profile: Profile, constraints: tuple[Constraint, ...], wishes: Wishes, pin: Pin
) -> Choice | Unheld:
    """The cheapest tiling of a group that has all that is pinned, or what cannot hold (TILE-9).

    Raises RequestError for what no tiling of such a group could have: an axis that its output lacks, a tile larger
    than the output, more units than the profile has.
    """
    _check(geometry, profile, pin)
    best: tuple[tuple[float, ...], Choice] | None = None
    failed: Unheld | None = None
    for attempt in _attempts(geometry, profile, wishes, pin):
        found = _attempted(geometry, profile, constraints, wishes, pin, attempt)
        if isinstance(found, Unheld):
            failed = failed or found
            continue
        key = ranking(wishes.objective, Totals.of((found.cost,)))
        if best is None or key < best[0]:
            best = (key, found)
    if best is not None:
        return best[1]
    assert failed is not None
    return failed


def _attempts(geometry: GroupGeometry, profile: Profile, wishes: Wishes, pin: Pin) -> Iterator[_Attempt]:
    """Open axes share one halo mode, as where nothing is pinned; channel slices follow from a pinned channel tile."""
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    modes: list[dict[str, HaloMode] | None] = [None]
    if pin.modes:
        open_axes = [
            axis for axis, extent in extents.items() if axis != "C" and extent > 1 and axis not in dict(pin.modes)
        ]
        offered = list(HaloMode) if wishes.halo == "auto" else [HaloMode(wishes.halo)]
        if not units_are_connected(profile) and wishes.halo == "auto":
            offered.remove(HaloMode.EXCHANGE)
        modes = [
            {**dict.fromkeys(open_axes, mode), **dict(pin.modes)} for mode in (offered if open_axes else offered[:1])
        ]
    slices: list[dict[str, object]] = [{}]
    fixed, sizes = dict(pin.fixed), dict(pin.sizes)
    if "C" in sizes and "channel_slices" not in fixed:
        units = profile.units.count
        counts = {ceil_div(extents["C"], sizes["C"] * parts) for parts in (1, units)}
        slices = [{"channel_slices": count} for count in sorted(counts)]
    for mode, count in product(modes, slices):
        yield _Attempt(modes=mode, fixed={**fixed, **count})


def _attempted(
    geometry: GroupGeometry,
    profile: Profile,
    constraints: tuple[Constraint, ...],
    wishes: Wishes,
    pin: Pin,
    attempt: _Attempt,
) -> Choice | Unheld:
    """First without asking for weight loads; where they come out otherwise, for those; at last for all of them."""
    loads: dict[int, WeightLoads] = {p: kind for p, kind in pin.loads if kind is not WeightLoads.STATIONARY}
    asked: dict[int, WeightLoads] = {}
    while True:
        fixed = dict(attempt.fixed)
        if asked:
            fixed["loads"] = tuple((geometry.indices[place], kind) for place, kind in sorted(asked.items()))
        wanted = replace(
            wishes,
            halo=wishes.halo if attempt.modes is None else "auto",
            # a channel tile follows from slices and spread
            sizes={axis: size for axis, size in pin.sizes if axis != "C"},
            core=dict(pin.core),
            modes=attempt.modes,
            fixed=fixed,
            handover=pin.handover,
        )
        found = choose_tiling(geometry, profile, constraints, wanted)
        if isinstance(found, Refusal):
            return _refused(geometry, found)
        unmet = _unmet(geometry, found.tiling, pin)
        if unmet is not None:
            return unmet
        off = _other_loads(geometry, found.tiling, pin)
        if not off:
            return found
        wider = {place: loads[place] for place in off if place in loads} | asked
        if wider == asked:
            wider = loads
        if wider == asked:
            return _unheld_loads(geometry, found, pin, off[0])
        asked = wider


def _refused(geometry: GroupGeometry, refusal: Refusal) -> Unheld:
    check = refusal.check
    place = 0 if refusal.op is None else geometry.indices.index(refusal.op)
    if check.rule == "TILE-2":
        # nothing was even tried: no configuration has all that is pinned
        return Unheld(rule="TILE-9", place=place, needed="no tiling has all that is pinned", available="none")
    needed, available = amounts(check)
    return Unheld(rule=check.rule, place=place, needed=needed, available=available)


def _unmet(geometry: GroupGeometry, tiling: Tiling, pin: Pin) -> Unheld | None:
    """The first thing pinned that the tiling does not have, weight loads apart."""
    tile = dict(zip(tiling.axes, tiling.tile, strict=True))
    core = dict(zip(tiling.axes, tiling.core_tile, strict=True))
    pairs: list[tuple[str, object, object]] = [
        *((f"tile {axis}", size, tile[axis]) for axis, size in pin.sizes),
        *((f"core tile {axis}", size, core[axis]) for axis, size in pin.core),
        *((f"halo {axis}", mode, tiling.configuration.halo_of(axis)) for axis, mode in pin.modes),
        *((name.replace("_", " "), value, _field(tiling.configuration, name)) for name, value in pin.fixed),
    ]
    for what, wanted, got in pairs:
        if what == "walk":
            assert isinstance(wanted, tuple)
            got = tuple(axis for axis in tiling.configuration.walk if axis in wanted)
        if got != wanted:
            return Unheld(
                rule="TILE-9",
                place=len(geometry.ops) - 1,
                needed=f"{what} would be {_text(got)} ({called('TILE-9')})",
                available=f"{what} {_text(wanted)}, as pinned",
            )
    return None


def _field(configuration: Configuration, name: str) -> object:
    return getattr(configuration, name)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _other_loads(geometry: GroupGeometry, tiling: Tiling, pin: Pin) -> list[int]:
    """The places of the ops whose weights are not read as pinned."""
    kinds = {entry.op: entry.kind for entry in tiling.weights}
    return [place for place, kind in pin.loads if kinds.get(geometry.indices[place]) is not kind]


def _unheld_loads(geometry: GroupGeometry, choice: Choice, pin: Pin, place: int) -> Unheld:
    """Why an op's weights are not read as pinned: where room is lacking the bytes, else how they would be read."""
    wanted = dict(pin.loads)[place]
    kinds = {entry.op: entry.kind for entry in choice.tiling.weights}
    found = kinds.get(geometry.indices[place])
    needed = int(np.sum(choice.figures.core_weights))
    available = int(np.max(choice.figures.weight_memory))
    if wanted is WeightLoads.RESIDENT and found is not None and needed > available:
        return Unheld(
            rule="TILE-9:weights",
            place=place,
            needed=f"{needed} bytes needed ({called('TILE-9:weights')}) for the group's weights in one core",
            available=f"{available} bytes available",
        )
    would = "the op has no weights" if found is None else f"its weights would be {found.value}"
    return Unheld(
        rule="TILE-9:weights",
        place=place,
        needed=f"{would} ({called('TILE-9:weights')})",
        available=f"{wanted.value}, as pinned",
    )


def _check(geometry: GroupGeometry, profile: Profile, pin: Pin) -> None:
    """RequestError for what no tiling of this group on this profile could have."""
    if pin.handover != NOTHING_HANDED and not may_hand_over(profile):
        way = "chips with several units that are connected"
        raise _impossible(geometry, "handover: a tensor stays on the chip between groups", way)
    output = geometry.output
    extents = dict(zip(output.axes, output.shape, strict=True))
    fixed = dict(pin.fixed)
    walk = fixed.get("walk", ())
    assert isinstance(walk, tuple)
    named = [("tile", a) for a, _ in pin.sizes] + [("core_tile", a) for a, _ in pin.core]
    named += [("halo", a) for a, _ in pin.modes] + [("walk", a) for a in walk]
    for what, axis in named:
        if axis not in extents or (axis == "C" and what in ("halo", "walk")):
            allowed = [a for a in output.axes if a != "C" or what not in ("halo", "walk")]
            raise _impossible(geometry, f"{what} names axis {printable(axis, 20)}", f"one of {', '.join(allowed)}")
    if len(set(walk)) != len(walk):
        raise _impossible(geometry, "walk names an axis twice", "each axis once")
    sizes = dict(pin.sizes)
    for what, given, limits in (("tile", sizes, extents), ("core_tile", dict(pin.core), {**extents, **sizes})):
        for axis, size in given.items():
            if size > limits[axis]:
                raise _impossible(geometry, f"{what} {axis} = {size}", f"at most {limits[axis]}")
    units = profile.units.count
    for name, most in (("units", units), ("cores", profile.units.cores)):
        given_count = fixed.get(name)
        if isinstance(given_count, int) and given_count > most:
            raise _impossible(geometry, f"{name} = {given_count}", f"at most {most} on this profile")
    spread, core_spread = fixed.get("spread"), fixed.get("core_spread")
    if spread is not None and fixed.get("units") is not None and (fixed["units"] == 1) != (spread is Spread.SINGLE):
        raise _impossible(geometry, f"units = {fixed['units']} with spread {spread}", "single for one unit, else not")
    in_unit = fixed.get("cores") or profile.units.cores
    if core_spread is not None and (in_unit == 1) != (core_spread is Spread.SINGLE):
        raise _impossible(
            geometry, f"cores = {in_unit} with core_spread {core_spread}", "single for one core, else not"
        )
    sliced = [fixed.get(name, 1) for name in ("channel_slices", "input_slices")]
    if 1 not in sliced and fixed.get("slices_outer") is False:
        raise _impossible(geometry, "channel and input slices with outer_loop tiles", "outer_loop slices")
    for name, value, count in (("spread", spread, units), ("core_spread", core_spread, fixed.get("cores"))):
        if value is None:
            continue
        can = _spreads(geometry, extents) if name == "spread" else _core_spreads(extents)
        if value not in can or (value is not Spread.SINGLE and count == 1):
            names = ", ".join(s.value for s in can if count != 1 or s is Spread.SINGLE)
            raise _impossible(geometry, f"{name} = {value}", f"one of {names} for this group")
    slices = fixed.get("input_slices")
    if isinstance(slices, int) and slices > 1 and geometry.product is None:
        raise _impossible(geometry, f"input_slices = {slices}", "1: the group is not one product")


def _spreads(geometry: GroupGeometry, extents: dict[str, int]) -> list[Spread]:
    can = [Spread.SINGLE]
    if extents.get("N", 1) > 1:
        can.append(Spread.IMAGES)
    if any(extent > 1 for axis, extent in extents.items() if axis not in ("N", "C")):
        can.append(Spread.BANDS)
    if extents.get("C", 1) > 1:
        can.append(Spread.CHANNELS)
    if geometry.product is not None:
        can.append(Spread.INPUT_CHANNELS)
    return can


def _core_spreads(extents: dict[str, int]) -> list[Spread]:
    can = [Spread.SINGLE, Spread.CHANNELS]
    if any(extent > 1 for axis, extent in extents.items() if axis not in ("N", "C")):
        can.append(Spread.BANDS)
    return can


def _impossible(geometry: GroupGeometry, actual: str, limit: str) -> RequestError:
    op = geometry.facts.graph.ops[geometry.facts.graph.producer[geometry.primary]]
    return RequestError(
        f"the pinned group that makes {printable(geometry.primary, 80)} cannot have what is pinned",
        code="invalid_schedule",
        stage="fusion",
        node=op.node,
        op_type=op.kind,
        actual=actual,
        limit=limit,
        hint="Extents, halos and walks are by axis of the group's output",
    )
