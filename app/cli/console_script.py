"""The console script: handles Ctrl-C and closed pipes around every command, its imports included.

Python's own start, some hundredths of a second before this module, is not covered.

Ctrl-C ends with exit code 130 and no traceback. If a reader closes the pipe early (`| head`), the command ends with
exit code 0; one that has files to write finishes them first (`outlive_reader`). This module imports little, so that
all of this holds while the commands are imported.
"""

from __future__ import annotations

import io
import os
import signal
import sys

TYPE_CHECKING = False  # typing itself takes time in which Ctrl-C is not handled
if TYPE_CHECKING:
    import threading
    from types import FrameType
    from typing import Final, TextIO

    from _typeshed import ReadableBuffer

INTERRUPTED: Final = 130
_USAGE: Final = 2
# Ctrl-C is repeated after this time unless its exception was heard: callbacks and extension modules drop exceptions.
_AGAIN_S: Final = 0.25


class _CtrlC:
    """The handler of Ctrl-C: raises KeyboardInterrupt, and after a delay again, until `heard`."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._is_repeat = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        """A Ctrl-C, or its repeat. What cleans up after one is not disturbed by repeats."""
        is_repeat, self._is_repeat = self._is_repeat, False
        if is_repeat and self._timer is None:
            return  # heard meanwhile
        self._repeat()
        if not is_repeat or not _is_handled():
            raise KeyboardInterrupt

    def heard(self) -> None:
        """No more repeats."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _repeat(self) -> None:
        import threading

        self.heard()
        self._timer = threading.Timer(_AGAIN_S, self._again)
        self._timer.daemon = True
        self._timer.start()

    def _again(self) -> None:
        self._is_repeat = True
        os.kill(os.getpid(), signal.SIGINT)


def heard() -> None:
    """Ends the repeats of Ctrl-C: whoever catches a KeyboardInterrupt calls this first."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _CtrlC):
        handler.heard()


def _is_handled() -> bool:
    """Whether a KeyboardInterrupt is on its way to whoever catches it, through what cleans up."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


class _Output(io.FileIO):
    """Standard output or error; ends the command silently once the reader is gone, unless it has files to write."""

    ends_with_reader = True

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes bytes; raises SystemExit with code 0 if the reader is gone and nothing else is to be written."""
        try:
            return super().write(data)
        except BrokenPipeError:
            _discard(self.fileno())
            if self.ends_with_reader:
                raise SystemExit(0) from None
            return memoryview(data).nbytes


def outlive_reader() -> None:
    """Lets the command go on after its reader is gone, with its output discarded: it has files to write."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        if isinstance(raw, _Output):
            raw.ends_with_reader = False


def run() -> None:
    """Runs the command in `sys.argv` and exits with its code."""
    signal.signal(signal.SIGINT, _end)
    sys.unraisablehook = _report_dropped
    sys.stdout, sys.stderr = _output(sys.stdout), _output(sys.stderr)
    code: str | int | None = 0
    try:
        from app.cli.main import cli
        from app.telemetry import send_nothing

        send_nothing()
        signal.signal(signal.SIGINT, _CtrlC())
        cli()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        heard()
        code = INTERRUPTED
    signal.signal(signal.SIGINT, _end)
    sys.exit(_flushed(code))


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Ends at once: during imports and after the command there is nothing to clean up."""
    os._exit(INTERRUPTED)


def _report_dropped(failed: sys.UnraisableHookArgs) -> None:
    """Prints an exception that Python drops, but for a Ctrl-C, which is repeated."""
    if not issubclass(failed.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(failed)


def _output(stream: TextIO) -> TextIO:
    """Wraps a standard stream in `_Output`, otherwise unchanged; a closed stream discards its output."""
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
    """Writes the remaining output and returns the exit code; reports a full disk if nothing else was reported."""
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
    """Discards the contents of the buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
