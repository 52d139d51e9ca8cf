"""What is wrong with a program, and at which command (PROG-4)."""

from __future__ import annotations

from typing import ClassVar

from compiler.errors import TesseraError


class ProgramError(TesseraError):
    """A program that must not run, or cannot: whoever made the executable has to change it.

    `violation` is a stable word for what is violated; `command` the number of the command at fault, None where the
    fault lies in no single one. `tile`: the counters of the tile at which a command that loops is at fault.
    """

    default_code: ClassVar[str] = "invalid_program"
    default_hint = "Compile the model again; if that fails in the same way, report it with the command you gave"

    def __init__(
        self,
        message: str,
        *,
        violation: str,
        command: int | None = None,
        tile: tuple[int, ...] = (),
        actual: object | None = None,
        limit: object | None = None,
        hint: str | None = None,
    ) -> None:
        at = f" at tile {', '.join(map(str, tile))}" if tile else ""
        where = message if command is None else f"command {command}{at}: {message}"
        super().__init__(where, stage="program", actual=actual, limit=limit, hint=hint)
        self.violation = violation
        self.command = command
        self.tile = tile
        self._what = message

    def moved(self, command: int, tile: tuple[int, ...]) -> ProgramError:
        """The same error of another command."""
        return ProgramError(
            self._what,
            violation=self.violation,
            command=command,
            tile=tile,
            actual=self.actual,
            limit=self.limit,
            hint=self.hint,
        )

    def to_dict(self) -> dict[str, object]:
        """The problem as plain values, with what is violated and where."""
        where: dict[str, object] = {} if self.command is None else {"command": self.command}
        if self.tile:
            where["tile"] = list(self.tile)
        return {**super().to_dict(), "violation": self.violation, **where}


class ExecutableError(TesseraError):
    """A file that is no executable, or a damaged one: whoever made or sent it has to send another.

    `section` is the part of the file at fault and `offset` the byte in it.
    """

    default_code: ClassVar[str] = "invalid_executable"
    default_hint = "Compile the model again: the file is damaged, or of another version"

    def __init__(
        self,
        message: str,
        *,
        section: str,
        offset: int,
        code: str | None = None,
        actual: object | None = None,
        limit: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            f"{section}, byte {offset}: {message}",
            code=code,
            stage="executable",
            actual=actual,
            limit=limit,
            hint=hint,
        )
        self.section = section
        self.offset = offset
