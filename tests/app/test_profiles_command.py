"""UI-1: `tessera profiles`: list, show, new and check."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from compiler.profile import builtin_profile, parse_profile, profile_digest, profile_json


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize("words", [["profiles"], ["profiles", "list"]])
def test_the_profiles_are_listed_with_and_without_a_command(words: list[str]) -> None:
    assert {"cluster4x4", "edge4"} <= {row["name"] for row in json.loads(tessera(*words, "--json").stdout)}
    assert "cluster4x4" in tessera(*words).stdout


def test_a_profile_is_shown_annotated_and_as_json() -> None:
    shown = tessera("profiles", "show", "edge4")
    assert parse_profile(shown.stdout.encode()) == builtin_profile("edge4")
    assert "capacity_bytes: 256KiB" in shown.stdout
    assert "# bytes: " in shown.stdout
    plain = tessera("profiles", "show", "edge4", "--json").stdout
    assert plain.strip().encode() == profile_json(builtin_profile("edge4"))


def test_a_new_profile_is_named_after_its_file_and_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "my chip.yaml"
    assert tessera("profiles", "new", "--from", "edge4", str(file)).exit_code == 0
    profile = parse_profile(file.read_bytes())
    assert (profile.name, profile.nram) == ("my-chip", builtin_profile("edge4").nram)
    answer = tessera("profiles", "check", str(file))
    assert answer.exit_code == 0
    assert profile_digest(profile) in answer.stdout


def test_a_new_profile_does_not_replace_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    answer = tessera("profiles", "new", str(file))
    assert (answer.exit_code, file.read_text()) == (2, "mine")
    assert "exists already" in answer.stderr


def test_a_new_profile_that_does_not_fit_on_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # a profile has more
    try:
        answer = tessera("profiles", "new", str(tmp_path / "mine.yaml"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (answer.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "not written: a file would be larger" in answer.stderr


def test_a_check_lists_every_fault_with_path_what_was_found_what_is_allowed_and_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    tessera("profiles", "new", "--from", "edge4", str(file))
    file.write_text(file.read_text().replace("256KiB", "256KHz").replace("topology: ring", "topology: rign"))
    answer = tessera("profiles", "check", str(file))
    assert (answer.exit_code, answer.stderr) == (3, "")
    assert answer.stdout.startswith(f"{file}: 2 fields are wrong\n")
    blocks = answer.stdout.split("\n\n")[1:]
    assert blocks[0].splitlines() == [
        "nram.capacity_bytes",
        "  found    256KHz",
        "  allowed  a whole number of bytes from 1 B to 1 PiB, such as 256KiB",
    ]
    assert blocks[1].splitlines()[0] == "engines.link.topology"
    assert blocks[1].splitlines()[-1] == "  hint     Did you mean ring?"
    values = json.loads(tessera("profiles", "check", str(file), "--json").stdout)
    assert (values["valid"], [fault["found"] for fault in values["faults"]]) == (False, ["256KHz", "rign"])


@pytest.mark.parametrize(
    ("words", "exit_code", "names"),
    [
        (["check", "nowhere.yaml"], 2, "does not exist"),
        (["check", "."], 2, "is a folder"),
        (["show", "cluter4x4"], 2, "Did you mean cluster4x4?"),
        (["new", "---.yaml"], 2, "gives a profile no name"),
        (["new", "nowhere/mine.yaml"], 2, "nowhere/mine.yaml"),
        (["check", "broken.yaml"], 3, "neither YAML nor JSON"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], exit_code: int, names: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("a: [")
    answer = tessera("profiles", words[0], "--", words[1])
    assert (answer.exit_code, answer.stdout) == (exit_code, "")
    assert names in answer.stderr


def test_options_before_the_command_are_refused_and_not_ignored() -> None:
    answer = tessera("profiles", "--json", "show", "edge4")
    assert answer.exit_code == 2
    assert "behind the command" in answer.stderr
