"""What all tests share: golden files, and Hypothesis without deadlines (the machines are shared)."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import typer.main

from compiler.degraded import Degradations
from tests import matrices
from tests.backend.summary import summary_of
from tests.s3 import S3Server, s3_server

if TYPE_CHECKING:
    from compiler.fusion.map_chips import MappedGraph
    from compiler.program.choose import ChoosePlans

# What collecting makes stays: looking for garbage among it took half of the collection, and a search of every test.
gc.disable()

GOLDEN = Path(__file__).parent / "golden"

# Deterministic, so that a run says the same twice; no deadline and no example database.
hypothesis.settings.register_profile(
    "tessera",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.data_too_large,
    ],
)
hypothesis.settings.load_profile("tessera")
hypothesis.settings.register_profile(matrices.FEWER, hypothesis.settings.default)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which rewrites the golden files, and `--matrices`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files under tests/golden")
    matrices.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Let properties that take long try fewer examples in `make test`."""
    if config.getoption("--matrices") == "first":
        hypothesis.settings.load_profile(matrices.FEWER)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases of large matrices that the run takes."""
    taken, left = matrices.select(items, config.getoption("--matrices"))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = taken


def pytest_collection_finish() -> None:
    """Look for garbage from now on, among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, one per test process, and its keys in the environment."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """Tests put the command line together once per process: with every command that they start it took 35 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module", autouse=True)
def _any_plan(request: pytest.FixtureRequest) -> Iterator[None]:
    """In samples, what `search` finds by price is planned, and no other plan is lowered and simulated beside it.

    Most tests need any plan, and pass `choose` takes half to four fifths of a small compilation. Modules marked
    `chosen` have it always: its own tests, and those of whole networks; and so have those marked `service`, which
    compare with other processes. With `make test-all` every module has it.
    """
    is_chosen = any(request.node.get_closest_marker(name) is not None for name in ("chosen", "service"))
    with pytest.MonkeyPatch.context() as patch:
        if not is_chosen and request.config.getoption("--matrices") != "all":
            patch.setattr("compiler.program.choose.ChoosePlans.run", _by_price)
        yield


def _by_price(_: ChoosePlans, mapped: MappedGraph) -> MappedGraph:
    return replace(mapped, fused=replace(mapped.fused, rivals={}))


@pytest.fixture
def prefix() -> str:
    """A part of the bucket of the test's own."""
    return f"test-{secrets.token_hex(8)}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare text with tests/golden/<module>/<test>.txt; a missing file fails."""
    module = Path(str(request.node.path)).stem.removeprefix("test_")
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in request.node.name.removeprefix("test_")).strip("-")
    path = GOLDEN / module / f"{name}.txt"

    def compare(actual: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"golden file {path} is missing; write it with --update-golden and review it")
        assert actual == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(autouse=True)
def _degraded_is_an_error(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation of a test that plans around a defect of ours fails, as under option `degraded=error` (IMPORT-7)."""
    if request.node.get_closest_marker("degrades") is None:
        monkeypatch.setattr(Degradations, "take", lambda *_: False)
        monkeypatch.setattr(Degradations, "leave_out", lambda *_: False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of the whole backend suite that stays below its minima."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    summary = summary_of(reporter.stats) if reporter is not None else None
    if summary is not None and not summary.holds:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the tests of the backend suite came to."""
    summary = summary_of(terminalreporter.stats)
    if summary is not None:
        terminalreporter.write_line(f"ONNX backend suite: {summary}")
