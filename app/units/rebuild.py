"""Builds a pushed library again, in a process of its own with limits of time and memory (SHAPE-1).

Nobody vouches for the bytes of a push. Only what comes out of this process enters the cache.
"""

from __future__ import annotations

import json
import resource
import signal
import struct
import subprocess
import sys
from threading import BoundedSemaphore
from typing import Final

from app.errors import UnavailableError
from compiler.errors import InternalError, LimitError, RequestError, TesseraError
from compiler.profile import Profile, parse_profile, profile_json

# The libraries that are built again at one time, and what one may take.
AT_ONCE: Final = 1
_ARGUMENTS: Final = ("-m", "app.units.rebuild")
_LIMIT_BYTES: Final = 1 << 30
_LIMIT_S: Final = 120
_HINT: Final = "Compile a model that uses these units: workers have other limits"
_LENGTH: Final = struct.Struct("<I")


def rebuilt_bundle(library: bytes, profile: Profile, makers: BoundedSemaphore) -> bytes:
    """The bundle that this server makes for what a library value says it is for.

    Raises RequestError for values of which no routine can be made, UnavailableError while others are built, LimitError
    beyond a limit.
    """
    if not makers.acquire(blocking=False):
        raise UnavailableError(
            "other units are built again at this time", code="busy", limit=AT_ONCE, hint="Try again in a few seconds"
        )
    try:
        given = profile_json(profile)
        done = subprocess.run(
            [sys.executable, *_ARGUMENTS],
            input=_LENGTH.pack(len(given)) + given + library,
            capture_output=True,
            check=False,
        )
    finally:
        makers.release()
    if done.returncode == 0:
        return done.stdout
    if done.returncode == -signal.SIGALRM:
        raise LimitError(
            "building the units again takes too long", code="time_limit", stage="units", limit=_LIMIT_S, hint=_HINT
        )
    try:
        told = json.loads(done.stderr.splitlines()[-1])
        raise RequestError(
            str(told["message"]),
            code=str(told["code"]),
            stage="units",
            actual=told.get("actual"),
            hint=str(told["hint"]),
        )
    except (ValueError, KeyError, IndexError, TypeError):
        raise InternalError("the process that builds units ended", stage="units", actual=done.returncode) from None


def main() -> int:
    """Write the bundle for the profile and the library value that are the standard input."""
    from compiler.shapes.rebuild_units import rebuilt
    from compiler.shapes.unit_bundle import encode_bundle
    from compiler.shapes.unit_encoding import decode_library
    from compiler.threads import one_thread

    signal.alarm(_LIMIT_S)
    resource.setrlimit(resource.RLIMIT_DATA, (_LIMIT_BYTES, _LIMIT_BYTES))
    data = sys.stdin.buffer.read()
    (length,) = _LENGTH.unpack_from(data)
    profile = parse_profile(data[_LENGTH.size : _LENGTH.size + length])
    try:
        library = decode_library(data[_LENGTH.size + length :])
        with one_thread():
            values = rebuilt(library, profile)
        sys.stdout.buffer.write(encode_bundle(next(iter(values)), values))
    except TesseraError as error:
        print(json.dumps(error.to_dict()), file=sys.stderr)
        return 1
    except MemoryError:
        told = LimitError("building the units again takes too much memory", code="memory_limit", hint=_HINT)
        print(json.dumps(told.to_dict()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
