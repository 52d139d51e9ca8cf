"""Compiling from the command line: in this process, or on a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from app.cli.input_files import load_profile, open_model, profile_text, uncompiled_model
from app.cli.limits import bounded
from app.cli.progress import ProgressBar
from app.cli.saved_results import document
from app.client.errors import ServiceError
from app.outputs import whole_files
from app.report_page.page import FILE_NAME as PAGE_NAME
from app.report_page.page import report_page
from app.simulations.traces import FILE_NAME as TRACE_NAME
from compiler.errors import TesseraError
from compiler.options import parse_assignments
from compiler.plan import Plan, Report, plan_json, report_json

if TYPE_CHECKING:
    from app.client.client import Client
    from app.client.types import Job
    from compiler.compile import Compilation
    from compiler.pipeline import PassTiming
    from compiler.program.executable import Executable

PLAN_NAME: Final = "plan.json"
REPORT_NAME: Final = "report.json"
EXECUTABLE_NAME: Final = "executable.tsx"
LISTING_NAME: Final = "listing.txt"
FILE_NAMES: Final = (PLAN_NAME, REPORT_NAME, PAGE_NAME, EXECUTABLE_NAME, LISTING_NAME, TRACE_NAME)
# The passes that turn a plan into programs, or leave them out.
PROGRAM_PASS: Final = "program"
PLAN_PASS: Final = "plan"

# Takes a plan while its programs are being made.
Show = Callable[[Plan], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The two documents of a compilation, as JSON; the tilings as SVG by group id, none from a service.

    `report` is None where a service's job had only planned yet.

    `executable` is what was made here, `server` and `job` where it lies on a service. `planning_s`: how long this
    process took from reading the model to its mapping on chips, programs and values apart; None on a service.
    """

    plan: bytes
    report: bytes | None
    pictures: Mapping[str, str] = field(default_factory=dict)
    executable: Executable | None = None
    server: str | None = None
    job: str | None = None
    planning_s: float | None = None

    def plan_document(self) -> Plan:
        """The plan as a typed document; raises RequestError if it is of another version of Tessera."""
        return document(self.plan, Plan, self._where())

    def report_document(self) -> Report | None:
        """The report likewise; None while a service still makes it."""
        return None if self.report is None else document(self.report, Report, self._where())

    def _where(self) -> str:
        return "this compilation" if self.job is None else f"job {self.job}"


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
    with ProgressBar(console, source.name) as bar:
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
    parse_assignments(settings)
    options = parse_values(settings)
    uncompiled_model(model)  # before the service is asked anything
    from app.client.client import Client

    with Client(server) as client:
        text = profile_text(profile)
        reference = profile if text is None else client.upload_profile(text).digest
        job = client.submit(model, reference, options)
        job = follow(client, job, model.name, console, show=show, only_plan=only_plan)
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
) -> Job:
    """Show a job's progress until it is final; raises ServiceError if it did not succeed.

    `show` gets the plan as soon as it is known; with `only_plan` the job is left to itself then.
    """
    if not job.final:
        with _cancelling(client, job, console), ProgressBar(console, title) as bar:
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
        try:
            state = client.cancel(job).state
            said = f"job {job.id} on {client.url} is {'being cancelled' if state == 'cancelling' else state}"
        except TesseraError:
            said = f"job {job.id} may go on; cancel it: curl -X POST {client.url}/v1/jobs/{job.id}/cancel"
        console.print(f"interrupted: {said}", soft_wrap=True, highlight=False)
        raise


def write(compiled: Compiled, folder: Path, *, program: bool = False, trace: bool = False) -> list[str]:
    """Write plan.json, report.json and report.html; with `program` the executable, its listing, and its trace if asked.

    The listing has the first and last commands of each segment. Names of what was written: all files or none.
    """
    with whole_files() as fresh:
        folder.mkdir(parents=True, exist_ok=True)
        fresh(folder / PLAN_NAME).write_bytes(compiled.plan)
        fresh(folder / PAGE_NAME).write_text(_page(compiled), encoding="utf-8")
        if compiled.report is not None:
            fresh(folder / REPORT_NAME).write_bytes(compiled.report)
        more = _write_program(compiled, folder, fresh, trace=trace) if program else []
    return [PLAN_NAME, *([] if compiled.report is None else [REPORT_NAME]), PAGE_NAME, *more]


def _page(compiled: Compiled) -> str:
    """Plan and report as one HTML file; that of a service's job is made there, where the pictures are."""
    if compiled.server is not None and compiled.job is not None and compiled.report is not None:
        from app.client.client import Client

        with Client(compiled.server) as client:
            return client.report_page(compiled.job)
    return report_page(compiled.plan_document(), compiled.report_document(), compiled.pictures)


def _write_program(compiled: Compiled, folder: Path, fresh: Callable[[Path], Path], *, trace: bool) -> list[str]:
    from app.simulations.listings import SHORT, lines
    from compiler.program.executable import write_to

    if compiled.server is not None and compiled.job is not None:
        from app.client.client import Client

        with Client(compiled.server) as client:
            if client.job(compiled.job).links.get("executable") is None:
                return []
            client.save_executable(compiled.job, fresh(folder / EXECUTABLE_NAME))
            fresh(folder / LISTING_NAME).write_text(client.listing(compiled.job), encoding="utf-8")
            if trace:
                client.save_trace(compiled.job, fresh(folder / TRACE_NAME))
        return [EXECUTABLE_NAME, LISTING_NAME, *([TRACE_NAME] if trace else [])]
    if compiled.executable is None:
        return []
    with fresh(folder / EXECUTABLE_NAME).open("wb") as file:
        write_to(compiled.executable, file)
    with fresh(folder / LISTING_NAME).open("w", encoding="utf-8") as text:
        text.writelines(f"{line}\n" for line in lines(compiled.executable, SHORT))
    if trace:
        write_trace(compiled.executable, fresh(folder / TRACE_NAME))
    return [EXECUTABLE_NAME, LISTING_NAME, *([TRACE_NAME] if trace else [])]


def write_trace(executable: Executable, path: Path, commands: int | None = None) -> None:
    """Write an executable's trace, of each segment the first commands (None: all)."""
    from compiler.program.timing.trace import trace_of

    with path.open("wb") as file:
        file.writelines(trace_of(executable, limit=commands))


def write_pictures(compiled: Compiled, folder: Path) -> None:
    """Write the picture of each group as an SVG file named after it."""
    with whole_files() as fresh:
        folder.mkdir(parents=True, exist_ok=True)
        for group, text in compiled.pictures.items():
            fresh(folder / f"{group}.svg").write_text(text, encoding="utf-8")
