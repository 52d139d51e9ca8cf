"""The commands that run several compilations: `tessera sweep`, `size` and `compare` (UI-1, SIM-5)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.cli.failures import ExitCode, failures
from app.cli.shared_parameters import (
    JsonFlag,
    ProfileOption,
    ServerOption,
    SetOption,
    StrictFlag,
    all_settings,
    check_arguments,
    file_to_write,
    progress_console,
)
from app.outputs import whole_files

ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file, or a zip or tar of one", show_default=False)]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, max=256, help="Processes to compile in [as many as processors]")
]


def sweep(
    model: ModelArgument,
    profiles: Annotated[list[str], typer.Option("--profile", "-p", help="A built-in profile, or a file; repeatable")],
    grid: Annotated[
        list[str] | None, typer.Option("--grid", help="A field's values, such as nram=128KiB,256KiB; repeatable")
    ] = None,
    settings: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file for sweep.json")] = None,
    strict: StrictFlag = False,
    workers: WorkersOption = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compile a model for each profile and each combination of values, and show a table and its Pareto front.

    Ctrl-C keeps the finished points. Outputs are not verified unless `--set verify=values` is given.
    """
    with failures(as_json=as_json):
        file_to_write(out)
        words = all_settings(settings, strict)
        check_arguments(model, profiles, words, server=server)
        from app.sweeps.grid import parse_words

        varied = parse_words(grid or [])
        from app.cli.sweep_table import print_sweep
        from app.cli.sweeping import Swept, raise_unless_any, sweeper
        from app.sweeps.report import sweep_json

        swept = Swept(model=model, profiles=profiles, settings=words)
        with sweeper(swept, progress_console(as_json), server=server, workers=workers) as sweeps:
            report = sweeps.run(varied)
        if as_json:
            sys.stdout.write(sweep_json(report).decode())
        else:
            print_sweep(report, Console(markup=False, highlight=False))
        if out is not None and any(point.state != "cancelled" for point in report.points):
            with whole_files() as fresh:
                fresh(out).write_bytes(sweep_json(report))
        if report.state == "cancelled":
            raise typer.Exit(ExitCode.INTERRUPTED)
        raise_unless_any(report)


def size(
    model: ModelArgument,
    profile: ProfileOption,
    field: Annotated[str, typer.Option("--field", help="A field of the profile, such as sram", show_default=False)],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="At most this latency (2ms), DRAM traffic (3MiB; 1.05xminimum) or energy (5mJ)",
            show_default=False,
        ),
    ],
    low: Annotated[str | None, typer.Option("--from", help="The least value [a 16th of the profile's]")] = None,
    high: Annotated[str | None, typer.Option("--to", help="The largest value [16 times the profile's]")] = None,
    granularity: Annotated[
        str | None, typer.Option("--granularity", help="Values are multiples of this [a 64th of the profile's]")
    ] = None,
    settings: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file for size.json")] = None,
    strict: StrictFlag = False,
    workers: WorkersOption = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the smallest value of a profile field that reaches a target, and show the curve.

    A target in bytes is DRAM traffic, not the size of a memory. Doublings from --from to --to are tried, then halvings
    below the first value that reaches the target; a target below the minimum is refused after two. Plans minimise
    the target's own figure unless `--set objective=` names another. Ctrl-C keeps the finished values.
    """
    with failures(as_json=as_json):
        file_to_write(out)
        words = all_settings(settings, strict)
        check_arguments(model, [profile], words, server=server)
        from app.sweeps.target import parse_target
        from compiler.profile.fields import field_named

        aim, varied = parse_target(target), field_named(field)
        from app.cli.sizing import raise_unless_reached, sized, with_objective
        from app.cli.sweep_table import print_size
        from app.cli.sweeping import Swept, sweeper
        from app.sweeps.sizing import size_json

        words = with_objective(words, aim)
        swept = Swept(model=model, profiles=[profile], settings=words)
        with sweeper(swept, progress_console(as_json), server=server, workers=workers) as sweeps:
            report = sized(sweeps, varied, aim, target, low=low, high=high, granularity=granularity)
        if out is not None:
            with whole_files() as fresh:
                fresh(out).write_bytes(size_json(report))
        if as_json:
            sys.stdout.write(size_json(report).decode())
        else:
            print_size(report, Console(markup=False, highlight=False))
        if report.state == "cancelled":
            raise typer.Exit(ExitCode.INTERRUPTED)
        raise_unless_reached(report)


def compare(
    a: Annotated[str, typer.Argument(help="A folder of `compile --out`, a plan.json, or a job", show_default=False)],
    b: Annotated[str, typer.Argument(help="Another of these", show_default=False)],
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show two compilations side by side, in total and per group; with --server two jobs."""
    with failures(as_json=as_json):
        from app.cli.side_by_side import compared_here, compared_on_server, print_side_by_side
        from app.comparisons.compare import comparison_json

        document = compared_here(Path(a), Path(b)) if server is None else compared_on_server(server, a, b)
        if as_json:
            sys.stdout.write(comparison_json(document).decode())
            return
        print_side_by_side(document, Console(markup=False, highlight=False))
