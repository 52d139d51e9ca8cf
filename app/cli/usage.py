"""Wrong usage of the command line (an unknown option, a missing argument) as JSON, where --json is given."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from app.cli.failures import ExitCode, show
from compiler.errors import RequestError

_WORDS = "tessera.words"


class JsonUsage(TyperGroup):
    """The commands; what is wrong in their words is a line of JSON if --json is among them, else Typer's box."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """As in Typer; keeps the words."""
        words = list(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """As in Typer; shows wrong usage as JSON."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            if "--json" not in ctx.meta[_WORDS]:
                raise
            message = getattr(error, "format_message", error.__str__)().rstrip(".")
            command = getattr(getattr(error, "ctx", None), "command_path", ctx.command_path)
            hint = f"`{command} --help` shows the arguments and options"
            show(RequestError(message, code="invalid_usage", hint=hint), as_json=True)
            raise typer.Exit(ExitCode.USAGE) from None
