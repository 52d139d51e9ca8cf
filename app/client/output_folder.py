"""The files of a compilation: documents, report page, executable, listing, trace, pictures (`--out`, `--pictures`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from app.client.document import document
from app.input_files import EXECUTABLE, PAGE, PLAN, REPORT, kind_of
from app.outputs import check_folder, whole_files
from app.report_page.page import FILE_NAME as PAGE_NAME
from app.report_page.page import report_page
from app.simulations.traces import FILE_NAME as TRACE_NAME
from compiler.errors import RequestError, printable
from compiler.report.plan import Plan, Report

if TYPE_CHECKING:
    from compiler.program.executable import Executable

PLAN_NAME: Final = "plan.json"
REPORT_NAME: Final = "report.json"
EXECUTABLE_NAME: Final = "executable.tsx"
LISTING_NAME: Final = "listing.txt"
_FILE_NAMES: Final = (PLAN_NAME, REPORT_NAME, PAGE_NAME, EXECUTABLE_NAME, LISTING_NAME, TRACE_NAME)

# What these files are if a compilation wrote them.
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {PLAN_NAME: PLAN, REPORT_NAME: REPORT, PAGE_NAME: PAGE, EXECUTABLE_NAME: EXECUTABLE}
)


def check_output_folder(folder: Path | None) -> None:
    """Raises RequestError if the files cannot be written to a folder, or files there are not of a compilation."""
    check_folder(folder, _FILE_NAMES)
    if folder is None:
        return
    there = [name for name in _FILE_NAMES if (folder / name).is_file() and (folder / name).stat().st_size]
    for name in there:
        is_ours = kind_of(folder / name) == _KINDS[name] if name in _KINDS else PLAN_NAME in there
        if not is_ours:
            where = printable(str(folder / name), 200)
            raise RequestError(
                f"{where} was not written by Tessera and would be overwritten",
                code="file_exists",
                actual=where,
                limit="a new or empty folder, or one of an earlier --out",
                hint="Give another folder with --out, or move the file away",
            )


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


def write(compiled: Compiled, folder: Path, *, program: bool = False, trace: bool = False) -> list[str]:
    """Write plan.json, report.json and report.html; with `program` the executable, its listing, and its trace if asked.

    The listing has the first and last statements of each segment. Names of what was written: all files or none.
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
