"""`tessera keys`: makes, lists and revokes the keys of a service (docs/service.md)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import DataDirOption, JsonFlag
from app.keys.owners import LIMITS, LOCAL_WORD
from app.printing.text_table import Column, print_table

if TYPE_CHECKING:
    from app.keys.keys import Key, Keys

cli = typer.Typer(
    help="Make, list and revoke the keys of a service: of the data directory, whether the service runs or not, or of "
    "TESSERA_BROKER_URL.",
    no_args_is_help=True,
)


@cli.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what will use the key", show_default=False)],
    owner: Annotated[
        str | None,
        typer.Option(help="Whose models and jobs it reaches; `local` is who needs no key [NAME]", show_default=False),
    ] = None,
    stored_bytes: Annotated[int | None, typer.Option(min=1, help="Bytes of uploaded models and files")] = None,
    stored_items: Annotated[int | None, typer.Option(min=1, help="Uploaded models and profiles")] = None,
    waiting_jobs: Annotated[int | None, typer.Option(min=1, help="Jobs that wait or run")] = None,
    sweep_points: Annotated[int | None, typer.Option(min=1, help="Points of one sweep")] = None,
    uploads: Annotated[int | None, typer.Option(min=1, help="Uploads at once")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Requests of this key")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key and print it: it is shown once. Limits that are not given are those of the service's settings."""
    given = (stored_bytes, stored_items, waiting_jobs, sweep_points, uploads, requests_per_minute)
    limits = {name: value for name, value in zip(LIMITS, given, strict=True) if value is not None}
    with failures(as_json=as_json), _keys(data_dir) as keys:
        key, text = keys.create(name, owner, limits)
        if as_json:
            sys.stdout.write(json.dumps({**_values(key), "key": text}) + "\n")
            return
        sys.stdout.write(text + "\n")
        console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        console.print(f"This is the key {key.name} of owner {key.owner or LOCAL_WORD}, and it is not shown again.")
        console.print("Keep it in a file that its user alone can read, and name that file in TESSERA_KEY_FILE.")


@cli.command(name="list")
def list_command(data_dir: DataDirOption = None, as_json: JsonFlag = False) -> None:
    """List the keys, without their secrets."""
    with failures(as_json=as_json), _keys(data_dir) as keys:
        found = keys.all()
        if as_json:
            sys.stdout.write(json.dumps([_values(key) for key in found]) + "\n")
            return
        columns = [Column(name, "words") for name in ("key", "id", "owner", "created", "revoked", "own limits")]
        rows = [
            (
                key.name,
                key.id,
                key.owner or LOCAL_WORD,
                _time(key.created_ms),
                "" if key.revoked_ms is None else _time(key.revoked_ms),
                ", ".join(f"{name} {most:,}" for name, most in key.limits.items()),
            )
            for key in found
        ]
        print_table(columns, rows, Console(markup=False, highlight=False))


@cli.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name or id", show_default=False)],
    data_dir: DataDirOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Revoke a key, from the next request on. What its owner has stays."""
    with failures(as_json=as_json), _keys(data_dir) as keys:
        key = keys.revoke(name)
        sys.stdout.write(json.dumps(_values(key)) + "\n" if as_json else f"revoked {key.name} ({key.id})\n")


@contextmanager
def _keys(data_dir: Path | None) -> Iterator[Keys]:
    import redis

    from app.cli.serving import read_settings
    from app.errors import UnavailableError
    from app.keys.keys import Keys
    from app.supervisor.open_broker import open_broker

    settings = read_settings({} if data_dir is None else {"data_dir": data_dir})
    try:
        with open_broker(settings) as client:
            yield Keys(client, settings)
    except redis.RedisError as error:
        raise UnavailableError(
            "the keys cannot be reached: the broker's Redis does not answer",
            actual=type(error).__name__,
            hint="Check TESSERA_BROKER_URL, or wait until the service has started",
        ) from None


def _values(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "owner": key.owner or LOCAL_WORD,
        "created_at": _time(key.created_ms),
        "revoked_at": None if key.revoked_ms is None else _time(key.revoked_ms),
        "limits": dict(key.limits),
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
