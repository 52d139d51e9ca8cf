"""Structured logs: one JSON object a line, text of users escaped by the encoding (API-7, API-8)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog


class _NamedLogger(structlog.BytesLogger):
    """Writes lines to stderr and knows its name, as loggers of the standard library do."""

    def __init__(self, name: str = "") -> None:
        super().__init__(sys.stderr.buffer)
        self.name = name


def configure_logging(level: str, process: str) -> None:
    """Sends logs and warnings of this process, libraries included, to stderr as JSON lines."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def line(_: Any, __: str, event: structlog.typing.EventDict) -> bytes:
        return msgspec.json.encode({"process": process, **event}, enc_hook=str)

    # Our own lines do not pass through the standard library, which would take twice as long.
    structlog.configure(
        processors=[*shared, line],
        logger_factory=_NamedLogger,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                lambda logger, name, event: line(logger, name, event).decode(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    for name in ("httpx", "httpcore", "kombu", "amqp"):
        logging.getLogger(name).setLevel(logging.WARNING)
