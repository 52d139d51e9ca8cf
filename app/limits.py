"""Time and memory limits of a compilation in this process, from the same options that limit a job."""

from __future__ import annotations

import errno
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from compiler.errors import InternalError, LimitError, RequestError, TesseraError, printable

# Options that limit the work and do not change its result.
_BOUNDS: Final = frozenset(("time_limit_s", "memory_limit_bytes"))

# Messages of the system's loader for a library that does not fit in memory.
_UNMAPPED: Final = ("failed to map", "load shared object", "cannot allocate memory", "Cannot allocate memory")
# Below this much free address space, a failure counts as lack of memory.
_NOTHING_BYTES: Final = 1 << 24

# After the time limit, the alarm repeats at this interval until it is handled.
_AGAIN_S: Final = 0.25


def refuse_decided(what: str, settings: Sequence[str]) -> None:
    """Raises RequestError for options that cannot change a compiled file any more; limits are accepted."""
    names = (word.partition("=")[0].partition(".")[0] for word in settings)
    odd = next((name for name in names if name not in _BOUNDS), None)
    if odd is not None:
        raise RequestError(
            f"{what} was compiled already: it takes no options but bounds",
            code="invalid_option",
            actual=printable(odd, 60),
            limit=", ".join(sorted(_BOUNDS)),
            hint="Leave it out, or give the ONNX file to compile it with other options",
        )


@contextmanager
def bounded(time_limit_s: float | None, memory_limit_bytes: int | None) -> Iterator[None]:
    """Runs a block with a time limit (seconds) and a limit on memory growth (bytes); raises LimitError beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    is_late = False

    def too_late() -> LimitError:
        return LimitError(
            "the compilation took longer than time_limit_s allows",
            code="time_limit",
            limit=time_limit_s,
            hint="Raise time_limit_s or compile a smaller model",
        )

    def expired(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_late
        is_late = True
        raise too_late()

    previous = signal.signal(signal.SIGALRM, expired)
    try:
        if memory_limit_bytes is not None:
            wanted = _address_space_bytes() + memory_limit_bytes
            resource.setrlimit(
                resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
            )
        if time_limit_s is not None:
            # An error raised in a garbage collector callback is printed and lost, so the alarm repeats.
            signal.setitimer(signal.ITIMER_REAL, time_limit_s, _AGAIN_S)
        yield
    except Exception as error:
        # what the handler itself does takes memory too
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        # a library that calls back into Python may make an error of its own of the alarm's
        if is_late and (isinstance(error, InternalError) or not isinstance(error, TesseraError)):
            raise too_late() from error
        is_short = memory_limit_bytes is not None and _ran_short(error, limit)
        if not is_short and not isinstance(error, MemoryError):
            raise
        raise LimitError(
            "the compilation needs more memory than memory_limit_bytes allows",
            code="memory_limit",
            limit=memory_limit_bytes,
            hint="Raise memory_limit_bytes or compile a smaller model",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _ran_short(error: Exception, limit_bytes: int) -> bool:
    """True if an error other than MemoryError, met under this limit of the address space, comes from a lack of memory.

    This is so for a library that cannot be mapped, and for any failure with next to no free address space, except our
    own error types other than InternalError.
    """
    if isinstance(error, OSError | ImportError):
        said = str(error)
        return getattr(error, "errno", None) == errno.ENOMEM or any(words in said for words in _UNMAPPED)
    if isinstance(error, TesseraError) and not isinstance(error, InternalError):
        return False
    return limit_bytes - _address_space_bytes() < _NOTHING_BYTES


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
