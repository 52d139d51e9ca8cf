"""What is wrong with a program, and at which command (PROG-4)."""

from __future__ import annotations

from typing import ClassVar

from compiler.errors import TesseraError


class ProgramError(TesseraError):
    """A program that must not run, or cannot: whoever made the executable has to change it.

    `violation` is a stable word for what is violated; `command` the number of the command at fault, None where the
    fault lies in no single one.
    """

    default_code: ClassVar[str] = "invalid_program"
    default_hint = "Compile the model again; if that fails in the same way, report it with the command you gave"

    def __init__(
        self,
        message: str,
        *,
        violation: str,
        command: int | None = None,
        actual: object | None = None,
        limit: object | None = None,
        hint: str | None = None,
    ) -> None:
        where = message if command is None else f"command {command}: {message}"
        super().__init__(where, stage="program", actual=actual, limit=limit, hint=hint)
        self.violation = violation
        self.command = command

    def to_dict(self) -> dict[str, object]:
        """The problem as plain values, with what is violated and where."""
        where = {} if self.command is None else {"command": self.command}
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
