"""The version of the compiler: part of every cache key and of every plan."""

from typing import Final

COMPILER_VERSION: Final = "0.12.0"
