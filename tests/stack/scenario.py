"""What happens on the hosts, and what has to hold: `Scenario.run` says each step as it begins."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.service.harness import FINAL, Api, conv_chain, until
from tests.stack.stack import Stack

_DOCUMENTS: Final = ("plan", "report", "executable")
_WORKERS: Final = ("worker1", "worker2")
_SETTLE_S: Final = 900.0
# The API answers within this time whatever is gone; the machine has other work to do, too.
_ANSWER_S: Final = 2.5

Digests = Mapping[int, Mapping[str, str]]
"""The entity tags of the results of each model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The jobs of one round: how long they took, their results, and which host published how many."""

    seconds: float
    digests: Digests
    shares: Mapping[str, int]

    @property
    def jobs_per_s(self) -> float:
        """Throughput from the first request to the last final state."""
        return len(self.digests) / self.seconds

    def __str__(self) -> str:
        load = os.getloadavg()[0]
        return f"{self.jobs_per_s:.2f} jobs/s ({self.seconds:.1f} s; the load of the machine is {load:.1f})"


@dataclass(slots=True)
class Scenario:
    """One run over a stack; raises AssertionError at what does not hold."""

    stack: Stack
    jobs: int
    say: Callable[[str], None]
    api: Api = field(init=False)
    models: dict[int, str] = field(default_factory=dict)

    def run(self) -> None:
        """Everything, in order."""
        self.begin()
        alone = self.throughput_of_one()
        self.throughput_of_two(alone)
        self.host_cut_off(alone.digests)
        self.host_without_power(alone.digests)
        self.store_away(alone.digests)
        self.broker_without_power(alone.digests)
        self.nothing_leaked()
        self.api.http.close()

    def begin(self) -> None:
        """Starts all hosts but one worker; a key made on the API's host opens the service."""
        self.say("store, broker, cache and API start, each on its host")
        self.stack.start("store", "broker", "cache")
        for name in ("store", "broker", "cache"):
            until(lambda name=name: self.stack.healthy(name), f"the health check of {name}", 120)  # type: ignore[misc]
        self.stack.start("api")
        self.api = Api(self.stack.url)
        until(lambda: self._ready() == 503, "an API without workers", 120)
        assert self.api.http.get("/readyz").json()["actual"] == "worker"
        assert self.api.http.get("/v1/jobs").json()["code"] == "key_required"
        made = self.stack.run("api", "tessera", "keys", "create", "stack")
        assert made.returncode == 0, made.stderr
        self.api.http.headers["Authorization"] = f"Bearer {made.stdout.strip()}"
        assert self.api.http.get("/v1/jobs").status_code == 200
        self.say("a key made on the API's host is taken; the first worker's host starts")
        self.stack.start("worker1")
        until(lambda: self._ready() == 200, "/readyz", 120)
        for name in ("api", "worker1"):
            until(lambda name=name: self.stack.healthy(name), f"the health check of {name}", 60)  # type: ignore[misc]
        for number in range(self.jobs):
            data = conv_chain(4 + number % 10, extent=16 + 2 * (number // 10))
            self.models[number] = self.api.upload(data, f"chain{number}.onnx")

    def throughput_of_one(self) -> Batch:
        """All jobs with one worker host: the undisturbed run."""
        self.say(f"{self.jobs} jobs of as many models, one worker host")
        batch = self._batch(lambda _left: None)
        self.say(f"one worker host: {batch}")
        return batch

    def throughput_of_two(self, alone: Batch) -> None:
        """The same jobs anew with two: the lost cache knows no result of the first run."""
        self.stack.start("worker2")
        self._workers(2)
        self._forget()
        batch = self._batch(lambda _left: None, alone.digests)
        shares = " and ".join(str(batch.shares[name]) for name in _WORKERS)
        self.say(f"two worker hosts: {batch}, {shares} jobs each")
        ratio = batch.jobs_per_s / alone.jobs_per_s
        self.say(f"ratio {ratio:.2f} (one computation at once on each host; {os.cpu_count()} cores for all hosts)")
        assert min(batch.shares[name] for name in _WORKERS) >= self.jobs // 5, batch.shares

    def host_cut_off(self, expected: Digests) -> None:
        """A worker's cable is pulled in the middle; its host comes back when all is done."""
        self.say("the second worker's host loses its network after a third of the jobs")
        self._forget()
        self._batch(self._once(self.stack.host("worker2").cut_off), expected)
        self._workers(1)
        self.say("all jobs done; the host comes back")
        self.stack.host("worker2").reconnect()
        self._workers(2)

    def host_without_power(self, expected: Digests) -> None:
        """All processes of a worker's host are killed in the middle, and it starts again."""
        self.say("the first worker's host loses its power after a third of the jobs")
        self._forget()
        self._batch(self._once(self.stack.host("worker1").lose_power), expected)
        self._workers(1)
        self.say("all jobs done; the host starts again")
        self.stack.start("worker1")
        self._workers(2)

    def store_away(self, expected: Digests) -> None:
        """The host of the store is gone for some seconds while jobs run."""
        self.say("the store's host loses its network for some seconds after a third of the jobs")
        self._forget()
        self._batch(self._once(self._without_store), expected)

    def broker_without_power(self, expected: Digests) -> None:
        """The broker's host is killed while jobs wait; what it answered is on its disk."""
        self.say("the broker's host loses its power after a third of the jobs, and starts again")
        self._forget()
        self._batch(self._once(self._without_broker), expected)

    def nothing_leaked(self) -> None:
        """No host has printed a password or a key, and every host has kept its data to itself."""
        for host in self.stack.hosts():
            assert not any(password in host.log() for password in self.stack.passwords), (
                f"a secret is in {host.name}'s log"
            )
        self.say("no log has a password or a key")

    def _without_store(self) -> None:
        self.stack.host("store").cut_off()
        raw = {"Content-Type": "application/octet-stream"}
        self._refused("store_unavailable", lambda: self.api.http.post("/v1/models", content=conv_chain(3), headers=raw))
        answer = self._soon(lambda: self.api.http.get("/readyz"))
        assert (answer.status_code, answer.json()["actual"]) == (503, "store, models"), answer.text
        self.stack.host("store").reconnect()
        self.say("503 store_unavailable and /readyz 503 meanwhile; the host is back")
        until(lambda: self._ready() == 200, "/readyz", 120)

    def _without_broker(self) -> None:
        self.stack.host("broker").lose_power()
        self._refused("service_unavailable", lambda: self.api.http.get("/v1/jobs"))
        self.stack.start("broker")
        self.say("503 meanwhile; the host is back")
        until(lambda: self._ready() == 200, "/readyz", 120)

    def _refused(self, code: str, call: Callable[[], httpx.Response]) -> None:
        answer = self._soon(call)
        assert (answer.status_code, answer.json()["code"]) == (503, code), answer.text
        assert answer.headers["Retry-After"]
        assert answer.headers["Content-Type"] == "application/problem+json"

    def _soon(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        begun = time.monotonic()
        answer = call()
        assert time.monotonic() - begun < _ANSWER_S, f"answered after {time.monotonic() - begun:.1f} s"
        return answer

    def _ready(self) -> int:
        with suppress(httpx.TransportError):
            return self.api.http.get("/readyz").status_code
        return 0

    def _workers(self, count: int) -> None:
        def seen() -> bool:
            answer = self.api.http.get("/readyz")
            return answer.status_code == 200 and answer.json()["workers"] == count

        until(seen, f"{count} workers", 120)

    def _forget(self) -> None:
        """The cache's host loses its power and starts again: no result is known any more, so all is computed again."""
        self.stack.host("cache").lose_power()
        self.stack.start("cache")
        until(lambda: self.stack.healthy("cache"), "the cache", 60)
        until(lambda: "degraded" not in self.api.http.get("/readyz").json(), "a service with its cache", 60)

    def _once(self, fault: Callable[[], None]) -> Callable[[int], None]:
        """The fault, as soon as a third of the jobs is final."""
        waiting = [fault]

        def look(left: int) -> None:
            if waiting and left <= self.jobs * 2 // 3:
                waiting.pop()()

        return look

    def _batch(self, look: Callable[[int], None], expected: Digests | None = None) -> Batch:
        """Asks for all jobs, calls `look` with the number of those left until there are none, and judges them."""
        before, begun = self._published(), time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            ids = dict(zip(self.models, pool.map(self.api.submit, self.models.values()), strict=True))
        left, ends_at = dict(ids), begun + _SETTLE_S
        while left:
            assert time.monotonic() < ends_at, (
                f"{len(left)} jobs are not final: {[self._job(job) for job in left.values()]}"
            )
            states = {job: str(self._job(job).get("state")) for job in left.values()}
            left = {number: job for number, job in left.items() if states[job] not in FINAL}
            look(len(left))
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        digests = {number: self._result(job) for number, job in ids.items()}
        assert expected is None or digests == expected, "a result differs from that of the undisturbed run"
        published = self._published()
        twice = {key: times for key, times in Counter(key for _, key in published).items() if times > 1}
        assert not twice, f"published twice: {twice}"
        new = [one for one in published if one not in set(before)]
        shares = Counter(host for host, _ in new)
        assert len(new) == self.jobs, f"{self.jobs} jobs, {len(new)} publications"
        return Batch(seconds=seconds, digests=digests, shares=shares)

    def _job(self, job: str) -> dict[str, Any]:
        """A job as it is now; nothing while the service says honestly that it cannot answer."""
        answer = self.api.http.get(f"/v1/jobs/{job}")
        assert answer.status_code in (200, 503), answer.text
        return dict(answer.json()) if answer.status_code == 200 else {}

    def _result(self, job: str) -> dict[str, str]:
        """The tags of a job's results, which are their digests, once it has ended well and once."""
        found = until(lambda: self._job(job), job)
        assert found["state"] == "succeeded", found
        events = self.api.http.get(f"/v1/jobs/{job}/events").text.splitlines()
        ends = [line for line in events if line.startswith("data:") and json.loads(line[5:])["state"] in FINAL]
        assert len(ends) == 1, f"{job}: {ends}"
        return {name: self._tag(found["links"][name]) for name in _DOCUMENTS}

    def _tag(self, link: str) -> str:
        answer = self.api.http.get(link)
        assert answer.status_code == 200, answer.text
        return str(answer.headers["ETag"]).strip('"')

    def _published(self) -> list[tuple[str, tuple[str, int]]]:
        """The host of each publication with its content key and fence, as the logs of the workers say."""
        return [(name, key) for name in _WORKERS for key in publications(self.stack.host(name).log().splitlines())]


def publications(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Content key and fence of each outcome that a worker says it has published."""
    found = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if entry["event"] == "computed" and entry["answer"] == "published":
                found.append((str(entry["content"]), int(entry["fence"])))
    return found
