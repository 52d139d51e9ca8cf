"""Traces of executables as the service and the command line give them (SIM-4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Final

from app.store import BlobStore
from compiler.errors import InternalError
from compiler.program.executable import read
from compiler.program.timing.trace import trace_of
from compiler.version import COMPILER_VERSION

FILE_NAME: Final = "trace.perfetto-trace"
MEDIA_TYPE: Final = "application/vnd.perfetto.trace"
# So many commands of each segment are in a trace, unless another number is asked for, which may be so large.
COMMANDS: Final = 100_000
MAX_COMMANDS: Final = 1_000_000
# What reading one executable for its trace may take in memory.
_LIMIT_BYTES: Final = 1 << 30


def tag(digest: str, commands: int) -> str:
    """A digest of all that a trace depends on."""
    return hashlib.sha256(repr(("trace", digest, commands, COMPILER_VERSION)).encode()).hexdigest()


def pieces(store: BlobStore, digest: str, commands: int) -> Iterator[bytes]:
    """The trace of an executable in a store, piece by piece: of each segment the first commands.

    It is simulated in time before the first piece is asked for, so what is wrong is said at once.
    """
    with ExitStack() as stack:
        try:
            data = stack.enter_context(store.mapped(digest))
        except FileNotFoundError:
            raise InternalError("an executable is missing from the store", stage="store", actual=digest) from None
        found = trace_of(read(data, limit_bytes=_LIMIT_BYTES, check_weights=False), limit=commands)
        return _closing(chain([next(found)], found), stack.pop_all())


def _closing(found: Iterator[bytes], stack: ExitStack) -> Iterator[bytes]:
    with stack:
        yield from found
