"""Compiling from the command line: in this process, or on a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from app.cli.console_script import heard
from app.cli.progress import ProgressBar
from app.client.document import document
from app.client.errors import ServiceError
from app.client.output_folder import Compiled
from app.input_files import load_profile, open_model, profile_text, uncompiled_model
from app.limits import bounded
from compiler.errors import TesseraError
from compiler.option_words import parse_assignments
from compiler.report.plan import Plan, plan_json, report_json

if TYPE_CHECKING:
    from app.client.client import Client
    from app.client.types import Job
    from compiler.compile import Compilation
    from compiler.pipeline import PassTiming

# The passes that turn a plan into programs, or leave them out.
PROGRAM_PASS: Final = "program"
PLAN_PASS: Final = "plan"

# Takes a plan while its programs are being made.
Show = Callable[[Plan], None]


def compiled(
    model: Path,
    profile: str,
    settings: Sequence[str],
    console: Console,
    server: str | None,
    *,
    show: Show | None = None,
    only_plan: bool = False,
) -> Compiled:
    """Compile here, or on a service where one is named; `show` gets the plan as soon as it is known.

    With `only_plan` nothing is proved, simulated or verified here, and a service is not waited for after its plan.
    """
    if server is None:
        return compile_here(model, profile, settings, console, show=show, only_plan=only_plan)
    return compile_on_server(server, model, profile, settings, console, show=show, only_plan=only_plan)


def compile_here(
    model: Path,
    profile: str,
    settings: Sequence[str],
    console: Console,
    *,
    show: Show | None = None,
    only_plan: bool = False,
) -> Compiled:
    """Compile in this process within the options' bounds; nothing is started."""
    options = parse_assignments(settings)
    with bounded(options.time_limit_s, options.memory_limit_bytes):
        compilation = compilation_here(model, profile, settings, console, show=show, only_plan=only_plan)
    return Compiled(
        plan=plan_json(compilation.plan),
        report=report_json(compilation.report),
        pictures=compilation.pictures,
        executable=compilation.executable,
        planning_s=_planning_s(compilation.timings),
    )


def _planning_s(timings: Sequence[PassTiming]) -> float:
    """The time of all passes before programs are made, or left out."""
    ends = next(number for number, timing in enumerate(timings) if timing.name in (PLAN_PASS, PROGRAM_PASS))
    return sum(timing.duration_s for timing in timings[:ends])


def compilation_here(
    model: Path,
    profile: str,
    settings: Sequence[str],
    console: Console,
    *,
    show: Show | None = None,
    only_plan: bool = False,
) -> Compilation:
    """The compilation itself; its executable reads the model's file when it is written or run."""
    from compiler.compile import compile_model, plan_model

    options = parse_assignments(settings)
    hardware = load_profile(profile)
    source = open_model(model)
    with ProgressBar(console, source.name, verifies=not options.unverified) as bar:
        if only_plan:
            return plan_model(source, hardware, options, observer=bar, pictures=True)

        def announce(plan: Plan) -> None:
            if show is not None:
                with bar.paused():
                    show(plan)

        return compile_model(source, hardware, options, observer=bar, announce=announce, pictures=True)


def compile_on_server(
    server: str,
    model: Path,
    profile: str,
    settings: Sequence[str],
    console: Console,
    *,
    show: Show | None = None,
    only_plan: bool = False,
) -> Compiled:
    """Compile on a service; with `only_plan` the job goes on there after its plan has been read."""
    # The values as given, without the defaults of this version: the service may be a newer one.
    verifies = not parse_assignments(settings).unverified
    options = parse_values(settings)
    uncompiled_model(model)  # before the service is asked anything
    from app.client.client import Client

    with Client(server) as client:
        text = profile_text(profile)
        reference = profile if text is None else client.upload_profile(text).digest
        job = client.submit(model, reference, options)
        job = follow(client, job, model.name, console, show=show, only_plan=only_plan, verifies=verifies)
        plan = client.document(job, "plan")
        report = None if only_plan and not job.final else client.document(job, "report")
        return Compiled(plan=plan, report=report, server=server, job=job.id)


def parse_values(settings: Sequence[str]) -> dict[str, object]:
    """The options of `key=value` words as plain values, the defaults left out."""
    options = msgspec.to_builtins(parse_assignments(settings))
    given = {assignment.partition("=")[0].partition(".")[0] for assignment in settings}
    return {name: value for name, value in options.items() if name in given}


def follow(
    client: Client,
    job: Job,
    title: str,
    console: Console,
    *,
    show: Show | None = None,
    only_plan: bool = False,
    verifies: bool = True,
) -> Job:
    """Show a job's progress until it is final; raises ServiceError if it did not succeed.

    `show` gets the plan as soon as it is known; with `only_plan` the job is left to itself then.
    """
    if not job.final:
        with _cancelling(client, job, console), ProgressBar(console, title, verifies=verifies) as bar:
            for event in client.follow(job.id):
                if only_plan and event.planned and event.state == "running":
                    return client.job(job.id)
                if show is not None and event.planned and event.state == "running":
                    with suppress(ServiceError), bar.paused():  # it may have ended meanwhile, without a plan
                        show(document(client.document(job, "plan"), Plan, f"job {job.id}"))
                    show = None
                if event.phase is None:
                    bar.say(event.state)
                else:
                    bar.phase(event.phase, event.step, event.total)
        job = client.job(job.id)
    if job.state != "succeeded":
        problem = job.problem or {"code": job.state, "detail": f"job {job.id} is {job.state}"}
        raise ServiceError(problem, int(problem.get("status", 422)))
    return job


@contextmanager
def _cancelling(client: Client, job: Job, console: Console) -> Iterator[None]:
    """Cancel a job where Ctrl-C ends the wait for it, and say what became of it."""
    try:
        yield
    except KeyboardInterrupt:
        heard()
        try:
            state = client.cancel(job).state
            said = f"job {job.id} on {client.url} is {'being cancelled' if state == 'cancelling' else state}"
        except TesseraError:
            said = f"job {job.id} may go on; cancel it: curl -X POST {client.url}/v1/jobs/{job.id}/cancel"
        console.print(f"interrupted: {said}", soft_wrap=True, highlight=False)
        raise
