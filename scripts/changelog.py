"""Moves the fragments of changelog.d into a new section of CHANGELOG.md: scripts/changelog.py VERSION [FOLDER].

FOLDER holds CHANGELOG.md and changelog.d; it is the folder above this file unless another is named.
"""

import re
import sys
from pathlib import Path
from typing import Final

KINDS: Final = ("added", "changed", "fixed")
_FRAGMENT: Final = re.compile(rf"\d{{4}}([.-][\w-]+)?\.({'|'.join(KINDS)})\.md", re.ASCII)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


class ChangelogError(Exception):
    """A release cannot be written; nothing has been changed."""


class BadVersionError(ChangelogError):
    """The version is no MAJOR.MINOR.PATCH."""


class VersionExistsError(ChangelogError):
    """CHANGELOG.md has a section of this version."""


class UnknownFragmentError(ChangelogError):
    """A file of changelog.d has a name that no fragment has."""


class NoFragmentsError(ChangelogError):
    """There is nothing to release."""


def release(folder: Path, version: str) -> None:
    """Writes the fragments as section `version` above the older sections, and then removes them.

    Raises: ChangelogError, before anything is written.
    """
    if not _VERSION.fullmatch(version):
        raise BadVersionError(f"{version!r} is no version: expected MAJOR.MINOR.PATCH, such as 1.2.0")
    changelog = folder / "CHANGELOG.md"
    intro, *sections = re.split(r"(?m)^(?=## )", changelog.read_text(encoding="utf-8"))
    if any(section.split()[1:2] == [version] for section in sections):
        raise VersionExistsError(f"{changelog} has a section {version} already")
    fragments = sorted(path for path in (folder / "changelog.d").iterdir() if not path.name.startswith("."))
    unknown = [path.name for path in fragments if not _FRAGMENT.fullmatch(path.name)]
    if unknown:
        raise UnknownFragmentError(
            f"{', '.join(unknown)}: expected NUMBER.TOPIC.KIND.md, KIND one of {', '.join(KINDS)}"
        )
    if not fragments:
        raise NoFragmentsError(f"{folder / 'changelog.d'} has no fragments")
    parts = [f"## {version}"]
    for kind in KINDS:
        texts = [_items(path) for path in fragments if path.name.endswith(f".{kind}.md")]
        if texts:
            parts += [f"### {kind.capitalize()}", "\n".join(texts)]
    section = "\n\n".join(parts) + "\n"
    older = ["".join(sections)] if sections else []
    changelog.write_text("\n".join([intro.rstrip() + "\n", section, *older]), encoding="utf-8")
    for path in fragments:
        path.unlink()


def _items(fragment: Path) -> str:
    """Returns the list items of a fragment; one that is plain text becomes an item."""
    text = fragment.read_text(encoding="utf-8").strip()
    return text if text.startswith("- ") else "- " + text.replace("\n", "\n  ")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[1]) if arguments[1:] else Path(__file__).resolve().parent.parent
    try:
        release(folder, arguments[0])
    except ChangelogError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
