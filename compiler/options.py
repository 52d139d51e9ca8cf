"""The options of a compilation (SPEC section 13): every one that exists in this version, typed and bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from compiler.errors import RequestError, did_you_mean, printable
from compiler.ir.layout import DEFAULT_LAYOUT, Layout
from compiler.linear_rules import LinearRule, bounded, parsed
from compiler.option_descriptions import DESCRIPTIONS
from compiler.rules import BY_ID, LIMITED_RULES, RULE_IDS, id_of, listed, named
from compiler.schedule import Schedule, parse_schedule

Objective = Literal["latency", "dram_bytes", "energy", "edp"]
# Rules that one compilation may add, and how they may be called: what --set can write without dots.
MAX_ADDED_RULES = 16
_RULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 ,_/-]{0,59}")
_RESERVED = ("FUSE-", "TILE-", "PROG-")
_IN_BLOCKS = re.compile(r"NCHW(?:c|\d+c?)")
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
        "bool": "true or false",
        "array": "a list",
        "object": "an object",
        "null": "null",
    }
)
_Bound = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class RuleSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule's setting: switched off, or with another limit; or a rule that a user adds.

    `limit` is in the rule's own unit (docs/rules.md); most rules have none. An added rule bounds one `figure` by
    `at_most` or `at_least`, or compares two sums of figures: `holds`.
    """

    enabled: bool = True
    limit: _Bound | None = None
    figure: str | None = None
    at_most: _Bound | None = None
    at_least: _Bound | None = None
    holds: str | None = None

    @property
    def is_added(self) -> bool:
        """Whether it describes a rule of the user's own."""
        return any(value is not None for value in (self.figure, self.at_most, self.at_least, self.holds))


class OrderedRule(RuleSetting, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule in a list: the rule's name or id, or the name of an added one, and its setting."""

    name: str


Extent = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
# A dimension of 0 leaves tensors without elements, such as an empty past; import takes them away.
FixedExtent = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Merge = Literal["pairwise", "thresholds", "forward", "forward-greedy", "bidirectional", "optimal", "none"]

# What a cut keeps of an axis: a number, or two of them such as 3/4.
Ratio = (
    Annotated[float, msgspec.Meta(ge=0.01, le=0.99)]
    | Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,3}/[1-9][0-9]{0,3}$")]
)
# The axes of results that may be cut; channels are sliced, not cut.
AxisName = Annotated[str, msgspec.Meta(pattern=r"^([NDHW]|A[1-9][0-9]{0,2}|G([1-9][0-9]{0,2})?)$")]


class DimRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range of a dynamic dimension; compilation is for its maximum."""

    min: Extent = 1
    max: Extent
    step: Extent = 1


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose for one compilation; the defaults are those of SPEC section 13.

    `time_limit_s` and `memory_limit_bytes` bound the job and never change a result, so they are no part of the
    cache key (SPEC section 13).
    """

    objective: Objective = "latency"
    fusion: Literal["search", "rules", "none"] = "search"
    start_rule: Literal["A", "B"] = "A"
    profit: Literal["any", "all"] | tuple[Literal["FUSE-5", "FUSE-6", "FUSE-7"], ...] = "any"
    rules: dict[str, RuleSetting] | tuple[str | OrderedRule, ...] = {}
    split: Literal["exact", "top-down", "bottom-up"] = "exact"
    granularity: Annotated[tuple[Ratio, ...], msgspec.Meta(min_length=1, max_length=64)] = (0.5,)
    order: Annotated[tuple[AxisName, ...], msgspec.Meta(min_length=1, max_length=16)] = ("N", "H", "W")
    split_cycle: bool = True
    halo: Literal["auto", "recompute", "cached", "exchange"] = "auto"
    placement: Literal["auto", "bands", "columns", "blocks", "quadrants", "checkerboard", "row-major", "z-order"] = (
        "auto"
    )
    schedule: Schedule | None = None
    partition: Literal["auto"] | tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=4096)], ...] = "auto"
    merge: Merge = "optimal"
    min_macs: Amount | None = None
    max_macs: Amount | None = None
    min_weight_bytes: Amount | None = None
    max_weight_bytes: Amount | None = None
    min_vector_nodes: Amount | None = None
    max_vector_nodes: Amount | None = None
    chips: Literal["balanced", "single", "one-each"] = "balanced"
    strict: bool = False
    degraded: Literal["allow", "error"] = "allow"
    precision: Literal["model", "int8", "float16"] = "model"
    layout: Layout = DEFAULT_LAYOUT
    verify: Literal["values", "none"] = "values"
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    dims: dict[str, FixedExtent | DimRange] = {}
    tables: Annotated[tuple[dict[str, FixedExtent], ...], msgspec.Meta(max_length=64)] = ()
    time_limit_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    memory_limit_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None

    @property
    def may_degrade(self) -> bool:
        """Whether ops that a step of the compiler fails on are planned in a simpler way (IMPORT-7)."""
        return self.degraded == "allow" and not self.strict

    @property
    def unverified(self) -> str:
        """Why outputs are not compared with the model's, or "" where they are if programs can be made."""
        if self.verify == "none":
            return "option verify is none (--no-verify)"
        if self.precision != "model":
            return f"precision={self.precision} is a what-if: tensors are counted in this type, and have no values"
        if self.batch is not None:
            return "the model was rewritten for another batch (option batch)"
        return ""

    @property
    def maxima(self) -> dict[str, int]:
        """The dynamic dimensions at the largest extent asked for."""
        return {name: extent.max if isinstance(extent, DimRange) else extent for name, extent in self.dims.items()}

    @property
    def minima(self) -> dict[str, int]:
        """The dynamic dimensions at the smallest extent asked for."""
        return {name: extent.min if isinstance(extent, DimRange) else extent for name, extent in self.dims.items()}

    @property
    def plain(self) -> frozenset[str]:
        """The dynamic dimensions that are asked for at one extent."""
        return frozenset(name for name, most in self.maxima.items() if self.minima[name] == most)

    @property
    def varies(self) -> bool:
        """Whether a dimension may have several extents."""
        return any(isinstance(extent, DimRange) and extent.min < extent.max for extent in self.dims.values())

    @property
    def ratios(self) -> tuple[Fraction, ...]:
        """The option `granularity` as exact ratios."""
        return tuple(Fraction(str(ratio)) for ratio in self.granularity)

    @property
    def rule_settings(self) -> dict[str, RuleSetting]:
        """What is set of rules, by id; added ones by name."""
        return dict(_entries(self.rules))

    @property
    def added_rules(self) -> tuple[LinearRule, ...]:
        """The rules that the user added and that are on; raises RequestError for one that cannot be read."""
        return tuple(
            _added(name, setting)
            for name, setting in self.rule_settings.items()
            if setting.is_added and setting.enabled
        )

    def rule_place(self, rule_id: str) -> int:
        """Where a rule stands among those that option `rules` lists; behind all of them where it is not listed."""
        listed_ids = [] if isinstance(self.rules, dict) else [name for name, _ in _entries(self.rules)]
        return listed_ids.index(rule_id) if rule_id in listed_ids else len(listed_ids)

    def rule_enabled(self, rule_id: str) -> bool:
        """Whether a rule binds: growth direction and profit rules follow `start_rule` and `profit` unless set."""
        settings = self.rule_settings
        if rule_id in settings:
            return settings[rule_id].enabled
        if rule_id == "FUSE-1":
            return not self.rule_enabled("FUSE-2")
        if rule_id == "FUSE-2":
            return self.start_rule == "B" and "FUSE-1" not in settings
        return True

    def rule_limit(self, rule_id: str) -> float:
        """The rule's limit in its own unit, as set or its default; 0 where it has none."""
        setting = self.rule_settings.get(rule_id)
        default = BY_ID[rule_id].limit or 0.0
        return default if setting is None or setting.limit is None else setting.limit


def _entries(rules: dict[str, RuleSetting] | tuple[str | OrderedRule, ...]) -> Iterator[tuple[str, RuleSetting]]:
    """What option `rules` says of each rule, in its order."""
    if isinstance(rules, dict):
        yield from rules.items()
        return
    for entry in rules:
        yield (entry, RuleSetting()) if isinstance(entry, str) else (entry.name, entry)


def parse_options(values: Mapping[str, object]) -> Options:
    """Options from plain values; raises RequestError naming the option, its value and what was expected."""
    known = Options.__struct_fields__
    for name in values:
        if name not in known:
            raise RequestError(
                f"unknown option {printable(str(name), 60)!r}",
                code="unknown_option",
                actual=printable(str(name), 60),
                limit=None if did_you_mean(str(name), known) else ", ".join(sorted(known)),
                hint=did_you_mean(str(name), known) or "`tessera options` lists the options with their values",
            )
    plain = dict(values)
    profit = plain.get("profit")
    if isinstance(profit, list | tuple):
        plain["profit"] = [(id_of(word) or word) if isinstance(word, str) else word for word in profit]
    _check_layout(plain.get("layout"))
    pinned = plain.pop("schedule", None)
    schedule = None if pinned is None else parse_schedule(pinned)
    try:
        options = msgspec.structs.replace(msgspec.convert(plain, Options), schedule=schedule)
    except msgspec.ValidationError as error:
        raise _invalid(values, str(error)) from None
    options = msgspec.structs.replace(options, rules=_by_id(options.rules))
    _check_ranges(options)
    _check_split(options)
    _check_tables(options)
    if options.rule_enabled("FUSE-1") == options.rule_enabled("FUSE-2"):
        raise RequestError(
            f"exactly one of the rules {listed(('FUSE-1', 'FUSE-2'))} gives the direction of growth",
            code="invalid_option",
            actual="both on" if options.rule_enabled("FUSE-1") else "both off",
            hint="Switch one of them off and the other on",
        )
    return options


def _invalid(values: Mapping[str, object], error: str) -> RequestError:
    """The refusal of a value, from the words of the library that converts it."""
    message, _, path = error.partition(" - at `")
    path = path.rstrip("`").removeprefix("$.")
    name = path.partition(".")[0].partition("[")[0]
    value = values.get(name)
    if path.startswith(f"{name}[...]") and isinstance(value, dict):  # the library does not say which entry
        key = next(key for key, entry in value.items() if not _converts(name, {key: entry}))
        path, value, inner = path.replace("[...]", f".{key}", 1), value[key], path.removeprefix(f"{name}[...]")
    else:
        inner = path.removeprefix(name)
    if name not in DESCRIPTIONS:
        return RequestError(
            f"the options are not valid: {message}",
            code="invalid_option",
            hint='Give an object of options, such as {"objective": "energy"}',
        )
    for key in inner.lstrip(".").split("."):
        value = value[key] if isinstance(value, dict) and key in value else value
    described, words = DESCRIPTIONS[name], _in_words(message)
    nearest = did_you_mean(value, described.values.split(", ")) if isinstance(value, str) else ""
    shown, empty = printable(json.dumps(value, default=str)), ""
    dim, _, field = path.rpartition(".")
    if name == "dims" and field in ("min", "max") and value == 0:
        empty = f"Begin the range at 1, and compile apart with --set {printable(dim)}=0"
    return RequestError(
        f"option {printable(path)} cannot be {shown}" + ("" if _allowed(name) else f": {words}"),
        code="invalid_option",
        actual=shown,
        limit=_allowed(name) or words.removeprefix("expected ").partition(", got ")[0],
        hint=nearest or empty or f"Give {described.values}, such as --set {described.example}",
    )


def _in_words(message: str) -> str:
    """A message of the library that converts values, without its names of types."""
    found = re.sub(
        r"`([a-z| ]+)`", lambda types: " or ".join(_TYPES.get(one, one) for one in types[1].split(" | ")), message
    )
    return found[:1].lower() + found[1:]


def _converts(name: str, value: object) -> bool:
    try:
        msgspec.convert({name: value}, Options)
    except msgspec.ValidationError:
        return False
    return True


def _by_id(
    rules: dict[str, RuleSetting] | tuple[str | OrderedRule, ...],
) -> dict[str, RuleSetting] | tuple[str | OrderedRule, ...]:
    """Option `rules` with ids for names; raises RequestError for a rule that does not exist or cannot be so set."""
    found: dict[str, RuleSetting] = {}
    for word, setting in _entries(rules):
        rule_id = id_of(word)
        if rule_id is None:
            rule_id = word
            _check_added(word, setting)
        elif setting.is_added:
            raise RequestError(
                f"{printable(word, 60)!r} is the name of a rule that exists",
                code="invalid_option",
                actual=printable(word, 60),
                limit="another name for an added rule",
                hint="Give the added rule a name that no rule has; docs/rules.md lists the names",
            )
        if rule_id in found:
            raise RequestError(
                f"rule {named(rule_id)} stands twice in option rules",
                code="invalid_option",
                actual=printable(word, 60),
                hint="Name each rule once, by its name or its id",
            )
        if setting.limit is not None and rule_id not in LIMITED_RULES:
            raise RequestError(
                f"rule {printable(named(rule_id), 120)} has no limit of its own to set",
                code="invalid_option",
                actual=setting.limit,
                limit=f"a limit for {listed(LIMITED_RULES)}",
                hint="The other rules compare with the profile's memories; they can be switched off",
            )
        found[rule_id] = setting
    added = sum(setting.is_added for setting in found.values())
    if added > MAX_ADDED_RULES:
        raise RequestError(
            "option rules adds too many rules",
            code="invalid_option",
            actual=added,
            limit=f"{MAX_ADDED_RULES} rules",
            hint="Join rules into one comparison, or leave some out",
        )
    if isinstance(rules, dict):
        return found
    return tuple(
        msgspec.structs.replace(setting, name=rule_id) if isinstance(setting, OrderedRule) else rule_id
        for rule_id, setting in found.items()
    )


def _check_added(name: str, setting: RuleSetting) -> None:
    """Raises RequestError unless an unknown name comes with a rule that can be read."""
    if not setting.is_added:
        raise RequestError(
            f"unknown rule {printable(name, 60)!r} in option rules",
            code="unknown_option",
            actual=printable(name, 60),
            hint=did_you_mean(name, (*RULE_IDS, *(BY_ID[rule_id].name for rule_id in RULE_IDS)))
            or "Rules are FUSE-1 to FUSE-20 or their names (docs/rules.md); an added rule has a figure and a bound",
        )
    if not _RULE_NAME.fullmatch(name) or name in BY_ID or name.startswith(_RESERVED):
        raise RequestError(
            f"an added rule cannot be called {printable(name, 60)!r}",
            code="invalid_option",
            actual=printable(name, 60),
            limit="a letter, then letters, digits, spaces and , _ / - : at most 60 characters",
            hint="Choose another name, such as few images",
        )
    _added(name, setting)


def _added(name: str, setting: RuleSetting) -> LinearRule:
    """An added rule as a comparison; raises RequestError where it says too little, too much, or cannot be read."""
    bounds = [bound for bound in (setting.at_most, setting.at_least) if bound is not None]
    if setting.holds is not None and setting.figure is None and not bounds:
        return parsed(name, setting.holds)
    if setting.holds is None and setting.figure is not None and len(bounds) == 1:
        return bounded(name, setting.figure, bounds[0], at_least=setting.at_least is not None)
    raise RequestError(
        f"rule {printable(name, 60)!r} says too little or too much",
        code="invalid_option",
        actual=printable(msgspec.json.encode(setting).decode(), 120),
        limit="figure with at_most or at_least, or holds alone",
        hint="Such as --set 'rules.few images.figure=maps' --set 'rules.few images.at_most=12'",
    )


def _check_ranges(options: Options) -> None:
    """Raises RequestError for a range that holds nothing."""
    ranges = [(f"dims.{name}", e.min, e.max) for name, e in options.dims.items() if isinstance(e, DimRange)]
    for what in ("macs", "weight_bytes", "vector_nodes"):
        low, high = getattr(options, f"min_{what}"), getattr(options, f"max_{what}")
        if low is not None and high is not None:
            ranges.append((f"min_{what} to max_{what}", low, high))
    for what, low, high in ranges:
        if low > high:
            raise RequestError(
                f"the range of option {printable(what, 80)} holds nothing: its minimum is above its maximum",
                code="invalid_option",
                actual=f"{low} to {high}",
                limit="a minimum of at most the maximum",
                hint="Lower the minimum or raise the maximum",
            )


def _check_tables(options: Options) -> None:
    """Raises RequestError for a shape of option tables that says too little, or what option dims does not allow."""
    for shape in options.tables:
        missing = [name for name, extent in options.dims.items() if isinstance(extent, DimRange) and name not in shape]
        wrong = [name for name, extent in shape.items() if not _allows(options.dims.get(name), extent)]
        for name in (*missing, *wrong):
            raise RequestError(
                f"a shape of option tables gives dimension {printable(name, 80)!r} no extent that option dims allows",
                code="invalid_option",
                actual=shape.get(name, "none"),
                limit=printable(msgspec.json.encode(options.dims.get(name)).decode(), 120),
                hint="Name every dimension that has a range, each with an extent in it",
            )


def _allows(allowed: Extent | DimRange | None, extent: int) -> bool:
    """Whether an extent is the one given for a dimension, or one in its range."""
    if isinstance(allowed, DimRange):
        return allowed.min <= extent <= allowed.max and (extent - allowed.min) % allowed.step == 0
    return extent == allowed


def _check_layout(layout: object) -> None:
    """Raises RequestError for channels in blocks (NCHWc): buffers have one stride for each axis."""
    if isinstance(layout, str) and _IN_BLOCKS.fullmatch(layout):
        raise RequestError(
            f"option layout cannot be {printable(layout, 20)}: it splits the channels, and a buffer has one stride for"
            " each axis of a tensor",
            code="invalid_option",
            actual=printable(layout, 20),
            limit=_allowed("layout"),
            hint="Take NHWC, which is one block of all channels, or NCHW, which is blocks of one channel",
        )


def _check_split(options: Options) -> None:
    """Raises RequestError for a ratio that is none, or an axis named twice."""
    for given, ratio in zip(options.granularity, options.ratios, strict=True):
        if not Fraction(1, 100) <= ratio <= Fraction(99, 100):
            raise RequestError(
                "a ratio of option granularity keeps too much or too little of an axis",
                code="invalid_option",
                actual=printable(str(given), 20),
                limit="ratios from 1/100 to 99/100",
                hint=f"Such as --set {DESCRIPTIONS['granularity'].example}",
            )
    twice = [axis for number, axis in enumerate(options.order) if axis in options.order[:number]]
    if twice:
        raise RequestError(
            f"option order names axis {printable(twice[0], 20)} twice",
            code="invalid_option",
            actual=printable(", ".join(options.order), 120),
            limit="each axis once",
            hint=f"Such as --set '{DESCRIPTIONS['order'].example}'",
        )


def _allowed(name: str) -> str:
    """The values an option takes, where they can be listed."""
    for field in msgspec.inspect.type_info(Options).fields:  # type: ignore[attr-defined]
        if field.name == name:
            options = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
            return ", ".join(
                str(value) for part in options if isinstance(part, msgspec.inspect.LiteralType) for value in part.values
            )
    return ""
