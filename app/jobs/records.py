"""The records of jobs and computations in Redis (API-5).

Every change is one Lua script (app/jobs/scripts): it reads, decides and writes at once, so no two processes
can disagree. The rules themselves, the state machine included, are in common.lua. No FastAPI here: the worker
uses this module too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast

import msgspec
import redis

from app.errors import UnavailableError
from app.jobs.durability import BrokerDurability
from app.jobs.identity import QUEUE_KINDS, UNNAMED, Identity, QueueKind, parsed_queue, queue_name
from app.jobs.leases import LeaseWatch
from app.keys.owners import NO_LIMITS, Limits
from app.settings import Settings

State = Literal["queued", "running", "succeeded", "failed", "cancelling", "cancelled"]
Kind = Literal["compilation", "simulation", "sweep"]
FINAL_STATES: frozenset[str] = frozenset(("succeeded", "failed", "cancelled"))
WORKERS_KEY = "tessera:workers"
SERVED_KEY = "tessera:workers:served"
APIS_KEY = "tessera:apis"
LEASES_KEY = "tessera:leases:beats"
COUNTS_KEY = "tessera:counts"
HEARTBEAT_TTL_S = 5
"""How long a worker, or an API process, counts as alive after its last sign of life."""
STORED_KEY = "tessera:stored"

_SCRIPTS = (
    "accept",
    "accept_sweep",
    "announce",
    "api_alive",
    "cancel",
    "claim",
    "finish",
    "goodbye",
    "heartbeat",
    "lease",
    "lost",
    "position",
    "progress",
    "queues",
    "reap",
    "rekey",
    "renew",
    "requeue",
    "restart",
    "blob_pin",
    "blob_claim",
    "model_pin",
    "model_register",
    "model_delete",
    "job_delete",
    "profile_register",
    "profile_delete",
    "stored_bytes",
)
_STOP_REMEMBERED_S = 24 * 3600
# Messages in Celery's list for each computation that live workers do at once: enough that none waits for the relay.
_MESSAGES_PER_SLOT = 2
# Less than the patience of the API's connection.
_SYNC_MS = 700
# Scripts that bring something new, whose answers are promises: they are on disk before they are passed on. A Redis that
# is full refuses them; what was accepted goes on.
_NEW = frozenset(("accept", "accept_sweep", "model_register", "profile_register"))
# Scripts that only read: a Redis that refuses to write, because its disk fails, answers them.
_READS = frozenset(("position", "queues"))
# Redis refuses at its memory limit what may need memory, unless the script has written already.
_AT_ANY_MEMORY = "redis.call('DEL', 'tessera:nothing')\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The request of a job: names and digests only, no payload.

    For a simulation, `model` is the model that judges its outputs ("" if there is none) and `profile` is "".
    """

    job: str
    content: str
    model: str
    model_name: str
    profile: str
    profile_name: str
    options: str
    queue: QueueKind
    time_limit_s: float
    memory_limit_bytes: int
    compiler_version: str
    request_id: str
    trace: str = ""
    """The `traceparent` of the request."""
    kind: Kind = "compilation"
    owner: str = ""
    attached_bytes: int = 0
    """Of files that came with the request and are kept for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """The request of a sweep; its points are jobs of their own, with the ids of `point_id`.

    `options` holds the profiles, the grid and the options of each point (SweepOptions), as JSON.
    """

    job: str
    model: str
    model_name: str
    options: str
    compiler_version: str
    request_id: str
    trace: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """An Idempotency-Key and the request that used it, both as digests."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer to a request for a job."""

    answer: Literal[
        "accepted",
        "finished",
        "replayed",
        "conflict",
        "unknown_model",
        "too_many_jobs",
        "too_many_bytes",
        "queue_full",
        "records_full",
    ]
    job: str
    """Of `too_many_jobs` and `queue_full` how many jobs wait, of `too_many_bytes` how many the owner would have stored,
    of `records_full` how many the records take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a computation; every publication presents its fence."""

    content: str
    fence: int
    model: str
    model_name: str
    profile: str
    options: str
    attempt: int
    kind: Kind = "compilation"
    waited_s: float = 0.0
    """In the queue."""
    trace: str = ""
    request_id: str = ""
    jobs: tuple[str, ...] = ()
    """The first ones that wait, for the log; trace and request are those of the first of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message for a worker."""

    content: str
    fence: int
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSign:
    """What a live worker says of itself; one of a version before 0.12 says nothing."""

    name: str
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What waits in a queue, and who is there for it."""

    name: str
    kind: QueueKind
    identity: Identity
    waiting: int
    slots: int
    """How many computations the live workers that serve it do at once."""
    has_api: bool
    """Whether an API process of the same identity lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Whether to continue, and the tightest limits among the waiting jobs (0 if unknown)."""

    answer: Literal["keep", "stop", "lost"]
    memory_limit_bytes: int
    time_left_s: float


class Records:
    """The job records, over one Redis. Raises redis.RedisError if it does not answer."""

    def __init__(self, client: redis.Redis, settings: Settings, identity: Identity) -> None:
        self._redis = client
        self._settings = settings
        self._identity = identity
        self._leases = LeaseWatch(settings.lease_s)
        self._durability = BrokerDurability(client)
        folder = resources.files("app.jobs") / "scripts"
        common = (folder / "common.lua").read_text()
        self._scripts = {
            name: client.register_script(
                common + ("" if name in _NEW | _READS else _AT_ANY_MEMORY) + (folder / f"{name}.lua").read_text()
            )
            for name in _SCRIPTS
        }

    @property
    def client(self) -> redis.Redis:
        """The connection, for plain reads."""
        return self._redis

    @property
    def identity(self) -> Identity:
        """What this process and the workers of the jobs that it accepts agree in."""
        return self._identity

    @property
    def durability(self) -> BrokerDurability:
        """What the broker does with what it has answered."""
        return self._durability

    def accept(
        self,
        request: JobRequest,
        *,
        outcome: Mapping[str, str] | None = None,
        key: Idempotency | None = None,
        limits: Limits = NO_LIMITS,
    ) -> Accepted:
        """Records a job, and its computation, queued, unless an outcome is known already."""
        asked = self._asked(request, key, 1, limits)
        answer, job = self._run("accept", asked, _json(self._wanted(request, outcome, {})))
        return Accepted(answer=answer, job=job)

    def accept_sweep(
        self,
        request: SweepRequest,
        points: Sequence[tuple[JobRequest, Mapping[str, str] | None]],
        *,
        key: Idempotency | None = None,
        limits: Limits = NO_LIMITS,
    ) -> Accepted:
        """Record a sweep and the jobs of all its points with their outcomes where known, all or nothing (SIM-5)."""
        fields = _fields(request)
        wanted = [self._wanted(point, outcome, {"sweep": request.job}) for point, outcome in points]
        asked = self._asked(request, key, len(points), limits)
        answer, job = self._run("accept_sweep", asked, _json(fields), _json(wanted))
        return Accepted(answer=answer, job=job)

    def _asked(self, request: JobRequest | SweepRequest, key: Idempotency | None, jobs: int, limits: Limits) -> str:
        """The `request` of common.lua: what identifies a repeated request, and what decides whether there is room."""
        return _json(
            {
                "job": request.job,
                "owner": request.owner,
                "model": request.model,
                "idempotency": "" if key is None else owned(request.owner, f"idempotency:{key.key}"),
                "fingerprint": "" if key is None else key.fingerprint,
                "idempotency_ms": _ms(self._settings.keep_idempotency_s),
                "jobs": jobs,
                "most_of_owner": limits.waiting_jobs,
                "attached_bytes": request.attached_bytes if isinstance(request, JobRequest) else 0,
                "most_bytes": limits.stored_bytes,
                "most_waiting": self._settings.max_waiting_jobs,
            }
        )

    def _wanted(
        self, request: JobRequest, outcome: Mapping[str, str] | None, more: Mapping[str, str]
    ) -> dict[str, object]:
        """The `wanted` of common.lua."""
        identity = Identity(version=request.compiler_version, store=self._identity.store)
        fields = {**_fields(request), **more}
        shared = ("model", "model_name", "profile", "options", "kind", "owner", "trace", "request_id")
        wanted: dict[str, object] = {
            "job": request.job,
            "content": request.content,
            "time_limit_ms": _ms(request.time_limit_s),
            "attached_bytes": request.attached_bytes,
            "fields": fields,
            "work": {
                **{name: fields[name] for name in shared},
                "queue": queue_name(request.queue, identity),
                "version": identity.version,
                "store": identity.store,
            },
        }
        return wanted if outcome is None else {**wanted, "outcome": outcome}

    def job(self, job: str) -> dict[str, str] | None:
        """The fields of a job, or None if it does not exist."""
        fields = cast(dict[str, str], self._redis.hgetall(job_key(job)))
        return fields or None

    def sweep(self, sweep: str) -> tuple[dict[str, str], list[dict[str, str]]] | None:
        """The fields of a sweep and of its points at one moment, or None if it does not exist any more."""
        total = int(cast(str, self._redis.hget(f"tessera:job:{sweep}", "total") or 0))
        pipeline = self._redis.pipeline(transaction=True)
        for job in (sweep, *(point_id(sweep, number) for number in range(total))):
            pipeline.hgetall(f"tessera:job:{job}")
        own, *points = cast(list[dict[str, str]], pipeline.execute())
        return (own, points) if own and all(points) else None

    def queue_position(self, content: str) -> int | None:
        """The place of a computation in its queue, from 1, as owners take turns; None if it is not queued."""
        return int(self._run("position", content)) or None

    def queues(self) -> list[QueueState]:
        """The queues in which something waits, and those of this identity."""
        names = (*self._identity.queues(), *QUEUE_KINDS)
        found = []
        for name, waiting, slots, has_api in self._run("queues", HEARTBEAT_TTL_S, _json(names)):
            if waiting or name not in QUEUE_KINDS:
                kind, identity = parsed_queue(name)
                found.append(
                    QueueState(
                        name=name,
                        kind=kind,
                        identity=identity,
                        waiting=waiting,
                        slots=slots,
                        has_api=bool(has_api),
                    )
                )
        return found

    def queued(self, queue: str, first: int, count: int) -> list[tuple[str, dict[str, str]]]:
        """Computations that wait in a queue, from the longest waiting on, by their content keys with their fields."""
        contents = cast(list[str], self._redis.zrange(f"tessera:queue:{queue}", first, first + count - 1))
        pipeline = self._redis.pipeline(transaction=False)
        for content in contents:
            pipeline.hgetall(f"tessera:computation:{content}")
        return [(content, fields) for content, fields in zip(contents, pipeline.execute(), strict=True) if fields]

    def rekey(
        self, content: str, fence: int, new: str, work: Mapping[str, str], outcome: Mapping[str, str] | None
    ) -> bool:
        """Moves the jobs of a queued computation to a new content key for workers of this identity.

        `work` says what changes of the computation: its queue, profile and options. False if it was taken up meanwhile.
        """
        changed = {**work, "version": self._identity.version, "store": self._identity.store}
        known = "" if outcome is None else _json(outcome)
        return bool(self._run("rekey", content, fence, new, _json(changed), known) == "moved")

    def cancel(self, job: str) -> State | None:
        """Cancels a job; returns its state afterwards, or None if it does not exist."""
        return cast(State | None, self._run("cancel", job))

    def claim(self) -> list[Delivery]:
        """The deliveries for which there is room in Celery's lists; one that no worker takes up is handed out again."""
        first_ms, last_ms = _ms(self._settings.first_resend_s), _ms(self._settings.last_resend_s)
        sends = self._run("claim", HEARTBEAT_TTL_S, _MESSAGES_PER_SLOT, first_ms, last_ms)
        return [Delivery(content=content, fence=int(fence), queue=queue) for content, fence, queue in sends]

    def reap(self, count: int = 100) -> list[tuple[str, str]]:
        """Ends leases that gave no sign of life for their time; returns pairs of action and content key.

        To be called again and again by one thread: how long a lease is silent is measured between the calls.
        """
        done, leases = self._run("reap", self._settings.max_attempts, count, _json(self._leases.silent()))
        self._leases.look(dict(zip(leases[::2], map(float, leases[1::2]), strict=True)))
        return [(what, to) for what, to in done]

    def restart(self) -> int:
        """Treats every lease as lost and every queued computation as unsent; returns the number queued.

        Nothing else lives, so what was for this store under another id is for it now.
        """
        self._run("restart", self._settings.max_attempts)
        names = [(queue.name, self._present_name(queue)) for queue in self.queues()]
        names.sort(key=lambda pair: pair[0] != pair[1])  # what is renamed comes to queues that are done
        return int(self._run("requeue", self._identity.store, _json(names)))

    def _present_name(self, queue: QueueState) -> str:
        if not queue.identity.is_known:
            return queue.name
        return queue_name(queue.kind, Identity(version=queue.identity.version, store=self._identity.store))

    def lease(self, content: str, fence: int, worker: str) -> Lease | None:
        """Takes up a queued computation; None for a duplicate or late delivery, or one for another version or store.

        `worker` is the worker's name, with what tells its calls apart after a slash.
        """
        fields = self._run("lease", content, fence, worker, self._identity.version, self._identity.store)
        if fields is None:
            return None
        model, model_name, profile, options, attempt, kind, trace, request_id, queued_ms, started_ms, jobs = fields
        return Lease(
            content=content,
            fence=fence,
            model=model,
            model_name=model_name,
            profile=profile,
            options=options,
            attempt=int(attempt),
            # computations of the previous version have none of these
            kind=kind or "compilation",
            trace=trace or "",
            request_id=request_id or "",
            waited_s=max(0, int(started_ms) - int(queued_ms)) / 1000,
            jobs=tuple(jobs.split()),
        )

    def renew(self, lease: Lease, memory_bytes: int = 0, elapsed_s: float = 0.0) -> Renewal:
        """Prolongs a lease; reports memory and time, which fail the jobs whose limits they exceed."""
        answer, limit, left_ms = self._run("renew", lease.content, lease.fence, memory_bytes, round(elapsed_s * 1000))
        return Renewal(answer=answer, memory_limit_bytes=int(limit), time_left_s=int(left_ms) / 1000)

    def progress(self, lease: Lease, phase: str, step: int, total: int) -> Literal["keep", "stop", "lost"]:
        """Reports the phase to the waiting jobs."""
        answer = self._run("progress", lease.content, lease.fence, phase, step, total)
        return cast(Literal["keep", "stop", "lost"], answer)

    def announce(self, lease: Lease, plan: str) -> Literal["keep", "stop", "lost"]:
        """Announces a plan to the waiting jobs, by the digest of its blob, before its programs are made."""
        return cast(Literal["keep", "stop", "lost"], self._run("announce", lease.content, lease.fence, plan))

    def publish(self, lease: Lease, outcome: Mapping[str, str]) -> Literal["published", "stopped", "refused"]:
        """Gives every waiting job its outcome, if the fence is still open."""
        answer = self._run("finish", lease.content, lease.fence, _json(outcome))
        return cast(Literal["published", "stopped", "refused"], answer)

    def stopped(self, lease: Lease) -> Literal["stopped", "refused"]:
        """Reports that the work ended because no job waits for it any more."""
        return cast(Literal["stopped", "refused"], self._run("finish", lease.content, lease.fence, ""))

    def holds(self, content: str, fence: int) -> bool:
        """Whether the work under this fence still counts."""
        state, current = cast(list[str | None], self._redis.hmget(f"tessera:computation:{content}", ["state", "fence"]))
        return current == str(fence) and state in ("running", "stopping")

    def lost(self, content: str, fence: int) -> str:
        """Report that the worker under this fence is dead, which ends its lease at once."""
        return str(self._run("lost", content, fence, self._settings.max_attempts))

    def heartbeat(self, worker: str, queues: Sequence[str], slots: int) -> None:
        """Records that a worker is alive, which queues it serves, and how many computations it does at once."""
        served = {"version": self._identity.version, "store": self._identity.store, "queues": queues, "slots": slots}
        self._run("heartbeat", worker, _json(served), HEARTBEAT_TTL_S)

    def note_api(self) -> None:
        """Records that an API process of this identity is alive."""
        self._run("api_alive", self._identity.label, HEARTBEAT_TTL_S)

    def has_api(self) -> bool:
        """Whether an API process of this store lives, of whatever version."""
        now = self._redis.time()[0]
        labels = cast(list[str], self._redis.zrangebyscore(APIS_KEY, now, now + HEARTBEAT_TTL_S))
        return any(label.partition("@")[2] == self._identity.store for label in labels)

    def goodbye(self, worker: str) -> None:
        """Records that a worker was told to stop or has ended: what it does not finish counts as no attempt."""
        self._run("goodbye", worker, _STOP_REMEMBERED_S)

    def owners(self, content: str) -> tuple[str, ...]:
        """The owners of the jobs that wait for a computation, each once; "" owns those of requests without a key."""
        jobs = cast(list[str], self._redis.zrange(f"tessera:computation:{content}:waiting", 0, -1))
        pipeline = self._redis.pipeline(transaction=False)
        for job in jobs:
            pipeline.hget(job_key(job), "owner")
        return tuple(sorted({str(owner or "") for owner in pipeline.execute()}))

    def count_damaged(self) -> None:
        """Counts a blob whose bytes were not those of its digest, for the metrics."""
        with suppress(redis.RedisError):
            self._redis.hincrby("tessera:counts", "blobs_damaged", 1)

    def workers(self) -> list[WorkerSign]:
        """The workers with a recent heartbeat."""
        names = live_workers(self._redis)
        said = cast(list[str | None], self._redis.hmget(SERVED_KEY, names)) if names else []
        return [WorkerSign(name=name, identity=_identity(text)) for name, text in zip(names, said, strict=True)]

    def pin_blob(self, digest: str, pin_s: float = 60.0) -> bool:
        """Keeps a blob from being removed until a record names it; False while it is removed."""
        return bool(self._run("blob_pin", digest, _ms(pin_s)) == "pinned")

    def claim_blobs(self, digests: Sequence[str], mark_s: float) -> list[str]:
        """Those of some blobs that may be removed within that time, until `removed_blobs`; pinned ones are left out."""
        return list(self._run("blob_claim", _ms(mark_s), *digests)) if digests else []

    def removed_blobs(self, digests: Sequence[str]) -> None:
        """Ends the removal of claimed blobs and of a deleted model."""
        if digests:
            self._redis.delete(*(f"tessera:blob:{digest}:removing" for digest in digests))

    def take_turn(self, what: str, interval_s: float) -> bool:
        """Whether this process does something that one of all does once in an interval."""
        return bool(self._redis.set(f"tessera:turn:{what}", 1, nx=True, px=_ms(interval_s)))

    def known_since(self) -> float:
        """Since when these records know this store (seconds since 1970): from the first call on."""
        key = f"tessera:known_since:{self._identity.store}"
        self._redis.set(key, repr(time.time()), nx=True)
        return float(cast(str, self._redis.get(key)))

    def stored(self) -> dict[str, str]:
        """What the stores held at the last collection: `blobs` and `bytes`, and when they were counted, in seconds."""
        return cast(dict[str, str], self._redis.hgetall(STORED_KEY))

    def note_collection(self, stored: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """Records what the stores hold, and adds to the counts, for the metrics."""
        pipeline = self._redis.pipeline()
        pipeline.hset(STORED_KEY, mapping=cast(dict[Any, Any], stored))
        for name, count in counts.items():
            pipeline.hincrby(COUNTS_KEY, name, count)
        pipeline.execute()

    def pin_model(
        self,
        model: str,
        *,
        owner: str = "",
        size_bytes: int = 0,
        limits: Limits = NO_LIMITS,
        pin_s: float = 60.0,
    ) -> tuple[Literal["pinned", "deleting", "full", "crowded"], int]:
        """Keeps a model from being deleted while its file moves into place.

        `deleting` while a deletion runs; `full` or `crowded` if the owner would have more bytes, or more models and
        profiles, than allowed, and how many.
        """
        most = limits.stored_bytes, limits.stored_items
        answer, then = self._run("model_pin", owner, model, size_bytes, *most, _ms(pin_s))
        return answer, int(then)

    def register_model(self, model: str, name: str, size_bytes: int, *, owner: str = "") -> bool:
        """Makes a model known to its owner and unpins it; True if it is new to this owner."""
        return bool(self._run("model_register", owner, model, name, size_bytes))

    def stored_bytes(self, owner: str) -> int:
        """The bytes of an owner's models and files, as they count for the limit."""
        return int(self._run("stored_bytes", owner))

    def delete_model(self, model: str, *, owner: str = "") -> Literal["deleted", "left", "unknown", "in_use"]:
        """Forgets an owner's model: `left` if others own it too, else its file may be removed until `removed_blobs`."""
        answer = self._run("model_delete", owner, model, _ms(30.0))
        return cast(Literal["deleted", "left", "unknown", "in_use"], answer)

    def delete_job(self, job: str) -> Literal["deleted", "unknown", "not_final", "point"]:
        """Forget a job that is final, a sweep with its points; a point of a sweep stays with its sweep."""
        return cast(Literal["deleted", "unknown", "not_final", "point"], self._run("job_delete", job))

    def register_profile(
        self, digest: str, name: str, *, owner: str = "", limits: Limits = NO_LIMITS
    ) -> tuple[Literal["new", "known", "crowded"], int]:
        """Makes a user's profile known under its name; since when it is known, in ms.

        `crowded` if the owner would have more models and profiles than allowed, and how many.
        """
        answer, number = self._run("profile_register", owner, digest, name, limits.stored_items)
        return answer, int(number)

    def delete_profile(self, digest: str, *, owner: str = "") -> Literal["deleted", "unknown"]:
        """Forget a user's profile; its name then means the newest other one of that name."""
        return cast(Literal["deleted", "unknown"], self._run("profile_delete", owner, digest))

    def _run(self, name: str, *arguments: str | int) -> Any:
        words = (_ms(self._settings.keep_finished_s), *arguments)
        if name not in _NEW or not self._durability.present().waits:
            return self._scripts[name](keys=(), args=words)
        with self._redis.pipeline(transaction=False) as pipeline:  # one connection: it waits for what it wrote itself
            self._scripts[name](keys=(), args=words, client=pipeline)
            pipeline.execute_command("WAITAOF", 1, 0, _SYNC_MS)  # type: ignore[no-untyped-call]
            answer, (synced, _) = pipeline.execute()
        if synced < 1:
            raise UnavailableError(
                "the broker did not write the record to its disk in time",
                code="records_not_saved",
                stage="service",
                actual=f"{_SYNC_MS} ms",
                hint="Try again in a few seconds with the same Idempotency-Key; the request may have been accepted",
            )
        return answer


def live_workers(client: redis.Redis) -> list[str]:
    """The names of the workers with a recent sign of life."""
    now = client.time()[0]
    # a later end is from before the clock was set
    return cast(list[str], client.zrangebyscore(WORKERS_KEY, now, now + HEARTBEAT_TTL_S))


def owned(owner: str, name: str) -> str:
    """The key of what belongs to an owner, as in common.lua: "" owns what was made before there were owners."""
    return f"tessera:owner:{owner}:{name}" if owner else f"tessera:{name}"


def job_key(job: str) -> str:
    """The record of a job."""
    return f"tessera:job:{job}"


def events_key(job: str) -> str:
    """The stream of a job's events."""
    return f"{job_key(job)}:events"


def point_id(sweep: str, number: int) -> str:
    """The job id of a point of a sweep, numbered from 0 in the order of its table."""
    return f"{sweep}p{number}"


def _fields(request: JobRequest | SweepRequest) -> dict[str, str]:
    """The fields of a record that never change."""
    shared = {
        "model": request.model,
        "model_name": request.model_name,
        "options": request.options,
        "compiler_version": request.compiler_version,
        "request_id": request.request_id,
        "owner": request.owner,
        "trace": request.trace,
    }
    if isinstance(request, SweepRequest):
        return {**shared, "kind": "sweep"}
    return {
        **shared,
        "profile": request.profile,
        "profile_name": request.profile_name,
        "memory_limit_bytes": str(request.memory_limit_bytes),
        "kind": request.kind,
        "owner": request.owner,
    }


def _identity(served: str | None) -> Identity:
    fields = {} if served is None else json.loads(served)
    return Identity(version=fields.get("version", UNNAMED), store=fields.get("store", ""))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _json(values: object) -> str:
    return msgspec.json.encode(values).decode()
