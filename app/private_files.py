"""Files that other users of the machine cannot read: models and results are the business of who runs the service."""

from __future__ import annotations

import logging
import os
import secrets
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Final

from app.errors import SetupError

log = logging.getLogger(__name__)

# Of processes that are the service's alone; a supervisor may share its process with other work.
UMASK: Final = 0o077
_ENTRIES: Final = frozenset(("blobs", "broker", "cache", "copies", "logs", "redis", "supervisor.lock", "tmp"))
_PROBE_BYTES: Final = 64 * 1024


def unusable(data_dir: Path, error: OSError) -> SetupError:
    """The error about a data directory that cannot be made or read."""
    return SetupError(
        f"the data directory {data_dir} cannot be used: {error.strerror}",
        code="data_dir_unusable",
        stage="setup",
        actual=str(error.filename or data_dir),
        limit="a folder that this user may write to",
        hint="Choose another with --data-dir or TESSERA_DATA_DIR",
    )


def private_folder(path: Path) -> None:
    """Makes a folder, and those above it that are missing, for this user alone; one that exists stays as it is."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def private_file(path: Path, mode: str) -> FileIO:
    """Opens a file, unbuffered; one that is made is for this user alone."""
    return FileIO(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def close_to_others(data_dir: Path) -> None:
    """Takes an existing data directory that others can enter away from them, with all that is in it.

    A directory that holds anything else than the service's data is left as it is; the log says so.
    """
    if not data_dir.is_dir() or not data_dir.stat().st_mode & UMASK:
        return
    foreign = sorted({entry.name for entry in data_dir.iterdir()} - _ENTRIES)
    if foreign:
        log.warning(
            "other users can read the data directory %s, as it holds other files too (%s)",
            data_dir,
            foreign[0],
        )
        return
    try:
        for folder, folders, files in os.walk(data_dir):
            for name in (*folders, *files):
                path = Path(folder) / name
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)
        data_dir.chmod(0o700)
    except OSError as error:
        log.warning("other users can read the data directory %s: %s", data_dir, error.strerror)
        return
    log.warning("other users could read the data directory %s; now they cannot", data_dir)


def check_writable(folder: Path) -> None:
    """Raises OSError unless some bytes can be written to a new file of a folder, and synced."""
    probe = folder / f"probe-{secrets.token_hex(8)}"
    try:
        with BufferedWriter(private_file(probe, "x")) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)
