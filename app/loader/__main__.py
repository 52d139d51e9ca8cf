"""The entry of the small loader: reports a missing numpy before it imports modules that need it."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def run() -> int:
    """The exit code of the command line, or 2 without numpy."""
    if find_spec("numpy") is None:
        sys.stderr.write("error: the loader needs numpy, and this Python has none: install it, or run another Python\n")
        return 2
    from app.loader.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
