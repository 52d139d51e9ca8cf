"""What Python runs of the small loader: it says that numpy is missing before anything that needs it is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def run() -> int:
    """The exit code of the command line, or 2 where there is no numpy."""
    if find_spec("numpy") is None:
        sys.stderr.write("error: the loader needs numpy, and this Python has none: install it, or run another Python\n")
        return 2
    from app.loader.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
