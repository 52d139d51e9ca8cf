"""The command `tessera` (UI-1)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from app.cli.failures import ExitCode, exit_code_of, show
from compiler.errors import RequestError, TesseraError
from compiler.version import COMPILER_VERSION

cli = typer.Typer(
    name="tessera",
    help="A neural-network compiler: an ONNX file and a hardware profile in, a fusion plan out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ProfileOption = Annotated[str, typer.Option("--profile", "-p", help="Name of a built-in profile, or a file")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="An option of the compilation, key=value")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
StrictFlag = Annotated[bool, typer.Option("--strict", help="An op that would run on the host is an error")]
ServerOption = Annotated[str | None, typer.Option("--server", help="URL of a service to use")]
DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help="Where the service keeps its data")]


def run() -> None:
    """The console script."""
    # Without an interactive debugger's help a traceback is of no use to a user: the block says what to do.
    try:
        cli()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


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
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for plan.json and report.json")] = None,
    strict: StrictFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compile a model for a profile, here or on a service, and show the plan."""
    with failures(as_json=as_json):
        from app.cli import compiling
        from app.cli.plan_table import print_plan

        console = Console(stderr=True, markup=False)
        compiled = compiling.compiled(model, profile, _all_settings(settings, strict), console, server)
        if out is not None:
            compiling.write(compiled, out)
        if as_json:
            sys.stdout.write(compiled.plan.decode() + "\n")
        else:
            print_plan(json.loads(compiled.plan), Console())
            if out is not None:
                Console(markup=False).print(f"wrote {out / 'plan.json'} and {out / 'report.json'}", highlight=False)


@cli.command(name="plan")
def plan_command(
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a zip or tar of one", show_default=False)],
    profile: ProfileOption,
    settings: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for plan.json and report.json")] = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", help="Folder for an SVG of each group's tiles")] = None,
    strict: StrictFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Plan a model and show tiling and price of each group; `--set schedule=FILE` prices a pinned schedule."""
    with failures(as_json=as_json):
        from app.cli import compiling
        from app.cli.plan_table import print_plan

        console = Console(stderr=True, markup=False)
        words = _all_settings(settings, strict)
        if pictures is not None and server is not None:
            raise RequestError(
                "pictures are drawn in this process, not on a service",
                code="invalid_request",
                actual="--pictures with --server",
                hint="Leave out one of the two",
            )
        if server is not None:
            compiled = compiling.compile_on_server(server, model, profile, words, console)
        else:
            compiled = compiling.compile_here(model, profile, words, console, pictures=pictures is not None)
        if out is not None:
            compiling.write(compiled, out)
        if pictures is not None:
            compiling.write_pictures(compiled, pictures)
        if as_json:
            sys.stdout.write(compiled.plan.decode() + "\n")
            return
        print_plan(json.loads(compiled.plan), Console(), detailed=True)
        said = Console(markup=False)
        if out is not None:
            said.print(f"wrote {out / 'plan.json'} and {out / 'report.json'}", highlight=False)
        if pictures is not None:
            said.print(f"wrote {len(compiled.pictures)} pictures to {pictures}", highlight=False)


@cli.command()
def explain(
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a zip or tar of one", show_default=False)],
    profile: ProfileOption,
    settings: SetOption = None,
    group: Annotated[str | None, typer.Option("--group", help="A group (s0.g3) or segment (s0) of the plan")] = None,
    strict: StrictFlag = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say in words how a model is cut and placed: segments, cuts, host nodes, merges; or one group."""
    with failures(as_json=as_json):
        from app.cli import compiling
        from compiler.explain import explain as in_words

        console = Console(stderr=True, markup=False)
        compiled = compiling.compiled(model, profile, _all_settings(settings, strict), console, server)
        text = in_words(compiled.plan_document(), group)
        sys.stdout.write(json.dumps({"explanation": text.splitlines()}) + "\n" if as_json else text)


@cli.command()
def profiles(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """List the hardware profiles."""
    with failures(as_json=as_json):
        rows = _profile_rows(server)
        if as_json:
            sys.stdout.write(json.dumps(rows) + "\n")
            return
        table = Table("profile", "kind", "digest", box=None)
        for row in rows:
            table.add_row(str(row["name"]), "built-in" if row["builtin"] else "user", str(row["digest"])[:16])
        Console().print(table)


@cli.command()
def version() -> None:
    """Print the version of the compiler."""
    sys.stdout.write(COMPILER_VERSION + "\n")


@contextmanager
def failures(*, as_json: bool) -> Iterator[None]:
    """Turn errors into one block on stderr and the exit code."""
    try:
        yield
    except TesseraError as error:
        show(error, as_json=as_json)
        raise typer.Exit(exit_code_of(error)) from None
    except OSError as error:
        show(
            RequestError(f"{error.strerror}: {error.filename}", code="file_error"),
            as_json=as_json,
        )
        raise typer.Exit(ExitCode.USAGE) from None
    except (KeyboardInterrupt, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        show(
            TesseraError(
                "Tessera failed in an unexpected way; this is our fault",
                code="internal_error",
                actual=type(error).__name__,
                hint="Report it with the command you gave",
            ),
            as_json=as_json,
        )
        raise typer.Exit(ExitCode.INTERNAL) from None


def _all_settings(settings: list[str] | None, strict: bool) -> list[str]:
    """The options given, schedules read from their files, with the flag --strict as one of them."""
    from app.cli.inputs import with_schedules

    return [*with_schedules(settings or []), *(["strict=true"] if strict else [])]


def _profile_rows(server: str | None) -> list[dict[str, object]]:
    if server is not None:
        from app.client.client import TesseraClient

        with TesseraClient(server) as client:
            return [
                {"name": profile.name, "digest": profile.digest, "builtin": profile.builtin}
                for profile in client.profiles()
            ]
    from compiler.profile import builtin_names, builtin_profile, profile_digest

    return [
        {"name": name, "digest": profile_digest(builtin_profile(name)), "builtin": True} for name in builtin_names()
    ]


def _light_model(name: str) -> Path:
    """A network that comes with the onnx package."""
    package = find_spec("onnx")
    if package is None or package.origin is None:
        raise RequestError("the package onnx is not installed", code="no_onnx")
    return Path(package.origin).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
