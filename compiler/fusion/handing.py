"""Tensors that stay on the chip between groups, where a plan then costs less (TILE-4): part of the improvement step.

A group works under one spread. Where one that suits the first ops of a segment leaves no room to later ones, these are
groups of their own, and what lies between them goes to DRAM and comes again; unless units hold it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

from compiler.cost.objective import Totals, objective_value, ranking
from compiler.cost.rates import dram_port_bytes_per_cycle
from compiler.errors import printable
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.op_facts import GraphFacts
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.handed import (
    ALIGNMENT_BYTES,
    apart_from,
    begin_of,
    handed_tensors,
    may_hand_over,
    shared_out,
    taken_tensors,
)
from compiler.tiling.tile import Configuration, Handed, Handover
from compiler.units import ceil_div

# Steps of pricing groups between which something stays on the chip. The 44 tensors that are tried for ResNet-50 on
# edge4 take half of them, and a fifth of the time of all planning.
_STEPS_MAX: Final = 192
# So many groups, one after another, may lie between the one that makes a tensor and the last one that reads it: each of
# them is tiled anew. Residuals of the measured networks pass over three.
_GROUPS_MAX: Final = 8
# A tensor that can save no more than this part of the objective goes to DRAM: to find out would cost more.
_LEAST_GAIN: Final = 0.0005
# By how much more groups may cost before their tiles are chosen by cost, as a part of what they did.
_REFINED: Final = 0.1


class _Link(NamedTuple):
    """A tensor that is made by the group at place `first` and read by those at `readers`, the last one at `last`."""

    name: str
    first: int
    readers: tuple[int, ...]
    handed: Handed

    @property
    def last(self) -> int:
        return self.readers[-1]

    def is_held_in(self, place: int) -> bool:
        """True if units hold it while a group runs."""
        return self.first <= place <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Handing:
    """Tilings of groups between which something stays on the chip, and for each run of them those without that."""

    tilings: Mapping[int, Choice]
    apart: tuple[Mapping[int, Choice], ...]


def handed_over(
    evaluator: Evaluator, graph: SegmentGraph, choices: Mapping[int, Choice], outside: Totals, fixed: frozenset[int]
) -> Handing:
    """Let tensors stay on the chip where that pays, those first that save most DRAM bytes.

    `choices`: of the groups in execution order; `outside`: totals of the other segments; `fixed` groups stay as they
    are.
    """
    total = outside + Totals.of([choice.cost for choice in choices.values()])
    chain = _Chain(evaluator, graph, dict(choices), total)
    if may_hand_over(evaluator.profile):
        left = _STEPS_MAX
        for link in chain.candidates(fixed):
            if not chain.may_gain(link):
                continue
            steps = sum(map(evaluator.steps, chain.span(link)))
            if steps <= left:
                left -= steps
                chain.take(link)
    return Handing(tilings=chain.changed, apart=chain.runs(choices))


def handed_wrongly(
    facts: GraphFacts, groups: Sequence[tuple[Sequence[int], Handover]], units: int | None = None
) -> tuple[int, str] | None:
    """The first of a segment's groups, in their order, that cannot hand on or take what it says, and why; None if all
    can. `groups`: their ops; `units` of the chip, None: not asked.
    """
    done: set[int] = set()
    live: dict[str, Handed] = {}
    for number, (ops, handover) in enumerate(groups):
        geometry = GroupGeometry(facts, ops)
        taken, handed = taken_tensors(geometry, handover), handed_tensors(geometry, handover)
        done.update(ops)
        for name in geometry.inputs:
            mine, there = taken.get(name), live.get(name)
            if mine is None and there is not None:
                return number, f"reads {printable(name, 80)}, which stays on the chip, and does not take it there"
            if mine is not None and (there is None or replace(mine, place=0) != there):
                return number, f"takes {printable(name, 80)}, which no earlier group leaves on the chip like that"
        for name, its in handed.items():
            tensor = facts.tensors[name]
            extent = tensor.shape[tensor.axes.index(its.axis)] if its.axis in tensor.axes else 0
            if not extent:
                return number, f"shares {printable(name, 80)} out along {its.axis}, where it has nothing to share"
            if units is not None and ceil_div(extent, its.share) > units:
                return number, f"leaves {printable(name, 80)} on the chip in parts that {units} units cannot hold"
            if name in facts.graph.outputs or set(facts.graph.consumers.get(name, ())) <= done:
                return number, f"leaves {printable(name, 80)} on the chip, which is an output, or which nothing reads"
            if not all(is_operand(facts, user, name) for user in facts.graph.consumers[name]):
                return number, f"leaves {printable(name, 80)} on the chip, but an op gathers rows of it from DRAM"
            live[name] = replace(its, place=0)
        if any(its.before_end % ALIGNMENT_BYTES for its in live.values()):
            return number, f"lets a tensor end at no multiple of {ALIGNMENT_BYTES} bytes"
        spans = sorted((its.before_end, begin_of(facts, name, its)) for name, its in live.items())
        if any(high > low for (_, high), (low, _) in pairwise(spans)):
            return number, "lets two tensors stay on the chip in one place"
        if handover.held_bytes != max((begin for _, begin in spans), default=0):
            held = max((begin for _, begin in spans), default=0)
            return number, f"keeps {handover.held_bytes} bytes free for what stays on the chip, which takes {held}"
        live = {name: its for name, its in live.items() if not set(facts.graph.consumers[name]) <= done}
    return (len(groups) - 1, "is the last one, and something stays on the chip for later ones") if live else None


def is_operand(facts: GraphFacts, op: int, name: str) -> bool:
    """False where an op gathers rows of a tensor as of a table, which has to lie in DRAM."""
    return any(operand.tensor == name for operand in facts.ops[op].operands)


class _Chain:
    """Groups in execution order with their tilings, and what stays on the chip between them."""

    def __init__(self, evaluator: Evaluator, graph: SegmentGraph, choices: dict[int, Choice], total: Totals) -> None:
        """`total`: what the whole takes with these tilings."""
        self._evaluator, self._facts, self._graph = evaluator, graph.facts, graph
        self._objective, self._total = evaluator.options.objective, total
        self.choices, self.groups = choices, tuple(choices)
        self._links: list[_Link] = []
        self._geometries: dict[int, GroupGeometry] = {}

    def candidates(self, fixed: frozenset[int]) -> list[_Link]:
        """Results that groups of the segment alone read, soon enough; those first that are moved most."""
        model, found = self._facts.graph, list[_Link]()
        home = {op: place for place, group in enumerate(self.groups) for op in bits(group)}
        for place, group in enumerate(self.groups):
            outputs = self._graph.outputs_of(group)
            if len(outputs) != 1:
                continue
            name = model.ops[outputs[0]].output
            users = [user for user in model.consumers.get(name, ()) if not group >> user & 1]
            if name in model.outputs or not users or any(user not in home for user in users):
                continue
            if not all(is_operand(self._facts, user, name) for user in users):
                continue
            readers = tuple(sorted({home[user] for user in users}))
            near = readers[-1] - place <= _GROUPS_MAX
            if near and not fixed.intersection(self.groups[place : readers[-1] + 1]):
                found.append(_Link(name, place, readers, Handed(place=0, axis="", share=0, before_end=0)))
        moved = {link.name: self._facts.tensor_bytes(link.name) * (1 + len(link.readers)) for link in found}
        return sorted(found, key=lambda link: (-moved[link.name] // (link.last - link.first), link.first))

    def span(self, link: _Link) -> tuple[int, ...]:
        """The groups while which units hold a tensor."""
        return self.groups[link.first : link.last + 1]

    def may_gain(self, link: _Link) -> bool:
        """Whether the whole may cost less by more than a least part if a tensor stays on the chip."""
        after, now = (float(objective_value(self._objective, its)) for its in (self._least(link, {}), self._total))
        return after < (1 - _LEAST_GAIN) * now

    def _least(self, link: _Link, found: Mapping[int, Choice]) -> Totals:
        """What the whole takes at least with these tilings of the first groups while which a tensor is held.

        The others take no less than their computation, and save no more than what the tensor moves.
        """
        profile, size = self._evaluator.profile, self._facts.tensor_bytes(link.name)
        rate = dram_port_bytes_per_cycle(profile, profile.units.count)
        least = self._total
        for place in range(link.first, link.last + 1):
            group = self.groups[place]
            cost, moved = self.choices[group].cost, size if place in (link.first, *link.readers) else 0
            least -= Totals.of((cost,))
            if group in found:
                least += Totals.of((found[group].cost,))
                continue
            each = profile.dram.write_pj_per_byte if place == link.first else profile.dram.read_pj_per_byte
            least += Totals(
                dram_bytes=cost.dram_bytes - moved,
                cycles=max(cost.compute_cycles, cost.cycles - ceil(moved / rate)),
                energy_pj=cost.energy_pj - moved * each,
            )
        return least

    def take(self, link: _Link) -> None:
        """Let a tensor stay on the chip if the whole then costs less."""
        maker = self.groups[link.first]
        handed = shared_out(self._geometry(maker), self._configuration(maker))
        if handed is None:
            return
        beside = [its for its in self._links if its.first <= link.last and link.first <= its.last]
        others = [(its.handed.before_end, begin_of(self._facts, its.name, its.handed)) for its in beside]
        links = [*self._links, link._replace(handed=apart_from(self._facts, link.name, handed, others))]
        found: dict[int, Choice] = {}
        whole = float(objective_value(self._objective, self._total))
        rest = self._total - Totals.of([self.choices[group].cost for group in self.span(link)])
        share = whole - float(objective_value(self._objective, rest))
        for is_refined in (False, True):
            # tiles by cost only where that may decide
            most = whole if is_refined else whole + _REFINED * share
            for place in range(link.first, link.last + 1):
                group, handover = self.groups[place], self._handover(links, place)
                # a result is held as its maker spreads it
                spread = None if handover.hands is None else self._configuration(group).spread
                choice = self._evaluator.handing(group, self.choices[group], handover, spread, is_refined=is_refined)
                if isinstance(choice, Refusal):
                    return
                found[group] = choice
                if objective_value(self._objective, self._least(link, found)) > most:
                    return
        now = self._least(link, found)
        if ranking(self._objective, now) < ranking(self._objective, self._total):
            self._links, self._total = links, now
            self.choices |= found

    @property
    def changed(self) -> dict[int, Choice]:
        """The tilings of groups while which anything stays on the chip."""
        places = {place for link in self._links for place in range(link.first, link.last + 1)}
        return {self.groups[place]: self.choices[self.groups[place]] for place in sorted(places)}

    def runs(self, before: Mapping[int, Choice]) -> tuple[Mapping[int, Choice], ...]:
        """By run of groups that something connects their tilings as they were before."""
        runs: list[list[int]] = []
        end = -1
        for link in sorted(self._links, key=lambda its: its.first):
            if link.first > end:
                runs.append([])
                end = link.first - 1
            runs[-1].extend(range(end + 1, link.last + 1))
            end = max(end, link.last)
        return tuple({self.groups[place]: before[self.groups[place]] for place in run} for run in runs)

    def _handover(self, links: Sequence[_Link], place: int) -> Handover:
        held = [link for link in links if link.is_held_in(place)]
        inputs = self._geometry(self.groups[place]).inputs
        return Handover(
            hands=next((link.handed for link in held if link.first == place), None),
            takes=tuple(replace(its.handed, place=inputs.index(its.name)) for its in held if place in its.readers),
            held_bytes=max((begin_of(self._facts, link.name, link.handed) for link in held), default=0),
        )

    def _configuration(self, group: int) -> Configuration:
        return self.choices[group].tiling.configuration

    def _geometry(self, group: int) -> GroupGeometry:
        found = self._geometries.get(group)
        if found is None:
            found = self._geometries[group] = GroupGeometry(self._facts, tuple(bits(group)))
        return found
