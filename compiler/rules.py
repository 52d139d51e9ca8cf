"""Every fusion rule and memory check by name: what it says, where it applies, its default, what a failure does.

This is the one place for names, defaults and units: options, messages, plans and docs/rules.md take them from here.
The checks themselves are functions in `fusion/rules/` and in `tiling/` (`figures.py`, `lowerable.py`, `memory.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["start", "growth", "structure", "profit", "gain", "capacity", "memory", "program", "schedule"]
_PUBLISHED: Final = "a published inequality; which paper it comes from is not recorded"
_UNKNOWN: Final = "none is recorded"
_OWN: Final = "Tessera's own check: it follows from how tiles, buffers and programs are laid out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule or check.

    `says` completes "the check holds if"; `where` says which groups and strategies it applies to, `maps` in which mode.
    `also` is a second id of the same function. `limit` is its default limit in `unit`, None where it has none to set.
    `fails` says what a failure does, `remark` what else a user should know.
    """

    id: str
    name: str
    kind: Kind
    says: str
    where: str
    fails: str
    source: str = _UNKNOWN
    maps: str = "whole-map and partial-map"
    also: str | None = None
    limit: float | None = None
    unit: str = "bytes"
    default: str = "on"
    remark: str = ""

    @property
    def has_switch(self) -> bool:
        """Whether option `rules` can switch it off."""
        return self.kind in ("growth", "structure", "profit", "gain", "capacity")


_GROWN: Final = "groups that strategy `rules` grows"
_SEVERAL: Final = "groups of two or more ops, under every strategy and in pinned schedules"
_ALL: Final = "every group, single ops and pinned groups too"
_SMALLER: Final = "a smaller tile is tried; if not even the smallest holds, the ops are not fused"
_FEWER_MAPS: Final = "fewer feature maps in the tile, then a smaller tile; if none holds, the ops are not fused"
_COUNTS_WEIGHTS: Final = (
    "It can change a plan: it counts weights against the tile's memory even where they lie in a memory of their own or"
    " stay in the cores, which the memory checks do not."
)
_DROPPED: Final = "this tiling is not used; if all fail, the ops are not fused"
_ADD: Final = "growth goes on until it holds; a group that ends without it is not formed"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        id="FUSE-A",
        name="start at the earliest op",
        kind="start",
        says="a group starts at the earliest op that is in no group yet",
        where=_GROWN,
        fails="nothing fails: growth ends when no op is left to start from",
        default="on (`start_rule=A`)",
    ),
    Rule(
        id="FUSE-B",
        name="start at the earliest convolution or pooling",
        kind="start",
        says="a group starts at the earliest convolution or pooling that is in no group yet",
        where=_GROWN,
        fails="nothing fails: growth ends when no such op is left",
        default="off (`start_rule=B` turns it on)",
    ),
    Rule(
        id="FUSE-1",
        name="grow forwards",
        kind="growth",
        says="a group grows in the direction of execution; unfused ops before its start are left out",
        where=_GROWN,
        fails="nothing fails: it says where growth goes; exactly one of FUSE-1 and FUSE-2 is on",
        default="on with `start_rule=A`, off with `start_rule=B`",
    ),
    Rule(
        id="FUSE-2",
        name="grow backwards first",
        kind="growth",
        says="a group first takes in unfused ops before its start, then grows forwards",
        where=_GROWN,
        fails="nothing fails: it says where growth goes; exactly one of FUSE-1 and FUSE-2 is on",
        default="off with `start_rule=A`, on with `start_rule=B`",
    ),
    Rule(
        id="FUSE-3",
        name="grow by whole blocks",
        kind="growth",
        says="where branches start and join again, the whole block is added at once, and single ops only if it cannot",
        where=_GROWN,
        fails="nothing fails: switched off, ops are added one by one",
    ),
    Rule(
        id="FUSE-4",
        name="single output",
        kind="structure",
        says="the group has one output tensor",
        where=f"{_GROWN}, and the chains of strategy `none`; `search` forms single-output groups first and then also"
        " others where they cost less",
        fails="ops are added until it holds, or the consumer stays outside",
        unit="output tensors",
    ),
    Rule(
        id="FUSE-5",
        name="enough main ops",
        kind="profit",
        says="the group has at least this many main ops",
        where=_GROWN,
        fails=_ADD,
        limit=2.0,
        unit="main ops",
        default="on; one of FUSE-5, 6 and 7 suffices (`profit=any`)",
    ),
    Rule(
        id="FUSE-6",
        name="main, main, other in a row",
        kind="profit",
        says="the group has two main ops and another op in direct succession",
        where=_GROWN,
        fails=_ADD,
        unit="such runs",
        default="on; one of FUSE-5, 6 and 7 suffices (`profit=any`)",
    ),
    Rule(
        id="FUSE-7",
        name="scalar op before vector op",
        kind="profit",
        says="an add, subtract or multiply is directly followed by an activation, normalisation or scale in the group",
        where=_GROWN,
        fails=_ADD,
        unit="such pairs",
        default="on; one of FUSE-5, 6 and 7 suffices (`profit=any`)",
    ),
    Rule(
        id="FUSE-8",
        name="no computed convolution weights",
        kind="structure",
        says="no convolution of the group takes its weight from another op of the network",
        where=_SEVERAL,
        fails="that convolution stays in a group of its own",
        unit="such convolutions",
    ),
    Rule(
        id="FUSE-9",
        name="no shared convolution weights",
        kind="structure",
        says="no convolution of the group shares its weight with another op",
        where=_SEVERAL,
        fails="that convolution stays in a group of its own",
        unit="such convolutions",
    ),
    Rule(
        id="FUSE-11",
        name="little is read again",
        kind="capacity",
        says="(bytes read with halos and re-reads - bytes read once) / bytes read once is at most the limit",
        where=_GROWN,
        maps="partial-map",
        fails="a smaller tile or fewer ops; growth stops where none helps",
        limit=100.0,
        unit="per cent",
    ),
    Rule(
        id="FUSE-12",
        name="input and output fit together",
        kind="capacity",
        says="the tile's input and result fit the tile's memory side by side, or the larger of them where the result"
        " may be written over the input: IN + OUT <= S",
        where=_SEVERAL,
        fails=_SMALLER,
        source=_PUBLISHED,
        remark="It can change a plan where a group has several outputs and one of them is written over an input: memory"
        " counts that space once, this rule twice. For a group with one output it never does: tile fits on chip"
        " (TILE-2:tile) counts the same bytes and more, so memory binds first.",
    ),
    Rule(
        id="FUSE-13",
        name="fits SRAM as a whole",
        kind="capacity",
        says="the tile's input, the staging buffer for the next tile and the weights of any one step fit the tile's"
        " memory together: W_i + IN1 + IN2 <= S",
        where=_SEVERAL,
        maps="whole-map",
        fails=_FEWER_MAPS,
        source=_PUBLISHED,
        remark=_COUNTS_WEIGHTS,
    ),
    Rule(
        id="FUSE-14",
        name="step input and weights fit",
        kind="capacity",
        says="what a step reads, its weights and the staging buffer fit the tile's memory: SubIN_i + W_i + IN2 <= S",
        where=_SEVERAL,
        maps="whole-map",
        fails=_FEWER_MAPS,
        source=_PUBLISHED,
        remark=_COUNTS_WEIGHTS,
    ),
    Rule(
        id="FUSE-15",
        name="step result and next weights fit",
        kind="capacity",
        says="what a step makes, the next step's weights and the staging buffer fit the tile's memory:"
        " SubOUT_i + W_(i+1) + IN2 <= S",
        where=_SEVERAL,
        maps="whole-map",
        fails=_FEWER_MAPS,
        source=_PUBLISHED,
        remark=_COUNTS_WEIGHTS,
    ),
    Rule(
        id="FUSE-16",
        name="weights of two steps fit",
        kind="capacity",
        says="the weights of two consecutive steps fit a core's weight memory together, so that the next ones load"
        " while these compute: W_i + W_(i+1) <= WRAM",
        where=_SEVERAL,
        maps="whole-map",
        fails=_FEWER_MAPS,
        source=_PUBLISHED,
        remark="It can change a plan: the memory checks count the weights that are there at one time, which may be"
        " those of one step.",
    ),
    Rule(
        id="FUSE-18",
        name="few feature maps in a tile",
        kind="capacity",
        says="the tile holds at most this many feature maps (images)",
        where="groups of two or more ops that are not pinned, under every strategy",
        maps="whole-map",
        fails=_FEWER_MAPS,
        limit=16.0,
        unit="feature maps",
    ),
    Rule(
        id="FUSE-19",
        name="small window overlap",
        kind="structure",
        says="along each axis, (kernel - stride) summed over the group's convolutions and poolings is at most the"
        " limit; not asked of a group that holds a whole block of branches",
        where=_GROWN,
        fails="fewer ops",
        limit=4.0,
        unit="elements",
    ),
    Rule(
        id="FUSE-20",
        name="fusing pays",
        kind="gain",
        says="with the group, and all that is ungrouped as by strategy `none`, the objective is no worse than without",
        where=_GROWN,
        fails="fewer ops; growth ends after four additions in a row that do not pay",
        unit="objective",
    ),
    Rule(
        id="TILE-2:tile",
        name="tile fits on chip",
        kind="memory",
        says="what is live of the tile at once, with the next tile's input and the last one's result, fits the memory"
        " that a tile lies in (the SRAM; without one, the core's memory)",
        where=_ALL,
        fails=_SMALLER,
        source=_OWN,
    ),
    Rule(
        id="TILE-2:core",
        name="core tile fits the core",
        kind="memory",
        says="a core tile with all that is live beside it fits the core's activation memory",
        where=_ALL,
        fails="a smaller core tile, then a smaller tile; if none holds, the ops are not fused",
        source=_PUBLISHED,
        also="FUSE-17",
        remark="It is FUSE-17 as well, but asked of every group. Memory has no switch, so switching FUSE-17 off changes"
        " no plan.",
    ),
    Rule(
        id="TILE-2:kept",
        name="core tile fits beside what is kept",
        kind="memory",
        says="the smallest core tile fits the core's activation memory beside the halos that wait there for later"
        " tiles",
        where=_ALL,
        fails="a smaller tile; if none holds, the ops are not fused",
        source=_OWN,
    ),
    Rule(
        id="TILE-2:weights",
        name="weights fit the core",
        kind="memory",
        says="what a core holds of weights at once (its part under a split by output channels) fits its weight memory",
        where=_ALL,
        fails=_SMALLER,
        source=_PUBLISHED,
        also="FUSE-10",
        remark="It is FUSE-10 as well. Memory has no switch, so switching FUSE-10 off changes no plan.",
    ),
    Rule(
        id="TILE-2",
        name="some tile fits",
        kind="memory",
        says="at least one tile of the group can be worked out",
        where=_ALL,
        fails="the ops are not fused",
        source=_OWN,
        unit="tilings",
    ),
    *(
        Rule(
            id=f"PROG-2:{level}",
            name=f"buffers fit {words}",
            kind="memory",
            says=f"all buffers of the tile, placed by their lifetimes, fit {words}",
            where=_ALL,
            fails=_SMALLER,
            source=_OWN,
        )
        for level, words in (
            ("sram", "the SRAM"),
            ("sram-weights", "the SRAM's weight part"),
            ("nram", "the core's memory"),
            ("nram-weights", "the weight part of the core's memory"),
            ("wram", "the core's weight memory"),
        )
    ),
    Rule(
        id="PROG-1:sums",
        name="sums in parts are taken alone",
        kind="program",
        says="sums taken in parts neither keep halos of what is summed nor pass the SRAM in pieces",
        where=_ALL,
        fails=_DROPPED,
        source=_OWN,
        unit="bytes or parts",
    ),
    Rule(
        id="PROG-1:falls",
        name="kept halos follow the tiles",
        kind="program",
        says="where halos are kept no range that rises over tiles falls, or ends elsewhere, over core tiles",
        where=_ALL,
        fails=_DROPPED,
        source=_OWN,
        unit="such tensors",
    ),
    Rule(
        id="TILE-3:exchange",
        name="units can exchange halos",
        kind="program",
        says="units that pass each other halos have an engine for it (engines.cdma or engines.link)",
        where=_ALL,
        fails=_DROPPED,
        source=_OWN,
        unit="units",
    ),
    Rule(
        id="TILE-4:tiles",
        name="few enough tiles to deal out",
        kind="program",
        says="a map that is dealt out tile by tile has at most this many tiles",
        where=_ALL,
        fails=_DROPPED,
        source=_OWN,
        unit="tiles",
    ),
    Rule(
        id="group-size",
        name="few enough ops",
        kind="program",
        says="a group has at most this many ops",
        where="groups that `search` or `rules` form",
        fails="the consumer stays outside",
        source=_OWN,
        unit="ops",
    ),
    Rule(
        id="TILE-9",
        name="tiled as pinned",
        kind="schedule",
        says="the group's tiling has all that option `schedule` pins",
        where="pinned groups",
        fails="the schedule is refused as `schedule_does_not_hold`",
        source=_OWN,
        unit="fields",
    ),
    Rule(
        id="TILE-9:apart",
        name="kept apart by the schedule",
        kind="schedule",
        says="no two nodes that option `schedule` keeps apart are in one group",
        where="every group, if the schedule names such nodes",
        fails="the ops are not fused",
        source=_OWN,
        unit="pairs",
    ),
    Rule(
        id="TILE-9:weights",
        name="weights are read as pinned",
        kind="schedule",
        says="an op's weights are read in the way that option `schedule` pins",
        where="pinned groups",
        fails="the schedule is refused as `schedule_does_not_hold`",
        source=_OWN,
        unit="bytes",
    ),
)

# Each rule by all of its ids.
BY_ID: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule_id: rule for rule in RULES for rule_id in (rule.id, rule.also) if rule_id is not None}
)
# What option `rules` takes: FUSE-1 to FUSE-20.
RULE_IDS: Final = tuple(f"FUSE-{number}" for number in range(1, 21))
LIMITED_RULES: Final = tuple(rule_id for rule_id in RULE_IDS if BY_ID[rule_id].limit is not None)
PROFIT_RULES: Final = tuple(rule.id for rule in RULES if rule.kind == "profit")
_BY_NAME: Final[Mapping[str, str]] = MappingProxyType({BY_ID[rule_id].name: rule_id for rule_id in RULE_IDS})


def rule_name(rule_id: str) -> str:
    """The name of a rule or check; a rule that a user added is called by its own name."""
    return BY_ID[rule_id].name if rule_id in BY_ID else rule_id


def second_id(rule_id: str) -> str | None:
    """The other id of a check that has two."""
    return BY_ID[rule_id].also if rule_id in BY_ID else None


def named(rule_id: str) -> str:
    """A rule as people read it: its name with its id, or the name alone where that is the id."""
    name = rule_name(rule_id)
    return name if name == rule_id else f"{name} ({rule_id})"


def called(rule_id: str) -> str:
    """A rule as it stands in brackets: its name and its id, or the name alone where that is the id."""
    name = rule_name(rule_id)
    return name if name == rule_id else f"{name}, {rule_id}"


def id_of(word: str) -> str | None:
    """The id among those that option `rules` takes for an id or a name; None if there is none."""
    return word if word in RULE_IDS else _BY_NAME.get(word)


def listed(rule_ids: Iterable[str]) -> str:
    """Rules in a sentence."""
    return ", ".join(map(named, rule_ids))
