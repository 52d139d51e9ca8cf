"""`tessera units` and `tessera table --list` where no service is given."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from app.cli.main import cli


@pytest.mark.parametrize("words", [["units"], ["units", "statistics"], ["table", "--list"], ["table"]])
def test_lists_of_a_service_need_one(words: list[str]) -> None:
    answer = CliRunner().invoke(cli, [*words, "--json"])
    assert answer.exit_code == 2
    problem = json.loads(answer.stderr)
    assert (problem["code"], problem["limit"]) == ("invalid_request", "--server URL")
