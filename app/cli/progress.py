"""Progress on stderr, the same for a compilation here and for a job on a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from compiler.errors import printable

# The stages of a compilation by their first pass; one line each if stderr is not a terminal.
_VERIFYING: Final = "check values"
_PHASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "read": "planning",
        "program": "making, proving and simulating programs",
        _VERIFYING: "verifying outputs",
    }
)


class ProgressBar:
    """A bar over the phases of a compilation, and its observer; prints lines if stderr is not a terminal.

    `verifies` is False where outputs are not compared, though there is a pass for it.
    """

    def __init__(self, console: Console, title: str, *, verifies: bool = True) -> None:
        self._console = console
        self._title = printable(title, 60)
        self._said: set[str] = set() if verifies else {_VERIFYING}
        self._tenths = -1
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[phase]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(printable(title, 60), total=None, phase="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hides the bar while other text is printed."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def say(self, text: str) -> None:
        """Shows a state without steps."""
        self._progress.update(self._task, phase=printable(text, 40))

    def phase(self, name: str, step: int, total: int) -> None:
        """A phase begins."""
        if not self._console.is_terminal and name in _PHASES and name not in self._said:
            self._said.add(name)
            self._console.print(f"{self._title}: {_PHASES[name]}", highlight=False, soft_wrap=True)
        if total > 0:
            self._progress.update(self._task, total=total, completed=step - 1, phase=printable(name, 40))

    def points(self, done: int, total: int) -> None:
        """So many points of a sweep are done; a line for each tenth of them if stderr is not a terminal."""
        text, tenths = f"{done} of {total} points", 10 * done // max(total, 1)
        if not self._console.is_terminal and tenths > self._tenths:
            self._tenths = tenths
            self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True)
        self.phase(text, done + 1, total)

    def cancelled(self) -> bool:
        """Never; Ctrl-C ends the process."""
        return False
