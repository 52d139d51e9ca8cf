"""What a full disk looks like."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
STORAGE_FULL: Final[Mapping[str, str]] = {
    "code": "storage_full",
    "stage": "service",
    "message": "the disk of the service is full",
    "hint": "Try again later; an operator has to free space under TESSERA_DATA_DIR",
}
_LITTLE_BYTES: Final = 1 << 20


def is_full(folder: Path) -> bool:
    """Whether so little space is left for a folder that a server which writes there ends."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE_BYTES
