"""API-4: who is let in with which key, and how much a key may use."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import tessera
from app.cli.main import cli
from app.keys.keys import Keys
from app.redis_urls import connect
from app.settings import Settings
from app.store import document_store
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, new_key, settings, until
from tests.service.test_api import assert_problem, user_profile
from tests.service.test_owners import UNKNOWN, operations_of, requests

pytestmark = pytest.mark.service
OPEN = {"live", "ready"}
RAW = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """A service that answers to holders of a key alone."""
    with EmbeddedService(settings(tmp_path_factory.mktemp("closed"), require_keys="always")) as running:
        running.wait_until()
        yield running


@pytest.fixture
def connected() -> Iterator[Callable[..., Api]]:
    """Connections with a key, closed at the end of the test."""
    made: list[Api] = []

    def begin(service: EmbeddedService, key: str | None = None) -> Api:
        made.append(Api(service.url, key))
        return made[-1]

    yield begin
    for api in made:
        api.http.close()


@pytest.mark.parametrize(
    ("values", "required"),
    [
        ({"host": "127.0.0.1"}, False),
        ({"host": "localhost"}, False),
        ({"host": "::1"}, False),
        ({"host": "127.0.0.1", "require_keys": "always"}, True),
        ({"host": "127.0.0.1", "allowed_hosts": "tessera.lan"}, True),
        ({"host": "0.0.0.0"}, True),
        ({"host": "192.0.2.7"}, True),
        ({"host": "tessera.lan"}, True),
    ],
)
def test_keys_are_required_wherever_others_can_reach_the_service(values: dict[str, Any], required: bool) -> None:
    assert Settings(**values).keys_required is required


def test_every_route_but_those_for_probes_needs_a_key(closed: EmbeddedService, connected: Callable[..., Api]) -> None:
    api = connected(closed)
    operations = operations_of(api)
    asked = requests(operations, UNKNOWN)
    for name, (method, path) in operations.items():
        answer = asked[name].sent(api) if name in asked else api.http.request(method, path)
        if name in OPEN:
            assert answer.status_code == 200, name
        else:
            assert_problem(answer, 401, "key_required", "TESSERA_KEY")
            assert answer.headers["www-authenticate"].startswith("Bearer"), name


def test_every_key_that_does_not_hold_is_refused_alike(closed: EmbeddedService, connected: Callable[..., Api]) -> None:
    text = new_key(closed, "right")
    api = connected(closed)
    key_id = text.split("_")[1]
    wrong = [
        f"Bearer tessera_{key_id}_{'0' * 64}",
        f"Bearer tessera_{'0' * 16}_{'0' * 64}",
        f"Bearer {text}0",
        f"Bearer {text[:-1]}",
        "Bearer",
        "Bearer é",
        f"Basic {text}",
        text,
    ]
    bodies = set()
    for header in wrong:
        answer = api.http.get("/v1/jobs", headers={b"Authorization": header.encode()})
        assert_problem(answer, 401, "invalid_key")
        bodies.add(re.sub(r'"request_id":"[^"]*"', "", answer.text))
    assert len(bodies) == 1
    twice = httpx.Headers([("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")])
    assert_problem(api.http.get("/v1/jobs", headers=twice), 401, "invalid_key")
    assert api.http.get("/v1/jobs", headers={"Authorization": f"bearer {text}"}).status_code == 200


def test_a_wrong_key_is_refused_on_loopback_too(api: Api) -> None:
    assert_problem(api.http.get("/v1/jobs", headers={"Authorization": "Bearer nonsense"}), 401, "invalid_key")


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via"]
)
def test_what_a_proxy_passes_on_needs_a_key_on_loopback_too(api: Api, service: EmbeddedService, header: str) -> None:
    answer = api.http.get("/v1/jobs", headers={header: "127.0.0.1"})
    assert_problem(answer, 401, "key_required", header.lower())
    text = new_key(service, f"behind-{header}")
    headers = {header: "127.0.0.1", "Authorization": f"Bearer {text}"}
    assert api.http.get("/v1/jobs", headers=headers).status_code == 200


def test_a_revoked_key_is_refused_from_the_next_request_on(
    closed: EmbeddedService, connected: Callable[..., Api]
) -> None:
    api = connected(closed, new_key(closed, "short-lived"))
    assert api.http.get("/v1/jobs").status_code == 200
    client = connect(closed.broker_url)
    Keys(client, closed.settings).revoke("short-lived")
    client.close()
    assert_problem(api.http.get("/v1/jobs"), 401, "invalid_key")


def test_the_command_works_on_the_data_directory_of_a_running_service(
    closed: EmbeddedService, connected: Callable[..., Api]
) -> None:
    words = ["keys", "create", "by-command", "--data-dir", str(closed.data_dir)]
    text = CliRunner().invoke(cli, words).stdout.strip()
    assert connected(closed, text).http.get("/v1/jobs").status_code == 200


def test_metrics_are_for_the_local_owner(closed: EmbeddedService, connected: Callable[..., Api]) -> None:
    assert_problem(connected(closed, new_key(closed, "tenant")).http.get("/metrics"), 403, "forbidden", "--owner local")
    assert connected(closed, new_key(closed, "prometheus", "local")).http.get("/metrics").status_code == 200


def test_no_secret_is_in_a_log_or_a_record(closed: EmbeddedService, connected: Callable[..., Api]) -> None:
    text = new_key(closed, "secretive")
    api = connected(closed, text)
    number = api.http.get("/v1/jobs").headers["x-request-id"]
    api.http.get("/v1/jobs/nothing", headers={"Authorization": f"Bearer {text}x"})
    log = closed.log_dir / "api.log"
    until(lambda: number in log.read_text(), "the request in the log")
    line = next(line for line in log.read_text().splitlines() if number in line and '"request"' in line)
    assert text.split("_")[1] in line  # the id, which says whose request it was
    secret = text.split("_")[2]
    for path in closed.log_dir.iterdir():
        assert secret not in path.read_text(errors="replace"), path
    records = b"".join(path.read_bytes() for path in (closed.data_dir / "redis").rglob("*aof*"))
    assert b"secretive" in records
    assert secret.encode() not in records


def test_a_key_sends_so_many_requests_and_no_more_until_time_has_passed(
    service: EmbeddedService, connected: Callable[..., Api]
) -> None:
    api = connected(service, new_key(service, "hasty", requests_per_minute=30))
    answers = [api.http.get("/v1/jobs") for _ in range(40)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 5 <= len(refused) <= 10
    problem = assert_problem(refused[0], 429, "too_many_requests", "Retry-After")
    assert problem["limit"] == 30
    assert 1 <= int(refused[0].headers["retry-after"]) <= 2
    until(lambda: api.http.get("/v1/jobs").status_code == 200, "another request of the key")


def test_bytes_of_models_are_bounded_by_key(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    data = conv_chain(2, channels=11)
    api = connected(service, new_key(service, "small", stored_bytes=len(data) + 10))
    model = api.upload(data)
    assert api.upload(data) == model  # it is there already
    other = conv_chain(2, channels=12)
    headers = {"Content-Type": "application/octet-stream"}
    answer = api.http.post("/v1/models", content=other, headers=headers)
    problem = assert_problem(answer, 429, "too_many_bytes", "Delete models")
    form: Any = {"executable": ("net.tsx", other)}
    assert_problem(api.http.post("/v1/simulations", files=form), 429, "too_many_bytes")
    assert not document_store(service.settings.store_dir).holds(hashlib.sha256(other).hexdigest())
    assert (problem["actual"], problem["limit"]) == (len(data) + len(other), len(data) + 10)
    assert "retry-after" in answer.headers
    form = {"model": ("net.onnx", other), "profile": (None, "edge4")}
    assert_problem(api.http.post("/v1/compilations", files=form), 429, "too_many_bytes")
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    api.upload(other)


def test_models_and_profiles_are_bounded_by_key(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    api = connected(service, new_key(service, "tidy", stored_items=1))
    model = api.upload(conv_chain(2, channels=14))
    answer = api.http.post("/v1/models", content=conv_chain(2, channels=15), headers=RAW)
    problem = assert_problem(answer, 429, "too_many_items", "Delete models")
    assert (problem["actual"], problem["limit"]) == (2, 1)
    assert_problem(api.http.post("/v1/profiles", json=user_profile("one-too-many")), 429, "too_many_items")
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    assert api.http.post("/v1/profiles", json=user_profile("the-only-one")).status_code == 201


def test_waiting_jobs_are_bounded_by_owner(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    api = connected(service, new_key(service, "patient", "queueing", waiting_jobs=2))
    same = connected(service, new_key(service, "patient-too", "queueing", waiting_jobs=2))
    model = api.upload(conv_chain(30))
    slow = {"fusion": "search", "verify": "none"}
    jobs = [api.submit(model, "edge4", time_limit_s=500, **slow), same.submit(model, "edge4", **slow)]
    body = {"model": model, "profile": "cluster4x4"}
    problem = assert_problem(same.http.post("/v1/compilations", json=body), 429, "too_many_jobs", "Wait for")
    assert (problem["actual"], problem["limit"]) == (2, 2)
    sweep = {"model": model, "profiles": ["edge4", "cluster4x4"]}
    assert_problem(api.http.post("/v1/sweeps", json=sweep), 429, "too_many_jobs")
    other = connected(service, new_key(service, "other"))
    other.submit(other.upload(conv_chain(2)), "edge4", verify="none")  # whose queue is another
    for job in jobs:
        api.http.post(f"/v1/jobs/{job}/cancel")
        api.finished(job)
    assert api.http.post("/v1/compilations", json=body).status_code in (200, 202)


def test_points_of_a_sweep_are_bounded_by_key(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    api = connected(service, new_key(service, "modest", sweep_points=1))
    sweep = {"model": api.upload(conv_chain(2)), "profiles": ["edge4", "cluster4x4"]}
    problem = assert_problem(api.http.post("/v1/sweeps", json=sweep), 422, "too_many_points")
    assert (problem["actual"], problem["limit"]) == (2, 1)


def arriving(service: EmbeddedService) -> set[Path]:
    files = service.settings.store_dir.rglob("tmp/*")
    return {path for path in files if not path.name.startswith("probe")}


def test_uploads_at_once_are_bounded_by_owner(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    text = new_key(service, "busy", uploads=1)
    first, second = connected(service, text), connected(service, text)
    go_on = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"the first half, "
        go_on.wait(60)
        yield b"the second half"

    headers = {"Content-Type": "application/octet-stream"}
    answers: list[httpx.Response] = []
    slow = threading.Thread(
        target=lambda: answers.append(first.http.post("/v1/models", content=body(), headers=headers))
    )
    before = arriving(service)
    slow.start()
    until(lambda: arriving(service) - before, "the begin of the upload")
    answer = second.http.post("/v1/models", content=b"all of it", headers=headers)
    assert_problem(answer, 429, "too_many_uploads", "another has ended")
    go_on.set()
    slow.join()
    assert answers[0].status_code == 201
    assert second.http.post("/v1/models", content=b"more of it", headers=headers).status_code == 201


@contextmanager
def being_removed(service: EmbeddedService, body: bytes) -> Iterator[None]:
    """An upload of this body arrives and then waits, as for a bucket that takes it slowly."""
    client, mark = connect(service.broker_url), f"tessera:blob:{hashlib.sha256(body).hexdigest()}:removing"
    client.set(mark, 1)
    try:
        yield
    finally:
        client.delete(mark)
        client.close()


def size_of(file: Path) -> int:
    """Bytes of a file; 0 of one that is in place by now, like documents of jobs that others have left."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def test_an_upload_counts_until_it_is_in_place(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    text = new_key(service, "slow-store", uploads=1)
    first, second = connected(service, text), connected(service, text)
    before = arriving(service)
    with ThreadPoolExecutor(1) as pool, being_removed(service, b"waits"):
        waiting = pool.submit(first.http.post, "/v1/models", content=b"waits", headers=RAW)
        until(lambda: [file for file in arriving(service) - before if size_of(file) == 5], "all of the upload")
        answer = second.http.post("/v1/models", content=b"another", headers=RAW)
        assert_problem(answer, 429, "too_many_uploads")
    assert waiting.result().status_code == 201


@pytest.mark.slow
def test_the_client_takes_its_key_from_where_it_is_kept(
    closed: EmbeddedService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = new_key(closed, "python")
    model = conv_chain(1)
    with tessera.Client(closed.url) as client, pytest.raises(tessera.ServiceError, match="TESSERA_KEY") as refused:
        client.profiles()
    assert (refused.value.status, refused.value.code) == (401, "key_required")
    with tessera.Client(closed.url, key=text) as client:
        found = client.compile(model, "edge4", {"verify": "none"})
        assert [event.state for event in client.follow(found.job or "")][-1] == "succeeded"
    assert found.executable is not None
    assert found.executable.inputs  # fetched with the same key
    (tmp_path / "key").write_text(text + "\n")
    monkeypatch.setenv("TESSERA_KEY_FILE", str(tmp_path / "key"))
    with tessera.Client(closed.url) as client:
        assert client.profiles()
    monkeypatch.setenv("TESSERA_KEY", text[:-1])  # stands before the file
    with tessera.Client(closed.url) as client, pytest.raises(tessera.ServiceError, match="not valid"):
        client.profiles()
    with tessera.Client(closed.url, key="") as client, pytest.raises(tessera.ServiceError, match="TESSERA_KEY"):
        client.profiles()
    monkeypatch.setenv("TESSERA_KEY", f"{text} {text}")
    with pytest.raises(tessera.RequestError) as wrong:
        tessera.Client(closed.url)
    assert text not in str(wrong.value)
    monkeypatch.delenv("TESSERA_KEY")
    monkeypatch.setenv("TESSERA_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(tessera.RequestError, match="TESSERA_KEY_FILE"):
        tessera.Client(closed.url)


def test_the_command_line_says_that_a_key_is_needed_and_uses_that_of_the_environment(
    closed: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["profiles", "list", "--server", closed.url]
    answer = CliRunner().invoke(cli, words)
    assert (answer.exit_code, "TESSERA_KEY" in answer.stderr) == (2, True)
    monkeypatch.setenv("TESSERA_KEY", new_key(closed, "shell"))
    assert CliRunner().invoke(cli, words).exit_code == 0


@pytest.mark.slow
def test_the_client_sends_again_when_it_is_told_to(service: EmbeddedService, connected: Callable[..., Api]) -> None:
    text = new_key(service, "eager", requests_per_minute=60)
    raw = connected(service, text)
    while raw.http.get("/v1/jobs").status_code == 200:
        pass
    with tessera.Client(service.url, key=text) as client:
        assert client.jobs() == []
        model = client.upload_model(conv_chain(2, channels=13))  # two requests, the second in pieces
    assert model.size_bytes == len(conv_chain(2, channels=13))
