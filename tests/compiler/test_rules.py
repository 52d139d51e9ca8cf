"""Rules by name: each has one, and docs/rules.md says how to set it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import compiler
from compiler.linear_rules import FIGURES, LinearRule, Sum, parsed
from compiler.option_words import parse_assignments
from compiler.options import parse_options
from compiler.report.rules_page import command_line, rules_page, settings_of
from compiler.rules import BY_ID, RULE_IDS, RULES, Rule, id_of
from compiler.tiling.figures import Figures

ID = re.compile(r'"((?:FUSE-[AB0-9]|TILE-|PROG-)[A-Za-z0-9:-]*|group-size)"')


def test_every_id_that_the_code_gives_has_a_name_of_its_own() -> None:
    files = Path(compiler.__file__).parent.rglob("*.py")
    given = {found for path in files for found in ID.findall(path.read_text(encoding="utf-8"))}
    assert given - {"FUSE-", "TILE-", "PROG-"} <= set(BY_ID)
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(id_of(BY_ID[rule_id].name) == rule_id for rule_id in RULE_IDS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_page_says_of_each_rule_how_to_set_it_and_that_works(rule: Rule) -> None:
    page = rules_page()
    assert f"### {rule.name} ({rule.id}" in page
    for _, options in settings_of(rule):
        line = command_line(options)
        assert line in page
        words = [word for word in shlex.split(line) if word != "--set"]
        assert parse_assignments(words) == parse_options(options)


def test_figures_of_added_rules_are_fields_of_a_tiling() -> None:
    assert {figure.field for figure in FIGURES.values()} <= set(Figures.__slots__)


def test_an_added_rule_is_read_as_two_sums() -> None:
    """SPEC 5.3: linear sums alone, so nothing is evaluated."""
    found = parsed("mine", "weights_bytes + 2*input_bytes - 40 - input_bytes >= 0.5 * sram_bytes")
    left = Sum(constant=-40.0, terms=(("weights_bytes", 1.0), ("input_bytes", 1.0)))
    right = Sum(constant=0.0, terms=(("sram_bytes", 0.5),))
    assert found == LinearRule(name="mine", left=left, right=right, at_least=True)
