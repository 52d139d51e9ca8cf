"""The commands that show plans: `tessera plan` and `tessera explain`, of a model or of what was compiled before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.saved_results import is_saved
from app.cli.shared_parameters import (
    CsvFlag,
    JsonFlag,
    ProfileOfTarget,
    ServerOption,
    SetOption,
    StrictFlag,
    WideFlag,
    all_settings,
    check_arguments,
    compilation_to_write,
    excluding,
    folder_to_write,
    progress_console,
)
from app.input_files import uncompiled_model
from compiler.errors import RequestError, printable

if TYPE_CHECKING:
    from app.client.output_folder import Compiled as CompiledNow
    from app.comparisons.compare import Compiled

TargetArgument = Annotated[
    Path,
    typer.Argument(
        help="An ONNX file (planned now), a folder of `compile --out`, a plan.json, or with --server a job's id",
        show_default=False,
    ),
]
VerifyFlag = Annotated[
    bool, typer.Option("--verify", help="Of a model: also make, prove, simulate and verify its programs")
]


def plan(
    target: TargetArgument,
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for plan and report, also as HTML")] = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", help="Folder for an SVG of each group's tiles")] = None,
    strategies: Annotated[
        str | None, typer.Option("--compare", help="Strategies side by side: search,rules,none", show_default=False)
    ] = None,
    verify: VerifyFlag = False,
    strict: StrictFlag = False,
    wide: WideFlag = False,
    as_csv: CsvFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Plan a model, without programs unless --verify asks for them, or show a plan that was made before.

    `--set schedule=FILE` prices a pinned schedule.
    """
    with failures(as_json=as_json):
        words = all_settings(settings, strict)
        is_comparison = strategies is not None
        excluding({"--json": as_json, "--csv": as_csv})
        excluding({"--pictures": pictures is not None, "--server": server is not None})
        others = {"--pictures": pictures is not None, "--csv": as_csv, "--wide": wide, "--verify": verify}
        for flag, given in others.items():
            excluding({flag: given, "--compare": is_comparison})
        _check(target, profile, words, server)
        from app.cli.compiling import compiled
        from compiler.report.plan import plan_json

        if strategies is None:
            compilation_to_write(out)
        folder_to_write(out)
        folder_to_write(pictures)
        console = progress_console(as_json)
        if strategies is not None:
            chip = needed_profile(target, profile)
            _compare(strategies, target, chip, words, console, server=server, out=out, as_json=as_json)
            return
        before = compiled_before(target, profile, words, server, verify=verify)
        if before is not None:
            _refuse_to_write(out, pictures)
            _print(before, plan_json(before.plan), as_json=as_json, as_csv=as_csv, wide=wide)
            return
        chip = needed_profile(target, profile)
        found = compiled(target, chip, words, console, server, only_plan=not verify)
        _print(_documents(found), found.plan, as_json=as_json, as_csv=as_csv, wide=wide)
        said = _written(found, out, pictures)
        if not (as_json or as_csv):
            people = Console(markup=False, highlight=False)
            goes_on = [] if verify or found.job is None else [_goes_on(found.job, server)]
            for line in goes_on + said:
                people.print(line, soft_wrap=True)


def _print(found: Compiled, text: bytes, *, as_json: bool, as_csv: bool, wide: bool) -> None:
    """Prints a plan as its JSON text, as CSV, or for people."""
    from app.printing.plan_table import groups_csv, print_plan

    if as_json:
        sys.stdout.write(text.decode() + "\n")
    elif as_csv:
        sys.stdout.write(groups_csv(found.plan))
    else:
        console = Console(markup=False, highlight=False)
        print_plan(found.plan, found.report, console, wide=wide)


def _written(found: CompiledNow, out: Path | None, pictures: Path | None) -> list[str]:
    """Writes the files that are asked for; a line about each folder."""
    from app.client.output_folder import write, write_pictures

    said = []
    if out is not None:
        said.append(f"Wrote {', '.join(write(found, out))} to {out}")
    if pictures is not None:
        write_pictures(found, pictures)
        said.append(f"Wrote {len(found.pictures)} pictures to {pictures}")
    return said


def _goes_on(job: str, server: str | None) -> str:
    return f"\nJob {job} goes on there; `tessera plan {job} --server {server}` shows its result"


def _refuse_to_write(out: Path | None, pictures: Path | None) -> None:
    """Raises RequestError if what was compiled before should be written."""
    if out is not None or pictures is not None:
        raise RequestError(
            "what was compiled before is shown, not written again",
            code="invalid_request",
            actual="--out" if out is not None else "--pictures",
            hint="Give the model and --profile to plan again",
        )


def explain(
    target: TargetArgument,
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    group: Annotated[str | None, typer.Option("--group", help="A group (s0.g3) or segment (s0) of the plan")] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Plan again with changes that may remove the three costliest boundaries")
    ] = False,
    verify: VerifyFlag = False,
    strict: StrictFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say in words how a model was planned: what limits it, what each boundary costs, what runs where and why."""
    with failures(as_json=as_json):
        words = all_settings(settings, strict)
        excluding({"--advise": advise, "--server": server is not None})
        excluding({"--advise": advise, "--group": group is not None})
        _check(target, profile, words, server)
        from app.cli import compiling
        from app.cli.advising import advice_here
        from app.printing.text_table import print_lines
        from compiler.advise import CROSSINGS_MAX
        from compiler.report.explain import explain as in_words
        from compiler.report.explain import group_values

        console = progress_console(as_json)
        found = compiled_before(target, profile, words, server, verify=verify)
        if found is None:
            chip = needed_profile(target, profile)
            found = _documents(compiling.compiled(target, chip, words, console, server, only_plan=not verify))
        elif advise:
            raise RequestError(
                "advice needs the model, because it plans again",
                code="invalid_request",
                actual=printable(str(target)),
                hint="Give the ONNX file and --profile",
            )
        text = in_words(found.plan, group, found.report, advised=CROSSINGS_MAX if advise else 0)
        if advise:
            lines = advice_here(target, needed_profile(target, profile), words, console, found.plan)
            text += "\n".join(["", "Changes that were planned again:", *(f"  {line}" for line in lines)]) + "\n"
        text = "\n".join(printable(line, len(line)) for line in text.split("\n"))  # a saved plan may have been changed
        values = {"explanation": text.splitlines(), **group_values(found.plan, found.report, group)}
        if as_json:
            sys.stdout.write(json.dumps(values) + "\n")
        else:
            print_lines(text.splitlines(), Console(markup=False, highlight=False))


def compiled_before(
    target: Path, profile: str | None, words: list[str], server: str | None, *, verify: bool
) -> Compiled | None:
    """The documents that a target names; None if it is a model, which has to be planned."""
    from app.cli.saved_results import of_job, saved
    from app.client.client import Client

    if _is_model(target, profile, server):
        return None
    found = saved(target) if is_saved(target) else None
    given = {"--set": bool(words), "--verify": verify, "--profile": profile is not None}
    odd = [name for name, is_given in given.items() if is_given]
    if odd:
        raise RequestError(
            "what was compiled before is shown as it is",
            code="invalid_request",
            actual=f"{printable(str(target), 200)} with {' and '.join(odd)}",
            hint=f"Leave out {' and '.join(odd)}, or give the model and --profile to plan it again",
        )
    if found is not None and server is not None:
        raise RequestError(
            "what is saved here is shown without a service",
            code="invalid_request",
            actual=f"--server with {printable(str(target), 200)}",
            hint="Leave out --server, or give a model and --profile, or the id of a job",
        )
    if found is not None:
        return found
    with Client(str(server)) as client:
        return of_job(client, str(target))


def _is_model(target: Path, profile: str | None, server: str | None) -> bool:
    is_job = server is not None and not target.exists() and profile is None
    return not (is_job or is_saved(target))


def _check(target: Path, profile: str | None, words: list[str], server: str | None) -> None:
    """Raise for wrong arguments of a model that is to be planned, before the compiler is imported."""
    if _is_model(target, profile, server):
        check_arguments(target, [needed_profile(target, profile)], words, server=server)


def needed_profile(target: Path, profile: str | None) -> str:
    """The profile of a model that is to be planned; raises RequestError without one."""
    if profile is None:
        uncompiled_model(target)
        raise RequestError(
            "a model is planned for a profile",
            code="invalid_request",
            actual="no --profile",
            hint="Give --profile NAME; `tessera profiles list` shows the built-in ones",
        )
    return profile


def _documents(found: CompiledNow) -> Compiled:
    from app.comparisons.compare import Compiled

    return Compiled(plan=found.plan_document(), report=found.report_document())


def _compare(
    strategies: str,
    model: Path,
    profile: str,
    settings: list[str],
    console: Console,
    *,
    server: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Plan once per strategy and show the figures side by side, or as one JSON document."""
    import msgspec

    from app.cli.compare_table import print_comparison
    from app.cli.comparing import compare, parse_strategies

    names = parse_strategies(strategies)
    for name in names:
        compilation_to_write(None if out is None else out / name)
    comparison = compare(model, profile, settings, names, console, server=server, out=out)
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(comparison)) + "\n")
        return
    print_comparison(comparison, Console())
    if out is not None:
        Console(markup=False, highlight=False).print(f"Wrote the documents of each strategy to {out}", soft_wrap=True)
