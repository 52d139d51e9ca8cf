"""The console script: what is true from the first moment to the last, before and after any command's own code.

Ctrl-C ends with exit code 130 and no traceback. A reader of the output that has seen enough (`| head`) ends the
command with exit code 0. This module imports little, so that both hold while the commands are imported.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERRUPTED: Final = 130
_USAGE: Final = 2
# How long after a lost KeyboardInterrupt the signal is sent again.
_AGAIN_S: Final = 0.01


class _Output(io.FileIO):
    """Standard output or error: a reader that is gone ends the command, without a word."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes; raises SystemExit with code 0 where nobody reads them any more."""
        try:
            return super().write(data)
        except BrokenPipeError:
            _discard(self.fileno())
            raise SystemExit(0) from None


def run() -> None:
    """Run the command that `sys.argv` names and exit with its code."""
    signal.signal(signal.SIGINT, _end)
    sys.unraisablehook = _interrupt_again
    sys.stdout, sys.stderr = _output(sys.stdout), _output(sys.stderr)
    code: str | int | None = 0
    try:
        from app.cli.main import cli

        signal.signal(signal.SIGINT, signal.default_int_handler)
        cli()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    signal.signal(signal.SIGINT, _end)
    sys.exit(_flushed(code))


def _end(_signal: int, _frame: FrameType | None) -> None:
    """End at once: there is nothing to tidy up while modules are imported and after the command."""
    os._exit(INTERRUPTED)


def _interrupt_again(failed: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that arrived in a callback, where Python prints exceptions and loses them."""
    if failed.exc_type is KeyboardInterrupt:
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(failed)


def _output(stream: TextIO) -> TextIO:
    """A standard stream written through `_Output`, otherwise as it was; one that is closed goes nowhere."""
    if not isinstance(stream, io.TextIOWrapper):
        return open(os.devnull, "w")  # noqa: PTH123 - it lasts as long as the process
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )


def _flushed(code: str | int | None) -> str | int | None:
    """The exit code, after what is left of the output is written; a full disk is said, if nothing else was."""
    try:
        sys.stdout.flush()
    except SystemExit:
        return code
    except OSError as error:
        _discard(sys.stdout.fileno())
        if code == 0:
            sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
            return _USAGE
    return code


def _discard(descriptor: int) -> None:
    """Let what is still in buffers go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
