"""Releases of the changelog, on real files."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.changelog import (
    BadVersionError,
    ChangelogError,
    NoFragmentsError,
    UnknownFragmentError,
    VersionExistsError,
    release,
)

_INTRO = "# Changelog\n\nHow fragments work.\n"
_OLD = "## 0.1.0\n\n### Added\n\n- The first thing.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fragments = {
        "0003.added.md": "- Second addition.\n",
        "0002.topic.added.md": "- First addition,\n  on two lines.\n",
        "0004-topic.fixed.md": "A mended thing,\non two lines.\n",
        ".gitkeep": "",
    }
    (tmp_path / "changelog.d").mkdir()
    for name, text in fragments.items():
        (tmp_path / "changelog.d" / name).write_text(text, encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(_INTRO + "\n" + _OLD, encoding="utf-8")
    return tmp_path


def _files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}


def test_fragments_become_a_section_by_kind_above_older_ones(folder: Path) -> None:
    release(folder, "0.2.0")
    assert (folder / "CHANGELOG.md").read_text(encoding="utf-8") == (
        _INTRO + "\n## 0.2.0\n\n### Added\n\n- First addition,\n  on two lines.\n- Second addition.\n"
        "\n### Fixed\n\n- A mended thing,\n  on two lines.\n\n" + _OLD
    )
    assert [path.name for path in (folder / "changelog.d").iterdir()] == [".gitkeep"]


def test_the_first_section_follows_the_introduction(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text(_INTRO, encoding="utf-8")
    release(folder, "0.2.0")
    text = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith(_INTRO + "\n## 0.2.0\n\n### Added\n")
    assert text.endswith("- A mended thing,\n  on two lines.\n")
    assert "\n\n\n" not in text


@pytest.mark.parametrize(
    "name", ["0005.removed.md", "0005.added.txt", "notes.md", "topic.added.md", "0005.a.b.added.md"]
)
def test_an_unknown_fragment_is_refused_and_nothing_is_written(folder: Path, name: str) -> None:
    (folder / "changelog.d" / name).write_text("- Something.\n", encoding="utf-8")
    before = _files(folder)
    with pytest.raises(UnknownFragmentError, match=name):
        release(folder, "0.2.0")
    assert _files(folder) == before


@pytest.mark.parametrize(("version", "error"), [("0.1.0", VersionExistsError), ("next", BadVersionError)])
def test_a_version_that_exists_or_is_none_is_refused_and_nothing_is_written(
    folder: Path, version: str, error: type[ChangelogError]
) -> None:
    before = _files(folder)
    with pytest.raises(error, match=version):
        release(folder, version)
    assert _files(folder) == before


def test_a_release_without_fragments_is_refused(folder: Path) -> None:
    release(folder, "0.2.0")
    with pytest.raises(NoFragmentsError):
        release(folder, "0.3.0")


def test_the_command_names_the_error_and_fails(folder: Path) -> None:
    script = Path(__file__).parents[1] / "scripts" / "changelog.py"

    def run(version: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, script, version, folder], capture_output=True, text=True, check=False)

    assert run("0.2.0").returncode == 0
    again = run("0.2.0")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("VersionExistsError: ")
    assert "Traceback" not in again.stderr
