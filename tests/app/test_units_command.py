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


@pytest.mark.parametrize("option", [["--routine", "0"], ["--cache", "here"], ["--no-cache"], ["--units", "here"]])
@pytest.mark.parametrize("words", [["--list"], ["--list", "--server", "http://localhost:1"]])
def test_options_for_the_tables_of_one_shape_are_refused_of_a_list(words: list[str], option: list[str]) -> None:
    """They were ignored."""
    answer = CliRunner().invoke(cli, ["table", *words, *option, "--json"])
    assert answer.exit_code == 2
    problem = json.loads(answer.stderr)
    assert problem["message"] == "these options exclude each other"
    assert option[0] in problem["actual"]


@pytest.mark.parametrize("words", [["units"], ["units", "statistics"], ["units", "pull", "here"], ["table", "--list"]])
def test_a_service_that_does_not_answer_is_not_to_be_left_out_where_nothing_works_without(words: list[str]) -> None:
    """The hint was to leave --server out."""
    answer = CliRunner().invoke(cli, [*words, "--server", "http://127.0.0.1:9", "--json"])
    problem = json.loads(answer.stderr)
    assert (answer.exit_code, problem["code"]) == (2, "service_unreachable")
    assert "tessera serve" in problem["hint"]
    assert "--server" not in problem["hint"]


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
