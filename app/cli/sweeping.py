"""Sweeps from the command line: in processes of the command, or on a service (SIM-5)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec
from rich.console import Console

from app.cli import compiling
from app.cli.console_script import heard
from app.cli.point_pool import Computed, PointPool
from app.cli.progress import ProgressBar
from app.client.client import Client
from app.input_files import load_profile, open_model, profile_text
from app.jobs.records import State
from app.sweeps.figures import Figures
from app.sweeps.grid import Grid, Point, points_of
from app.sweeps.report import PointReport, SweepHead, SweepReport, sweep_report
from compiler.amounts import count_text
from compiler.errors import InternalError, ProfileError, RequestError, TesseraError, printable
from compiler.option_words import parse_assignments
from compiler.profile import Profile, profile_digest
from compiler.report.plan import ModelRef, ProfileRef
from compiler.version import COMPILER_VERSION

# Codes of our own failures, as opposed to the profiles', if no point succeeds.
_OURS = frozenset(("internal_error", "worker_lost"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The request: a model, profiles by name or file, and options; by default values are not verified."""

    model: Path
    profiles: Sequence[str]
    settings: Sequence[str]

    @property
    def words(self) -> list[str]:
        """The options as words, with `verify=none` unless they say otherwise."""
        checked = any(word.partition("=")[0] == "verify" for word in self.settings)
        return [*self.settings, *(() if checked else ("verify=none",))]


class Sweeper(Protocol):
    """Runs sweeps; use as a context manager. Ctrl-C ends a sweep, which is then `cancelled`."""

    def run(self, grid: Grid) -> SweepReport:
        """The sweep of the profiles over a grid."""

    def profiles(self) -> list[Profile]:
        """The profiles themselves."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def sweeper(swept: Swept, console: Console, *, server: str | None, workers: int | None) -> Sweeper:
    """Sweeps here, on `workers` processes (by default one per processor), or on a service."""
    if server is None:
        return HereSweeper(swept, console, workers or len(os.sched_getaffinity(0)))
    if workers is not None:
        raise RequestError(
            "a service has workers of its own",
            code="invalid_request",
            actual="--workers with --server",
            hint="Leave out one of the two",
        )
    return ServerSweeper(swept, console, server)


@dataclass(slots=True)
class HereSweeper:
    """Sweeps in processes of this command, which stay for the next sweep."""

    swept: Swept
    console: Console
    workers: int
    _pool: PointPool = field(init=False)

    def __post_init__(self) -> None:
        self._pool = PointPool(self.swept.model, self.swept.words, self.workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def profiles(self) -> list[Profile]:
        """The profiles themselves."""
        return [load_profile(name) for name in self.swept.profiles]

    def run(self, grid: Grid) -> SweepReport:
        """The sweep of the profiles over a grid."""
        options = parse_assignments(self.swept.words)
        profiles = self.profiles()
        points = points_of(profiles, grid)
        source = open_model(self.swept.model)
        head = SweepHead(
            model=ModelRef(name=source.name, sha256=source.sha256),
            profiles=tuple(ProfileRef(name=profile.name, digest=profile_digest(profile)) for profile in profiles),
            grid=grid,
            options=msgspec.to_builtins(options),
            compiler_version=COMPILER_VERSION,
        )
        rows, state = self._rows(points)
        return sweep_report(head, state, rows)

    def _rows(self, points: Sequence[Point]) -> tuple[list[PointReport], State]:
        """The rows, and the state of the sweep; rows cut off by Ctrl-C are cancelled."""
        rows = [_row(point) for point in points]
        valid = [(number, point.profile) for number, point in enumerate(points) if isinstance(point.profile, Profile)]
        done = len(points) - len(valid)
        try:
            with ProgressBar(self.console, self.swept.model.name) as bar:
                bar.points(done, len(points))
                for index, computed in self._pool.run([profile for _, profile in valid]):
                    number = valid[index][0]
                    rows[number] = _row(points[number], computed)
                    done += 1
                    bar.points(done, len(points))
        except KeyboardInterrupt:
            heard()
            return rows, "cancelled"
        return rows, "succeeded" if any(row.figures is not None for row in rows) else "failed"


@dataclass(slots=True)
class ServerSweeper:
    """Sweeps as jobs of a service; model and profile files are sent once."""

    swept: Swept
    console: Console
    server: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _client: Client = field(init=False)
    _model: str = field(init=False)
    _profiles: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        parse_assignments(self.swept.words)
        with ExitStack() as stack:
            self._client = stack.enter_context(Client(self.server))
            for name in self.swept.profiles:
                text = profile_text(name)
                self._profiles.append(name if text is None else self._client.upload_profile(text).digest)
            self._model = self._client.upload_model(self.swept.model).id
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def profiles(self) -> list[Profile]:
        """The profiles themselves."""
        return [self._client.profile(name) for name in self._profiles]

    def run(self, grid: Grid) -> SweepReport:
        """The sweep of the profiles over a grid; Ctrl-C cancels it there."""
        options = compiling.parse_values(self.swept.words)
        values = {varied.field: varied.values for varied in grid}
        job = self._client.sweep(self._model, self._profiles, values, options)
        try:
            with ProgressBar(self.console, self.swept.model.name) as bar:
                for event in self._client.follow(job.id):
                    bar.points(event.step, event.total)
        except KeyboardInterrupt:
            heard()
            self._client.cancel(job.id)
            for _ in self._client.follow(job.id):  # the last worker stops within seconds
                pass
        return msgspec.json.decode(self._client.sweep_table(job.id), type=SweepReport)


def raise_unless_any(report: SweepReport) -> None:
    """Raises InternalError or ProfileError with the first point's problem if no point of a sweep succeeded."""
    if report.state != "failed":
        return
    raise no_point_succeeded(report.points, "sweep")


def no_point_succeeded(points: Sequence[PointReport], stage: str) -> TesseraError:
    """The error about points that all failed: the first one's problem, and what its hint says to do."""
    problem = next(point.problem for point in points if point.problem is not None)
    kind: type[TesseraError] = InternalError if problem["code"] in _OURS else ProfileError
    return kind(
        f"none of {count_text(len(points), 'point')} succeeded: "
        + printable(str(problem.get("message") or problem.get("detail"))),
        code="no_point_succeeded",
        stage=stage,
        actual=problem["code"],
        limit=problem.get("limit"),
        hint=str(problem.get("hint") or "See the reason of each point in the table, or with --json"),
    )


def _row(point: Point, computed: Computed | None = None) -> PointReport:
    """The row of a point, without results if it was cut off or cannot be computed."""
    state: State = "cancelled"
    figures, problem = None, None
    if isinstance(point.profile, TesseraError):
        state, problem = "failed", point.profile.to_dict()
    elif computed is not None and computed.figures is not None:
        state, figures = "succeeded", msgspec.json.decode(computed.figures, type=Figures)
    elif computed is not None:
        state, problem = "failed", computed.problem
    return PointReport(
        profile=point.base.name, values=dict(point.values), job=None, state=state, figures=figures, problem=problem
    )
