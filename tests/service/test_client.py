"""UI-2: the Python client against a real service: as here, so there."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec import structs

import tessera
from app.client.results import OnPlan
from app.client.transport import AwaitedTransport, BlockingTransport
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, profile_json
from tests.service.harness import Api, conv_chain, until
from tests.service.models import network

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
DATA = network().data()


def test_a_service_answers_exactly_as_this_process(service: EmbeddedService, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(DATA)
    here = tessera.compile(tmp_path / "net.onnx", "edge4")
    with tessera.Client(service.url) as client:
        there = client.compile(str(tmp_path / "net.onnx"), builtin_profile("edge4"), tessera.Options())
        on_service = [client.run(what, seed=3) for what in (there, here)]
    assert type(here) is type(there)
    assert (there.plan, there.report) == (here.plan, here.report)
    assert here.save(tmp_path / "here") == there.save(tmp_path / "there")
    for path in (tmp_path / "here").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name
    for run in (here.run(seed=3), there.run(seed=3)):
        for other in on_service:
            # a service knows the model of its own job and compares the outputs with it
            assert run.report == structs.replace(other.report, comparison=None)
            assert {name: values.tobytes() for name, values in run.outputs.items()} == {
                name: values.tobytes() for name, values in other.outputs.items()
            }


def test_inputs_are_given_as_arrays_here_and_on_a_service(service: EmbeddedService) -> None:
    here = tessera.compile(onnx.load_from_string(DATA), "edge4", {"verify": "none"})
    assert here.executable is not None
    (value,) = here.executable.inputs
    given = {value.name: np.linspace(-1, 1, num=int(np.prod(value.shape or ())), dtype=np.float32).reshape(value.shape)}
    with tessera.Client(service.url) as client:
        job = client.submit(onnx.load_from_string(DATA), "edge4", {"verify": "none"})
        there = client.run(client.finished(job), given)
        with pytest.raises(tessera.ServiceError) as refused:
            client.run(job, {"nonesuch": 1.0})
    ours = here.run(given)
    for name, values in ours.outputs.items():
        np.testing.assert_array_equal(values, there.outputs[name])
    with pytest.raises(tessera.RequestError) as alike:
        here.run({"nonesuch": 1.0})
    assert refused.value.code == alike.value.code


@pytest.mark.parametrize("on_service", [False, True])
def test_the_plan_is_announced_while_its_programs_are_made(service: EmbeddedService, *, on_service: bool) -> None:
    seen: list[tessera.Plan] = []
    phases: list[tuple[str, int, int]] = []

    def compiled(on_plan: OnPlan) -> tessera.Compilation:
        model = conv_chain(9, channels=5)
        if not on_service:
            return tessera.compile(model, "edge4", on_plan=on_plan, on_phase=lambda *words: phases.append(words))
        with tessera.Client(service.url) as client:
            return client.compile(model, "edge4", on_plan=on_plan, on_phase=lambda *words: phases.append(words))

    found = compiled(seen.append)
    assert [plan.provisional for plan in seen] == [True]
    assert seen[0].model == found.plan.model
    assert not found.plan.provisional
    assert "provisional" in repr(seen[0])
    assert [step for _, step, _ in phases] == sorted(step for _, step, _ in phases)
    assert len({total for _, _, total in phases}) == 1


def test_jobs_and_profiles_are_listed_and_deleted(service: EmbeddedService, tmp_path: Path) -> None:
    profile = tmp_path / "mine.json"
    profile.write_bytes(profile_json(builtin_profile("edge4")).replace(b'"edge4"', b'"mine"'))
    with tessera.Client(service.url) as client:
        uploaded = client.upload_profile(profile)
        assert client.profile("mine").name == "mine"
        jobs = [client.submit(DATA, "mine", {"verify": "none", "objective": name}) for name in ("energy", "edp")]
        assert [job.id for job in client.jobs(most=2)] == [jobs[1].id, jobs[0].id]
        assert next(client.follow(jobs[0])).state in ("queued", "running")
        client.finished(jobs[0])
        client.delete_job(jobs[0])
        with pytest.raises(tessera.ServiceError, match="no job"):
            client.job(jobs[0])
        client.finished(jobs[1])
        client.delete_profile("mine")
        assert uploaded.digest not in {each.digest for each in client.profiles()}


def test_an_error_has_the_same_code_from_a_service_as_here(service: EmbeddedService) -> None:
    with tessera.Client(service.url) as client:
        for model, profile, options in (
            (b"nonsense", "edge4", {}),
            (DATA, "nonesuch", {}),
            (DATA, {"name": "half"}, {}),
            (DATA, "edge4", {"fuson": "none"}),
        ):
            codes = []
            for compiled in (tessera.compile, client.compile):
                with pytest.raises(tessera.TesseraError) as refused:
                    compiled(model, profile, options)
                codes.append(refused.value.code)
            assert codes[0] == codes[1], codes
    with pytest.raises(tessera.UnreachableError), tessera.Client("http://127.0.0.1:1") as nobody:
        nobody.jobs()


@pytest.mark.slow
def test_asynchronous_compilations_run_side_by_side(service: EmbeddedService) -> None:
    names = ("edge4", "cluster4x4")
    model = conv_chain(2, channels=5)

    async def compiled() -> list[tessera.Compilation]:
        async with tessera.AsyncClient(service.url) as client:
            found = await asyncio.gather(*(client.compile(model, name) for name in names))
            states = [event.state async for event in client.follow(str(found[0].job))]
            assert states[-1] == "succeeded"
            return found

    found = asyncio.run(compiled())
    assert [each.plan for each in found] == [tessera.compile(model, name).plan for name in names]


def test_a_task_that_is_cancelled_cancels_its_job(service: EmbeddedService, api: Api) -> None:
    async def cancelled() -> str:
        async with tessera.AsyncClient(service.url) as client:
            task = asyncio.create_task(client.compile(conv_chain(60, channels=5), "edge4", {"verify": "none"}))
            while not (mine := [job for job in await client.jobs(most=1) if job.state == "running"]):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return mine[0].id

    assert api.finished(asyncio.run(cancelled()))["state"] == "cancelled"


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("kind", ["compilation", "sweep"])
@pytest.mark.parametrize("transport", [BlockingTransport, AwaitedTransport])
def test_an_interrupted_request_leaves_no_job_whose_id_nobody_knows(
    service: EmbeddedService,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    transport: type[BlockingTransport | AwaitedTransport],
    kind: str,
    *,
    is_sent: bool,
) -> None:
    model = conv_chain(63, channels=5)
    request, lost = transport.request, KeyboardInterrupt if transport is BlockingTransport else asyncio.CancelledError
    interrupted: list[str] = []

    async def interrupt_once(self: Any, method: str, path: str, **arguments: Any) -> Any:
        if method != "POST" or interrupted or path not in ("/v1/compilations", "/v1/sweeps"):
            return await request(self, method, path, **arguments)
        interrupted.append(path)
        if is_sent:
            await request(self, method, path, **arguments)
        raise lost

    monkeypatch.setattr(transport, "request", interrupt_once)

    async def asked(client: tessera.AsyncClient) -> None:
        if kind == "compilation":
            await client.submit(model, "edge4", {"verify": "none"})
        else:
            uploaded = await client.upload_model(model)
            await client.sweep(uploaded.id, ["edge4"], {"nram.capacity_bytes": [100_000, 200_000]})

    before = {job["id"] for job in api.jobs()}
    if transport is BlockingTransport:
        with tessera.Client(service.url) as client, pytest.raises(lost):
            asked(client.awaited).send(None)
    else:

        async def awaited() -> None:
            async with tessera.AsyncClient(service.url) as client:
                await asked(client)

        with pytest.raises(lost):
            asyncio.run(awaited())
    assert interrupted
    (job,) = [job["id"] for job in api.jobs() if job["id"] not in before]
    assert api.finished(job)["state"] == "cancelled"


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_interrupted_upload_is_repeated_only_if_the_service_may_have_a_job_of_it(
    service: EmbeddedService, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    path = tmp_path / "executable.tsx"
    executable = tessera.compile(DATA, "edge4", {"verify": "none"}).executable
    assert executable is not None
    executable.save(path)
    request = BlockingTransport.request
    sent: list[str] = []

    async def interrupt_once(self: Any, method: str, path: str, *, files: Any = None, **arguments: Any) -> Any:
        sent.append(path)
        if files is None or len(sent) > 1:
            return await request(self, method, path, files=files, **arguments)
        if is_sent:
            await request(self, method, path, files=files, **arguments)
        raise KeyboardInterrupt

    before = {job["id"] for job in api.jobs()}
    monkeypatch.setattr(BlockingTransport, "request", interrupt_once)
    with tessera.Client(service.url) as client, pytest.raises(KeyboardInterrupt):
        client.simulate(executable=path, seed=63)
    jobs = [job["id"] for job in api.jobs() if job["id"] not in before]
    again = ["/v1/simulations", f"/v1/jobs/{jobs[0]}/cancel"] if is_sent else []
    assert (len(jobs), sent) == (int(is_sent), ["/v1/simulations", *again])


def test_an_interrupted_request_with_a_key_goes_on_and_is_given_again(
    service: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = BlockingTransport.request

    async def interrupt(self: Any, method: str, path: str, **arguments: Any) -> Any:
        answer = await request(self, method, path, **arguments)
        if path == "/v1/compilations":
            raise KeyboardInterrupt
        return answer

    with tessera.Client(service.url) as client:
        with monkeypatch.context() as patched:
            patched.setattr(BlockingTransport, "request", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.submit(DATA, "edge4", {"objective": "edp"}, idempotency_key="mine")
        (job,) = client.jobs(most=1)
        assert client.submit(DATA, "edge4", {"objective": "edp"}, idempotency_key="mine").id == job.id
        assert client.finished(job).state == "succeeded"


def test_ctrl_c_in_a_script_cancels_the_job_it_waits_for(service: EmbeddedService, api: Api) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with tessera.Client(service.url) as client:
        with pytest.raises(KeyboardInterrupt):
            client.compile(conv_chain(62, channels=5), "edge4", {"verify": "none"}, on_phase=interrupt)
        (job,) = client.jobs(most=1)
    assert api.finished(job.id)["state"] == "cancelled"


def test_ctrl_c_while_a_service_compiles_cancels_the_job_and_says_so(
    service: EmbeddedService, api: Api, tmp_path: Path
) -> None:
    (tmp_path / "long.onnx").write_bytes(conv_chain(61, channels=5))
    words = [sys.executable, "-m", "app.cli", "compile", str(tmp_path / "long.onnx"), "-p", "edge4"]
    # these tests may run where Ctrl-C is ignored
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (
        tessera.Client(service.url) as client,
        subprocess.Popen(
            [*words, "--server", service.url],
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            start_new_session=True,
            preexec_fn=hears,
        ) as process,
    ):
        (job,) = until(lambda: [job for job in client.jobs(1) if job.state == "running"], "the job")
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    # the work may have ended before the request to cancel is answered
    interrupted = f"interrupted: job {job.id} on {service.url} is"
    assert f"{interrupted} being cancelled" in said or f"{interrupted} cancelled" in said
    assert "Traceback" not in said
    assert api.finished(job.id)["state"] == "cancelled"


@pytest.mark.slow
def test_the_examples_of_the_documents_run(
    service: EmbeddedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/python.md"))
    examples = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(examples) > 5
    # a model of no other test: a service keeps the name that a model was uploaded by first
    (tmp_path / "model.onnx").write_bytes(conv_chain(3, channels=13))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in examples:
        code = compile(example.replace("http://127.0.0.1:8080", service.url), "python.md", "exec")
        exec(code, names)
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "outputs.npz", "out"}
