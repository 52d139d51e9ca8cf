"""What a plan says of rules and memory checks: per group, per boundary, and in the whole plan."""

from __future__ import annotations

from typing import Literal

from compiler.report.execution import Part


class RuleVerdict(Part, frozen=True, kw_only=True):
    """One rule or memory check on this group: whether it holds, the actual value and the limit, in the rule's unit.

    `also` is a second id of the same check. `outcome` (docs/rules.md): it `bound` the group, being the first check that
    fails for a larger tile or at a boundary; it `held anyway`; it `fails`, as a profit rule may beside another that
    holds; or it was `not asked`, being for the other mode or having an exception here.
    """

    id: str
    name: str
    also: str | None
    holds: bool
    actual: float
    limit: float
    outcome: Literal["bound", "held anyway", "fails", "not asked"]


class RuleUse(Part, frozen=True, kw_only=True):
    """What a rule or memory check did in the whole plan: the groups that it bound, and how many it held in anyway.

    `limit` is its own limit as set, None where it compares with a memory. A rule that is switched off has `enabled`
    false, and is then asked nowhere.
    """

    id: str
    name: str
    also: str | None
    enabled: bool
    limit: float | None
    bound: tuple[str, ...]
    held_anyway: int


class BoundaryDoc(Part, frozen=True, kw_only=True):
    """One edge that leaves the group, and what kept its consumer outside.

    `consumer_group` is the id of the group that the consumer is in; None: the graph's output, or a host segment.
    """

    tensor: str
    consumer: str | None
    consumer_group: str | None
    rule: str | None
    rule_name: str | None
    actual: float | None
    limit: float | None
    why: str
