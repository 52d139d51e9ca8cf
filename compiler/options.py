"""The options of a compilation (SPEC section 13): every one that exists in this version, typed and bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Literal

import msgspec

from compiler.errors import RequestError, printable
from compiler.schedule import Schedule, parse_schedule

Objective = Literal["latency", "dram_bytes", "energy", "edp"]
RULE_IDS = tuple(f"FUSE-{n}" for n in range(1, 21))
# Rules with a number of their own, in its unit: main ops, per cent, images, elements.
LIMITED_RULES = ("FUSE-5", "FUSE-11", "FUSE-18", "FUSE-19")
PROFIT_RULES = ("FUSE-5", "FUSE-6", "FUSE-7")


class RuleSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule's setting: switched off, or with another limit.

    `limit` is in the rule's own unit: main ops for FUSE-5, per cent for FUSE-11, images for FUSE-18, elements for
    FUSE-19; the other rules have none.
    """

    enabled: bool = True
    limit: Annotated[float, msgspec.Meta(ge=0, le=1e18)] | None = None


Extent = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
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
    rules: dict[str, RuleSetting] = {}
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
    verify: Literal["values", "none"] = "values"
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    dims: dict[str, Extent | DimRange] = {}
    tables: Annotated[tuple[dict[str, Extent], ...], msgspec.Meta(max_length=64)] = ()
    time_limit_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    memory_limit_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None

    @property
    def may_degrade(self) -> bool:
        """Whether ops that a step of the compiler fails on are planned in a simpler way (IMPORT-7)."""
        return self.degraded == "allow" and not self.strict

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

    def rule_enabled(self, rule_id: str) -> bool:
        """Whether a rule binds: growth direction and profit rules follow `start_rule` and `profit` unless set."""
        setting = self.rules.get(rule_id)
        if setting is not None:
            return setting.enabled
        if rule_id == "FUSE-1":
            return not self.rule_enabled("FUSE-2")
        if rule_id == "FUSE-2":
            return self.start_rule == "B" and "FUSE-1" not in self.rules
        return True

    def rule_limit(self, rule_id: str, default: float) -> float:
        """The rule's limit in its own unit, as set or as the SPEC's default."""
        setting = self.rules.get(rule_id)
        return default if setting is None or setting.limit is None else setting.limit


def parse_options(values: Mapping[str, object]) -> Options:
    """Options from plain values; raises RequestError naming the option, its value and what was expected."""
    known = Options.__struct_fields__
    for name in values:
        if name not in known:
            raise RequestError(
                f"unknown option {printable(str(name), 60)!r}",
                code="unknown_option",
                actual=printable(str(name), 60),
                hint=f"Known options: {', '.join(sorted(known))}",
            )
    plain = dict(values)
    pinned = plain.pop("schedule", None)
    schedule = None if pinned is None else parse_schedule(pinned)
    try:
        options = msgspec.structs.replace(msgspec.convert(plain, Options), schedule=schedule)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        path = path.rstrip("`").removeprefix("$.")
        name = path.partition(".")[0].partition("[")[0]
        raise RequestError(
            f"option {printable(name) or 'object'} is not valid at {printable(path) or 'its root'}: {message}",
            code="invalid_option",
            actual=printable(json.dumps(values.get(name), default=str)),
            limit=_allowed(name) or message,
        ) from None
    for rule_id in options.rules:
        if rule_id not in RULE_IDS:
            raise RequestError(
                f"unknown rule {printable(rule_id, 60)!r} in option rules",
                code="unknown_option",
                actual=printable(rule_id, 60),
                hint="Rules are FUSE-1 to FUSE-20",
            )
        if options.rules[rule_id].limit is not None and rule_id not in LIMITED_RULES:
            raise RequestError(
                f"rule {rule_id} has no limit of its own to set",
                code="invalid_option",
                actual=options.rules[rule_id].limit,
                limit=f"a limit for {', '.join(LIMITED_RULES)}",
                hint="The other rules compare with the profile's memories; they can be switched off",
            )
    _check_ranges(options)
    _check_split(options)
    _check_tables(options)
    if options.rule_enabled("FUSE-1") == options.rule_enabled("FUSE-2"):
        raise RequestError(
            "exactly one of the rules FUSE-1 and FUSE-2 gives the direction of growth",
            code="invalid_option",
            actual="both on" if options.rule_enabled("FUSE-1") else "both off",
            hint="Switch one of them off and the other on",
        )
    return options


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


def _check_split(options: Options) -> None:
    """Raises RequestError for a ratio that is none, or an axis named twice."""
    for given, ratio in zip(options.granularity, options.ratios, strict=True):
        if not Fraction(1, 100) <= ratio <= Fraction(99, 100):
            raise RequestError(
                "a ratio of option granularity keeps too much or too little of an axis",
                code="invalid_option",
                actual=printable(str(given), 20),
                limit="ratios from 1/100 to 99/100",
            )
    twice = [axis for number, axis in enumerate(options.order) if axis in options.order[:number]]
    if twice:
        raise RequestError(
            f"option order names axis {printable(twice[0], 20)} twice",
            code="invalid_option",
            actual=printable(", ".join(options.order), 120),
            limit="each axis once",
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


def parse_assignments(assignments: Iterable[str]) -> Options:
    """Options from `key=value` words; a value is JSON where it parses as such, else text; dots go into objects."""
    values: dict[str, object] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise RequestError(f"{printable(assignment, 80)!r} is not of the form key=value", code="invalid_option")
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        # a dimension's name may hold dots itself
        *parents, leaf = key.split(".", 1) if key.startswith("dims.") else key.split(".")
        target = values
        for parent in parents:
            inner = target.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise RequestError(f"option {printable(parent, 60)} is set twice", code="invalid_option")
            target = inner
        known = target.get(leaf)
        # an object adds to what was said of the same option before, as the words with dots do
        target[leaf] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return parse_options(values)
