"""API-5: whatever happens to the records in whatever order, they agree, and every job ends."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import redis

from app.jobs.identity import Identity, QueueKind, parsed_queue, queue_name
from app.jobs.records import (
    FINAL_STATES,
    LEASES_KEY,
    Delivery,
    JobRequest,
    Lease,
    Records,
    SweepRequest,
    events_key,
    point_id,
)
from app.settings import Settings
from tests.app.test_records import DONE, MODEL

OWNERS = ("", "ann", "bob")
IDENTITIES = (Identity(version="1", store="s"), Identity(version="2", store="s"))
KINDS: tuple[QueueKind, ...] = ("short", "long")
ACTS = {
    "submit": 2, "sweep": 1, "sign": 1, "claim": 3, "take_up": 3, "renew": 1, "publish": 2, "stopped": 1, "lost": 1,
    "cancel": 1, "reap": 1, "rekey": 1, "stop_worker": 0.3, "restart": 0.1,
}  # fmt: skip
STEPS = 120


@dataclass
class Walk:
    """Processes of two versions over one Redis, which do what comes; names of acts are names of methods."""

    client: redis.Redis
    dice: random.Random
    ids: Iterator[int] = field(default_factory=itertools.count)
    jobs: dict[str, str] = field(default_factory=dict)
    """Owners by job, points of sweeps included."""
    sweeps: dict[str, int] = field(default_factory=dict)
    """Numbers of points."""
    messages: list[Delivery] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = Settings(lease_s=0.004, first_resend_s=0.001, last_resend_s=0.002, max_attempts=3)
        self.of = {identity: Records(self.client, settings, identity) for identity in IDENTITIES}
        for owner in OWNERS:
            self.records.pin_model(MODEL, owner=owner)
            self.records.register_model(MODEL, "net.onnx", 1, owner=owner)

    @property
    def records(self) -> Records:
        """Those of any process."""
        return self.of[self.dice.choice(IDENTITIES)]

    def request(self, job: str, identity: Identity, owner: str) -> JobRequest:
        return JobRequest(
            job=job,
            content=f"{identity.version}c{self.dice.randrange(4)}",
            model=MODEL,
            model_name="net.onnx",
            profile="b" * 64,
            profile_name="p",
            options="{}",
            queue=self.dice.choice(KINDS),
            time_limit_s=self.dice.choice((0.004, 60.0)),
            memory_limit_bytes=self.dice.choice((100, 5000)),
            compiler_version=identity.version,
            request_id="",
            owner=owner,
        )

    def submit(self) -> None:
        records, job, owner = self.records, f"j{next(self.ids)}", self.dice.choice(OWNERS)
        outcome = DONE if self.dice.random() < 0.1 else None
        answer = records.accept(self.request(job, records.identity, owner), outcome=outcome).answer
        assert answer == ("accepted" if outcome is None else "finished")
        self.jobs[job] = owner

    def sweep(self) -> None:
        records, sweep, owner = self.records, f"s{next(self.ids)}", self.dice.choice(OWNERS)
        version, names = (
            records.identity.version,
            [point_id(sweep, number) for number in range(self.dice.randint(1, 3))],
        )
        asked = SweepRequest(
            job=sweep,
            model=MODEL,
            model_name="net.onnx",
            options="{}",
            compiler_version=version,
            request_id="",
            owner=owner,
        )
        points = [(self.request(name, records.identity, owner), self.dice.choice((None, None, DONE))) for name in names]
        assert records.accept_sweep(asked, points).answer in ("accepted", "finished")
        self.sweeps[sweep] = len(names)
        self.jobs |= dict.fromkeys(names, owner)

    def sign(self) -> None:
        records = self.records
        records.heartbeat(f"w{self.dice.randrange(3)}", records.identity.queues(), 2)

    def claim(self) -> None:
        self.messages += self.records.claim()

    def take_up(self) -> None:
        if self.messages:
            message, worker = self.dice.choice(self.messages), f"w{self.dice.randrange(3)}/{self.dice.random()}"
            identity = self.dice.choice((parsed_queue(message.queue)[1], *IDENTITIES))
            lease = self.of[identity].lease(message.content, message.fence, worker)
            self.leases += [lease] if lease is not None else []

    def renew(self) -> None:
        for lease in self.some_lease():
            self.records.renew(lease, self.dice.choice((0, 101)), self.dice.choice((0.0, 0.01)))

    def publish(self) -> None:
        for lease in self.some_lease():
            self.records.publish(lease, DONE)

    def stopped(self) -> None:
        for lease in self.some_lease():
            self.records.stopped(lease)

    def lost(self) -> None:
        for lease in self.some_lease():
            self.records.lost(lease.content, lease.fence)

    def some_lease(self) -> list[Lease]:
        return [self.dice.choice(self.leases)] if self.leases else []

    def cancel(self) -> None:
        if known := [*self.jobs, *self.sweeps]:
            self.records.cancel(self.dice.choice(known))

    def reap(self) -> None:
        self.records.reap()

    def stop_worker(self) -> None:
        self.records.goodbye(f"w{self.dice.randrange(3)}")

    def restart(self) -> None:
        self.records.restart()

    def rekey(self) -> None:
        records = self.records
        for queue in records.queues():
            for content, fields in records.queued(queue.name, 0, 2):
                new = records.identity.version + content[1:]
                work = {"queue": queue_name(queue.kind, records.identity), "profile": "b" * 64, "options": "{}"}
                outcome = DONE if self.dice.random() < 0.2 else None
                assert records.rekey(content, int(fields["fence"]), new, work, outcome)

    def end(self) -> None:
        """Nothing happens any more but work."""
        for _ in range(400):
            for identity, records in self.of.items():
                records.heartbeat(f"last-{identity.version}", identity.queues(), 50)
                records.reap()
                for sent in records.claim():
                    lease = self.of[parsed_queue(sent.queue)[1]].lease(sent.content, sent.fence, "last/1")
                    if lease is not None:
                        records.publish(lease, DONE)
            if not self.client.exists("tessera:unfinished"):
                return
        raise AssertionError("jobs are stuck")


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_in_whatever_order_the_records_agree_and_every_job_ends(
    client: redis.Redis, seed: int
) -> None:
    walk = Walk(client, random.Random(seed))
    for act in walk.dice.choices(list(ACTS), list(ACTS.values()), k=STEPS):
        getattr(walk, act)()
        check_agreement(walk.records, walk.jobs, walk.sweeps)
    walk.end()
    check_agreement(walk.records, walk.jobs, walk.sweeps)
    words = (":queue", ":computation", ":leases", ":unfinished")
    assert [key for key in map(str, client.keys("*")) if any(word in key for word in words)] == []


def check_agreement(records: Records, jobs: Mapping[str, str], sweeps: Mapping[str, int]) -> None:
    """The invariants of API-5, read from the bare keys; jobs with their owners, sweeps with their numbers of points."""
    client = cast(Any, records.client)
    queues = client.smembers("tessera:queues")
    assert {key.split(":")[2] for key in client.keys("tessera:queue:*")} == queues
    for queue in queues:
        for owner in client.zrange(f"tessera:queue:{queue}:turns", 0, -1):
            assert client.exists(f"tessera:queue:{queue}:line:{owner}")
    waiting: dict[str, tuple[str, str]] = {}
    for content in {key.split(":")[2] for key in client.keys("tessera:computation:*")}:
        fields = client.hgetall(f"tessera:computation:{content}")
        state, queue, owner = fields["state"], f"tessera:queue:{fields['queue']}", fields.get("owner", "")
        members = client.zrange(f"tessera:computation:{content}:waiting", 0, -1)
        assert bool(members) == (state != "stopping")
        waiting |= dict.fromkeys(members, (content, state))
        in_line = client.zscore(f"{queue}:line:{owner}", content) is not None
        sent = client.zscore(f"{queue}:sent", content) is not None
        assert in_line + sent == (client.zscore(queue, content) is not None) == (state == "queued")
        assert not in_line or client.zscore(f"{queue}:turns", owner) is not None
        assert (client.zscore(LEASES_KEY, content) is not None) == (state != "queued")
        assert client.sismember(f"tessera:model:{MODEL}:computations", content)
        assert (records.queue_position(content) is not None) == (state == "queued")
    for job, owner in jobs.items():
        fields = client.hgetall(f"tessera:job:{job}")
        is_final = fields["state"] in FINAL_STATES
        assert waiting.get(job) == (
            (fields["content"], fields["state"]) if fields["state"] in ("queued", "running") else None
        )
        for unfinished in ("tessera:unfinished", f"tessera:owner:{owner}:unfinished"):
            assert (client.zscore(unfinished, job) is None) == is_final
        if fields["state"] == "cancelling":
            assert client.sismember(f"tessera:computation:{fields['content']}:stopping", job)
        states = [entry["state"] for _, entry in client.xrange(events_key(job))]
        assert sum(state in FINAL_STATES for state in states) == is_final
    for sweep, count in sweeps.items():
        states = [client.hget(f"tessera:job:{point_id(sweep, number)}", "state") for number in range(count)]
        ended = sum(state in FINAL_STATES for state in states)
        fields = client.hgetall(f"tessera:job:{sweep}")
        assert (int(fields["step"]), fields["state"] in FINAL_STATES) == (ended, ended == count)
