"""What would keep a tensor on the chip: plans made again with changes to the profile or the objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import msgspec

from compiler.amounts import bytes_text, count_text, si_text
from compiler.boundaries import Crossing, crossings
from compiler.errors import ModelError, ProfileError, printable
from compiler.options import Options
from compiler.plan import Plan, Totals
from compiler.profile.fields import field_named, value_of, with_fields
from compiler.profile.quantities import amount_text
from compiler.profile.schema import Profile

# The costliest tensors are looked at, each with so many changes at most.
CROSSINGS_MAX: Final = 3
CHANGES_MAX: Final = 6
# Memory is doubled so many times at most before halves between are tried.
_DOUBLINGS: Final = 4
# Between a memory that helps and one that does not, a quarter more is near enough.
_NEAR: Final = 1.25
# A plan within half a percent of the minimum has reached it.
_REACHED: Final = 1.005

Replan = Callable[[Profile, Options], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A change and the plan that came of it; None: the changed profile or options are refused.

    `factor`: how many times as large the memories are; 1 where they stay.
    """

    change: str
    factor: float
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was tried for one tensor of a plan that moves `dram_bytes`."""

    crossing: Crossing
    dram_bytes: int
    tried: tuple[Tried, ...]

    @property
    def helps(self) -> tuple[Tried, ...]:
        """The changes after which the tensor stays on the chip and the DRAM traffic shrinks; the smallest memory."""
        found = [one for one in self.tried if self.is_help(one)]
        least = min((one.factor for one in found if one.factor > 1), default=1.0)
        return tuple(one for one in found if one.factor in (1.0, least))

    def is_help(self, tried: Tried) -> bool:
        """True if the tensor no longer passes the DRAM between groups, and less does in all."""
        plan = tried.plan
        return (
            plan is not None
            and plan.totals.dram_bytes < self.dram_bytes
            and all(crossing.tensor != self.crossing.tensor for crossing in crossings(plan))
        )


def advise(plan: Plan, profile: Profile, options: Options, replan: Replan) -> tuple[Advice, ...]:
    """Plan again for the costliest crossings: with more of the memory that binds, and for fewer DRAM bytes."""
    found = (Advice(crossing=crossing, dram_bytes=plan.totals.dram_bytes, tried=()) for crossing in crossings(plan))
    return tuple(_tried(advice, profile, options, replan) for advice in islice(found, CROSSINGS_MAX))


def advice_lines(found: tuple[Advice, ...], before: Totals) -> Iterator[str]:
    """The advice in words, each change with what the whole plan becomes."""
    for advice in found:
        yield f"{printable(advice.crossing.tensor, 60)} ({bytes_text(advice.crossing.size_bytes)}):"
        for tried in advice.helps:
            assert tried.plan is not None
            yield f"  with {tried.change} it stays on the chip: {_becomes(before, tried.plan.totals)}"
        if not advice.helps:
            changes = ", ".join(tried.change for tried in advice.tried)
            yield f"  none of {count_text(len(advice.tried), 'change')} keeps it on the chip: {changes}"


def _becomes(before: Totals, after: Totals) -> str:
    reached = after.dram_bytes <= _REACHED * after.dram_bytes_floor
    least = " (the minimum)" if reached else ""
    return (
        f"DRAM {bytes_text(before.dram_bytes)} to {bytes_text(after.dram_bytes)}{least}, estimated latency"
        f" {si_text(before.latency_s, 's')} to {si_text(after.latency_s, 's')}"
    )


def _tried(advice: Advice, profile: Profile, options: Options, replan: Replan) -> Advice:
    """The advice with up to `CHANGES_MAX` changes tried: the objective, doublings of the memory, halves between."""
    fields = advice.crossing.entry.fields or (_activations(profile),)
    amounts = {path: amount for path in fields if isinstance(amount := value_of(profile, field_named(path)), int)}
    tried: list[Tried] = []

    def helps(change: str, factor: float, options: Options) -> bool:
        try:
            larger = with_fields(profile, {path: int(amount * factor) for path, amount in amounts.items()})
            plan = replan(larger, options)
        except (ModelError, ProfileError):  # nothing fits any more, or a field takes no such value
            plan = None
        tried.append(Tried(change=change, factor=factor, plan=plan))
        return advice.is_help(tried[-1])

    if options.objective != "dram_bytes":
        helps("objective=dram_bytes", 1.0, msgspec.structs.replace(options, objective="dram_bytes"))
    least, factor = 1.0, 2.0
    doublings = 0
    while not helps(_words(amounts, factor), factor, options):
        doublings += 1
        if doublings == _DOUBLINGS:
            return replace(advice, tried=tuple(tried))
        least, factor = factor, 2 * factor
    while len(tried) < CHANGES_MAX and factor / least > _NEAR:
        middle = (least + factor) / 2
        if helps(_words(amounts, middle), middle, options):
            factor = middle
        else:
            least = middle
    return replace(advice, tried=tuple(tried))


def _words(amounts: Mapping[str, int], factor: float) -> str:
    """The fields with their larger amounts, and what they are now."""
    return " and ".join(
        f"{path} = {_amount(path, int(amount * factor))} (now {_amount(path, amount)})"
        for path, amount in amounts.items()
    )


def _amount(path: str, amount: int) -> str:
    return amount_text(amount, field_named(path).unit, " ")


def _activations(profile: Profile) -> str:
    """The memory that a tile lies in."""
    return "nram.capacity_bytes" if profile.sram is None else "sram.capacity_bytes"
