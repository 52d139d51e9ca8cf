"""`python -m tests.chaos.versioned VERSION MODULE ...`: runs a module of the service as another version."""

from __future__ import annotations

import runpy
import sys

from compiler import version


def main() -> None:
    """Sets the version before anything has read it, and runs the module."""
    version.COMPILER_VERSION = sys.argv[1]  # type: ignore[misc]
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
