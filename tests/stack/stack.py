"""The services of the compose files on a network of hosts, one host for each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.supervisor.redis_server import find_program
from tests.s3 import free_ports, remove_sockets
from tests.stack.compose import FILES, ROOT, compose, secrets_of, variables_of, words_of
from tests.stack.hosts import Host, Network

# Host and service of each: a second host has the same service as the first worker's.
HOSTS: Final = {
    "store": "store",
    "broker": "broker",
    "cache": "cache",
    "api": "api",
    "worker1": "worker",
    "worker2": "worker",
}
_OF_STORE: Final = tuple(f"{part}.port.grpc" for part in ("master", "volume", "filer", "s3"))
# A lost host is noticed soon, so that a run is short.
_VARIABLES: Final = {"TESSERA_LEASE_S": "2", "TESSERA_FIRST_RESEND_S": "1", "TESSERA_STOP_GRACE_S": "1"}


class Stack:
    """Starts, breaks and asks the hosts; every process runs with the command and the secrets of its service."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._services: dict[str, Any] = compose(*FILES)["services"]
        self._hosts = {name: network.host(name) for name in HOSTS}
        self.passwords = _secrets(folder)
        # SeaweedFS names sockets in /tmp by these ports, and all hosts see one /tmp
        self._ports = dict(zip(_OF_STORE, free_ports(len(_OF_STORE)), strict=True))
        addresses = {name: host.address for name, host in self._hosts.items()}
        for name, host in self._hosts.items():
            wanted = secrets_of(self._services[HOSTS[name]])
            host.learn(addresses, {target: folder / "secrets" / source for target, source in wanted.items()})

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"http://{self._hosts['api'].address}:8080"

    def host(self, name: str) -> Host:
        """A host by its name."""
        return self._hosts[name]

    def hosts(self) -> list[Host]:
        """All hosts."""
        return list(self._hosts.values())

    def start(self, *names: str) -> None:
        """Starts what runs on these hosts."""
        for name in names:
            data = self._data(name)
            data.mkdir(mode=0o700, exist_ok=True)
            words = [str(data) if word == "/data" else word for word in words_of(self._services[HOSTS[name]])]
            words = [word.replace("-dir=/data", f"-dir={data}") for word in words]
            if words[0] == "redis-server":  # the image's folder for data is the one it works in
                words += ["--dir", str(data)]
            if words[0] == "weed":
                words += [f"-{port}={number}" for port, number in self._ports.items()]
                words += [f"-{part}.localSocket={data}/{part}.sock" for part in ("filer", "s3")]
            self._hosts[name].start(self._programs(words), self._variables(name))

    def clean_up(self) -> None:
        """Removes what lies outside the folder, once the hosts have ended."""
        remove_sockets(self._ports.values())

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on a host, as `docker compose exec` does in its service."""
        return self._hosts[name].run(self._programs(words), self._variables(name))

    def healthy(self, name: str) -> bool:
        """Whether the health check of the service passes on a host."""
        kind, *words = self._services[HOSTS[name]]["healthcheck"]["test"]
        words = [word.replace("$$", "$") for word in words]
        return self.run(name, *(["sh", "-c", *words] if kind == "CMD-SHELL" else words)).returncode == 0

    def _data(self, name: str) -> Path:
        return self._hosts[name].folder / "data"

    def _variables(self, name: str) -> Mapping[str, str]:
        of_image = {"TESSERA_DATA_DIR": str(self._data(name)), "TESSERA_HOST": "0.0.0.0", "TESSERA_PORT": "8080"}
        path = os.pathsep.join((str(find_program().parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        return {**of_image, "PATH": path, **_VARIABLES, **variables_of(self._services[HOSTS[name]])}

    def _programs(self, words: list[str] | tuple[str, ...]) -> list[str]:
        """The words with the programs of this machine."""
        known = {"python": [sys.executable], "tessera": [sys.executable, "-m", "app.cli"]}
        return [*known.get(words[0], [words[0]]), *words[1:]]


def _secrets(folder: Path) -> list[str]:
    """Makes the secrets as an operator does; returns the passwords and keys in them."""
    subprocess.run(["sh", ROOT / "scripts" / "compose-secrets", folder / "secrets"], check=True)
    texts = [(folder / "secrets" / name).read_text() for name in ("broker.conf", "cache.conf", "s3_credentials")]
    return [text.split()[-1] for text in texts]


def missing_programs() -> list[str]:
    """The programs that are not there."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join((beside, os.environ["PATH"]))
    return [
        name
        for name in ("ip", "unshare", "setpriv", "mount", "hostname", "weed")
        if shutil.which(name, path=path) is None
    ]
