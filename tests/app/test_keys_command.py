"""API-4: `tessera keys`, on a data directory that no service uses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`tessera keys` on a data directory that is not there yet."""
    for name in ("TESSERA_BROKER_URL", "TESSERA_CACHE_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["keys", *words, "--data-dir", str(tmp_path / "data")])

    return run


def test_a_key_is_made_shown_once_listed_and_revoked(keys: Any, tmp_path: Path) -> None:
    made = keys("create", "ci", "--waiting-jobs", "5")
    assert re.fullmatch(r"tessera_[0-9a-f]{16}_[0-9a-f]{64}\n", made.stdout)
    assert "not shown again" in made.stderr
    _, key_id, secret = made.stdout.strip().split("_")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    (listed,) = json.loads(keys("list", "--json").stdout)
    assert (listed["id"], listed["name"], listed["owner"]) == (key_id, "ci", "ci")
    assert (listed["limits"], listed["revoked_at"]) == ({"waiting_jobs": 5}, None)
    table = keys("list").stdout
    assert key_id in table
    assert secret not in table
    assert keys("revoke", "ci").stdout == f"revoked ci ({key_id})\n"
    assert json.loads(keys("list", "--json").stdout)[0]["revoked_at"] is not None
    again = keys("revoke", "ci")
    assert (again.exit_code, "unknown_key" in again.stderr) == (2, True)


def test_several_keys_may_have_one_owner_and_names_are_unique_while_they_hold(keys: Any) -> None:
    first = json.loads(keys("create", "laptop", "--owner", "ann", "--json").stdout)
    assert first["key"].startswith(f"tessera_{first['id']}_")
    refused = keys("create", "laptop", "--owner", "ann")
    assert (refused.exit_code, "key_exists" in refused.stderr) == (2, True)
    assert keys("create", "desktop", "--owner", "ann").exit_code == 0
    assert keys("revoke", first["id"]).exit_code == 0
    assert keys("create", "laptop", "--owner", "local").exit_code == 0
    owners = [(key["name"], key["owner"]) for key in json.loads(keys("list", "--json").stdout)]
    assert owners == [("laptop", "ann"), ("desktop", "ann"), ("laptop", "local")]


@pytest.mark.parametrize("words", [("a/b",), ("",), ("ok", "--owner", "a:b"), ("x" * 65,), ("ok", "--uploads", "0")])
def test_a_wrong_name_owner_or_limit_is_refused(keys: Any, words: tuple[str, ...]) -> None:
    assert keys("create", *words).exit_code == 2
    assert json.loads(keys("list", "--json").stdout) == []


def test_a_broker_that_does_not_answer_is_named(keys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TESSERA_BROKER_URL", "TESSERA_CACHE_URL"):
        monkeypatch.setenv(name, f"unix://{tmp_path}/none.sock")
    answer = keys("list")
    assert answer.exit_code != 0
    assert "TESSERA_BROKER_URL" in answer.stderr
