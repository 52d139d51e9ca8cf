"""What docs/deployment.md tells operators is what the service has: metrics, settings, alerts, the way to restore."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
import redis
import yaml

from app.metrics import FIGURES, Figure, exposed_name
from app.settings import Settings
from app.supervisor.redis_server import find_program

TEXT = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
# Variables of commands and clients, which are no settings of the service.
_OTHERS = {"TESSERA_KEY", "TESSERA_KEY_FILE"}


def _samples(one: Figure) -> list[str]:
    """The names of a figure's samples."""
    name = exposed_name(one)
    return [f"{name}_{part}" for part in ("bucket", "count", "sum")] if one.kind == "histogram" else [name]


def _rules() -> dict[str, str]:
    """The expressions of the alerts by name."""
    block = next(found for found in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if found.startswith("groups:"))
    return {rule["alert"]: rule["expr"] for group in yaml.safe_load(block)["groups"] for rule in group["rules"]}


def test_alerts_use_metrics_and_labels_which_exist() -> None:
    labels = {name: {*one.labels, "le"} for one in FIGURES for name in _samples(one)}
    for alert, expression in _rules().items():
        used = re.findall(r"(tessera_\w+)(?:\{(.*?)\})?", expression)
        assert used or "up{" in expression, alert
        for name, conditions in used:
            assert set(re.findall(r"(\w+)(?:=|!)", conditions)) <= labels[name], f"{alert}: {name}"
        by = {label for group in re.findall(r"by \((.*?)\)", expression) for label in group.split(", ")}
        assert all(by <= labels[name] for name, _ in used), alert


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    rows = re.findall(r"^\| `(Tessera\w+)` \|(.+)\|(.+)\|$", TEXT, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(_rules())


def test_metrics_and_settings_in_the_text_exist() -> None:
    known = {name for one in FIGURES for name in (*_samples(one), exposed_name(one))}
    assert set(re.findall(r"`(tessera_[a-z_]+)`", TEXT)) - {"tessera_broker_url"} <= known
    named = set(re.findall(r"\bTESSERA_[A-Z_]+\b", TEXT)) - _OTHERS
    assert {name.removeprefix("TESSERA_").lower() for name in named} <= Settings.model_fields.keys()


@pytest.mark.slow
def test_a_snapshot_of_the_broker_is_restored_by_the_commands_of_the_text(tmp_path: Path) -> None:
    programs = find_program().parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    block = next(found for found in re.findall(r" ```\n(.*?) ```", TEXT, re.DOTALL) if "dump.rdb" in found)
    script = block.replace("6390", port).replace("DATA", str(tmp_path)).replace("sleep 1", "sleep 0.05")

    def serve(folder: Path) -> redis.Redis:
        folder.mkdir(exist_ok=True)
        options = ["--port", port, "--dir", str(folder), "--appendonly", "yes", "--save", "", "--daemonize", "yes"]
        subprocess.run([programs / "redis-server", *options], check=True, capture_output=True)
        client = redis.Redis(port=int(port))
        ends_at = time.monotonic() + 30
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < ends_at
                time.sleep(0.02)
            else:
                return client

    with serve(tmp_path / "before") as client:
        client.hset("tessera:job:1", "state", "queued")
        save = [str(programs / "redis-cli"), "-p", port, "--rdb", str(tmp_path / "records.rdb")]
        subprocess.run(save, check=True, capture_output=True)
        client.shutdown(nosave=True)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    with serve(tmp_path / "redis") as client:
        assert client.hgetall("tessera:job:1") == {b"state": b"queued"}
        client.shutdown(nosave=True)
