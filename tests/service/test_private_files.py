"""What a service writes is for its user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.private_files import close_to_others
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, kill, until

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    """The one of most users."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Folders, files and sockets of a data directory that others may use, itself included."""
    paths = [folder, *folder.rglob("*")]
    return sorted(f"{path}: {path.lstat().st_mode:o}" for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077)


@pytest.mark.slow
def test_nothing_that_real_jobs_leave_is_open_to_others(start: Start) -> None:
    service, api = start()
    model = api.upload(conv_chain(3), "net.onnx")
    job = api.finished(api.submit(model, "edge4"))
    api.http.post("/v1/profiles", content=b"name: broken", headers={"Content-Type": "application/yaml"})
    simulation = api.http.post("/v1/simulations", json={"job": job["id"]}).json()
    assert api.finished(simulation["id"])["state"] == "succeeded"
    assert api.http.get(job["links"]["trace"]).status_code == 200
    assert api.http.get(job["links"]["report_page"]).status_code == 200
    sweep = api.http.post("/v1/sweeps", json={"model": model, "profiles": ["edge4"], "grid": {"nram": ["256KiB"]}})
    assert api.finished(sweep.json()["id"])["state"] == "succeeded"
    before = service.pids["worker"]
    kill(before)
    until(lambda: service.pids["worker"] != before, "another worker")
    assert len(list(service.data_dir.rglob("*"))) > 20
    assert any(stat.S_ISSOCK(path.lstat().st_mode) for path in service.data_dir.rglob("*"))
    assert open_to_others(service.data_dir) == []


@pytest.mark.slow
def test_an_existing_data_directory_is_taken_from_others(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    service, api = start()
    model = api.upload(conv_chain(3), "net.onnx")
    service.stop()
    for path in (service.data_dir, *service.data_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    caplog.clear()
    service, api = start()
    assert api.http.get(f"/v1/models/{model}").status_code == 200
    assert open_to_others(service.data_dir) == []
    assert f"other users could read the data directory {service.data_dir}; now they cannot" in caplog.messages


def test_a_folder_with_other_files_keeps_its_modes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    for name in ("blobs", "holiday.jpg"):
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).chmod(0o644)
    close_to_others(tmp_path)
    assert len(open_to_others(tmp_path)) == 3
    assert "holiday.jpg" in caplog.text
