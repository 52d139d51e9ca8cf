"""The client: the service's verbs as methods, blocking."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import msgspec

from app.client.errors import ServiceError, UnreachableError
from app.client.types import Job, JobEvent, Model, ProfilePage, ProfileSummary
from app.outputs import whole_files
from compiler.errors import RequestError, printable

_CHUNK_BYTES = 1024 * 1024
_RECONNECTS = 30


class TesseraClient:
    """A connection to a service; use as a context manager.

    Every method raises ServiceError for a problem and UnreachableError if no service of Tessera answers. Raises
    RequestError for what is no URL of one.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
            raise RequestError(
                f"{printable(url, 120)} is not the URL of a service",
                code="invalid_url",
                actual=printable(url, 120),
                limit="http://HOST:PORT or https://HOST:PORT",
                hint="Write it as `tessera serve` shows it, such as http://127.0.0.1:8080",
            )
        self._url = url
        # The user's own service: no proxy of the environment stands between.
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def upload_model(self, path: Path, name: str | None = None) -> Model:
        """Upload an ONNX file, or a zip or tar of one, unless the service has it already; it is read in pieces.

        `name` is what people see of it, by default the file's own.
        """
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            found = self._request("GET", f"/v1/models/{digest}", accept=(404,))
            if found.status_code == 200:
                return msgspec.json.decode(found.content, type=Model)
            size_bytes = file.seek(0, 2)
            file.seek(0)
            answer = self._request(
                "PUT",
                f"/v1/models/{digest}",
                params={"name": path.name if name is None else name},
                content=iter(lambda: file.read(_CHUNK_BYTES), b""),
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)},
            )
        return msgspec.json.decode(answer.content, type=Model)

    def upload_profile(self, data: bytes) -> ProfileSummary:
        """Upload a hardware profile in YAML or JSON."""
        answer = self._request("POST", "/v1/profiles", content=data)
        return msgspec.json.decode(answer.content, type=ProfileSummary)

    def profiles(self) -> list[ProfileSummary]:
        """All profiles that the service knows."""
        items: list[ProfileSummary] = []
        cursor: str | None = None
        while True:
            parameters = {} if cursor is None else {"cursor": cursor}
            answer = self._request("GET", "/v1/profiles", params=parameters)
            page = msgspec.json.decode(answer.content, type=ProfilePage)
            items += page.items
            cursor = page.next_cursor
            if cursor is None:
                return items

    def profile(self, name: str) -> bytes:
        """The canonical form of a profile by name or digest, as JSON."""
        return self._request("GET", f"/v1/profiles/{quote(name, safe='')}").content

    def compile(
        self,
        model: str,
        profile: str,
        options: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Ask for a compilation of an uploaded model for a profile by name or digest."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = {"model": model, "profile": profile, "options": dict(options or {})}
        answer = self._request("POST", "/v1/compilations", json=body, headers=headers)
        return msgspec.json.decode(answer.content, type=Job)

    def sweep(
        self,
        model: str,
        profiles: Sequence[str],
        grid: Mapping[str, Sequence[object]],
        options: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Ask for an uploaded model on each profile with each combination of the values of their fields."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = {"model": model, "profiles": profiles, "grid": dict(grid), "options": dict(options or {})}
        answer = self._request("POST", "/v1/sweeps", json=body, headers=headers)
        return msgspec.json.decode(answer.content, type=Job)

    def sweep_table(self, job_id: str) -> bytes:
        """The table and the front of a sweep as JSON, also while it runs."""
        return self._request("GET", f"/v1/sweeps/{job_id}").content

    def compare(self, a: str, b: str) -> bytes:
        """Two compilations that succeeded side by side, as JSON."""
        return self._request("POST", "/v1/comparisons", json={"a": a, "b": b}).content

    def job(self, job_id: str) -> Job:
        """A job as it is now."""
        return msgspec.json.decode(self._request("GET", f"/v1/jobs/{job_id}").content, type=Job)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return msgspec.json.decode(self._request("POST", f"/v1/jobs/{job_id}/cancel").content, type=Job)

    def plan(self, job_id: str) -> bytes:
        """The plan of a job that succeeded, as JSON."""
        return self._request("GET", f"/v1/jobs/{job_id}/plan").content

    def report(self, job_id: str) -> bytes:
        """The report of a job that succeeded, as JSON."""
        return self._request("GET", f"/v1/jobs/{job_id}/report").content

    def report_page(self, job_id: str) -> str:
        """The plan and the report of a compilation that succeeded, as one HTML file."""
        return self._request("GET", f"/v1/jobs/{job_id}/report.html").text

    def simulate(
        self,
        *,
        executable: Path | None = None,
        job: str | None = None,
        inputs: Path | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Ask for a run of an executable file, or of the one that a compilation made, on an .npz file or a seed.

        Files are read in pieces. `options` are time_limit_s and memory_limit_bytes.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        fields = {} if job is None else {"job": job}
        if inputs is None and seed is not None:
            fields["seed"] = str(seed)
        if options:
            fields["options"] = msgspec.json.encode(dict(options)).decode()
        paths = {"executable": executable, "inputs": inputs}
        with ExitStack() as stack:
            files: dict[str, Any] = {name: (None, value) for name, value in fields.items()}
            files |= {
                name: (path.name, stack.enter_context(path.open("rb")))
                for name, path in paths.items()
                if path is not None
            }
            answer = self._request("POST", "/v1/simulations", files=files, headers=headers)
        return msgspec.json.decode(answer.content, type=Job)

    def outputs(self, job_id: str) -> bytes:
        """The outputs of a simulation that succeeded, as .npz."""
        return self._request("GET", f"/v1/jobs/{job_id}/outputs").content

    def listing(
        self,
        job_id: str,
        *,
        group: str | None = None,
        head: int | None = None,
        tail: int | None = None,
        summary: bool = False,
    ) -> str:
        """The disassembly of a compilation that succeeded; of each segment the first and last commands."""
        given = {"group": group, "head": head, "tail": tail, "summary": summary or None}
        parameters = {name: value for name, value in given.items() if value is not None}
        return self._request("GET", f"/v1/jobs/{job_id}/listing", params=parameters).text

    def save_executable(self, job_id: str, path: Path) -> None:
        """Save the executable of a compilation that succeeded, piece by piece."""
        self._save(f"/v1/jobs/{job_id}/executables/0", path)

    def save_package(self, job_id: str, path: Path) -> None:
        """Save the package of a compilation with dynamic dimensions, piece by piece."""
        self._save(f"/v1/jobs/{job_id}/package", path)

    def tables(self, model: str, profile: str, shapes: Mapping[str, Sequence[int]]) -> bytes:
        """The parameter tables of an uploaded model for shapes of its inputs, as JSON; nothing is compiled."""
        texts = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items()]
        path = f"/v1/models/{quote(model, safe='')}/tables"
        return self._request("GET", path, params={"profile": profile, "shape": texts}).content

    def table_statistics(self, model: str, profile: str) -> bytes:
        """How the tables of an uploaded model were answered, and for which shapes, as JSON."""
        path = f"/v1/models/{quote(model, safe='')}/tables/statistics"
        return self._request("GET", path, params={"profile": profile}).content

    def save_trace(self, job_id: str, path: Path, *, commands: int | None = None) -> None:
        """Save the trace of a compilation that succeeded, of each segment the first commands."""
        self._save(f"/v1/jobs/{job_id}/trace" + ("" if commands is None else f"?commands={commands}"), path)

    def _save(self, url: str, path: Path) -> None:
        try:
            with self._http.stream("GET", url) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _problem(answer)
                with whole_files() as fresh, fresh(path).open("wb") as file:
                    for piece in answer.iter_bytes(_CHUNK_BYTES):
                        file.write(piece)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from None

    def follow(self, job_id: str) -> Iterator[JobEvent]:
        """The events of a job until it is final; a lost connection is taken up where it broke."""
        last_id: str | None = None
        failures = 0
        while True:
            headers = {} if last_id is None else {"Last-Event-ID": last_id}
            path = f"/v1/jobs/{job_id}/events"
            with suppress(httpx.TransportError), self._http.stream("GET", path, headers=headers) as answer:
                if answer.status_code == 204:
                    return
                if answer.status_code != 200:
                    answer.read()
                    raise _problem(answer)
                for event_id, data in _server_sent(answer.iter_lines()):
                    last_id, failures = event_id, 0
                    event = msgspec.json.decode(data, type=JobEvent)
                    yield event
                    if event.state in ("succeeded", "failed", "cancelled"):
                        return
            failures += 1
            if failures > _RECONNECTS:
                raise UnreachableError(f"the events of job {job_id} broke off", actual=self._url)
            time.sleep(min(0.1 * failures, 1.0))

    def finished(self, job_id: str) -> Job:
        """Wait for a job; raises ServiceError with its problem if it failed or was cancelled."""
        for _ in self.follow(job_id):
            pass
        job = self.job(job_id)
        if job.state != "succeeded":
            problem = job.problem or {"code": "cancelled", "detail": f"job {job_id} was cancelled"}
            raise ServiceError(problem, int(problem.get("status", 422)))
        return job

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"no service answers at {self._url}",
            actual=type(error).__name__,
            hint="Start one with `tessera serve`, or leave --server out to compile here",
        )

    def _request(self, method: str, path: str, *, accept: tuple[int, ...] = (), **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **arguments)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from None
        # every answer of a service has an id; one that says it failed may come from a proxy before it
        if "x-request-id" not in answer.headers and answer.status_code < 500:
            raise UnreachableError(
                f"what answers at {self._url} is not a service of Tessera",
                actual=f"status {answer.status_code} for {method} {path}",
                hint="Give the URL that `tessera serve` shows",
            )
        if answer.is_success or answer.status_code in accept:
            return answer
        raise _problem(answer)


def _problem(answer: httpx.Response) -> ServiceError:
    try:
        problem = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {"code": "unexpected_answer", "detail": f"the service answered {answer.status_code}"}
    return ServiceError(problem, answer.status_code)


def _server_sent(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Pairs of id and data from the lines of an event stream."""
    event_id, data = "", ""
    for line in lines:
        name, _, value = line.partition(":")
        if not line and data:
            yield event_id, data
            data = ""
        elif name == "id":
            event_id = value.strip()
        elif name == "data":
            data += value.strip()
