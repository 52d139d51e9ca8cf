"""What a full disk looks like."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Final

from app.private_files import private_file

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
STORAGE_FULL: Final[Mapping[str, str]] = {
    "code": "storage_full",
    "stage": "service",
    "message": "the disk of the service is full",
    "hint": "Try again later; an operator has to free space under TESSERA_DATA_DIR",
}
_LITTLE_BYTES: Final = 1 << 20
_PROBE_BYTES: Final = 64 * 1024


def is_full(folder: Path) -> bool:
    """Whether so little space is left for a folder that a server which writes there ends."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE_BYTES


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
