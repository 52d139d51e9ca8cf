"""Output files of the user: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from app.full_disk import FULL
from compiler.errors import RequestError, printable

_TEMPORARY: Final = re.compile(r"\.tessera-[0-9a-f]{16}")


def check_file(path: Path | None) -> None:
    """Raises RequestError if a file cannot be written to; None means no file."""
    if path is None:
        return
    if path.is_dir():
        raise _refused(path, "it is a folder, not a file", "Name a file in it")
    if path.exists() and not os.access(path, os.W_OK):
        raise _refused(path, "the file that is there may not be changed", "Name another file")
    if _is_device(path):
        return
    _check_writable(path, _resolved(path).parent)


def check_folder(path: Path | None, names: tuple[str, ...] = ()) -> None:
    """Raises RequestError if a folder cannot be made, or files of these names cannot be written to it."""
    if path is None:
        return
    if path.is_dir():
        for name in names:
            check_file(path / name)
    folder = _resolved(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    _check_writable(path, folder)


@contextmanager
def whole_files() -> Iterator[Callable[[Path], Path]]:
    """Writes files together: yields a function from the path of a file to the temporary path to write.

    All files are moved to their places at the end, or no file if the block raises. Raises RequestError if the disk is
    full or a file cannot be written.
    """
    asked: list[Path] = []
    places: dict[Path, Path] = {}
    with ExitStack() as stack:
        folders: dict[Path, Path] = {}

        def fresh(path: Path) -> Path:
            if _is_device(path):  # the path as it is: a pipe's own name leads nowhere
                asked.append(path)
                return path
            target = _resolved(path)  # a link stays, and its target is replaced
            asked.append(target)
            if target.parent not in folders:
                folders[target.parent] = stack.enter_context(_temporary_folder(target.parent))
            waiting = folders[target.parent] / target.name
            places[waiting] = target
            return waiting

        moved: list[Path] = []
        try:
            yield fresh
            for waiting, target in places.items():
                if target.exists():
                    shutil.copymode(target, waiting)
                waiting.replace(target)
                moved.append(target)
        except OSError as error:
            raise _not_written(error, [path for path in asked if path not in moved], moved) from None


def _is_device(path: Path) -> bool:
    """Whether a path leads to a device or a pipe, which is written to as it is."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _resolved(path: Path) -> Path:
    """The path that a path leads to; raises RequestError for a link to itself."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise _refused(path, "it is a link that leads to itself", "Name another place") from None


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder for files that are being written; locked, so that one of a killed process is known by its missing lock.

    Removes those that killed processes left in the same parent.
    """
    for left in parent.glob(".tessera-*"):
        if _TEMPORARY.fullmatch(left.name):
            with suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(left)
    while True:
        folder = parent / f".tessera-{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            with ExitStack() as stack:
                with suppress(OSError):  # a file system without locks: then nobody removes what a kill leaves
                    stack.enter_context(_locked(folder, fcntl.LOCK_EX))
                if folder.exists():  # no other process removed it before it was locked
                    yield folder
                    return
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the error that led here is the one to show


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Locks a folder as long as this process lives; raises OSError if it is locked already."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, how)
        yield
    finally:
        os.close(number)


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


def _not_written(error: OSError, missing: list[Path], moved: list[Path]) -> RequestError:
    names = [printable(str(path), 200) for path in missing] or [printable(str(error.filename), 200)]
    if error.errno in FULL:
        reason = "the disk is full"
    elif error.errno == errno.EFBIG:
        reason = "a file would be larger than this system or a limit (`ulimit -f`) allows"
    else:
        reason = error.strerror or type(error).__name__
    what = names[0] if len(names) == 1 else f"{names[0]} and the files that belong to it"
    if any(_is_device(path) for path in missing):
        state = "what was written before is not whole"
    elif moved:
        state = f"written before it: {', '.join(printable(str(path), 200) for path in moved)}"
    else:
        state = "files that were there are as they were"
    return RequestError(
        f"{what} {'was' if len(names) == 1 else 'were'} not written: {reason}",
        code="cannot_write",
        actual=", ".join(names),
        hint=f"Make room or name another place; {state}",
    )
