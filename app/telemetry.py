"""What libraries would tell their makers over the network, and does not leave this host."""

from __future__ import annotations

import os
from typing import Final

# The variable of the environment that keeps ONNX Runtime from sending anything.
NO_TELEMETRY: Final = "ORT_DISABLE_TELEMETRY"


def send_nothing() -> None:
    """To be called before anything is compiled; what the process starts inherits it.

    Whoever compiles other people's models has nothing to tell, and the threads that would do so load libraries at
    times when that can stop the process.
    """
    os.environ[NO_TELEMETRY] = "1"
