"""Parameters that several commands have in common, and their checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.cli.console_script import outlive_reader
from app.client.service_url import service_url
from app.input_files import (
    is_compiled,
    load_profile,
    named_profile,
    profile_text,
    uncompiled_model,
    with_schedules,
)
from app.outputs import check_file, check_folder
from compiler.errors import RequestError
from compiler.option_words import parse_assignments
from compiler.options import Options

if TYPE_CHECKING:
    from app.client.client import Client

ProfileOption = Annotated[str, typer.Option("--profile", "-p", help="Name of a built-in profile, or a file")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An option of the compilation, such as objective=energy; repeatable. `tessera options` shows what each"
        " takes and means: " + ", ".join(sorted(Options.__struct_fields__)),
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
CsvFlag = Annotated[bool, typer.Option("--csv", help="The groups as comma-separated values, raw numbers")]
WideFlag = Annotated[
    bool, typer.Option("--wide", help="All columns and whole node names, as when the output goes to a pipe")
]
NoVerifyFlag = Annotated[bool, typer.Option("--no-verify", help="Compile without the value check: verify=none")]
ProfileOfTarget = Annotated[
    str | None, typer.Option("--profile", "-p", help="Of a model: a built-in profile, or a file", show_default=False)
]
InputsOption = Annotated[Path | None, typer.Option("--inputs", help="An .npz file; its keys are names of inputs")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Of made-up inputs [5]")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", help="An input's shape where dimensions are left open, such as x:1x3x225x199; repeatable"),
]
UnitsOption = Annotated[
    Path | None,
    typer.Option(
        "--units",
        help="A folder of shape units, as `tessera units pull` makes: for packages without units, and for compilations"
        " of ranges, which add to it [TESSERA_UNITS]",
    ),
]
StrictFlag = Annotated[bool, typer.Option("--strict", help="An op that would run on the host is an error")]
ServerOption = Annotated[str | None, typer.Option("--server", help="URL of a service to use")]
DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help="Where the service keeps its data")]


@contextmanager
def needed_service(server: str | None) -> Iterator[Client]:
    """The service of a command that cannot do without; raises RequestError if none is given, and as `Client`."""
    from app.client.client import Client
    from app.client.errors import UnreachableError

    if server is None:
        raise RequestError(
            "this is a list of a service",
            code="invalid_request",
            actual="no --server",
            limit="--server URL",
            hint="Give the URL of a service, such as --server http://localhost:8080",
        )
    try:
        with Client(server) as client:
            yield client
    except UnreachableError as error:
        raise UnreachableError(
            error.message, actual=error.actual, hint="Start one with `tessera serve`, or give the URL of one that runs"
        ) from None


def excluding(given: Mapping[str, bool]) -> None:
    """Raises RequestError if more than one of these options is given."""
    both = [name for name, is_given in given.items() if is_given]
    if len(both) > 1:
        raise RequestError(
            "these options exclude each other",
            code="invalid_request",
            actual=" with ".join(both),
            hint="Leave out one of them",
        )


def file_to_write(path: Path | None) -> None:
    """Checks a file that the command is to write, which it then does even if nobody reads what it prints."""
    check_file(path)
    if path is not None:
        outlive_reader()


def folder_to_write(path: Path | None) -> None:
    """As `file_to_write`, of a folder."""
    check_folder(path)
    if path is not None:
        outlive_reader()


def compilation_to_write(path: Path | None) -> None:
    """As `file_to_write`, of a folder for the files of a compilation, which replace only files of an earlier one."""
    from app.client.output_folder import check_output_folder

    check_output_folder(path)
    if path is not None:
        outlive_reader()


def progress_console(as_json: bool) -> Console:
    """The console for progress: stderr, which carries only errors when the output is for machines."""
    return Console(stderr=True, markup=False, quiet=as_json)


def all_settings(settings: list[str] | None, strict: bool, *, no_verify: bool = False) -> list[str]:
    """The given options with schedules read from their files, and the flags --strict and --no-verify."""
    flags = {"strict=true": strict, "verify=none": no_verify}
    return [*with_schedules(settings or []), *(word for word, given in flags.items() if given)]


def check_arguments(
    target: Path,
    profiles: Sequence[str | None],
    settings: Sequence[str],
    *,
    server: str | None,
    is_model: bool = True,
    shapes: Sequence[str] = (),
) -> None:
    """Raises for wrong options, shapes, URLs, files or profiles before the compiler is imported, which takes a second.

    With `is_model` the file has to be a model; otherwise it may be compiled, and then needs no profile. A service
    checks profile names itself, as it may know others.
    """
    parse_assignments(settings)
    if shapes:
        from compiler.shapes.extents import parse_shapes

        parse_shapes(shapes)
    if server is not None:
        service_url(server)
    if is_model or not is_compiled(target):
        uncompiled_model(target)
        for profile in profiles:
            named_profile(profile)
    for profile in profiles:
        if profile is not None and server is None:
            load_profile(profile)
        elif profile is not None:
            profile_text(profile)
