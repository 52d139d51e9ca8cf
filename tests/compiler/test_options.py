"""Options: the defaults of SPEC section 13, and refusals that name option, value and what was expected."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import RequestError
from compiler.option_descriptions import DESCRIPTIONS
from compiler.option_words import parse_assignments
from compiler.options import DimRange, Options, RuleSetting, parse_options
from compiler.rules import RULE_IDS
from tests.models import error_of


def refused(values: dict[str, Any]) -> RequestError:
    """The error that options give."""
    with pytest.raises(RequestError) as caught:
        parse_options(values)
    return caught.value


def test_defaults_are_those_of_the_specification() -> None:
    options = parse_options({})
    assert options == Options()
    assert (options.objective, options.start_rule, options.profit) == ("latency", "A", "any")
    assert (options.split, options.halo, options.partition) == ("exact", "auto", "auto")
    assert (options.dims, options.rules) == ({}, {})
    assert (options.merge, options.chips, options.strict) == ("optimal", "balanced", False)
    limits = (f"{bound}_{what}" for bound in ("min", "max") for what in ("macs", "weight_bytes", "vector_nodes"))
    assert [getattr(options, name) for name in limits] == [None] * 6


@pytest.mark.parametrize("value", ["NCHWc", "NCHW16c", "NCHW8"])
def test_channels_in_blocks_are_refused_with_what_is_possible(value: str) -> None:
    """ADDR-1: one stride for each axis says where no block of channels begins."""
    error = refused({"layout": value})
    assert (error.code, error.actual, error.limit) == ("invalid_option", value, "CNHW, NCHW, NHWC")
    assert "NHWC" in str(error.hint)


def test_an_unknown_option_is_named_with_those_known() -> None:
    error = refused({"objektive": "latency"})
    assert (error.code, error.actual) == ("unknown_option", "objektive")
    assert "objective" in str(error.hint)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("objective", "beauty"),
        ("layout", "HWNC"),
        ("layout", 5),
        ("objective", 5),
        ("fusion", "maybe"),
        ("start_rule", "C"),
        ("profit", "some"),
        ("profit", ["FUSE-4"]),
        ("rules", [5]),
        ("rules", [{"limit": 3}]),
        ("rules", {"FUSE-11": {"limit": -1}}),
        ("rules", {"FUSE-11": {"limit": float("inf")}}),
        ("rules", {"FUSE-11": {"limit": float("nan")}}),
        ("rules", {"FUSE-11": {"enabled": 1}}),
        ("rules", {"FUSE-11": {"colour": "red"}}),
        ("dims", {"batch": -1}),
        ("dims", {"batch": {"min": 0, "max": 4}}),
        ("dims", {"batch": 2**40}),
        ("dims", {"batch": 1.5}),
        ("dims", {"batch": "1"}),
        ("dims", {"batch": {"min": 1}}),
        ("dims", {"batch": {"max": 4, "colour": "red"}}),
        ("dims", {"batch": {"max": 4, "step": 0}}),
        ("partition", "by hand"),
        ("partition", [""]),
        ("partition", [5]),
        ("merge", "backward"),
        ("chips", "two"),
        ("strict", 1),
        ("min_macs", -1),
        ("max_weight_bytes", 2**61),
        ("min_vector_nodes", 1.5),
        ("time_limit_s", 0),
        ("time_limit_s", -1),
        ("time_limit_s", float("nan")),
        ("memory_limit_bytes", 0),
    ],
)
def test_a_bad_value_is_named_with_its_option(option: str, value: Any) -> None:
    error = refused({option: value})
    assert error.code == "invalid_option"
    assert option in error.message
    assert str(error.actual) in json.dumps(value)
    assert error.limit
    assert "--set" in str(error.hint) or "Did you mean" in str(error.hint)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["objective=latancy"], 'option objective cannot be "latancy"', "Did you mean latency?"),
        (["objectiv=latency"], "unknown option 'objectiv'", "Did you mean objective?"),
        (["beauty=1"], "unknown option 'beauty'", "`tessera options`"),
        (["batch=abc"], "expected a whole number or null, got a text", "Give a whole number from 1 to 65536"),
        (["objective"], "is not of the form key=value", "--set objective=energy"),
        (["=3"], "is not of the form key=value", "`tessera options`"),
        (["dims.batch=x"], 'option dims.batch cannot be "x"', "--set dims.batch=1"),
        (["rules=FUSE-1"], 'option rules cannot be "FUSE-1"', "--set rules.FUSE-19.limit=6"),
        (["dims.batch=1", "dims.batch=2"], "option dims.batch is given two values", "Leave out one"),
        (["objective=energy", "objective=latency"], "option objective is given two values", "Leave out one"),
        (["dims.batch=1", 'dims={"batch": 2}'], "option dims.batch is given two values", "Leave out one"),
        (["rules.FUSE-4=1", "rules.FUSE-4.enabled=true"], "rules.FUSE-4.enabled is given two values", "Leave out one"),
        (["time_limit_s=1parsec"], "is not an amount in seconds", "such as 1.2ms"),
    ],
)
def test_a_wrong_word_is_refused_with_what_to_do(words: list[str], message: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_assignments(words)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_sizes_and_times_have_units_and_an_option_may_be_given_the_same_value_twice() -> None:
    options = parse_assignments(["memory_limit_bytes=4GiB", "time_limit_s=1500ms", "verify=none", "verify=none"])
    assert (options.memory_limit_bytes, options.time_limit_s, options.verify) == (4 * 2**30, 1.5, "none")


def test_every_option_is_described_with_its_default_first_and_an_example_that_is_read() -> None:
    assert tuple(DESCRIPTIONS) == Options.__struct_fields__
    for name, described in DESCRIPTIONS.items():
        assert described.example.startswith(name)
        if name != "schedule":  # the command line reads its file
            words = ["dims.batch=2"] if name == "tables" else []
            assert parse_assignments([*words, described.example]) != Options()
        default = getattr(Options(), name)
        if isinstance(default, str | bool):
            assert described.values.split(", ")[0] == json.dumps(default).strip('"')


@pytest.mark.parametrize(
    "values",
    [{"dims": {"seq": {"min": 5, "max": 4}}}]
    + [{f"min_{what}": 5, f"max_{what}": 4} for what in ("macs", "weight_bytes", "vector_nodes")],
)
def test_a_range_that_holds_nothing_is_refused(values: dict[str, Any]) -> None:
    error = refused(values)
    assert (error.code, error.actual) == ("invalid_option", "5 to 4")


@pytest.mark.parametrize("name", ["min_macs", "max_macs", "min_vector_nodes", "max_weight_bytes"])
def test_one_bound_alone_is_a_range(name: str) -> None:
    assert getattr(parse_options({name: 5}), name) == 5


def test_a_range_of_a_dynamic_dimension_counts_by_its_maximum() -> None:
    options = parse_options({"dims": {"seq": {"min": 2, "max": 64}, "batch": 3}})
    assert options.maxima == {"seq": 64, "batch": 3}


def test_an_unknown_rule_is_named() -> None:
    error = refused({"rules": {"FUSE-21": {"enabled": False}}})
    assert (error.code, error.actual) == ("unknown_option", "FUSE-21")


def test_a_mistyped_rule_is_answered_with_the_name_that_is_near() -> None:
    error = refused({"rules": {"fits SRAM as whole": {"enabled": False}}})
    assert error.hint == "Did you mean fits SRAM as a whole?"


@pytest.mark.parametrize(
    "rules",
    [
        ["FUSE-4", {"name": "single output", "enabled": False}],
        {"many": {"figure": "maps"}},
        {"many": {"at_most": 3}},
        {"many": {"figure": "beauty", "at_most": 3}},
        {"many": {"figure": "maps", "at_most": 3, "at_least": 2}},
        {"many": {"figure": "maps", "at_most": 3, "holds": "maps <= 3"}},
        {"fits SRAM as a whole": {"figure": "maps", "at_most": 3}},
        {"a.b": {"figure": "maps", "at_most": 3}},
        {"FUSE-99": {"figure": "maps", "at_most": 3}},
        {f"rule {number}": {"figure": "maps", "at_most": 3} for number in range(17)},
    ],
)
def test_a_rule_that_says_too_little_too_much_or_what_another_says_is_refused(rules: Any) -> None:
    assert refused({"rules": rules}).code == "invalid_option"


def test_rules_go_by_name_or_id_in_an_object_or_in_order() -> None:
    """SPEC 5.3: switched, limited, added and reordered; what a plan prints of it can be given again."""
    words: dict[str, dict[str, Any]] = {
        "fits SRAM as a whole": {"enabled": False},
        "FUSE-19": {"limit": 6},
        "few": {"figure": "maps", "at_most": 3},
    }
    options = parse_options({"rules": words})
    assert set(options.rule_settings) == {"FUSE-13", "FUSE-19", "few"}
    ordered = parse_options(
        {"rules": [{"name": name, **setting} for name, setting in words.items()] + ["single output"]}
    )
    assert [ordered.rule_place(rule) for rule in ("FUSE-13", "FUSE-19", "few", "FUSE-4", "FUSE-12")] == [0, 1, 2, 3, 4]
    for one in (options, ordered):
        assert not one.rule_enabled("FUSE-13")
        assert one.rule_limit("FUSE-19") == 6
        assert [rule.name for rule in one.added_rules] == ["few"]
        assert parse_options({"rules": json.loads(msgspec.json.encode(one.rules))}) == one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maps",
        "maps <= 3 <= 4",
        "3 <= 4",
        "maps <= ",
        "maps * ops <= 3",
        "2 maps <= 3",
        "maps < 3",
        "__import__('os') <= 3",
        "maps.real <= 3",
        "(maps) <= 3",
        "maps <= 1e99",
        "maps <= 3 if ops else 4",
        "maps <= " + "3" * 200,
    ],
)
def test_a_rule_that_is_no_comparison_of_sums_is_refused(text: str) -> None:
    error = refused({"rules": {"mine": {"holds": text}}})
    assert error.code == "invalid_option"
    assert "mine" in error.message


@pytest.mark.parametrize("rule", RULE_IDS[2:])
def test_each_rule_can_be_switched_off(rule: str) -> None:
    options = parse_options({"rules": {rule: {"enabled": False}}})
    assert not options.rule_enabled(rule)
    assert all(options.rule_enabled(other) for other in RULE_IDS[2:] if other != rule)


def test_a_rules_limit_replaces_its_default() -> None:
    options = parse_options({"rules": {"FUSE-11": {"limit": 50}}})
    assert options.rule_limit("FUSE-11") == 50
    assert options.rule_limit("FUSE-18") == 16


@pytest.mark.parametrize(("start", "direction"), [("A", "FUSE-1"), ("B", "FUSE-2")])
def test_the_direction_of_growth_follows_the_start_rule(start: str, direction: str) -> None:
    """Defaults: A with FUSE-1, or B with FUSE-2."""
    options = parse_options({"start_rule": start})
    assert options.rule_enabled(direction)
    assert options.rule_enabled("FUSE-1") != options.rule_enabled("FUSE-2")


@pytest.mark.parametrize("enabled", [True, False])
def test_both_directions_on_or_off_is_refused(enabled: bool) -> None:
    rules = {"FUSE-1": {"enabled": enabled}, "FUSE-2": {"enabled": enabled}}
    assert refused({"rules": rules}).code == "invalid_option"


def test_one_direction_switched_on_switches_the_other_off() -> None:
    options = parse_options({"rules": {"FUSE-2": {"enabled": True}}})
    assert not options.rule_enabled("FUSE-1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Options()),
        (["objective=energy"], Options(objective="energy")),
        (['objective="energy"'], Options(objective="energy")),
        (["profit=all"], Options(profit="all")),
        (['profit=["FUSE-6"]'], Options(profit=("FUSE-6",))),
        (["rules.FUSE-11.limit=50"], Options(rules={"FUSE-11": RuleSetting(limit=50)})),
        (
            ["rules.FUSE-11.limit=50", "rules.FUSE-11.enabled=false"],
            Options(rules={"FUSE-11": RuleSetting(limit=50, enabled=False)}),
        ),
        (['rules={"FUSE-4": {"enabled": false}}'], Options(rules={"FUSE-4": RuleSetting(enabled=False)})),
        (["dims.batch=4", "dims.seq=7"], Options(dims={"batch": 4, "seq": 7})),
        (["dims.x.0=1"], Options(dims={"x.0": 1})),
        (["time_limit_s=2.5"], Options(time_limit_s=2.5)),
        (['dims.seq={"min": 2, "max": 64, "step": 2}'], Options(dims={"seq": DimRange(min=2, max=64, step=2)})),
        (['partition=["conv1", "conv2"]'], Options(partition=("conv1", "conv2"))),
        (["merge=thresholds", "min_macs=5", "max_macs=9"], Options(merge="thresholds", min_macs=5, max_macs=9)),
        (["strict=true", "chips=one-each"], Options(strict=True, chips="one-each")),
    ],
)
def test_assignments_are_options(words: list[str], expected: Options) -> None:
    assert parse_assignments(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["objective"],
        ["=energy"],
        ["objective=beauty"],
        ["nothing=1"],
        ["rules=1", "rules.FUSE-4.enabled=false"],
        ["dims=" + "[" * 100_000],
        ["rules.FUSE-11.limit=Infinity"],
        ["rules.FUSE-11.limit=1e999"],
        ["time_limit_s=NaN"],
        ["dims.batch=" + "9" * 5000],
        [""],
    ],
)
def test_bad_assignments_are_refused(words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        parse_assignments(words)
    assert caught.value.code in ("invalid_option", "unknown_option")
    assert len(str(caught.value)) < 2000


@given(st.lists(st.text(max_size=20), max_size=3))
def test_no_words_crash_the_parser(words: list[str]) -> None:
    error = error_of(lambda: parse_assignments(words))
    assert error is None or error.code in ("invalid_option", "unknown_option")


DIMS = {"n": {"min": 2, "max": 8, "step": 3}, "c": 4}


@pytest.mark.parametrize("tables", [[], [{"n": 2}, {"n": 8, "c": 4}, {"n": 5}]])
def test_shapes_of_tables_are_extents_that_dims_allow(tables: list[Any]) -> None:
    assert list(parse_options({"dims": DIMS, "tables": tables}).tables) == tables


@pytest.mark.parametrize(
    ("shape", "name", "actual"),
    [
        ({}, "'n'", "none"),
        ({"n": 9}, "'n'", 9),
        ({"n": 4}, "'n'", 4),
        ({"n": 5, "c": 3}, "'c'", 3),
        ({"n": 5, "w": 1}, "'w'", 1),
    ],
)
def test_a_shape_of_tables_that_dims_do_not_allow_is_refused(shape: dict[str, int], name: str, actual: object) -> None:
    error = refused({"dims": DIMS, "tables": [{"n": 2}, shape]})
    assert (error.code, error.actual) == ("invalid_option", actual)
    assert name in error.message


def test_a_shape_of_tables_names_a_dimension_that_is_fixed_at_0() -> None:
    tables = [{"n": 2, "past": 0}]
    assert list(parse_options({"dims": {**DIMS, "past": 0}, "tables": tables}).tables) == tables
    assert refused({"dims": {**DIMS, "past": 0}, "tables": [{"n": 2, "past": 1}]}).limit == "0"


@pytest.mark.parametrize("tables", [{"n": 2}, [2], [{"n": -1}], [{"n": "2"}], [{"n": 2}] * 65])
def test_what_is_no_list_of_at_most_64_shapes_is_refused(tables: Any) -> None:
    assert refused({"dims": DIMS, "tables": tables}).code == "invalid_option"
