"""The command `tessera` (UI-1)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.cli import exploring, keys, planning, profiles, quantising, store, table_commands, units
from app.cli.console_script import run as run  # earlier installations' console scripts name it here
from app.cli.failures import failures
from app.cli.shared_parameters import (
    CsvFlag,
    DataDirOption,
    InputsOption,
    JsonFlag,
    NoVerifyFlag,
    ProfileOfTarget,
    ProfileOption,
    SeedOption,
    ServerOption,
    SetOption,
    ShapeOption,
    StrictFlag,
    UnitsOption,
    WideFlag,
    all_settings,
    check_arguments,
    compilation_to_write,
    excluding,
    file_to_write,
    progress_console,
)
from app.cli.usage import JsonUsage
from app.input_files import existing_arrays, existing_executable, uncompiled_model
from app.outputs import whole_files
from compiler.errors import RequestError
from compiler.option_words import parse_assignments
from compiler.version import COMPILER_VERSION

if TYPE_CHECKING:
    from app.cli.running import Ran


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(COMPILER_VERSION + "\n")
        raise typer.Exit


cli = typer.Typer(
    name="tessera",
    cls=JsonUsage,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
cli.command()(planning.plan)
cli.command()(planning.explain)
cli.command()(exploring.sweep)
cli.command()(exploring.size)
cli.command()(exploring.compare)
cli.command()(quantising.quantise)
cli.command()(table_commands.table)
cli.command()(table_commands.package)
cli.command()(table_commands.loader)
cli.add_typer(profiles.cli, name="profiles")
cli.add_typer(keys.cli, name="keys")
cli.add_typer(store.cli, name="store")
cli.add_typer(units.cli, name="units")


@cli.callback()
def tessera(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """A neural-network compiler: turns an ONNX file and a hardware profile into a fusion plan and programs."""


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for any that is free [8080]", min=0, max=65535)] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Start the service: Redis, a worker and the API, until Ctrl-C."""
    with failures(as_json=False):
        from app.cli.serving import serve as start

        start(host, port, data_dir)


@cli.command()
def demo() -> None:
    """Start the service, compile a real network on it, show the plan and stop."""
    with failures(as_json=False):
        from app.cli.serving import demo as show_demo

        show_demo(_light_model("light_resnet50"), "cluster4x4")


@cli.command(name="compile")
def compile_command(
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a zip or tar of one", show_default=False)],
    profile: ProfileOption,
    settings: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for plan, report, executable and listing")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Also write a trace for Perfetto to --out")] = False,
    strict: StrictFlag = False,
    no_verify: NoVerifyFlag = False,
    wide: WideFlag = False,
    as_csv: CsvFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compile a model for a profile, here or on a service: show the plan, then prove, simulate and verify it.

    `--json` prints the plan, with the report (verification, programs, throughput) in its field `report`.
    """
    with failures(as_json=as_json):
        from app.cli import compiling
        from app.client.output_folder import write

        words = all_settings(settings, strict, no_verify=no_verify)
        excluding({"--json": as_json, "--csv": as_csv})
        check_arguments(model, [profile], words, server=server)
        if trace and out is None:
            raise RequestError(
                "a trace needs a folder", code="invalid_request", actual="--trace", hint="Give --out DIR"
            )
        compilation_to_write(out)
        from app.printing.plan_table import PlanFirst, groups_csv

        console = progress_console(as_json)
        verifies = not parse_assignments(words).unverified
        table = PlanFirst(Console(markup=False, highlight=False), wide=wide, verifies=verifies)
        for_people = not (as_json or as_csv)
        found = compiling.compiled(model, profile, words, console, server, show=table.show if for_people else None)
        if as_json:
            report = None if found.report is None else json.loads(found.report)
            sys.stdout.write(json.dumps({**json.loads(found.plan), "report": report}, ensure_ascii=False) + "\n")
        elif as_csv:
            sys.stdout.write(groups_csv(found.plan_document()))
        else:
            table.finish(found.plan_document(), found.report_document())
        if out is not None:  # after the output: a disk that is full takes the files, not the result
            written = write(found, out, program=True, trace=trace)
            if for_people:
                Console(markup=False, highlight=False).print(f"Wrote {', '.join(written)} to {out}", soft_wrap=True)


@cli.command(name="run")
def run_command(
    target: Annotated[
        Path, typer.Argument(help="An ONNX file, or an executable or a package of one", show_default=False)
    ],
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    inputs: InputsOption = None,
    outputs: Annotated[Path | None, typer.Option("--outputs", help="An .npz file to write the outputs to")] = None,
    seed: SeedOption = None,
    shapes: ShapeOption = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the outputs with the model on ONNX Runtime")] = False,
    against: Annotated[
        Path | None, typer.Option("--against", help="Compare the outputs of what was compiled with this ONNX file")
    ] = None,
    strict: StrictFlag = False,
    no_verify: NoVerifyFlag = False,
    server: ServerOption = None,
    units: UnitsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a model (compiled on the way), executable or package on given or made-up inputs, and show its outputs."""
    with failures(as_json=as_json):
        file_to_write(outputs)
        ran = _ran(
            target,
            profile,
            all_settings(settings, strict, no_verify=no_verify),
            inputs,
            seed,
            server,
            shapes=shapes or (),
            check=check,
            against=against,
            units=units,
            as_json=as_json,
        )
        from app.cli import running
        from app.printing.run_table import print_outputs

        console = Console(markup=False, highlight=False)
        if as_json:
            sys.stdout.write(json.dumps(running.report_json(ran)) + "\n")
        else:
            print_outputs(ran.report, console)
        if outputs is not None:
            with whole_files() as fresh:
                fresh(outputs).write_bytes(ran.outputs)
            if not as_json:
                console.print(f"Wrote {outputs}", soft_wrap=True)
        if check or against is not None:
            running.raise_unless_equal(ran, ours=against is None)


@cli.command()
def simulate(
    executable: Annotated[Path, typer.Argument(help="An executable that was compiled", show_default=False)],
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    inputs: InputsOption = None,
    seed: SeedOption = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Prove each program of an executable safe, run it, and show its inputs and outputs (no timing)."""
    with failures(as_json=as_json):
        existing_executable(executable)
        ran = _ran(executable, profile, all_settings(settings, strict=False), inputs, seed, server, as_json=as_json)
        from app.cli import running
        from app.printing.run_table import print_outputs, print_segments

        if as_json:
            sys.stdout.write(json.dumps(running.report_json(ran)) + "\n")
            return
        console = Console(markup=False, highlight=False)
        print_segments(ran.report, console)
        print_outputs(ran.report, console)


@cli.command()
def listing(
    target: Annotated[
        Path, typer.Argument(help="An ONNX file, or an executable that was compiled", show_default=False)
    ],
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    group: Annotated[str | None, typer.Option("--group", help="Commands of this group (s0.g3) alone")] = None,
    head: Annotated[int | None, typer.Option("--head", min=0, help="First statements of each segment [all]")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Last statements of each segment [all]")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Counts and bytes in place of statements")] = False,
    strict: StrictFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the disassembly of a model (compiled on the way) or of an executable."""
    with failures(as_json=as_json):
        words = all_settings(settings, strict)
        check_arguments(target, [profile], words, server=server, is_model=False)
        from app.cli import running
        from app.simulations.listings import Wanted

        console = progress_console(as_json)
        wanted = Wanted(group=group, head=head, tail=tail, summary=summary)
        meant = running.Target(path=target, profile=profile, settings=words)
        if server is None:
            lines = running.listing_here(meant, wanted, console)
        else:
            lines = running.listing_on_server(server, meant, wanted, console)
        if as_json:
            sys.stdout.write(json.dumps({"listing": list(lines)}) + "\n")
            return
        sys.stdout.writelines(f"{line}\n" for line in lines)


@cli.command()
def trace(
    target: Annotated[
        Path, typer.Argument(help="An ONNX file, or an executable that was compiled", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, for ui.perfetto.dev")],
    profile: ProfileOfTarget = None,
    settings: SetOption = None,
    commands: Annotated[
        int | None, typer.Option("--commands", min=0, help="The first so many commands of each segment [all]")
    ] = None,
    strict: StrictFlag = False,
    server: ServerOption = None,
) -> None:
    """Simulate the timing of a model or an executable and write a trace for Perfetto."""
    with failures(as_json=False):
        file_to_write(out)
        words = all_settings(settings, strict)
        check_arguments(target, [profile], words, server=server, is_model=False)
        from app.cli import running

        meant = running.Target(path=target, profile=profile, settings=words)
        console = progress_console(as_json=False)
        if server is None:
            running.trace_here(meant, out, commands, console)
        else:
            running.trace_on_server(server, meant, out, commands, console)
        Console(markup=False, highlight=False).print(f"wrote {out}")


@cli.command()
def options(
    name: Annotated[str | None, typer.Argument(help="One option alone", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the options that --set takes: the values of each, the default first, and what it means."""
    with failures(as_json=as_json):
        from app.cli.option_help import print_options

        print_options(name, as_json=as_json)


@cli.command()
def version() -> None:
    """Print the version of the compiler."""
    sys.stdout.write(COMPILER_VERSION + "\n")


def _ran(
    path: Path,
    profile: str | None,
    settings: list[str],
    inputs: Path | None,
    seed: int | None,
    server: str | None,
    *,
    shapes: Sequence[str] = (),
    check: bool = False,
    against: Path | None = None,
    units: Path | None = None,
    as_json: bool,
) -> Ran:
    """Runs here or on a service; raises RequestError for options that exclude each other."""
    excluding({"--inputs": inputs is not None, "--seed": seed is not None})
    excluding({"--inputs": inputs is not None, "--shape": bool(shapes)})
    excluding({"--shape": bool(shapes), "--server": server is not None})
    excluding({"--check": check, "--against": against is not None})
    excluding({"--against": against is not None, "--server": server is not None})
    excluding({"--units": units is not None, "--server": server is not None})
    if inputs is not None:
        existing_arrays(inputs)
    if against is not None:
        uncompiled_model(against)
    check_arguments(path, [profile], settings, server=server, is_model=False, shapes=shapes)
    from app.cli import running
    from app.simulations.inputs import DEFAULT_SEED

    target = running.Target(path=path, profile=profile, settings=settings, units=units)
    console = progress_console(as_json)
    feed = running.Feed(inputs=inputs, seed=DEFAULT_SEED if seed is None else seed, shapes=shapes)
    if server is not None:
        return running.run_on_server(server, target, feed, console, check=check)
    return running.run_here(target, feed, console, check=check, against=against)


def _light_model(name: str) -> Path:
    """A network that comes with the onnx package."""
    package = find_spec("onnx")
    if package is None or package.origin is None:
        raise RequestError("the package onnx is not installed", code="no_onnx", hint="Install it with pip install onnx")
    return Path(package.origin).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
