"""Traces of executables for the service and the command line (SIM-4).

The service makes a trace in a separate process with limits of time and memory, which ends with the request: the work
depends on the size of a program from outside.
"""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from threading import BoundedSemaphore
from typing import Final

from app.errors import UnavailableError
from app.store import BlobStore
from compiler.errors import InternalError, LimitError, TesseraError
from compiler.version import COMPILER_VERSION

FILE_NAME: Final = "trace.perfetto-trace"
MEDIA_TYPE: Final = "application/vnd.perfetto.trace"
# The default number of commands per segment in a trace, and its maximum.
COMMANDS: Final = 100_000
MAX_COMMANDS: Final = 1_000_000
# The memory limit for reading one executable for its trace.
_LIMIT_BYTES: Final = 1 << 30
# The number of traces made at one time.
AT_ONCE: Final = 2
_CHUNK_BYTES: Final = 1 << 16


def tag(digest: str, commands: int) -> str:
    """A digest of everything that a trace depends on."""
    return hashlib.sha256(repr(("trace", digest, commands, COMPILER_VERSION)).encode()).hexdigest()


def pieces(
    store: BlobStore, digest: str, commands: int, time_limit_s: float, makers: BoundedSemaphore
) -> Generator[bytes, None, None]:
    """The trace of an executable in a store, piece by piece: the first commands of each segment.

    `makers` limits the number of traces made at one time. Errors before the first piece are raised at once:
    UnavailableError if all places are taken, LimitError beyond a limit, InternalError if the executable is missing.
    """
    from app.http import closing  # FastAPI, which the command line does without

    with ExitStack() as stack:
        if not makers.acquire(blocking=False):
            raise UnavailableError(
                "too many traces are made at this time", code="busy", limit=AT_ONCE, hint="Try again in a few seconds"
            )
        stack.callback(makers.release)
        try:
            file = stack.enter_context(store.opened(digest))
        except FileNotFoundError:
            raise InternalError("an executable is missing from the store", stage="store", actual=digest) from None
        command = [sys.executable, "-m", "app.simulations.traces", str(commands)]
        child = stack.enter_context(
            subprocess.Popen(
                [*command, str(max(1, round(time_limit_s)))],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        stack.callback(child.kill)
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.read(_CHUNK_BYTES)
        if not first:
            raise _error(child.stderr.read(), child.wait(), time_limit_s)
        return closing(chain([first], _rest(child, time_limit_s)), stack.pop_all())


def _rest(child: subprocess.Popen[bytes], time_limit_s: float) -> Iterator[bytes]:
    """What follows the first piece; raises if the child does not come to its end, so that no half trace looks whole."""
    assert child.stdout is not None
    assert child.stderr is not None
    yield from iter(partial(child.stdout.read, _CHUNK_BYTES), b"")
    code = child.wait()
    if code:
        raise _error(child.stderr.read(), code, time_limit_s)


def _error(said: bytes, code: int, time_limit_s: float) -> TesseraError:
    """The error that ended a child."""
    if code == -signal.SIGALRM:
        return LimitError(
            "a trace takes longer than the service gives to one",
            code="time_limit",
            stage="simulate",
            limit=f"{time_limit_s:.0f} s",
            hint="Make it from the executable with `tessera trace`",
        )
    try:
        told = json.loads(said.splitlines()[-1])
        return LimitError(str(told["message"]), code=str(told["code"]), stage="simulate")
    except (ValueError, KeyError, IndexError, TypeError):
        return InternalError("the process that makes a trace ended", stage="simulate", actual=code)


def main(commands: str, time_limit_s: str) -> int:
    """Write the trace of the executable that is the standard input to the standard output, within limits."""
    # the service imports this module too, and reads no programs
    from app.store import mapped_file
    from compiler.program.executable import read
    from compiler.program.timing.trace import trace_of

    signal.alarm(int(time_limit_s))
    # twice what reading takes: the simulation holds some hundred bytes per command beside the program
    resource.setrlimit(resource.RLIMIT_DATA, (2 * _LIMIT_BYTES, 2 * _LIMIT_BYTES))
    try:
        with mapped_file(sys.stdin.buffer) as data:
            program = read(data, limit_bytes=_LIMIT_BYTES, check_weights=False)
            for piece in trace_of(program, limit=int(commands)):
                sys.stdout.buffer.write(piece)
    except TesseraError as error:
        print(json.dumps({"code": error.code, "message": str(error)}), file=sys.stderr)
        return 1
    except MemoryError:
        print(json.dumps({"code": "memory_limit", "message": "a trace needs too much memory"}), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
