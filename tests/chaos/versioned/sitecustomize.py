"""Python imports this first in each process of a chaos run: the process takes the compiler version of CHAOS_VERSION."""

import os

from compiler import version

version.COMPILER_VERSION = os.environ.get("CHAOS_VERSION", version.COMPILER_VERSION)  # type: ignore[misc]
