"""Reads docker-compose.yml and its additions as Compose does, so that tests and `make stack` run the same commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ("docker-compose.yml", "docker-compose.s3.yml")
_VARIABLE: Final = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose(*names: str) -> dict[str, Any]:
    """The files merged: later mappings are added to earlier ones, lists follow one another, variables are not set."""
    merged: dict[str, Any] = {}
    for name in names:
        merged = _merged(merged, yaml.safe_load((ROOT / name).read_text()))
    return merged


def words_of(service: Mapping[str, Any]) -> list[str]:
    """The command of a service."""
    return [plain(word) for word in (*service.get("entrypoint", ()), *service["command"])]


def variables_of(service: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a service is given."""
    return {name: plain(value) for name, value in service.get("environment", {}).items()}


def secrets_of(service: Mapping[str, Any]) -> dict[str, str]:
    """The names in /run/secrets of a service, and the secrets that lie there."""
    each = (one if isinstance(one, dict) else {"source": one, "target": one} for one in service.get("secrets", ()))
    return {one["target"]: one["source"] for one in each}


def plain(text: str) -> str:
    """A text of the file with the defaults of its variables and with single dollars."""
    return _VARIABLE.sub(r"\1", text).replace("$$", "$")


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return first | {key: _merged(first[key], value) if key in first else value for key, value in second.items()}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    return second
