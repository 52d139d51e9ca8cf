"""Structured logs: one JSON object a line, text of users escaped by the encoding (API-7, API-8)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog


def _encode(values: Any, **_: Any) -> str:
    return msgspec.json.encode(values, enc_hook=str).decode()


def configure_logging(level: str, process: str) -> None:
    """Sends logs and warnings of this process, libraries included, to stderr as JSON lines."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def add_process(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {"process": process, **event}

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                add_process,
                structlog.processors.JSONRenderer(serializer=_encode),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    for name in ("httpx", "httpcore", "kombu", "amqp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
