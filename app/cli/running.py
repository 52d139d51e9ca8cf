"""Running and listing executables from the command line: in this process, or on a service (UI-1)."""

from __future__ import annotations

import hashlib
import io
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from app.cli import compiling, shapes
from app.cli.progress import ProgressBar
from app.client.client import Client
from app.client.output_folder import write_trace
from app.input_files import is_executable, load_profile, named_profile, open_model, uncompiled_model
from app.limits import bounded, refuse_decided
from app.outputs import whole_files
from app.simulations.arrays import Array, read_arrays, write_arrays
from app.simulations.listings import MAX_STATEMENTS, Wanted, lines
from app.simulations.report import SimulationReport, simulation_json
from app.simulations.simulate import Judge, Simulation, Watcher, checked_read, proved_program, run_and_describe
from app.units.unit_folder import UnitFolder
from compiler.errors import InternalError, ModelError, RequestError, printable
from compiler.option_words import parse_assignments
from compiler.options import Options
from compiler.program.executable import ChipSegment, Executable, check_profile, write
from compiler.report.plan import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of the command: a model to compile for a profile, or a compiled file; its folder of shape units."""

    path: Path
    profile: str | None
    settings: Sequence[str]
    units: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The inputs: an .npz file or a seed to generate them, and their `shapes` if the model takes several."""

    inputs: Path | None
    seed: int
    shapes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a run: the report, and the outputs as .npz."""

    report: SimulationReport
    outputs: bytes


def run_here(target: Target, feed: Feed, console: Console, *, check: bool, against: Path | None) -> Ran:
    """Runs in this process; raises InternalError or ModelError if outputs differ from those of the model."""
    options = _options(target)
    given = _given(feed)
    if feed.shapes and is_executable(target.path):
        raise _no_shapes()
    with bounded(options.time_limit_s, options.memory_limit_bytes), shapes.as_package(target.path):
        target = _with_dims(target, feed.shapes, given)
        options = _options(target)
        if shapes.is_package(target.path) or shapes.has_ranges(options):
            of = shapes.shaped(target.path, target.profile, options, console, UnitFolder.of(target.units))
            executable, digest = shapes.executable_at(of, shapes.dims_for(of, feed.shapes, given))
            given, report = shapes.without_unread(of, given), None
        else:
            executable, digest, report = _executable(target, console)
            given = _without_unread(target.path, executable, given)
        judge = None
        if against is not None:
            judge = Judge(source=open_model(against), limits={})
        elif check and report is not None:
            judge = _judge(target.path, report)
        elif check and not is_executable(target.path) and not shapes.is_package(target.path):
            judge = Judge(source=open_model(target.path), limits={})
        elif check:
            raise _no_judge(target.path)
        with ProgressBar(console, target.path.name) as bar:
            watcher = Watcher(bar.phase, bar.cancelled)
            found = run_and_describe(executable, digest, given=given, seed=feed.seed, judge=judge, watcher=watcher)
    return _ran(found)


def run_on_server(server: str, target: Target, feed: Feed, console: Console, *, check: bool) -> Ran:
    """Runs on a service: the executable of a compilation there, compared with its model, or an executable file."""
    _options(target)
    if check and is_executable(target.path):
        raise _no_judge(target.path)
    with Client(server) as client:
        if is_executable(target.path):
            job = client.simulate(executable=target.path, inputs=feed.inputs, seed=feed.seed)
        else:
            target = _with_dims(target, (), _given(feed))
            compiled = _compiled_on_server(server, target, console)
            job = client.simulate(job=compiled, inputs=feed.inputs, seed=feed.seed)
        job = compiling.follow(client, job, target.path.name, console)
        report = msgspec.json.decode(client.document(job, "report"), type=SimulationReport)
        return Ran(report=report, outputs=client.outputs(job.id))


def listing_here(target: Target, wanted: Wanted, console: Console) -> Iterator[str]:
    """The lines of the listing of a model's program, or of an executable file."""
    options = _options(target)
    with bounded(options.time_limit_s, options.memory_limit_bytes):
        executable, _, _ = _executable(_unchecked(target), console)
    return lines(executable, wanted)


def listing_on_server(server: str, target: Target, wanted: Wanted, console: Console) -> Iterator[str]:
    """The lines of the listing of a model's program as a service gives it."""
    _refuse_executable(target, "listed")
    compiled = _compiled_on_server(server, _unchecked(target), console)
    if wanted.head is None and wanted.tail is None:
        wanted = replace(wanted, head=MAX_STATEMENTS)  # the most that one answer may hold
    with Client(server) as client:
        text = client.listing(compiled, group=wanted.group, head=wanted.head, tail=wanted.tail, summary=wanted.summary)
    return iter(text.splitlines())


def trace_here(target: Target, path: Path, commands: int | None, console: Console) -> None:
    """Writes the trace of a model's programs, or of an executable file: the first commands of each (None: all)."""
    options = _options(target)
    with bounded(options.time_limit_s, options.memory_limit_bytes):
        executable, _, _ = _executable(_unchecked(target), console)
        for segment in executable.segments:
            if isinstance(segment, ChipSegment):
                proved_program(executable, segment)
        with whole_files() as fresh:
            write_trace(executable, fresh(path), commands)


def trace_on_server(server: str, target: Target, path: Path, commands: int | None, console: Console) -> None:
    """Write the trace of a model's program as a service gives it."""
    _refuse_executable(target, "traced")
    compiled = _compiled_on_server(server, _unchecked(target), console)
    with Client(server) as client:
        client.save_trace(compiled, path, commands=commands)


def raise_unless_equal(ran: Ran, *, ours: bool) -> None:
    """Raises InternalError (if we compiled the model, else ModelError) for an output beyond its limit.

    Raises RequestError if nothing could be compared.
    """
    comparison = ran.report.comparison
    if comparison is None or comparison.holds is None:
        raise RequestError(
            "the outputs could not be compared",
            code="not_compared",
            stage="compare",
            actual="the model is not known" if comparison is None else comparison.reason,
            hint="Name the ONNX file with --against, or leave out --check",
        )
    for output in comparison.outputs:
        if not output.holds:
            kind = InternalError if ours else ModelError
            raise kind(
                f"output {printable(output.tensor, 120)!r} is not what the model computes",
                code="values_differ",
                stage="compare",
                actual="infinite" if output.max_error is None else output.max_error,
                limit=output.limit,
                hint="This is a defect of Tessera" if ours else "Name the model that the executable was made of",
            )


def _options(target: Target) -> Options:
    """The options; a compiled file accepts only limits."""
    options = parse_assignments(target.settings)
    if is_executable(target.path):
        refuse_decided("an executable", target.settings)
    if shapes.is_package(target.path):
        refuse_decided("a package", target.settings)
    return options


def _with_dims(target: Target, words: Sequence[str], given: Mapping[str, Array] | None) -> Target:
    """The settings with values of option dims taken from --shape or from given inputs (IMPORT-10)."""
    return replace(target, settings=shapes.settings_with_dims(target.path, target.settings, words, given))


def _unchecked(target: Target) -> Target:
    """The settings without the value check, which a listing does not need."""
    if is_executable(target.path) or any(word.startswith("verify=") for word in target.settings):
        return target
    return Target(path=target.path, profile=target.profile, settings=[*target.settings, "verify=none"])


def _refuse_executable(target: Target, done: str) -> None:
    """Raises RequestError for an executable file, which a service does not take for this command."""
    if is_executable(target.path):
        raise RequestError(
            f"an executable file is {done} here, not on a service",
            code="invalid_request",
            actual="--server with an executable",
            hint="Leave out --server",
        )


def _given(feed: Feed) -> Mapping[str, Array] | None:
    if feed.inputs is None:
        return None
    with feed.inputs.open("rb") as file:
        return read_arrays(file)


def _without_unread(
    path: Path, executable: Executable, given: Mapping[str, Array] | None
) -> Mapping[str, Array] | None:
    """The input values that an executable needs, without inputs that its model declares but never reads."""
    needed = {value.name for value in executable.inputs}
    if given is None or needed.issuperset(given) or is_executable(path):
        return given
    from compiler.frontend.read import ReadModel

    declared = {value.name for value in ReadModel().run(open_model(path)).proto.graph.input}
    return {name: array for name, array in given.items() if name in needed or name not in declared}


def _executable(target: Target, console: Console) -> tuple[Executable, str, Report | None]:
    """The executable, its digest, and the report of its compilation, None for an executable file."""
    if is_executable(target.path):
        with target.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        executable = checked_read(data)
        if target.profile is not None:
            check_profile(executable, load_profile(target.profile))
        return executable, digest, None
    compilation = compiling.compilation_here(target.path, _profile(target), target.settings, console)
    if compilation.executable is None:
        raise RequestError(
            "the profile describes what programs cannot do, so there is no executable",
            code="no_executable",
            actual=compilation.report.values.reason,
            hint="`tessera plan` shows its plan; for an executable change the profile or option precision",
        )
    hashed = hashlib.sha256()
    for piece in write(compilation.executable):
        hashed.update(piece)
    return compilation.executable, hashed.hexdigest(), compilation.report


def _judge(model: Path, report: Report) -> Judge:
    """The model with the limits that its compilation stated; without any, the limits of each type apply."""
    # widened limits hold only for the inputs of the compilation's own check
    limits = {output.tensor: output.limit for output in report.values.outputs if output.verdict == "plain"}
    return Judge(source=open_model(model), limits=limits, skipped=frozenset(report.values.skipped))


def _compiled_on_server(server: str, target: Target, console: Console) -> str:
    compiled = compiling.compile_on_server(server, target.path, _profile(target), target.settings, console)
    assert compiled.job is not None
    return compiled.job


def _profile(target: Target) -> str:
    uncompiled_model(target.path)
    return named_profile(target.profile)


def _no_judge(path: Path) -> RequestError:
    kind = "a package" if shapes.is_package(path) else "an executable"
    return RequestError(
        f"{kind} does not hold its model, so there is nothing to compare with",
        code="invalid_request",
        actual=f"--check with {kind}",
        hint="Name the model: --against MODEL",
    )


def _no_shapes() -> RequestError:
    return RequestError(
        "an executable runs at the shapes that it was compiled for",
        code="invalid_request",
        actual="--shape with an executable",
        hint="Leave out --shape, or name the model or a package of it",
    )


def _ran(found: Simulation) -> Ran:
    outputs = io.BytesIO()
    write_arrays(outputs, found.outputs)
    return Ran(report=found.report, outputs=outputs.getvalue())


def report_json(ran: Ran) -> dict[str, Any]:
    """The report as plain values."""
    values: dict[str, Any] = msgspec.json.decode(simulation_json(ran.report))
    return values
