"""What the service tests share: models of any length, and waiting for conditions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import onnx
import psutil
from onnx import TensorProto, helper

from app.keys.keys import Keys
from app.redis_urls import connect
from app.settings import Settings
from app.supervisor.service import EmbeddedService

T = TypeVar("T")
PATIENCE_S = 60.0
# What jobs ask for that need any plan: choosing one would take most of their time.
BY_RULES: Final = {"fusion": "rules"}
FINAL = ("succeeded", "failed", "cancelled")


def light_model(name: str) -> Path:
    """A network of the onnx package."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def conv_chain(length: int, channels: int = 8, extent: int = 32) -> bytes:
    """A chain of convolutions with activations: all structure, its weights made by ConstantOfShape."""
    nodes, previous = [], "x"
    shape = helper.make_tensor("shape", TensorProto.INT64, [4], [channels, channels, 3, 3])
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.02])
    nodes.append(helper.make_node("ConstantOfShape", ["shape"], ["w"], name="weights", value=value))
    for index in range(length):
        nodes.append(helper.make_node("Conv", [previous, "w"], [f"c{index}"], name=f"conv{index}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], name=f"relu{index}"))
        previous = f"r{index}"
    dims = [1, channels, extent, extent]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, dims)],
        [shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def until(get: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """The first true value of `get`, polled less and less often; fails the test after the timeout.

    Asked each 10 ms throughout, client and service take a third of the time of a small job for the questions.
    """
    deadline, pause_s = time.monotonic() + timeout_s, 0.01
    while True:
        value = get()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 0.06)


def settings(data_dir: Path, **changes: Any) -> Settings:
    """Settings for a service of a test: any port, short times."""
    values: dict[str, Any] = {
        "data_dir": data_dir,
        "host": "127.0.0.1",
        "port": 0,
        "broker_url": None,
        "cache_url": None,
        "lease_s": 1.5,
        "first_resend_s": 0.5,
        "stop_grace_s": 1.0,
        **changes,
    }
    return Settings(**values)


class Api:
    """The HTTP interface of a service under test."""

    def __init__(self, url: str, key: str | None = None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False, headers=headers)

    def upload(self, data: bytes, name: str = "net.onnx") -> str:
        """Upload a model and return its id."""
        answer = self.http.post(
            "/v1/models",
            params={"name": name},
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def submit(self, model: str, profile: str = "cluster4x4", **options: Any) -> str:
        """Ask for a compilation, by rules unless options say otherwise, and return the job's id."""
        body = {"model": model, "profile": profile, "options": {**BY_RULES, **options}}
        answer = self.http.post("/v1/compilations", json=body)
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["id"])

    def job(self, job: str) -> dict[str, Any]:
        """A job as it is now."""
        answer = self.http.get(f"/v1/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def jobs(self) -> list[dict[str, Any]]:
        """The latest jobs, newest first."""
        answer = self.http.get("/v1/jobs", params={"limit": 100})
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    def finished(self, job: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """A job once it is final."""
        return until(lambda: found if (found := self.job(job))["state"] in FINAL else None, f"job {job}", timeout_s)

    def in_state(self, job: str, state: str) -> dict[str, Any]:
        """A job once it has a state."""
        return until(lambda: found if (found := self.job(job))["state"] == state else None, f"{job} {state}")


def new_key(service: EmbeddedService, name: str, owner: str | None = None, **limits: int) -> str:
    """A new key of a running service."""
    client = connect(service.broker_url)
    _, text = Keys(client, service.settings).create(name, owner, limits)
    client.close()
    return text


def tree(pid: int) -> list[psutil.Process]:
    """A process and all of its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def status_of(process: psutil.Process) -> str:
    """A process's status; one that ended in the meantime is a zombie, whether somebody waited for it or not."""
    with suppress(psutil.NoSuchProcess):
        if process.is_running():
            return process.status()
    return psutil.STATUS_ZOMBIE


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of the processes runs any more (a zombie does not run)."""
    return all(status_of(process) == psutil.STATUS_ZOMBIE for process in processes)


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """All descendants which live."""
    with suppress(psutil.NoSuchProcess):
        return [child for child in process.children(recursive=True) if not gone([child])]
    return []


def program_of(process: psutil.Process) -> str:
    """The words that a process was started with; of one which ended in the meantime none."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, 9)


def kill_all(processes: list[psutil.Process]) -> None:
    """kill -9 of those that live; the first one's end may be that of the others."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
