"""Advice on a plan: what is planned again, and what is said of plans that could not be made."""

from __future__ import annotations

from compiler.advise import advice_lines, advise
from compiler.compile import plan_model
from compiler.errors import LimitError
from compiler.frontend.source import ModelSource
from compiler.options import Options
from compiler.profile.schema import Profile
from compiler.report.plan import Plan
from tests.models import Model
from tests.profiles import small_profile

CHIP = small_profile(nram_bytes=12_000, wram_bytes=12_000)


def narrow() -> ModelSource:
    """Three convolutions between which a chip with little memory stores its results in DRAM."""
    model = Model(name="narrow")
    x = model.input([1, 16, 32, 32])
    for index in range(3):
        x = model.conv(x, 16, 16, 3, name=f"conv{index}")
    model.output(x)
    return ModelSource.from_bytes(model.data(), name="narrow.onnx")


def advice(limited: str) -> list[str]:
    """The lines of advice where planning for an objective reaches a limit."""
    source, options = narrow(), Options()
    plan = plan_model(source, CHIP, options).plan

    def replan(profile: Profile, options: Options) -> Plan:
        if limited in ("all", options.objective):
            raise LimitError("planning took too long", limit=3, hint="Raise time_limit_s")
        return plan_model(source, profile, options).plan

    return list(advice_lines(advise(plan, CHIP, options, replan), plan.totals))


def test_a_change_that_reaches_a_limit_is_said_not_to_be_checked_and_the_others_go_on() -> None:
    lines = advice("dram_bytes")
    said = "objective=dram_bytes: could not be checked: planning took too long; limit 3. Raise time_limit_s"
    assert said in lines
    assert any(": removes boundar" in line and "(now " in line for line in lines)


def test_no_change_is_said_not_to_help_where_none_could_be_checked() -> None:
    lines = advice("all")
    assert sum("could not be checked" in line for line in lines) > 1
    assert not any("help" in line or "removes" in line for line in lines)


def test_without_a_limit_every_change_is_checked() -> None:
    lines = advice("none")
    assert len(lines) > 1
    assert not any("checked" in line for line in lines)


def test_each_change_is_planned_once_and_said_once_with_all_boundaries_that_it_removes() -> None:
    source, options, planned = narrow(), Options(), []
    chip = small_profile(nram_bytes=6_000, wram_bytes=9_000)

    def replan(profile: Profile, options: Options) -> Plan:
        planned.append((profile, options))
        return plan_model(source, profile, options).plan

    plan = plan_model(source, chip, options).plan
    lines = list(advice_lines(advise(plan, chip, options, replan), plan.totals))
    assert any("removes boundaries 1 and 2; DRAM" in line for line in lines)
    changes = [line.partition(":")[0] for line in lines]
    assert len(set(changes)) == len(changes)
    assert all(planned.index(one) == number for number, one in enumerate(planned))
