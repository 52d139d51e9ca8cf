"""What would keep tensors on the chip: plans made again with changes to the profile or the objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from compiler.amounts import bytes_text, si_text
from compiler.errors import LimitError, ModelError, ProfileError
from compiler.options import Options
from compiler.profile.fields import field_named, value_of, with_fields
from compiler.profile.quantities import amount_text
from compiler.profile.schema import Profile
from compiler.report.boundaries import Crossing, crossings
from compiler.report.plan import Plan, Totals

# The costliest boundaries are looked at, each with so many changes at most.
CROSSINGS_MAX: Final = 3
CHANGES_MAX: Final = 6
# Memories are made so many times as large.
_FACTORS: Final = (4.0, 16.0)
_CAPACITIES: Final = (
    "sram.capacity_bytes",
    "sram.weight_bytes",
    "nram.capacity_bytes",
    "nram.weight_bytes",
    "wram.capacity_bytes",
)
# Between a memory that helps and one that does not, a quarter more is near enough.
_NEAR: Final = 1.25
# A plan within half a percent of the minimum has reached it.
_REACHED: Final = 1.005

Replan = Callable[[Profile, Options], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A change and the plan that came of it; None: the changed profile or options are refused, or nobody knows.

    `factor`: how many times as large the memories are; 1 where they stay. `unchecked`: the limit that was reached.
    """

    change: str
    factor: float
    plan: Plan | None
    unchecked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was tried for one boundary of a plan that moves `dram_bytes`."""

    crossing: Crossing
    dram_bytes: int
    tried: tuple[Tried, ...]

    @property
    def helps(self) -> tuple[Tried, ...]:
        """The changes after which its tensors stay on the chip and the DRAM traffic shrinks; the smallest memory."""
        found = [one for one in self.tried if self.is_help(one)]
        least = min((one.factor for one in found if one.factor > 1), default=1.0)
        return tuple(one for one in found if one.factor in (1.0, least))

    def is_help(self, tried: Tried) -> bool:
        """True if none of its tensors passes the DRAM between groups, and less does in all."""
        plan = tried.plan
        return (
            plan is not None
            and plan.totals.dram_bytes < self.dram_bytes
            and not any(set(self.crossing.tensors) & set(crossing.tensors) for crossing in crossings(plan))
        )


def advise(plan: Plan, profile: Profile, options: Options, replan: Replan) -> tuple[Advice, ...]:
    """Plan again for the costliest crossings: with more of the memory that binds, and for fewer DRAM bytes."""
    found = (Advice(crossing=crossing, dram_bytes=plan.totals.dram_bytes, tried=()) for crossing in crossings(plan))
    known: dict[str, Tried] = {}
    return tuple(_tried(advice, profile, options, replan, known) for advice in islice(found, CROSSINGS_MAX))


def advice_lines(found: tuple[Advice, ...], before: Totals) -> Iterator[str]:
    """A line for each change: those that help with what the whole plan becomes, then those that do not.

    Boundaries have the numbers of `boundaries.crossing_lines`.
    """
    tried: dict[str, Tried] = {}
    helped: dict[str, list[int]] = {}
    failed: dict[str, list[int]] = {}
    for number, advice in enumerate(found, 1):
        helps = advice.helps
        for one in advice.tried:
            tried[one.change] = one
            if one in helps:
                helped.setdefault(one.change, []).append(number)
            elif one.unchecked is None and not advice.is_help(one):
                failed.setdefault(one.change, []).append(number)
    for change, numbers in helped.items():
        plan = tried[change].plan
        assert plan is not None
        others = f", not {_numbered(failed.pop(change))}" if change in failed else ""
        yield f"{change}: removes {_numbered(numbers)}{others}; {_becomes(before, plan.totals)}"
    for change, numbers in failed.items():
        yield f"{change}: does not help {_numbered(numbers)}"
    for one in tried.values():
        if one.unchecked is not None:
            yield f"{one.change}: could not be checked: {one.unchecked}"
    if not found:
        yield "none: no boundary costs DRAM traffic above the minimum"


def _numbered(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"boundaries {', '.join(first)} and {last}" if first else f"boundary {last}"


def _becomes(before: Totals, after: Totals) -> str:
    reached = after.dram_bytes <= _REACHED * after.dram_bytes_floor
    least = " (the minimum)" if reached else ""
    return (
        f"DRAM {bytes_text(before.dram_bytes)} to {bytes_text(after.dram_bytes)}{least}, estimated latency"
        f" {si_text(before.latency_s, 's')} to {si_text(after.latency_s, 's')}"
    )


def _tried(
    advice: Advice, profile: Profile, options: Options, replan: Replan, known: MutableMapping[str, Tried]
) -> Advice:
    """The advice with up to `CHANGES_MAX` changes tried; `known` are those tried for other boundaries.

    The objective; the memories that the crossing names, then all memories, four and sixteen times as large; amounts
    between the largest that does not help and the least that does.
    """
    tried: list[Tried] = []

    def helps(change: str, factor: float, changes: Mapping[str, int], options: Options) -> bool:
        if change not in known:
            plan, unchecked = None, None
            try:
                plan = replan(with_fields(profile, changes), options)
            except LimitError as error:
                unchecked = str(error)
            except (ModelError, ProfileError):  # nothing fits any more, or a field takes no such value
                pass
            known[change] = Tried(change=change, factor=factor, plan=plan, unchecked=unchecked)
        tried.append(known[change])
        return advice.is_help(tried[-1])

    def larger(amounts: Mapping[str, int], factor: float) -> bool:
        changes = {path: int(amount * factor) for path, amount in amounts.items()}
        return helps(_words(amounts, changes), factor, changes, options)

    if options.objective != "dram_bytes":
        helps("objective=dram_bytes", 1.0, {}, msgspec.structs.replace(options, objective="dram_bytes"))
    memories = _memories(profile)
    named = {path: amount for path, amount in memories.items() if path in advice.crossing.fields}
    for amounts in (named, memories) if named and named != memories else (memories,):
        least = 1.0
        for factor in _FACTORS:
            if larger(amounts, factor):
                _narrowed(partial(larger, amounts), least, factor, CHANGES_MAX - len(tried))
                return replace(advice, tried=tuple(tried))
            least = factor
    return replace(advice, tried=tuple(tried))


def _narrowed(helps: Callable[[float], bool], least: float, factor: float, most: int) -> None:
    """Halve the range between a factor that does not help and one that does, `most` times at most."""
    for _ in range(most):
        if factor / least <= _NEAR:
            return
        middle = (least + factor) / 2
        if helps(middle):
            factor = middle
        else:
            least = middle


def _memories(profile: Profile) -> dict[str, int]:
    """The capacities of the memories on the chip, by path."""
    found = {path: value_of(profile, field_named(path)) for path in _CAPACITIES}
    return {path: amount for path, amount in found.items() if isinstance(amount, int)}


def _words(amounts: Mapping[str, int], changes: Mapping[str, int]) -> str:
    """The fields with their larger amounts, and what they are now."""
    return " and ".join(
        f"{path} = {_amount(path, changes[path])} (now {_amount(path, amounts[path])})" for path in amounts
    )


def _amount(path: str, amount: int) -> str:
    return amount_text(amount, field_named(path).unit, " ")
