"""What a full disk looks like."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LITTLE_BYTES: Final = 1 << 20


def is_full(folder: Path) -> bool:
    """Whether so little space is left for a folder that a server which writes there ends."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE_BYTES
