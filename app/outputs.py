"""Output files of the user: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.full_disk import FULL
from compiler.errors import RequestError, printable


def check_file(path: Path | None) -> None:
    """Raises RequestError if a file cannot be written to; None means no file."""
    if path is None:
        return
    if path.is_dir():
        raise _refused(path, "it is a folder, not a file", "Name a file in it")
    if path.exists() and not os.access(path, os.W_OK):
        raise _refused(path, "the file that is there may not be changed", "Name another file")
    if path.exists() and not path.is_file():  # a device or a pipe
        return
    _check_writable(path, path.resolve().parent)


def check_folder(path: Path | None, names: tuple[str, ...] = ()) -> None:
    """Raises RequestError if a folder cannot be made, or files of these names cannot be written to it."""
    if path is None:
        return
    if path.is_dir():
        for name in names:
            check_file(path / name)
    folder = path.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    _check_writable(path, folder)


@contextmanager
def whole_files() -> Iterator[Callable[[Path], Path]]:
    """Writes files together: yields a function from the path of a file to the temporary path to write.

    All files are moved to their places at the end, or no file if the block raises. Raises RequestError if the disk is
    full or a file cannot be written.
    """
    places: dict[Path, Path] = {}

    def fresh(path: Path) -> Path:
        target = path.resolve()  # a link stays, and its target is replaced
        if target.exists() and not target.is_file():  # a device or a pipe
            return target
        beside = target.with_name(f".tessera-{secrets.token_hex(8)}")
        places[beside] = target
        return beside

    try:
        yield fresh
        for beside, target in places.items():
            if target.exists():
                shutil.copymode(target, beside)
            beside.replace(target)
    except OSError as error:
        raise _not_written(error, list(places.values())) from None
    finally:
        for beside in places:
            beside.unlink(missing_ok=True)


def _check_writable(path: Path, folder: Path) -> None:
    """Raises RequestError for a path that is no folder, or a folder in which an unnamed test file cannot be made."""
    if not folder.exists():
        raise _refused(path, f"there is no folder {printable(str(folder), 200)}", "Make the folder first")
    if not folder.is_dir():
        raise _refused(path, f"{printable(str(folder), 200)} is a file, not a folder", "Name another place")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = f"no file can be made in {printable(str(folder), 200)}: {error.strerror}"
        raise _refused(path, reason, "Name a place that you may write to") from None


def _refused(path: Path, reason: str, hint: str) -> RequestError:
    where = printable(str(path), 200)
    return RequestError(f"cannot write to {where}: {reason}", code="cannot_write", actual=where, hint=hint)


def _not_written(error: OSError, targets: list[Path]) -> RequestError:
    where = ", ".join(printable(str(target), 200) for target in targets) or printable(str(error.filename), 200)
    if error.errno in FULL:
        reason = "the disk is full"
    elif error.errno == errno.EFBIG:
        reason = "a file would be larger than this system or a limit (`ulimit -f`) allows"
    else:
        reason = error.strerror or type(error).__name__
    return RequestError(
        f"nothing was written: {reason}",
        code="cannot_write",
        actual=where,
        hint="Make room or name another place; files that were there are as they were",
    )
