"""Evaluating a group: its structural rules, then the cheapest tiling that its capacity rules allow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
import numpy as np

from compiler.cost.objective import NO_TOTALS, Totals, objective_value, ranking
from compiler.degraded import defects_of, failed_group
from compiler.errors import LimitError, printable
from compiler.fusion.gap_fields import amounts, field_of_rule
from compiler.fusion.pinned import Pin, Unheld, choose_pinned
from compiler.fusion.rules import capacity, structure
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.profile.schema import Profile
from compiler.rules import LIMITED_RULES, PROFIT_RULES
from compiler.tiling.choose import Refusal, choose_tiling
from compiler.tiling.figures import PHYSICAL, Check, Constraint, Figures
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import allocated_check
from compiler.tiling.projection import Projections
from compiler.tiling.refine import as_before, likeness, nearly_as_good, refined
from compiler.tiling.sizes import candidate_sizes
from compiler.tiling.split import Split
from compiler.tiling.tile import Handover, Spread
from compiler.tiling.wishes import Wishes

StructureRule = Callable[[SegmentGraph, int], Check]
_TENSORS_OF_A_STEP = 24
_RANGES_OF_A_STEP = 1 << 14
# by how much more a price takes for each so many tiles of all sizes: they are held for several halos and spreads
_MORE_RANGES = 4
# To find other tilings of a group for simulation, at most so many steps of pricing are taken.
_TILES_NEARBY = 48
# The same, to find the best tiling of a group between which and others something stays on the chip.
_TILES_HANDING = 64
# How much less than pricing a group it takes to find that one of the same content is known.
_KNOWN = 0.125
# The rules of each kind, by id; option `rules` may give another order. Those with a limit of their own take it.
_CAPACITY: Final = MappingProxyType(
    {
        "FUSE-12": capacity.fuse_12,
        "FUSE-13": capacity.fuse_13,
        "FUSE-14": capacity.fuse_14,
        "FUSE-15": capacity.fuse_15,
        "FUSE-16": capacity.fuse_16,
        "FUSE-11": capacity.fuse_11,
        "FUSE-18": capacity.fuse_18,
    }
)
_STRUCTURE: Final = MappingProxyType(
    {
        "FUSE-4": structure.fuse_4,
        "FUSE-8": structure.fuse_8,
        "FUSE-9": structure.fuse_9,
        "FUSE-19": structure.fuse_19,
    }
)
_PROFIT: Final = MappingProxyType({"FUSE-5": structure.fuse_5, "FUSE-6": structure.fuse_6, "FUSE-7": structure.fuse_7})


class _Watched:
    """Rule FUSE-11, which binds or is only recorded; `holds`: it has held for all tilings that were worked out."""

    def __init__(self, rule: Constraint, *, binds: bool) -> None:
        self.binds, self.holds = binds, True
        self._rule = rule

    def __call__(self, figures: Figures) -> Check:
        if not self.binds and isinstance(figures.whole_map, np.ndarray):
            # candidates load nothing as far as their figures say, so the rule holds for all of them
            return Check(rule="FUSE-11", holds=True, actual=0, limit=0)
        check = self._rule(figures)
        self.holds &= bool(np.all(check.holds))
        return check if self.binds else replace(check, holds=True)


class Evaluator:
    """Tilings and prices of groups for one profile and one set of options; memoised by content.

    Lives as long as one compilation, so nothing outlives it (HOUSE_STYLE 5).
    """

    def __init__(self, facts: GraphFacts, profile: Profile, options: Options) -> None:
        self.facts = facts
        self.profile = profile
        self.options = options
        self._totals: dict[int, Totals] = {}
        self._projections = Projections()
        added = {rule.name: partial(capacity.added, rule=rule) for rule in options.added_rules}
        self._capacity_rules: tuple[tuple[str, Constraint], ...] = _in_force(options, {**_CAPACITY, **added})
        self._structure_rules: tuple[tuple[str, StructureRule], ...] = _in_force(options, _STRUCTURE)
        self._convolution_rules = [rule for name, rule in self._structure_rules if name in ("FUSE-8", "FUSE-9")]
        wanted = PROFIT_RULES if isinstance(options.profit, str) else options.profit
        self._profit_rules: tuple[tuple[str, StructureRule], ...] = _in_force(
            options, {rule_id: _PROFIT[rule_id] for rule_id in wanted}
        )
        self._wishes = Wishes(
            objective=options.objective,
            halo=options.halo,
            placement=options.placement,
            split=Split(kind=options.split, granularity=options.ratios, order=options.order, cycle=options.split_cycle),
        )
        self._pins: Mapping[int, Pin] = {}
        self._apart: tuple[tuple[int, int], ...] = ()
        self._chains: set[int] = set()
        # by extent of an axis
        self._ranges: dict[int, int] = {}
        # the group asked about last, with what its tiling depends on
        self._latest: tuple[int, tuple[object, ...], GroupGeometry] | None = None
        self._by_group: dict[int, Choice | Refusal] = {}
        self._refined: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[int, ...], Choice]] = {}
        self._by_content: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[int, ...], Choice | Refusal]] = {}
        self._handing: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[int, ...], Choice | Refusal]] = {}
        # contents not asked about whose tilings are known: those of others that differ in whether FUSE-11 binds
        self._alike: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[int, ...], Choice | Refusal]] = {}

    def pinned(self, pins: Mapping[int, Pin], apart: tuple[tuple[int, int], ...]) -> Evaluator:
        """An evaluator for the same profile and options under a schedule's pins (TILE-9).

        `pins` by group; no group may hold ops of both sets of a pair of `apart`. What this one knows by content the
        other knows too.
        """
        other = self._with_options(self.options)
        other._pins, other._apart = pins, apart
        return other

    def _with_options(self, options: Options) -> Evaluator:
        """An evaluator that knows by content what this one knows, nothing pinned."""
        other = Evaluator(self.facts, self.profile, options)
        other._projections, other._by_content = self._projections, self._by_content
        other._alike, other._handing = self._alike, self._handing
        return other

    def forget_boxes(self) -> None:
        """Forget what groups not priced yet would share with those that were; tilings and prices stay."""
        self._latest = None
        self._projections.forget()

    def constraints(self, group: int) -> tuple[Constraint, ...]:
        """What binds a group's tiling beside memory.

        Nothing a single op; all but FUSE-11 and FUSE-18 a pinned group (TILE-9); a chain of strategy `none`, and any
        group under `search`, all but FUSE-11.
        """
        left_out = self._left_out(group)
        return tuple(rule for rule_id, rule in self._capacity_rules if rule_id not in left_out)

    def _left_out(self, group: int) -> tuple[str, ...]:
        """The capacity rules in force that do not bind a group."""
        if group.bit_count() == 1:
            return tuple(rule_id for rule_id, _ in self._capacity_rules)
        if group in self._pins:
            return ("FUSE-11", "FUSE-18")
        return ("FUSE-11",) if group in self._chains or self.options.fusion == "search" else ()

    def _in_force_but(self, left_out: Collection[str]) -> tuple[str, ...]:
        """The ids of the capacity rules in force without some."""
        return tuple(rule_id for rule_id, _ in self._capacity_rules if rule_id not in left_out)

    def chain_fits(self, group: int) -> bool:
        """True if a chain of strategy `none` has a tiling; from then on the group counts as one."""
        if group not in self._chains and group not in self._by_group:
            self._chains.add(group)
        return isinstance(self.tiling(group), Choice)

    def tiling(self, group: int) -> Choice | Refusal:
        """The cheapest tiling of a group under what binds it."""
        known = self._by_group.get(group)
        if known is None:
            content, geometry = self._content(group)
            same = self._by_content.get(content)
            known = self._chosen(group, content, geometry) if same is None else _renamed(*same, geometry)
            self._by_group[group] = known
        return known

    def _content(self, group: int) -> tuple[tuple[object, ...], GroupGeometry]:
        """What a group's tiling depends on, names and numbers of ops apart; and its geometry."""
        if self._latest is None or self._latest[0] != group:
            self._projections.trim()
            geometry = GroupGeometry(self.facts, tuple(bits(group)), self._projections)
            content = (self._in_force_but(self._left_out(group)), self._pins.get(group), geometry.content())
            self._latest = group, content, geometry
        return self._latest[1:]

    def _chosen(self, group: int, content: tuple[Any, ...], geometry: GroupGeometry) -> Choice | Refusal:
        """The tiling of a group of a content not met before."""
        same = self._alike.get(content)
        if same is not None:
            self._by_content[content] = same
            return _renamed(*same, geometry)
        pin, left_out = self._pins.get(group), self._left_out(group)
        watched: _Watched | None = None
        with defects_of("tiling", [failed_group(self.facts, bits(group))]):
            if pin is None:
                constraints: list[Constraint] = []
                for rule_id, rule in self._capacity_rules:
                    if rule_id == "FUSE-11" and group.bit_count() > 1:
                        watched = _Watched(rule, binds=rule_id not in left_out)
                        constraints.append(watched)
                    elif rule_id not in left_out:
                        constraints.append(rule)
                found = choose_tiling(geometry, self.profile, tuple(constraints), self._wishes)
            else:
                found = self._as_pinned(group, geometry, self.constraints(group), pin)
        geometry.forget_frustums()
        self._by_content[content] = (geometry.inputs, geometry.indices, found)
        if watched is not None and watched.holds:
            # under strategies that the rule binds and under those that it does not the tiling is the same
            other = self._in_force_but({*left_out} ^ {"FUSE-11"})
            self._alike[other, *content[1:]] = self._by_content[content]
        return found

    def price(self, group: int) -> Totals | None:
        """DRAM bytes, cycles and energy of a group; None if it has no tiling.

        Sooner than `tiling` where a group of the same content is known: nothing is renamed.
        """
        known = self._totals.get(group)
        if known is None:
            choice = self._by_group.get(group)
            if choice is None:
                content, geometry = self._content(group)
                same = self._by_content.get(content)
                choice = self._chosen(group, content, geometry) if same is None else same[2]
            if isinstance(choice, Refusal):
                return None
            known = self._totals[group] = Totals.of((choice.cost,))
        return known

    def refined(self, group: int, tried: int, beside: Totals = NO_TOTALS) -> tuple[Choice, int]:
        """The best of at most so many tilings by cost of a group that has one (FUSE-O); and how many had to be priced.

        None had if the content was asked about before. `beside`: totals of all other groups, where the objective is no
        sum.
        """
        choice = self.tiling(group)
        if isinstance(choice, Refusal):
            raise refused(self.facts, group, choice, self.profile)
        geometry = GroupGeometry(self.facts, tuple(bits(group)), self._projections)
        content = (tried, beside, geometry.content())
        same = self._refined.get(content)
        if same is not None:
            found = _renamed(*same, geometry)
            return choice if isinstance(found, Refusal) else found, 0
        bound = self.constraints(group)
        better, priced = refined(choice, geometry, self.profile, bound, self._wishes, tried, beside)
        geometry.forget_frustums()
        self._refined[content] = (geometry.inputs, geometry.indices, better)
        return better, priced

    def other_tilings(self, group: int, choice: Choice, count: int) -> list[Choice]:
        """At most so many other tilings of a group that has this one: with the largest tile, then by price."""
        geometry = GroupGeometry(self.facts, tuple(bits(group)), self._projections)
        tried, bound = _TILES_NEARBY // self.steps(group), self.constraints(group)
        found = nearly_as_good(choice, geometry, self.profile, bound, self._wishes, tried, count)
        geometry.forget_frustums()
        largest = self.tiling(group)
        others = {likeness(one): one for one in (largest, *found) if isinstance(one, Choice)}
        others.pop(likeness(choice), None)
        return list(others.values())[:count]

    def handing(
        self, group: int, before: Choice, handover: Handover, spread: Spread | None, *, is_refined: bool = False
    ) -> Choice | Refusal:
        """A tiling of a group while this stays on the chip (TILE-4): that of before, if it has room.

        Else, or if `is_refined`, the best found from there and from the cheapest one with the largest tile.
        `spread`: the only one tried.
        """
        content, geometry = self._content(group)
        key = (handover, spread, content)
        own = (is_refined, before.tiling.configuration, before.tiling.tile, before.tiling.core_tile)
        same = self._handing.get((*key, *own))
        if same is not None:
            return _renamed(*same, geometry)
        wishes = replace(self._wishes, handover=handover, spread=spread)
        bound, tried = self.constraints(group), _TILES_HANDING // self.steps(group)
        with defects_of("tiling", [failed_group(self.facts, bits(group))]):
            same_tile = as_before(before, geometry, self.profile, bound, wishes)
            found: Choice | Refusal | None = None if is_refined else same_tile
            if found is None:
                # what is found from the largest tile is the same whatever the tiling was before
                if key not in self._handing:
                    found = choose_tiling(geometry, self.profile, bound, wishes)
                    if isinstance(found, Choice):
                        found, _ = refined(found, geometry, self.profile, bound, wishes, tried)
                    self._handing[key] = (geometry.inputs, geometry.indices, found)
                found = _renamed(*self._handing[key], geometry)
                if same_tile is not None:
                    other, _ = refined(same_tile, geometry, self.profile, bound, wishes, tried)
                    found = _cheaper(found, other, wishes.objective)
        geometry.forget_frustums()
        self._handing[*key, *own] = (geometry.inputs, geometry.indices, found)
        return found

    def under(self, fusion: Literal["search", "rules", "none"]) -> Evaluator:
        """This evaluator under another strategy: other rules bind groups."""
        other = self._with_options(msgspec.structs.replace(self.options, fusion=fusion))
        other._pins, other._apart = self._pins, self._apart
        return other

    def with_tilings(self, tilings: Mapping[int, Choice]) -> Evaluator:
        """This evaluator, but for groups whose tilings are given."""
        other = self.pinned(self._pins, self._apart)
        other._chains, other._by_group = self._chains, {**self._by_group, **tilings}
        return other

    def _as_pinned(self, group: int, geometry: GroupGeometry, constraints: tuple[Constraint, ...], pin: Pin) -> Choice:
        """The tiling of a pinned group; LimitError naming what cannot hold, RequestError for what none could have."""
        found = choose_pinned(geometry, self.profile, constraints, self._wishes, pin)
        if isinstance(found, Unheld):
            op = geometry.indices[found.place]
            raise not_held(self.facts, group, op, found.needed, found.available)
        return found

    def asking(self, group: int) -> float:
        """What asking for a group's price counts where steps are bounded: less where its content is known."""
        is_known = group in self._totals or group in self._by_group or self._content(group)[0] in self._by_content
        return self.steps(group) * (_KNOWN if is_known else 1)

    def asking_at_least(self, group: int) -> float:
        """What asking for a group's price counts if its content is known, which takes longer to find out."""
        return self.steps(group) * _KNOWN

    def steps(self, group: int) -> int:
        """What pricing a group counts where steps are bounded: more for many tensors and for long axes.

        An axis of millions has many sizes of tiles, and each of them many tiles; both take longer.
        """
        operands = self.facts.operands_of(group)
        output = self.facts.tensors[self.facts.ops[group.bit_length() - 1].output]
        ranges = sum(map(self._ranges_of, output.shape))
        return 1 + operands * (1 + _MORE_RANGES * (ranges // _RANGES_OF_A_STEP)) // _TENSORS_OF_A_STEP

    def _ranges_of(self, extent: int) -> int:
        """The tiles of all sizes that are tried along an axis."""
        if extent not in self._ranges:
            self._ranges[extent] = int((-(-extent // candidate_sizes(extent))).sum())
        return self._ranges[extent]

    def totals(self, groups: Iterable[int]) -> Totals:
        """DRAM bytes, cycles and energy of groups that have a tiling."""
        dram = cycles = 0
        energy = 0.0
        for group in groups:
            known = self.price(group)
            if known is None:
                choice = self.tiling(group)
                assert isinstance(choice, Refusal)
                raise refused(self.facts, group, choice, self.profile)
            dram += known.dram_bytes
            cycles += known.cycles
            energy += known.energy_pj
        return Totals(dram_bytes=dram, cycles=cycles, energy_pj=energy)

    def value(self, groups: Iterable[int]) -> float:
        """The objective's value for groups run one after another."""
        return float(objective_value(self.options.objective, self.totals(groups)))

    def structure(self, graph: SegmentGraph, group: int) -> list[Check]:
        """The structural rules in force: FUSE-4, 8, 9 and 19."""
        return [*(rule(graph, group) for _, rule in self._structure_rules), *self._kept_apart(group)]

    def _kept_apart(self, group: int) -> list[Check]:
        """That no forbidden fusion is in the group; nothing where none is forbidden."""
        if not self._apart:
            return []
        held = sum(1 for first, second in self._apart if group & first and group & second)
        return [Check(rule="TILE-9:apart", holds=held == 0, actual=held, limit=0)]

    def keeps_apart(self, group: int) -> bool:
        """True if no fusion that a schedule forbids is in the group."""
        return not self._apart or all(check.holds for check in self._kept_apart(group))

    def is_left_out(self, graph: SegmentGraph, op: int) -> bool:
        """True if FUSE-8 or FUSE-9, where on, leaves this convolution out of any group."""
        return any(not rule(graph, 1 << op).holds for rule in self._convolution_rules)

    def pinned_rules(self, graph: SegmentGraph, group: int) -> list[Check]:
        """The structural rules that bind a pinned group of several ops: FUSE-8 and 9, and what is kept apart."""
        if group.bit_count() == 1:
            return []
        return self.legality(graph, group)

    def legality(self, graph: SegmentGraph, group: int) -> list[Check]:
        """The structural rules that bind `search`: FUSE-8 and 9, and what a schedule keeps apart."""
        return [*(rule(graph, group) for rule in self._convolution_rules), *self._kept_apart(group)]

    def chain_rules(self, graph: SegmentGraph, group: int) -> list[Check]:
        """The structural rules that bind strategy `none`: FUSE-4, 8 and 9 (FUSE-N)."""
        return [check for check in self.structure(graph, group) if check.rule != "FUSE-19"]

    def profit(self, graph: SegmentGraph, group: int) -> list[Check]:
        """The profit rules in force: of FUSE-5, 6, 7 those that are on and asked for."""
        return [rule(graph, group) for _, rule in self._profit_rules]

    def is_profitable(self, checks: list[Check]) -> bool:
        """`any`: one suffices; `all` or a list: each must hold. No rule in force: nothing to prove."""
        if not checks:
            return True
        verdicts = [bool(check.holds) for check in checks]
        return any(verdicts) if self.options.profit == "any" else all(verdicts)

    def capacity(self, group: int) -> list[Check]:
        """The verdicts of memory and of the capacity rules that bind the group on its chosen tiling."""
        choice = self.tiling(group)
        if isinstance(choice, Refusal):
            return [choice.check]
        rules = (*PHYSICAL, *self.constraints(group))
        return [*(rule(choice.figures) for rule in rules), *map(allocated_check, choice.tiling.memory)]


def _in_force(options: Options, rules: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Those of these rules that are on, with their limits, in the order that option `rules` gives."""
    ids = sorted((rule_id for rule_id in rules if options.rule_enabled(rule_id)), key=options.rule_place)
    return tuple(
        (
            rule_id,
            partial(rules[rule_id], limit=options.rule_limit(rule_id)) if rule_id in LIMITED_RULES else rules[rule_id],
        )
        for rule_id in ids
    )


def _cheaper(found: Choice | Refusal, other: Choice, objective: str) -> Choice:
    """The cheaper of two tilings, the first if they cost the same; the other one if there is no first."""
    if isinstance(found, Refusal):
        return other
    price, its = (ranking(objective, Totals.of((choice.cost,))) for choice in (found, other))
    return other if its < price else found


def refused(facts: GraphFacts, group: int, refusal: Refusal, profile: Profile) -> LimitError:
    """The error for a group that has to be legal and is not: names op, bytes needed and available, and the field."""
    op = facts.graph.ops[next(bits(group))]
    check = refusal.check
    field = field_of_rule(check.rule, profile)
    needed, available = amounts(check)
    return LimitError(
        "not even the smallest tile of this op fits the chip",
        code="does_not_fit",
        stage="fusion",
        node=op.node,
        op_type=op.kind,
        actual=needed,
        limit=available,
        hint="Give the profile a larger memory of that level" if field is None else f"Raise {field} in the profile",
    )


def not_held(facts: GraphFacts, group: int, op: int, needed: str, available: str) -> LimitError:
    """The error for a pinned group that cannot hold: names the group, the op, what is needed and what there is."""
    nodes = list(dict.fromkeys(printable(facts.graph.ops[index].node, 60) for index in bits(group)))
    name = nodes[0] if len(nodes) == 1 else f"{nodes[0]} to {nodes[-1]}"
    return LimitError(
        f"the pinned group of {len(nodes)} node{'' if len(nodes) == 1 else 's'}, {name}, does not hold",
        code="schedule_does_not_hold",
        stage="fusion",
        node=facts.graph.ops[op].node,
        op_type=facts.graph.ops[op].kind,
        actual=needed,
        limit=available,
        hint="Pin a smaller tile or fewer nodes, leave more of the group open, or give the profile a larger memory",
    )


def _renamed(
    inputs: tuple[str, ...], indices: tuple[int, ...], result: Choice | Refusal, wanted: GroupGeometry
) -> Choice | Refusal:
    """A memoised result under another group's names and op indices."""
    ops = dict(zip(indices, wanted.indices, strict=True))
    if isinstance(result, Refusal):
        return result if result.op is None else replace(result, op=ops[result.op])
    tensors = dict(zip(inputs, wanted.inputs, strict=True))
    configuration = result.tiling.configuration
    tiling = replace(
        result.tiling,
        configuration=replace(configuration, loads=tuple((ops[op], kind) for op, kind in configuration.loads)),
        input_tiles=tuple((tensors[name], extents) for name, extents in result.tiling.input_tiles),
        weights=tuple(replace(w, op=ops[w.op]) for w in result.tiling.weights),
    )
    stages = tuple(
        replace(stage, ops=tuple((ops[op], dataflow, cycles) for op, dataflow, cycles in stage.ops))
        for stage in result.cost.stages
    )
    cost = replace(result.cost, stages=stages)
    return replace(
        result, tiling=tiling, cost=cost, tables=tuple(replace(table, op=ops[table.op]) for table in result.tables)
    )
