"""One process of a pool: compiles a model for each profile it receives."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from app.cli.point_pool import Computed
from app.input_files import open_model
from app.limits import bounded
from app.sweeps.figures import figures_json, figures_of
from compiler.compile import compile_model
from compiler.errors import InternalError, TesseraError
from compiler.frontend.source import ModelSource
from compiler.option_words import parse_assignments
from compiler.options import Options
from compiler.profile import parse_profile


def serve(connection: Connection, model: str, settings: Sequence[str]) -> None:
    """Works until the other end is closed; receives a profile's canonical form, sends a `Computed`, as JSON."""
    options = parse_assignments(settings)
    source = open_model(Path(model))
    while True:
        try:
            data = connection.recv_bytes()
            connection.send_bytes(msgspec.json.encode(_computed(source, data, options)))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _computed(source: ModelSource, data: bytes, options: Options) -> Computed:
    try:
        profile = parse_profile(data)
        with bounded(options.time_limit_s, options.memory_limit_bytes):
            compilation = compile_model(source, profile, options)
        return Computed(figures=figures_json(figures_of(compilation.plan, compilation.report, profile)))
    except TesseraError as error:
        return Computed(problem=error.to_dict())
    except Exception as error:  # noqa: BLE001 - one point fails, the others go on
        unexpected = InternalError(
            "Tessera failed in an unexpected way; this is our fault",
            actual=type(error).__name__,
            hint="Report it with the profile of this point",
        )
        return Computed(problem=unexpected.to_dict())
