"""`tessera profiles`: lists hardware profiles, shows one, writes one to start from, and checks one (UI-1)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.cli.failures import ExitCode, failures
from app.cli.shared_parameters import JsonFlag, ServerOption, file_to_write
from app.outputs import whole_files
from app.printing.text_table import Column, print_table
from compiler.errors import RequestError, printable

if TYPE_CHECKING:
    from compiler.profile import Profile
    from compiler.profile.check import Fault

cli = typer.Typer(help="List the hardware profiles, show one, write one to start from, or check one.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML or JSON file", show_default=False)]


@cli.callback(invoke_without_command=True)
def profiles(context: typer.Context, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """List the hardware profiles, show one, write one to start from, or check one."""
    with failures(as_json=as_json):
        if context.invoked_subcommand is None:
            _list(server, as_json=as_json)
        elif server is not None or as_json:
            raise RequestError(
                "--server and --json belong behind the command",
                code="invalid_request",
                actual=f"options before {context.invoked_subcommand}",
                hint=f"Write `tessera profiles {context.invoked_subcommand} ... --json`",
            )


@cli.command(name="list")
def list_command(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """List the hardware profiles."""
    with failures(as_json=as_json):
        _list(server, as_json=as_json)


@cli.command()
def show(
    name: Annotated[str, typer.Argument(help="A built-in profile, or a file", show_default=False)],
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a profile as YAML with the unit and meaning of each field; --json: its canonical form."""
    with failures(as_json=as_json):
        from compiler.profile import profile_json
        from compiler.profile.annotated import annotated

        profile = _profile(name, server)
        sys.stdout.write(profile_json(profile).decode() + "\n" if as_json else annotated(profile))


@cli.command()
def new(
    file: FileArgument,
    base: Annotated[str, typer.Option("--from", help="The profile to start from: built-in, or a file")] = "cluster4x4",
) -> None:
    """Write an annotated profile to start from; its name is that of the file."""
    with failures(as_json=False):
        import msgspec

        from compiler.profile.annotated import annotated

        if file.exists():
            raise RequestError(
                f"{printable(str(file))} exists already",
                code="file_exists",
                actual=printable(str(file)),
                hint="Give a name that is free, or remove the file",
            )
        file_to_write(file)
        profile = _profile(base, None)
        named = msgspec.structs.replace(profile, name=_name_for(file), description=f"Started from {profile.name}.")
        with whole_files() as fresh:
            fresh(file).write_text(annotated(named), encoding="utf-8")
        console = Console(markup=False, highlight=False, soft_wrap=True)
        console.print(f"wrote {file}: the profile {named.name}, with the figures of {profile.name}")
        console.print(f"Change what differs, then: tessera profiles check {file}")


@cli.command()
def check(file: FileArgument, as_json: JsonFlag = False) -> None:
    """Check a profile file and list all its faults."""
    with failures(as_json=as_json):
        from compiler.profile import profile_digest
        from compiler.profile.check import checked
        from compiler.profile.load import profile_values

        origin = printable(str(file), 200)
        profile, faults = checked(profile_values(_text(file), origin=origin))
        digest = None if profile is None else profile_digest(profile)
        if as_json:
            found = [{"path": f.path, "found": f.found, "allowed": f.allowed, "hint": f.hint} for f in faults]
            sys.stdout.write(json.dumps({"valid": not faults, "digest": digest, "faults": found}) + "\n")
        elif profile is not None:
            sys.stdout.write(f"{origin}: valid, profile {profile.name}, digest {digest}\n")
        else:
            sys.stdout.write(_faults_text(origin, faults))
        if faults:
            raise typer.Exit(ExitCode.MODEL_OR_PROFILE)


def _faults_text(origin: str, faults: Sequence[Fault]) -> str:
    """One block of text per fault."""
    count = f"{len(faults)} fields are wrong" if len(faults) > 1 else "a field is wrong"
    lines = [f"{origin}: {count}"]
    for fault in faults:
        lines += ["", fault.path, f"  found    {fault.found}", f"  allowed  {fault.allowed}"]
        lines += [f"  hint     {fault.hint}"] if fault.hint else []
    return "\n".join(lines) + "\n"


def _profile(name_or_file: str, server: str | None) -> Profile:
    if server is not None:
        from app.client.client import Client

        with Client(server) as client:
            return client.profile(name_or_file)
    from app.input_files import load_profile

    return load_profile(name_or_file)


def _name_for(file: Path) -> str:
    """The profile name from a file name; raises RequestError if that is not a valid name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem)[:64]
    if not re.match(r"[A-Za-z0-9]", name):
        raise RequestError(
            f"{printable(file.name, 80)!r} gives a profile no name",
            code="invalid_request",
            actual=printable(file.name, 80),
            limit="a file name that begins with a letter or a digit",
            hint="Call the file mychip.yaml",
        )
    return name


def _text(file: Path) -> bytes:
    if not file.is_file():
        what = "is a folder, not a profile file" if file.is_dir() else "does not exist"
        raise RequestError(
            f"{printable(str(file))} {what}",
            code="no_such_file",
            actual=printable(str(file)),
            hint="Give a YAML or JSON file; `tessera profiles new FILE` writes one",
        )
    return file.read_bytes()


def _list(server: str | None, *, as_json: bool) -> None:
    rows = _rows(server)
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    columns = [Column(name, "words") for name in ("profile", "kind", "digest")]
    shown = [(str(row["name"]), "built-in" if row["builtin"] else "user", str(row["digest"])[:16]) for row in rows]
    print_table(columns, shown, Console(markup=False, highlight=False))


def _rows(server: str | None) -> list[dict[str, object]]:
    if server is not None:
        from app.client.client import Client

        with Client(server) as client:
            return [
                {"name": profile.name, "digest": profile.digest, "builtin": profile.builtin}
                for profile in client.profiles()
            ]
    from compiler.profile import builtin_names, builtin_profile, profile_digest

    return [
        {"name": name, "digest": profile_digest(builtin_profile(name)), "builtin": True} for name in builtin_names()
    ]
