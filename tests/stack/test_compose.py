"""API-2: what docker-compose.yml and its addition for S3 give to each service; `make stack` runs their commands."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

from app.jobs.durability import BrokerDurability
from app.settings import GIB, MIB, Settings
from app.stopping import API_STOP_S
from app.supervisor.redis_server import find_program
from tests.stack.compose import FILES, ROOT, compose, plain, secrets_of, variables_of, words_of

BOTH = compose(*FILES)
SERVICES: dict[str, Any] = BOTH["services"]
OURS = ("api", "worker")


def _bytes(text: str) -> int:
    return int(text.removesuffix("b")[:-1]) * {"m": MIB, "g": GIB}[text.removesuffix("b")[-1]]


def _limits(name: str) -> dict[str, Any]:
    return dict(SERVICES[name]["deploy"]["resources"]["limits"])


def test_without_the_addition_there_is_no_store() -> None:
    assert compose(FILES[0])["services"].keys() == {"api", "worker", "broker", "cache"}
    assert SERVICES.keys() == {"api", "worker", "broker", "cache", "store"}
    assert SERVICES["store"]["profiles"] == ["store"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_bounded_watched_and_confined(name: str) -> None:
    service = SERVICES[name]
    assert _limits(name).keys() == {"cpus", "memory", "pids"}
    assert service["healthcheck"].keys() >= {"test", "interval", "timeout", "retries"}
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["restart"] == "unless-stopped"
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", OURS)
def test_what_we_run_is_there_and_its_variables_are_settings(name: str) -> None:
    service = SERVICES[name]
    assert find_spec(words_of(service)[-1]) is not None
    variables = variables_of(service)
    ours = {key for key in variables if key.startswith("TESSERA_")}
    assert {key.removeprefix("TESSERA_").lower() for key in ours} <= Settings.model_fields.keys()
    assert variables.keys() - ours <= {"AWS_SHARED_CREDENTIALS_FILE"}
    values = {key.removeprefix("TESSERA_").lower(): variables[key] for key in ours - {"TESSERA_SECRETS_DIR"}}
    assert Settings.model_validate({**Settings().model_dump(), **values}).keys_required is bool(values["allowed_hosts"])


def test_passwords_and_keys_are_files_and_every_file_is_made(tmp_path: Path) -> None:
    subprocess.run(["sh", ROOT / "scripts" / "compose-secrets", tmp_path / "secrets"], check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    for name, service in SERVICES.items():
        for value in (*variables_of(service).values(), *words_of(service)):
            assert "@" not in value, f"{name}: {value}"
            assert not re.search("password|secret_access", value, re.IGNORECASE), f"{name}: {value}"
        for target, source in secrets_of(service).items():
            assert Path(BOTH["secrets"][source]["file"]).name in made, f"{name}: {target}"
            if target.startswith("tessera_"):
                assert target.removeprefix("tessera_") in Settings.model_fields
    subprocess.run(["sh", ROOT / "scripts" / "compose-secrets", tmp_path / "secrets"], check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made


def test_only_those_who_need_a_secret_have_it() -> None:
    of_redis = {"tessera_broker_url", "tessera_cache_url"}
    wanted = {
        "api": of_redis | {"s3_credentials"},
        "worker": of_redis | {"s3_credentials"},
        "broker": {"broker.conf"},
        "cache": {"cache.conf"},
        "store": {"s3.json"},
    }
    assert {name: set(secrets_of(service).values()) for name, service in SERVICES.items()} == wanted


def test_limits_of_memory_and_times_fit_what_the_processes_may_use() -> None:
    settings = Settings()
    concurrency = int(variables_of(SERVICES["worker"])["TESSERA_WORKER_CONCURRENCY"])
    assert _bytes(_limits("worker")["memory"]) >= concurrency * settings.memory_limit_bytes + GIB
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > settings.hard_time_limit_s
    assert int(SERVICES["api"]["stop_grace_period"].removesuffix("s")) > API_STOP_S
    for name, factor in (("broker", 2.0), ("cache", 1.4)):
        words = words_of(SERVICES[name])
        assert _bytes(_limits(name)["memory"]) >= factor * _bytes(words[words.index("--maxmemory") + 1])


@pytest.fixture(params=["broker", "cache"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A Redis with the command and the secret of its service: its name, and the URL in the secret of who uses it."""
    name = request.param
    subprocess.run(["sh", ROOT / "scripts" / "compose-secrets", tmp_path], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(find_program()) if word == "redis-server" else word for word in words_of(SERVICES[name])]
    words = [word.replace("/run/secrets/redis.conf", str(tmp_path / f"{name}.conf")) for word in words]
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*words, *where], stdout=log, stderr=log)
    url = (tmp_path / f"tessera_{name}_url").read_text().strip().replace(f"@{name}:6379", f"@127.0.0.1:{port}")
    yield name, url
    process.kill()
    process.wait(20)


def _answers(url: str) -> bool:
    with redis.Redis.from_url(url) as client, suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


def test_a_redis_asks_for_its_password_and_is_set_for_its_part(server: tuple[str, str], tmp_path: Path) -> None:
    name, url = server
    ends_at = time.monotonic() + 30
    while not _answers(url):
        assert time.monotonic() < ends_at, (tmp_path / "log").read_text()
        time.sleep(0.02)
    with redis.Redis.from_url(re.sub(":[^/@]*@", "", url)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with redis.Redis.from_url(url, decode_responses=True) as client:
        if name == "broker":
            found = BrokerDurability(client).ask()
            assert not found.concerns
        else:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
            assert client.config_get("appendonly") == {"appendonly": "no"}
    _, check = SERVICES[name]["healthcheck"]["test"]
    check = plain(check).replace("/run/secrets/redis.conf", str(tmp_path / f"{name}.conf"))
    here = f"{find_program().parent / 'redis-cli'} -p {url.rpartition(':')[2].removesuffix('/0')}"
    for password, code in ((None, 0), ("wrong", 1)):
        text = check.replace("redis-cli", here)
        text = text if password is None else re.sub(r"\$\([^)]*\)", password, text)
        assert subprocess.run(["sh", "-c", text], capture_output=True, check=False).returncode == code


def test_the_image_has_all_that_it_copies_and_its_machine_code() -> None:
    image = (ROOT / "Dockerfile").read_text()
    copied = [word for line in image.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert all(Path(word).parts[0] in sent for word in copied), copied
    assert all((ROOT / word).exists() for word in copied)
    assert image.index("COPY compiler compiler") < image.index("RUN python -m compiler.kernels") < image.index("USER")
