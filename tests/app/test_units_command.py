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


@pytest.mark.parametrize("words", [["pull", "here"], ["push", "here"], ["statistics"]])
def test_options_before_a_command_are_refused_not_ignored(words: list[str]) -> None:
    answer = CliRunner().invoke(cli, ["units", "--server", "http://localhost:1", "--json", *words])
    assert answer.exit_code == 2
    problem = json.loads(answer.stderr)
    assert problem["actual"] == "--server --json"
    assert words[0] in problem["hint"]


def test_a_folder_that_is_none_cannot_be_pushed() -> None:
    answer = CliRunner().invoke(cli, ["units", "push", "none-such", "--server", "http://localhost:1", "--json"])
    assert (answer.exit_code, json.loads(answer.stderr)["code"]) == (2, "file_error")
