"""Error output of the command line: one block on stderr and an exit code (UI-1), never a traceback."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from app.cli import console_script
from app.client.errors import ServiceError, UnreachableError
from app.errors import SetupError
from compiler.errors import LimitError, ModelError, ProfileError, RequestError, TesseraError, printable
from compiler.program.errors import ExecutableError, ProgramError

# The console script; other callers of these functions (tests) are no command to repeat.
PROGRAM: Final = "tessera"


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on."""

    SUCCESS = 0
    INTERNAL = 1
    USAGE = 2
    MODEL_OR_PROFILE = 3
    INTERRUPTED = console_script.INTERRUPTED


_OF_CLASS: tuple[tuple[type[TesseraError], ExitCode], ...] = (
    (ModelError, ExitCode.MODEL_OR_PROFILE),
    (ProfileError, ExitCode.MODEL_OR_PROFILE),
    (LimitError, ExitCode.MODEL_OR_PROFILE),
    (RequestError, ExitCode.USAGE),
    (ProgramError, ExitCode.MODEL_OR_PROFILE),
    (ExecutableError, ExitCode.MODEL_OR_PROFILE),
    (SetupError, ExitCode.USAGE),
    (UnreachableError, ExitCode.USAGE),
)
# Problems of the service caused by the request, not by the model or the profile.
USAGE_CODES = frozenset(
    (
        "unknown_profile",
        "unknown_model",
        "unknown_option",
        "unknown_node",
        "unknown_dim",
        "invalid_option",
        "invalid_request",
        "invalid_schedule",
        "batch_not_possible",
        "invalid_inputs",
        "unknown_input",
        "missing_input",
        "wrong_input",
        "unknown_group",
        "no_values",
        "no_such_result",
        "wrong_profile",
        "input_missing",
        "wrong_tensor",
        "input_type",
        "invalid_address_table",
        "invalid_grid",
        "invalid_quantity",
        "too_many_fields",
        "too_many_points",
        "unknown_field",
        "unknown_tensor",
        "unknown_value",
        "cancelled",
        "contradicting_extents",
        "extent_out_of_range",
        "host_node",
        "illegal_extents",
        "index_out_of_range",
        "invalid_shape",
        "invalid_units",
        "units_differ",
        "wrong_units",
        "missing_dimension",
        "no_bucket",
        "no_package",
        "package_version",
        "tail_refused",
        "unknown_dimension",
        "wrong_rank",
        "wrong_table",
    )
)


def exit_code_of(error: TesseraError) -> ExitCode:
    """The exit code for an error."""
    if isinstance(error, ServiceError):
        if error.status >= 500:
            return ExitCode.INTERNAL
        # 404, 405, 413... never concern the model or the profile
        usage = error.status != HTTPStatus.UNPROCESSABLE_ENTITY or error.code in USAGE_CODES
        return ExitCode.USAGE if usage else ExitCode.MODEL_OR_PROFILE
    for kind, code in _OF_CLASS:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL


def show(error: TesseraError, *, as_json: bool) -> None:
    """Prints an error on stderr: a block for people, or the problem as one line of JSON."""
    if as_json:
        sys.stderr.write(json.dumps(error.to_dict()) + "\n")
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), printable(error.message, 1000)))
    rows = {
        "code": error.code,
        "stage": error.stage,
        "node": error.node,
        "op": error.op_type,
        "actual": error.actual,
        "limit": error.limit,
        "violates": getattr(error, "violation", None),
        "hint": error.hint,
    }
    for name, value in rows.items():
        if value is not None:
            text = str(value)
            most = len(text) if name == "hint" else 1000  # a hint may hold a command to paste, so it is never cut
            console.print(Text.assemble((f"  {name:<9}", "dim"), printable(text, most)))


def _offer_command(error: TesseraError) -> None:
    """Offers the whole command to paste if the hint of a missing dimension gives the words to add (IMPORT-10)."""
    before, option, rest = (error.hint or "").partition("--set ")
    if option and Path(sys.argv[0]).name == PROGRAM:
        error.hint = f"{before}{shlex.join(sys.argv)} --set {rest}"


@contextmanager
def failures(*, as_json: bool) -> Iterator[None]:
    """Turns errors into one block on stderr and the exit code."""
    try:
        yield
    except TesseraError as error:
        if error.code == "dynamic_dim":
            _offer_command(error)
        show(error, as_json=as_json)
        raise typer.Exit(exit_code_of(error)) from None
    except OSError as error:
        where = "the output" if error.filename is None else printable(str(error.filename), 200)
        hint = "Choose another path, or free the space or the rights that are missing"
        show(RequestError(f"{where}: {error.strerror}", code="file_error", actual=where, hint=hint), as_json=as_json)
        raise typer.Exit(ExitCode.USAGE) from None
    except (KeyboardInterrupt, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        show(
            TesseraError(
                "Tessera failed in an unexpected way; this is our fault",
                code="internal_error",
                actual=type(error).__name__,
                hint="Report it with the command you gave",
            ),
            as_json=as_json,
        )
        raise typer.Exit(ExitCode.INTERNAL) from None
