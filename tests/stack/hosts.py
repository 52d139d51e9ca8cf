"""Hosts that are network namespaces on one bridge, inside a namespace that ends with this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_BRIDGE: Final = "bridge0"
_NETWORK: Final = "10.77.0."
_SEPARATE: Final = ("--net", "--mount")
# A process enters its host: it sees its own folder and no other host's, its name, its secrets and the names of all.
_ENTER: Final = """set -e
name=$1 all=$2 own=$3; shift 3
hostname "$name"
mount --bind "$own" /mnt
mount -t tmpfs tmpfs "$all"
mkdir "$own"
mount --bind /mnt "$own"
umount /mnt
mount --bind "$own/secrets" /run/secrets
mount --bind "$own/hosts" /etc/hosts
cd "$own"
exec "$@"
"""


def namespaces() -> tuple[str, ...]:
    """The command that runs a program where it may make hosts; raises PermissionError with what this machine says."""
    said = ""
    for words in (("unshare", *_SEPARATE), ("unshare", "--map-root-user", *_SEPARATE)):
        tried = subprocess.run(
            [*words, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True, check=False
        )
        if tried.returncode == 0:
            return words
        said = tried.stderr.strip()
    raise PermissionError(
        f"this machine does not permit network namespaces ({said}). Run as root; as a user of the machine, ask for "
        "`sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`; in a container, "
        "start it with --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt apparmor=unconfined"
    )


def command(*words: str) -> None:
    """Runs a command of iproute2 or util-linux; raises RuntimeError with what it printed if it fails."""
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {found.stderr.strip()}")


class Host:
    """One host: its address, its folder, and the processes that run on it."""

    def __init__(self, name: str, number: int, network: Path) -> None:
        self.name = name
        self.address = f"{_NETWORK}{number}"
        self.folder = network / name
        (self.folder / "secrets").mkdir(parents=True)
        (self.folder / "log").touch()
        self._network = network
        self._wire = f"wire-{name}"
        self._processes: list[subprocess.Popen[bytes]] = []
        command("ip", "netns", "add", name)
        command("ip", "link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "link", "set", self._wire, "master", _BRIDGE, "up")
        for words in (
            ("address", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "lo", "up"),
            ("link", "set", "eth0", "up"),
        ):
            command("ip", "-n", name, *words)

    def learn(self, names: Mapping[str, str], secrets: Mapping[str, Path]) -> None:
        """Gives the host the addresses of all hosts, and its own secrets."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        for name, file in secrets.items():
            shutil.copyfile(file, self.folder / "secrets" / name)

    def start(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts a program on this host; its output goes to `log` in the host's folder."""
        with (self.folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    self._here(words), env=self._variables(variables), stdout=log, stderr=log, start_new_session=True
                )
            )

    def run(self, words: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a program on this host to its end."""
        return subprocess.run(
            self._here(words), env=self._variables(variables), capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def running(self) -> bool:
        """Whether everything that was started runs."""
        return all(process.poll() is None for process in self._processes)

    def log(self) -> str:
        """What its programs have printed."""
        return (self.folder / "log").read_text(errors="replace")

    def cut_off(self) -> None:
        """Pulls the host's network cable: its processes run on and reach nobody."""
        command("ip", "link", "set", self._wire, "down")

    def reconnect(self) -> None:
        """Plugs the cable in again."""
        command("ip", "link", "set", self._wire, "up")

    def lose_power(self) -> None:
        """Kills every process of the host at once."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(20)
        self._processes.clear()

    def _here(self, words: Sequence[str]) -> list[str]:
        # Linux kills what runs on a host when this process dies, however that happens
        enter = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--uts",
            "sh",
            "-c",
            _ENTER,
            "enter",
            self.name,
            str(self._network),
            str(self.folder),
        ]
        return ["ip", "netns", "exec", self.name, *enter, *words]

    def _variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "TMPDIR": str(self.folder), "LC_ALL": "C.UTF-8", **variables}


class Network:
    """A bridge with hosts; this process is on it too, as the user who sends requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "hosts"
        self._folder.mkdir(parents=True)
        self.hosts: dict[str, Host] = {}
        command("mount", "-t", "tmpfs", "tmpfs", "/run")  # the names of namespaces lie there
        Path("/run/secrets").mkdir()
        command("ip", "link", "add", _BRIDGE, "type", "bridge")
        command("ip", "address", "add", f"{_NETWORK}1/24", "dev", _BRIDGE)
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "set", _BRIDGE, "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.lose_power()

    def host(self, name: str) -> Host:
        """A new host on the network."""
        self.hosts[name] = Host(name, len(self.hosts) + 10, self._folder)
        return self.hosts[name]
