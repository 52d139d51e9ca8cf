"""What the parts of the service ask of Linux: death of a child with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


class DeathWithParent:
    """Arranges in a new child that it gets a signal when its parent dies; made before the fork.

    Linux only; elsewhere it does nothing, and the supervisor's own stop is what ends the children.
    """

    def __init__(self, sig: signal.Signals = signal.SIGKILL) -> None:
        self._signal = sig
        self._parent = os.getpid()
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def __call__(self) -> None:
        """Arrange it; runs in the child."""
        if self._libc is None:
            return
        self._libc.prctl(_PR_SET_PDEATHSIG, int(self._signal), 0, 0, 0)
        if os.getppid() != self._parent:  # it died between the fork and this line
            os.kill(os.getpid(), signal.SIGKILL)
