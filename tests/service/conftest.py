"""Embedded services for the tests: real Redis, real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, settings
from tests.service.spare import Spare


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


@pytest.fixture(scope="session")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spare]:
    """Where `spare` comes from."""
    made = Spare(lambda: tmp_path_factory.mktemp("spare"))
    yield made
    made.stop()


@pytest.fixture
def spare(spares: Spare) -> Iterator[tuple[EmbeddedService, Api]]:
    """A service that the test may freeze, fill and damage; no result of an earlier test is cached."""
    with spares.lent() as (service, api):
        yield service, api


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[EmbeddedService, Api]]]:
    """Start services of the test's own, stopped at its end."""
    with ExitStack() as stack:

        def begin(folder: str = "data", until: str = "/readyz", **changes: Any) -> tuple[EmbeddedService, Api]:
            running = stack.enter_context(EmbeddedService(settings(tmp_path / folder, **changes)))
            running.wait_until(until)
            connection = Api(running.url)
            stack.callback(connection.http.close)
            return running, connection

        yield begin
