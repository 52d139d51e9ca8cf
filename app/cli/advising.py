"""`tessera explain --advise`: plans again in this process with changes that may keep tensors on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from app.cli.progress import ProgressBar
from app.input_files import load_profile, open_model
from app.limits import bounded
from compiler.advise import advice_lines, advise
from compiler.compile import plan_model
from compiler.option_words import parse_assignments
from compiler.options import Options
from compiler.profile.schema import Profile
from compiler.report.plan import Plan


def advice_here(model: Path, profile: str, settings: Sequence[str], console: Console, plan: Plan) -> list[str]:
    """The advice on a plan in lines; every plan made for it stays within the options' bounds."""
    options, hardware, source = parse_assignments(settings), load_profile(profile), open_model(model)

    def replan(profile: Profile, options: Options) -> Plan:
        with bounded(options.time_limit_s, options.memory_limit_bytes):
            return plan_model(source, profile, options, observer=bar).plan

    with ProgressBar(console, f"{source.name} again") as bar:
        return list(advice_lines(advise(plan, hardware, options, replan), plan.totals))
