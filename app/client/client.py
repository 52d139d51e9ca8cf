"""Clients of a service, with its operations as methods: awaited (AsyncClient) and blocking (Client)."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from functools import partial, wraps
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, Literal, ParamSpec, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from app.client.errors import ServiceError, UnreachableError
from app.client.service_key import key_headers, service_key
from app.client.service_url import service_url
from app.client.transport import AwaitedTransport, BlockingTransport, Transport
from app.client.types import Job, JobEvent, JobPage, Model, ProfilePage, ProfileSummary
from app.outputs import whole_files
from compiler.errors import RequestError, TesseraError, printable

if TYPE_CHECKING:
    from app.client.arguments import ModelInput, OptionsInput, ProfileInput
    from app.client.results import ArrayLike, Compilation, Executable, OnPhase, OnPlan, Plan, Report, Run
    from compiler.profile import Profile

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK_BYTES = 1024 * 1024
_RECONNECTS = 30
# For how long a request is sent again that the service refuses because of too many.
_PATIENCE_S = 60.0
# A service builds pushed units again, in two minutes at most, before it answers.
_UNITS_TIMEOUT_S = 150.0


class AsyncClient:
    """A connection to a service; use as an asynchronous context manager.

    `key` is the key of the service, by default of TESSERA_KEY or in the file that TESSERA_KEY_FILE names; "" for none.
    What the service refuses because too much was asked for at once is sent again when it says, for up to a minute.

    Every method raises ServiceError for a problem, UnreachableError if no Tessera service answers at the URL, and
    RequestError for an invalid URL. A job can be given by its id or as a Job.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        transport: Callable[[str, float, Mapping[str, str]], Transport] = AwaitedTransport,
    ) -> None:
        self.url = service_url(url)
        self._key = service_key(key)
        self._transport = transport(url, timeout_s, key_headers(self._key))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def upload_model(self, model: ModelInput, name: str | None = None) -> Model:
        """Uploads a model unless the service has it already: a path (ONNX, or a zip or tar of it), bytes, a ModelProto.

        Files are read in pieces; external data beside a model is included. `name` is for display, by default the file's
        own.
        """
        from app.client.arguments import model_file

        with ExitStack() as stack:
            file, own_name = await self._transport.apart(stack.enter_context, model_file(model))
            digest = (await self._transport.apart(hashlib.file_digest, file, "sha256")).hexdigest()
            found = await self._request("GET", f"/v1/models/{digest}", accept=(404,))
            if found.status_code == 200:
                return msgspec.json.decode(found.content, type=Model)
            size_bytes = file.seek(0, 2)
            answer = await self._request(
                "PUT",
                f"/v1/models/{digest}",
                params={"name": own_name if name is None else name},
                content=_Pieces(file),
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)},
            )
        return msgspec.json.decode(answer.content, type=Model)

    async def upload_profile(self, profile: ProfileInput) -> ProfileSummary:
        """Upload a hardware profile: the path of a YAML or JSON file, its bytes, a mapping or a Profile."""
        from app.client.arguments import profile_upload

        data = profile_upload(profile)
        if data is None:
            raise RequestError(
                f"{printable(str(profile), 120)} is a name, not a profile to upload",
                code="invalid_request",
                actual=printable(str(profile), 120),
                hint="Give the path of a profile file, a mapping or a Profile",
            )
        return await self._upload_profile(data)

    async def _upload_profile(self, data: bytes) -> ProfileSummary:
        # JSON is YAML too
        headers = {"Content-Type": "application/yaml"}
        answer = await self._request("POST", "/v1/profiles", content=data, headers=headers)
        return msgspec.json.decode(answer.content, type=ProfileSummary)

    async def profiles(self) -> list[ProfileSummary]:
        """All profiles that the service knows."""
        items: list[ProfileSummary] = []
        cursor: str | None = None
        while True:
            parameters = {} if cursor is None else {"cursor": cursor}
            answer = await self._request("GET", "/v1/profiles", params=parameters)
            page = msgspec.json.decode(answer.content, type=ProfilePage)
            items += page.items
            cursor = page.next_cursor
            if cursor is None:
                return items

    async def profile(self, name: str) -> Profile:
        """A profile by name or digest."""
        from compiler.profile import parse_profile

        answer = await self._request("GET", f"/v1/profiles/{quote(name, safe='')}")
        return parse_profile(answer.content, origin=name)

    async def delete_profile(self, name: str) -> None:
        """Deletes a user's profile, by name the latest of that name; jobs that use it continue."""
        await self._request("DELETE", f"/v1/profiles/{quote(name, safe='')}")

    async def compile(
        self,
        model: ModelInput,
        profile: ProfileInput,
        options: OptionsInput = None,
        *,
        on_plan: OnPlan | None = None,
        on_phase: OnPhase | None = None,
    ) -> Compilation:
        """Compiles a model for a profile on the service and waits for the result.

        `on_plan` is called with the provisional plan as soon as it is known, `on_phase` at the begin of each phase. An
        interruption of the wait (Ctrl-C, a cancelled task) cancels the job.
        """
        job = await self.submit(model, profile, options)
        async with self._cancelling(job):
            return await self.result(job, on_plan=on_plan, on_phase=on_phase)

    async def submit(
        self,
        model: ModelInput | Model,
        profile: ProfileInput,
        options: OptionsInput = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Requests a compilation and does not wait; uploads model and profile unless the service has them.

        An interruption of the request cancels the job. With a key it goes on, and the same request gives it again.
        """
        from app.client.arguments import option_values, profile_upload

        data = profile_upload(profile)
        body = {
            "model": model.id if isinstance(model, Model) else (await self.upload_model(model)).id,
            "profile": profile if data is None else (await self._upload_profile(data)).digest,
            "options": option_values(options),
        }
        return await self._accepted("/v1/compilations", idempotency_key, json=body)

    async def result(
        self, job: Job | str, *, on_plan: OnPlan | None = None, on_phase: OnPhase | None = None
    ) -> Compilation:
        """Waits for a compilation and reads its results; raises ServiceError with its problem if it failed."""
        from app.client.results import Compilation, Plan, Report, executable_of_job

        done = await self.finished(job, on_plan=on_plan, on_phase=on_phase)
        return Compilation(
            plan=await self._typed(done, Plan),
            report=await self._typed(done, Report),
            executable=executable_of_job(self.url, done.id, self._key) if "executable" in done.links else None,
            server=self.url,
            job=done.id,
        )

    async def sweep(
        self,
        model: str,
        profiles: Sequence[str],
        grid: Mapping[str, Sequence[object]],
        options: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Requests a sweep: an uploaded model on each profile with each combination of the values of their fields."""
        body = {"model": model, "profiles": profiles, "grid": dict(grid), "options": dict(options or {})}
        return await self._accepted("/v1/sweeps", idempotency_key, json=body)

    async def sweep_table(self, job: Job | str) -> bytes:
        """The table and the front of a sweep as JSON, also while it runs."""
        return (await self._request("GET", f"/v1/sweeps/{_id(job)}")).content

    async def compare(self, a: Job | str, b: Job | str) -> bytes:
        """Compares two compilations that succeeded, as JSON."""
        return (await self._request("POST", "/v1/comparisons", json={"a": _id(a), "b": _id(b)})).content

    async def job(self, job: Job | str) -> Job:
        """The present state of a job."""
        return msgspec.json.decode((await self._request("GET", f"/v1/jobs/{_id(job)}")).content, type=Job)

    async def jobs(self, most: int = 100) -> list[Job]:
        """The latest jobs, newest first; the points of a sweep are in its table."""
        found: list[Job] = []
        parameters: dict[str, str] = {}
        while len(found) < most:
            parameters["limit"] = str(min(most - len(found), 100))
            answer = await self._request("GET", "/v1/jobs", params=parameters)
            page = msgspec.json.decode(answer.content, type=JobPage)
            found += page.items
            if page.next_cursor is None:
                break
            parameters["cursor"] = page.next_cursor
        return found

    async def cancel(self, job: Job | str) -> Job:
        """Cancel a job; one that has finished stays as it is."""
        return msgspec.json.decode((await self._request("POST", f"/v1/jobs/{_id(job)}/cancel")).content, type=Job)

    async def delete_job(self, job: Job | str) -> None:
        """Delete a job that has finished, a sweep with its points; cancel others first."""
        await self._request("DELETE", f"/v1/jobs/{_id(job)}")

    async def plan(self, job: Job | str) -> Plan:
        """The plan of a job that succeeded, or the provisional plan of a running job as soon as it is known."""
        from app.client.results import Plan

        return await self._typed(job, Plan)

    async def report(self, job: Job | str) -> Report:
        """The report of a compilation that succeeded."""
        from app.client.results import Report

        return await self._typed(job, Report)

    async def report_page(self, job: Job | str) -> str:
        """The plan and the report of a compilation that succeeded, as one HTML file."""
        return (await self._request("GET", f"/v1/jobs/{_id(job)}/report.html")).text

    async def document(self, job: Job | str, name: Literal["plan", "report"]) -> bytes:
        """The plan or report of a job as JSON, whatever its version."""
        return (await self._request("GET", f"/v1/jobs/{_id(job)}/{name}")).content

    async def run(
        self,
        target: Compilation | Executable | Job | str | Path,
        inputs: Mapping[str, ArrayLike] | None = None,
        *,
        seed: int | None = None,
    ) -> Run:
        """Runs a compiled model on the service, on given inputs or on inputs generated from a seed, and waits.

        The target is a job of the service or its id, the path of an executable file, an Executable, or a Compilation.
        """
        from app.client.results import Compilation, Executable, Run, write_inputs

        if isinstance(target, Compilation):
            of_this_service = target.server == self.url and target.job is not None
            target = target.job if of_this_service and target.job is not None else target.needed_executable()
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(target, Executable):
                path = Path(folder) / "executable.tsx"
                await self._transport.apart(target.save, path)
                target = path
            given = None if inputs is None else write_inputs(inputs, Path(folder) / "inputs.npz")
            if isinstance(target, Path):
                job = await self.simulate(executable=target, inputs=given, seed=seed)
            else:
                job = await self.simulate(job=_id(target), inputs=given, seed=seed)
        async with self._cancelling(job):
            done = await self.finished(job)
        return Run.read(await self.document(done, "report"), await self.outputs(done))

    async def simulate(
        self,
        *,
        executable: Path | None = None,
        job: str | None = None,
        inputs: Path | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Requests a run of an executable file, or of a compilation's executable, on an .npz file or a seed.

        Files are read in pieces. `options` are time_limit_s and memory_limit_bytes.
        """
        fields = {} if job is None else {"job": job}
        if inputs is None and seed is not None:
            fields["seed"] = str(seed)
        if options:
            fields["options"] = msgspec.json.encode(dict(options)).decode()
        paths = {"executable": executable, "inputs": inputs}
        with ExitStack() as stack:
            opened = {
                name: (path.name, stack.enter_context(path.open("rb")))
                for name, path in paths.items()
                if path is not None
            }
            files = {**{name: (None, value) for name, value in fields.items()}, **opened}

            def is_sent() -> bool:
                return all(not file.read(1) for _, file in opened.values())

            return await self._accepted("/v1/simulations", idempotency_key, is_sent=is_sent, files=files)

    async def outputs(self, job: Job | str) -> bytes:
        """The outputs of a simulation that succeeded, as .npz."""
        return (await self._request("GET", f"/v1/jobs/{_id(job)}/outputs")).content

    async def listing(
        self,
        job: Job | str,
        *,
        group: str | None = None,
        head: int | None = None,
        tail: int | None = None,
        summary: bool = False,
    ) -> str:
        """The disassembly of a compilation that succeeded: the first and last statements of each segment."""
        given = {"group": group, "head": head, "tail": tail, "summary": summary or None}
        parameters = {name: value for name, value in given.items() if value is not None}
        return (await self._request("GET", f"/v1/jobs/{_id(job)}/listing", params=parameters)).text

    async def save_executable(self, job: Job | str, path: Path) -> None:
        """Saves the executable of a compilation that succeeded, piece by piece."""
        await self._save(f"/v1/jobs/{_id(job)}/executables/0", path)

    async def save_package(self, job: Job | str, path: Path) -> None:
        """Saves the package of a compilation with dynamic dimensions, piece by piece."""
        await self._save(f"/v1/jobs/{_id(job)}/package", path)

    async def save_trace(self, job: Job | str, path: Path, *, commands: int | None = None) -> None:
        """Saves the trace of a compilation that succeeded: the first commands of each segment."""
        await self._save(f"/v1/jobs/{_id(job)}/trace" + ("" if commands is None else f"?commands={commands}"), path)

    async def tables(self, model: str, profile: str, shapes: Mapping[str, Sequence[int]]) -> bytes:
        """The parameter tables of an uploaded model for shapes of its inputs, as JSON; nothing is compiled."""
        texts = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items()]
        path = f"/v1/models/{quote(model, safe='')}/tables"
        return (await self._request("GET", path, params={"profile": profile, "shape": texts})).content

    async def table_statistics(self, model: str, profile: str) -> bytes:
        """Statistics of an uploaded model's tables, as JSON: cache results, and the shapes requested most."""
        path = f"/v1/models/{quote(model, safe='')}/tables/statistics"
        return (await self._request("GET", path, params={"profile": profile})).content

    async def cached_tables(
        self,
        *,
        model: str | None = None,
        profile: str | None = None,
        shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> list[dict[str, Any]]:
        """The parameter tables in the service's cache, of one shape or of those asked for, as plain values."""
        texts = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items()]
        return await self._pages("/v1/tables", {"model": model, "profile": profile, "shape": texts or None})

    async def units(self, *, op: str | None = None, profile: str | None = None) -> list[dict[str, Any]]:
        """The libraries of shape units in the service's cache that your compilations used, as plain values."""
        return await self._pages("/v1/units", {"op": op, "profile": profile})

    async def unit_bundle(self, library: str) -> bytes:
        """A library of shape units as one file, by its id."""
        return (await self._request("GET", f"/v1/units/{quote(library, safe='')}")).content

    async def push_units(self, library: str, data: bytes) -> None:
        """Brings a library of shape units; the service builds it again, and keeps it if it is equal."""
        path = f"/v1/units/{quote(library, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        await self._request("PUT", path, content=data, headers=headers, timeout=_UNITS_TIMEOUT_S)

    async def unit_statistics(self) -> dict[str, Any]:
        """Sums over the libraries of shape units that your compilations used, by op, as plain values."""
        return dict(msgspec.json.decode((await self._request("GET", "/v1/unit-statistics")).content))

    async def _pages(self, path: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All items of a list."""
        items: list[dict[str, Any]] = []
        given = {name: value for name, value in parameters.items() if value is not None}
        while True:
            page = msgspec.json.decode((await self._request("GET", path, params=given)).content)
            items += page["items"]
            if page.get("next_cursor") is None:
                return items
            given["cursor"] = page["next_cursor"]

    async def follow(self, job: Job | str) -> AsyncGenerator[JobEvent, None]:
        """Yields the events of a job until it is final; resumes after a lost connection."""
        last_id: str | None = None
        failures = 0
        while True:
            headers = {} if last_id is None else {"Last-Event-ID": last_id}
            try:
                async with self._stream(f"/v1/jobs/{_id(job)}/events", headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        await self._transport.read(answer)
                        raise _problem(answer)
                    async with aclosing(_server_sent(self._transport.lines(answer))) as events:
                        async for event_id, data in events:
                            last_id, failures = event_id, 0
                            event = msgspec.json.decode(data, type=JobEvent)
                            yield event
                            if event.state in ("succeeded", "failed", "cancelled"):
                                return
            except httpx.TransportError:
                pass
            failures += 1
            if failures > _RECONNECTS:
                raise UnreachableError(
                    f"the events of job {_id(job)} broke off",
                    actual=self.url,
                    hint="The job goes on there; ask for it again by its id",
                )
            await self._transport.sleep(min(0.1 * failures, 1.0))

    async def finished(self, job: Job | str, *, on_plan: OnPlan | None = None, on_phase: OnPhase | None = None) -> Job:
        """Waits for a job; raises ServiceError with its problem if it failed or was cancelled.

        `on_plan` and `on_phase` as in `compile`.
        """
        from app.client.results import Plan

        async with aclosing(self.follow(job)) as events:
            async for event in events:
                if on_phase is not None and event.phase is not None and event.state == "running":
                    on_phase(event.phase, event.step, event.total)
                if on_plan is not None and event.planned and event.state == "running":
                    plan = None
                    with suppress(ServiceError):  # it may have ended meanwhile, without a plan
                        plan = await self._typed(job, Plan)
                    if plan is not None:
                        on_plan(plan)
                    on_plan = None
        done = await self.job(job)
        if done.state != "succeeded":
            problem = done.problem or {"code": done.state, "detail": f"job {done.id} is {done.state}"}
            raise ServiceError(problem, int(problem.get("status", 422)))
        return done

    @asynccontextmanager
    async def _cancelling(self, job: Job) -> AsyncIterator[None]:
        """Cancels a job if the wait for it is interrupted."""
        try:
            yield
        except self._transport.interruptions():
            with suppress(TesseraError):
                await self.cancel(job)
            raise

    async def _typed(self, job: Job | str, kind: type[T]) -> T:
        from app.client.document import document
        from app.client.results import Plan

        data = await self.document(job, "plan" if kind is Plan else "report")
        return document(data, kind, f"job {_id(job)}")

    async def _accepted(
        self, path: str, idempotency_key: str | None, *, is_sent: Callable[[], bool] = lambda: True, **body: Any
    ) -> Job:
        """Requests a job; cancels it if an interruption keeps its id from the caller, who has no key to ask again.

        A request of which not all is sent (`is_sent`) makes no job.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}

        async def requested() -> Job:
            answer = await self._request("POST", path, headers=headers, **body)
            return msgspec.json.decode(answer.content, type=Job)

        try:
            return await requested()
        except self._transport.interruptions():
            if idempotency_key is None and is_sent():
                with suppress(TesseraError):
                    await self.cancel(await requested())  # the same job, by its key
            raise

    async def _save(self, url: str, path: Path) -> None:
        try:
            async with self._stream(url, {}) as answer:
                if not answer.is_success:
                    await self._transport.read(answer)
                    raise _problem(answer)
                with whole_files() as fresh, fresh(path).open("wb") as file:
                    async for piece in self._transport.pieces(answer, _CHUNK_BYTES):
                        file.write(piece)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from None

    @asynccontextmanager
    async def _stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """Sends a GET and reads its answer as it arrives."""
        waited_s = 0.0
        while True:
            async with self._transport.stream(path, headers) as answer:
                wait_s = _wait_s(answer, waited_s)
                if wait_s is None:
                    yield answer
                    return
            waited_s += wait_s
            await self._transport.sleep(wait_s)

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"no service answers at {self.url}",
            actual=type(error).__name__,
            hint="Start one with `tessera serve`, or leave --server out to compile here",
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        accept: tuple[int, ...] = (),
        content: bytes | Iterable[bytes] | None = None,
        **arguments: Any,
    ) -> httpx.Response:
        waited_s = 0.0
        while True:
            try:
                answer = await self._transport.request(method, path, content=content, **arguments)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise self._unreachable(error) from None
            wait_s = _wait_s(answer, waited_s)
            if wait_s is None:
                break
            waited_s += wait_s
            await self._transport.sleep(wait_s)
        # every answer of the service has an id; a failure without one may come from a proxy in front of it
        if "x-request-id" not in answer.headers and answer.status_code < 500:
            raise UnreachableError(
                f"what answers at {self.url} is not a service of Tessera",
                actual=f"status {answer.status_code} for {method} {path}",
                hint="Give the URL that `tessera serve` shows",
            )
        if answer.is_success or answer.status_code in accept:
            return answer
        raise _problem(answer)


def _blocking(
    verb: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Makes the method of Client that corresponds to one of AsyncClient."""

    @wraps(verb)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(verb(self.awaited, *args, **kwargs))

    return method


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over a BlockingTransport, which never suspends, and returns its result."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    raise AssertionError("a blocking request was suspended")


class Client:
    """A connection to a service whose methods block; use as a context manager. Methods and errors as AsyncClient."""

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 60.0) -> None:
        self.awaited = AsyncClient(url, key=key, timeout_s=timeout_s, transport=BlockingTransport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """URL of the service."""
        return self.awaited.url

    def follow(self, job: Job | str) -> Iterator[JobEvent]:
        """Yields the events of a job until it is final; resumes after a lost connection."""
        events = self.awaited.follow(job)
        try:
            while True:
                try:
                    yield _run(anext(events))
                except StopAsyncIteration:
                    return
        finally:
            _run(events.aclose())

    close = _blocking(AsyncClient.close)
    upload_model = _blocking(AsyncClient.upload_model)
    upload_profile = _blocking(AsyncClient.upload_profile)
    profiles = _blocking(AsyncClient.profiles)
    profile = _blocking(AsyncClient.profile)
    delete_profile = _blocking(AsyncClient.delete_profile)
    compile = _blocking(AsyncClient.compile)
    submit = _blocking(AsyncClient.submit)
    result = _blocking(AsyncClient.result)
    sweep = _blocking(AsyncClient.sweep)
    sweep_table = _blocking(AsyncClient.sweep_table)
    compare = _blocking(AsyncClient.compare)
    job = _blocking(AsyncClient.job)
    jobs = _blocking(AsyncClient.jobs)
    cancel = _blocking(AsyncClient.cancel)
    delete_job = _blocking(AsyncClient.delete_job)
    plan = _blocking(AsyncClient.plan)
    report = _blocking(AsyncClient.report)
    report_page = _blocking(AsyncClient.report_page)
    document = _blocking(AsyncClient.document)
    run = _blocking(AsyncClient.run)
    simulate = _blocking(AsyncClient.simulate)
    outputs = _blocking(AsyncClient.outputs)
    listing = _blocking(AsyncClient.listing)
    save_executable = _blocking(AsyncClient.save_executable)
    save_package = _blocking(AsyncClient.save_package)
    save_trace = _blocking(AsyncClient.save_trace)
    tables = _blocking(AsyncClient.tables)
    table_statistics = _blocking(AsyncClient.table_statistics)
    cached_tables = _blocking(AsyncClient.cached_tables)
    units = _blocking(AsyncClient.units)
    unit_statistics = _blocking(AsyncClient.unit_statistics)
    unit_bundle = _blocking(AsyncClient.unit_bundle)
    push_units = _blocking(AsyncClient.push_units)
    finished = _blocking(AsyncClient.finished)


def _id(job: Job | str) -> str:
    return job.id if isinstance(job, Job) else job


class _Pieces:
    """A file in pieces, from its begin each time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        return iter(partial(self._file.read, _CHUNK_BYTES), b"")


def _wait_s(answer: httpx.Response, waited_s: float) -> float | None:
    """After how long a request may be sent again that was refused because of too many; None if that is no use."""
    after = answer.headers.get("retry-after", "")
    is_busy = answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE and _problem(answer).code == "busy"
    if not (is_busy or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS) or not after.isdecimal():
        return None
    wait_s = max(1.0, float(after))
    return wait_s if waited_s + wait_s <= _PATIENCE_S else None


def _problem(answer: httpx.Response) -> ServiceError:
    try:
        problem = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {"code": "unexpected_answer", "detail": f"the service answered {answer.status_code}"}
    return ServiceError(problem, answer.status_code)


async def _server_sent(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[str, str], None]:
    """Pairs of id and data from the lines of an event stream."""
    event_id, data = "", ""
    async for line in lines:
        name, _, value = line.partition(":")
        if not line and data:
            yield event_id, data
            data = ""
        elif name == "id":
            event_id = value.strip()
        elif name == "data":
            data += value.strip()
