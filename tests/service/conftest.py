"""Embedded services for the tests: real Redis, real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, settings


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """One service for all tests of this process that kill nothing."""
    with EmbeddedService(
        settings(tmp_path_factory.mktemp("service"), max_upload_bytes=4_000_000, max_wait_s=20.0)
    ) as running:
        running.wait_until()
        yield running


@pytest.fixture(scope="session")
def api(service: EmbeddedService) -> Iterator[Api]:
    """Its HTTP interface."""
    connection = Api(service.url)
    yield connection
    connection.http.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[EmbeddedService, Api]]]:
    """Start services of the test's own, stopped at its end."""
    with ExitStack() as stack:

        def begin(folder: str = "data", **changes: Any) -> tuple[EmbeddedService, Api]:
            running = stack.enter_context(EmbeddedService(settings(tmp_path / folder, **changes)))
            running.wait_until()
            connection = Api(running.url)
            stack.callback(connection.http.close)
            return running, connection

        yield begin
