"""Files that a user asks for: checked before the work begins, and whole or not there at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compiler.errors import RequestError, printable

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def check_file(path: Path | None) -> None:
    """Raise RequestError where a file cannot be written to; None is no file."""
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
    """Raise RequestError where a folder cannot be made, or files of these names not be written to it."""
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
    """Write files together: gives a function from the path of a file to the path to write it to.

    All are moved to their places at the end, unless the block raises; then none is. Raises RequestError if the disk
    is full or a file cannot be written.
    """
    places: dict[Path, Path] = {}

    def fresh(path: Path) -> Path:
        target = path.resolve()  # a link stays, and what it leads to is replaced
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
    """Raise RequestError for what is no folder, or one where no file can be made: a file without a name tries it."""
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
    if error.errno in _FULL:
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
