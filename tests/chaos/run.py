"""One run: asks for all jobs, does all faults meanwhile, reads results throughout, and judges what came of it."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import redis

from app.redis_urls import connect
from tests.chaos.faults import Faults
from tests.chaos.topology import Topology
from tests.chaos.work import TABLE_SHAPES, Work, base_of, body, model_bytes
from tests.service.harness import FINAL

# After the last fault everything accepted is final, and every result can be read, within this time.
SETTLE_S: Final = 600.0
_SUBMITTERS: Final = 8
# A fault waits so long for work that is behind, so that the last jobs meet faults as the first did.
_AHEAD_S: Final = 5.0
_READERS: Final = 2
# How long the broker may take to be there again, once all faults are over.
_BROKER_S: Final = 60.0
_DOCUMENTS: Final = ("plan", "report", "executable", "outputs", "package")
# Answers that say honestly that something is not possible at the moment.
_LATER: Final = (429, 503, 507)
# While services of two versions are replaced, either may answer.
_ROLLING_S: Final = 30.0

Outcome = Mapping[str, str]
"""The digest of each result by name, or the code of the problem."""

# What was damaged where nobody is left who could make it again, and what found no room, is said, and asked for again.
_ASKED_AGAIN: Final = ("input_lost", "result_lost", "storage_full")


class ResultLostError(Exception):
    """The service says that a result was damaged and that it cannot make it again."""


@dataclass(slots=True)
class Accepted:
    """A job that was answered 200 or 202."""

    job: str
    work: Work
    version: str
    """The version that makes its result: the one that accepted it, or another, once no worker of that was left."""
    base: Accepted | None
    """Of a simulation, the job of its executable."""


@dataclass(slots=True)
class Ledger:
    """What was asked for and seen; shared by all threads."""

    accepted: list[Accepted] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def violate(self, what: str, why: str) -> None:
        with self.lock:
            self.violations.setdefault(what, []).append(why)

    def accept(self, accepted: Accepted) -> None:
        with self.lock:
            self.accepted.append(accepted)


class Caller:
    """A user of the service who tries again for as long as the answer is that it is not possible at the moment."""

    def __init__(self, topology: Topology, ledger: Ledger, models: dict[str, str]) -> None:
        self._http = httpx.Client(base_url=topology.url, timeout=60, trust_env=False)
        self._topology, self._ledger, self._models = topology, ledger, models

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def once(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """An answer; None where there was none, or the service said that it cannot answer now."""
        try:
            answer = self._http.request(method, path, **more)
        except httpx.TransportError:
            self._ledger.count("requests without an answer")
            return None
        if answer.status_code in _LATER:
            self._ledger.count(f"answers {answer.status_code}")
            if not answer.headers.get("Retry-After") or "problem+json" not in answer.headers.get("Content-Type", ""):
                self._ledger.violate("internal errors", f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return None
        if answer.status_code >= 500:
            self._ledger.violate("internal errors", f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            return None
        return answer

    def insist(self, method: str, path: str, patience_s: float = SETTLE_S, **more: Any) -> httpx.Response:
        """The first answer; raises TimeoutError if there is none in time."""
        ends_at = time.monotonic() + patience_s
        while time.monotonic() < ends_at:
            answer = self.once(method, path, **more)
            if answer is not None:
                return answer
            time.sleep(0.2)
        raise TimeoutError(f"{method} {path} was not answered in {patience_s:.0f} s")

    def upload(self, name: str, *, again: bool = False) -> str:
        """The id of a model, which is uploaded the first time, or again."""
        if again or name not in self._models:
            kind = {"Content-Type": "application/octet-stream"}
            answer = self.insist("POST", "/v1/models", params={"name": name}, content=model_bytes(name), headers=kind)
            assert answer.status_code in (200, 201), answer.text
            self._models[name] = str(answer.json()["id"])
        return self._models[name]

    def submit(self, work: Work, *, fresh: bool = False) -> Accepted:
        """Asks for a job until it is accepted; what it is based on is made first."""
        wanted = base_of(work)
        base = None if wanted is None else self.done(self.submit(wanted, fresh=fresh))
        if base is not None and work.kind != "simulation":
            return self._accepted(Accepted(base.job, work, base.version, None))
        path, values = body(work, self.upload(work.model, again=fresh), None if base is None else base.job)
        key = {"Idempotency-Key": f"{time.monotonic_ns()}-{threading.get_ident()}"}
        answer = self.insist("POST", path, json=values, headers=key)
        if not fresh and answer.status_code == 422 and answer.json()["code"] == "unknown_model":
            self._ledger.count("jobs asked for again (unknown_model)")  # its file was damaged
            return self.submit(work, fresh=True)
        if answer.status_code not in (200, 202):
            raise AssertionError(f"{work} was refused: {answer.status_code} {answer.text}")
        found = answer.json()
        accepted = self._accepted(Accepted(str(found["id"]), work, str(found["versions"]["compiler"]), base))
        if work.kind == "upload":
            accepted = self.done(accepted)
            self._forget(work)
        return accepted

    def _accepted(self, accepted: Accepted) -> Accepted:
        self._ledger.accept(accepted)
        return accepted

    def _forget(self, work: Work) -> None:
        """Deletes a model, which is unknown afterwards; one that was asked for again is gone already."""
        model = self._models.pop(work.model, None)
        if model is None:
            return
        path = f"/v1/models/{model}"
        answer = self.insist("DELETE", path)
        assert answer.status_code in (204, 404), answer.text  # 404: deleted by a request whose answer was lost
        after = self.insist("GET", path)
        assert after.status_code == 404, f"a deleted model is answered {after.status_code}"

    def done(self, accepted: Accepted) -> Accepted:
        """A job that has succeeded; one whose input was damaged is asked for again."""
        while True:
            found = self.final(accepted)
            if found["state"] == "succeeded":
                return accepted
            code = str(found.get("problem", {}).get("code"))
            if code not in _ASKED_AGAIN:
                raise AssertionError(f"{accepted}: {found}")
            accepted = self.again(accepted, code)

    def again(self, accepted: Accepted, code: str) -> Accepted:
        """Another job for the same work, with everything uploaded anew."""
        self._ledger.count(f"jobs asked for again ({code})")
        return self.submit(accepted.work, fresh=True)

    def final(self, accepted: Accepted, patience_s: float = SETTLE_S) -> dict[str, Any]:
        """The job once it is final; raises TimeoutError if it is not in time, and LookupError if it is unknown."""
        ends_at = time.monotonic() + patience_s
        while time.monotonic() < ends_at:
            answer = self.once("GET", f"/v1/jobs/{accepted.job}")
            if answer is not None and answer.status_code == 404:
                raise LookupError(f"{accepted.job}: {answer.text}")
            if answer is not None and answer.json()["state"] in FINAL:
                accepted.version = str(answer.json()["versions"]["compiler"])
                return dict(answer.json())
            time.sleep(0.2)
        raise TimeoutError(f"{accepted}: not final")

    def outcome(self, accepted: Accepted, patience_s: float = SETTLE_S) -> Outcome:
        """What came of a job. Results that are damaged are waited for, for the service makes them again."""
        found = self.final(accepted, patience_s)
        try:
            if accepted.work.kind == "sweep":
                return self._sweep(accepted)
            if found["state"] != "succeeded":
                return {"state": found["state"], "code": str(found.get("problem", {}).get("code"))}
            if accepted.work.kind == "table":
                return {"state": "succeeded", "table": self._table(accepted, found["model"]["digest"], patience_s)}
            names = ("trace", "listing") if accepted.work.kind == "trace" else _DOCUMENTS
            links = {name: found["links"][name] for name in names if name in found["links"]}
            read = {name: self.read(accepted, link, patience_s) for name, link in links.items()}
        except ResultLostError:
            return {"state": "failed", "code": "result_lost"}
        if accepted.work.kind == "trace":  # their tags are of what they are made of
            return {"state": "succeeded"} | {name: _digest(answer.content) for name, answer in read.items()}
        return {"state": "succeeded"} | {name: self.checked(answer) for name, answer in read.items()}

    def _sweep(self, accepted: Accepted) -> Outcome:
        table = self.insist("GET", f"/v1/sweeps/{accepted.job}").json()
        for point in table["points"]:
            point.pop("job", None)
            if (code := (point["problem"] or {}).get("code")) in _ASKED_AGAIN:
                return {"state": "failed", "code": code}
        return {"state": table["state"], "table": _digest(json.dumps(table, sort_keys=True).encode())}

    def _table(self, accepted: Accepted, model: str, patience_s: float) -> str:
        """The digest of a table once it is optimised, without what differs from package to package."""
        work, ends_at = accepted.work, time.monotonic() + patience_s
        query = {"profile": work.profile, "shape": TABLE_SHAPES[work.model][work.number % 2]}
        while time.monotonic() < ends_at:
            answer = self.insist("GET", f"/v1/models/{model}/tables", patience_s, params=query)
            if answer.status_code == 404:  # its package is damaged
                raise ResultLostError(answer.text)
            self.checked(answer)
            table = answer.json()
            if (table["kind"], table["cache"]) == ("optimised", "hit"):
                for name in ("compiler_version", "package"):
                    del table[name]
                return _digest(json.dumps(table, sort_keys=True).encode())
            time.sleep(0.2)
        raise TimeoutError(f"{accepted}: its table is not optimised")

    def read(self, accepted: Accepted, link: str, patience_s: float) -> httpx.Response:
        """A result; raises ResultLostError if nobody is left who could make it again."""
        ends_at = time.monotonic() + _ROLLING_S
        while True:
            answer = self.insist("GET", link, patience_s)
            if answer.status_code != 404 or answer.json()["code"] != "result_lost":
                return answer
            if accepted.version != self._topology.version or accepted.work.kind == "upload":
                raise ResultLostError(answer.text)
            if time.monotonic() > ends_at:
                return answer
            time.sleep(0.2)

    def checked(self, answer: httpx.Response) -> str:
        """The digest of a body, which its entity tag has to name."""
        found = _digest(answer.content)
        if answer.status_code == 404:
            self._ledger.violate("lost", f"{answer.url}: {answer.text[:200]}")
        elif answer.headers.get("ETag", "").strip('"') != found:
            self._ledger.violate("wrong bytes served", f"{answer.url}: {answer.status_code} {answer.headers}")
        self._ledger.count("bodies hashed against their tags")
        return found

    def look(self, dice: random.Random) -> None:
        """Reads what a random job has, and a table."""
        with self._ledger.lock:
            accepted = dice.choice(self._ledger.accepted) if self._ledger.accepted else None
        if accepted is None:
            return
        answer = self.once("GET", f"/v1/jobs/{accepted.job}")
        if answer is None:
            return
        if answer.status_code == 404:
            self._ledger.violate("lost", f"{accepted}: {answer.text[:200]}")
            return
        links = answer.json().get("links", {})
        for name in _DOCUMENTS:
            if answer.json()["state"] == "succeeded" and name in links:
                document = self.once("GET", links[name])
                if document is not None and "result_lost" not in document.text[:2000]:  # compare() judges that
                    self.checked(document)
        if accepted.work.kind in ("package", "table") and "package" in links:
            shape = dice.choice(TABLE_SHAPES[accepted.work.model])
            query = {"profile": accepted.work.profile, "shape": shape}
            table = self.once("GET", f"/v1/models/{answer.json()['model']['digest']}/tables", params=query)
            if table is not None and table.status_code == 200:
                self.checked(table)

    def last_state(self, job: str) -> str:
        """The state in the last event of a job's stream."""
        answer = self.insist("GET", f"/v1/jobs/{job}/events")
        states = [json.loads(line[5:])["state"] for line in answer.text.splitlines() if line.startswith("data:")]
        return str(states[-1])


def undisturbed(topology: Topology, works: Sequence[Work]) -> dict[Work, Outcome]:
    """What comes of each work when nothing happens."""
    ledger = Ledger()
    with _caller(topology, ledger, {}) as caller:
        _ready(caller, topology)
        accepted = {work: caller.submit(work) for work in dict.fromkeys(works)}
        found = {work: caller.outcome(one) for work, one in accepted.items()}
    assert not ledger.violations, ledger.violations
    return found


def disturbed(topology: Topology, faults: Faults, works: Sequence[Work], count: int, seed: int) -> Ledger:
    """Asks for all work while `count` faults happen, both spread evenly; returns when the service may settle."""
    ledger, models = Ledger(), dict[str, str]()
    done, asked, ended, begun = 0, list[Work](), threading.Event(), time.monotonic()

    def submit(mine: Sequence[tuple[int, Work]]) -> None:
        with _caller(topology, ledger, models) as caller:
            for number, work in mine:
                while number * count > (done + 1) * len(works) and not ended.is_set():
                    time.sleep(0.05)
                if ended.is_set():
                    return
                asked.append(work)
                try:
                    caller.submit(work)
                except (TimeoutError, LookupError, AssertionError) as error:
                    what = {TimeoutError: "stuck", LookupError: "lost"}.get(type(error), "different")
                    ledger.violate(what, f"{work}: {type(error).__name__}: {error}")

    def read(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        with _caller(topology, ledger, models) as caller:
            while not ended.is_set():
                caller.look(dice)
                time.sleep(0.3)

    def look_after() -> None:
        while not ended.wait(0.3):
            topology.look_after()

    with ThreadPoolExecutor(_SUBMITTERS + _READERS + 1) as pool:
        waiting = [pool.submit(look_after)]
        with _caller(topology, ledger, models) as caller:
            _ready(caller, topology)
        numbered = list(enumerate(works))
        submitting = [pool.submit(submit, numbered[first::_SUBMITTERS]) for first in range(_SUBMITTERS)]
        waiting += [pool.submit(read, number) for number in range(_READERS)]
        try:
            kinds, names = faults.kinds(), list[str]()
            while done < count and len(faults.missed) < 2 * count:
                if not names:
                    names = faults.dice.sample(sorted(kinds), len(kinds))
                name = names.pop()
                waits_until = time.monotonic() + _AHEAD_S
                while len(asked) * count < done * len(works) and time.monotonic() < waits_until:
                    time.sleep(0.05)
                missed = len(faults.missed)
                kinds[name]()
                if len(faults.missed) > missed:
                    ledger.count(f"no process to hit: {name}")
                    continue
                ledger.count(f"fault: {name}")
                done += 1
                print(f"{time.monotonic() - begun:6.0f} s  {done} of {count}: {name}", file=sys.stderr, flush=True)
                time.sleep(faults.dice.uniform(0.2, 2.0))
            for one in submitting:
                one.result()
            judge(topology, ledger)
        finally:
            ended.set()
        for one in waiting:
            one.result()
    return ledger


def judge(topology: Topology, ledger: Ledger, settle_s: float = SETTLE_S) -> None:
    """Waits for every accepted job; notes those that are unknown, that do not end, and that ended twice."""
    ends_at = time.monotonic() + settle_s
    with _caller(topology, ledger, {}) as caller, closing(connect(topology.broker_url)) as broker:
        for accepted in list(ledger.accepted):
            try:
                found = caller.final(accepted, max(5.0, ends_at - time.monotonic()))
                if caller.last_state(accepted.job) != found["state"]:
                    ledger.violate("lost", f"the last event of {accepted}")
                # readers leave after the first final event, so the stream itself is looked at
                if _final_events(broker, accepted.job) != 1:
                    ledger.violate("published twice", str(accepted))
            except LookupError as error:
                ledger.violate("lost", str(error))
            except TimeoutError as error:
                ledger.violate("stuck", str(error))
    for key, times in _publications(topology).items():
        if times > 1:
            ledger.violate("published twice", f"computation {key[0]} under fence {key[1]}: {times} times")


def compare(topology: Topology, ledger: Ledger, expected: Mapping[tuple[str, Work], Outcome]) -> None:
    """Reads every result and compares it with that of the undisturbed run of the same version."""
    ends_at = time.monotonic() + SETTLE_S
    models = dict[str, str]()
    with _caller(topology, ledger, models) as caller:
        for accepted in list(ledger.accepted):
            try:
                found = caller.outcome(accepted, max(60.0, ends_at - time.monotonic()))
                while found.get("code") in _ASKED_AGAIN:
                    accepted = caller.again(accepted, found["code"])
                    found = caller.outcome(accepted)
            except (TimeoutError, LookupError, AssertionError) as error:
                ledger.violate("stuck" if isinstance(error, TimeoutError) else "lost", str(error))
                continue
            ledger.count(f"work: {accepted.work.kind}, {found['state']}")
            wanted = expected[accepted.version, accepted.work]
            if accepted.base is not None and accepted.base.version != accepted.version:
                # its report names the executable, which is of another version
                found, wanted = ({name: one.get(name, "") for name in ("state", "outputs")} for one in (found, wanted))
            if found != wanted:
                ledger.violate("different", f"{accepted}: {found}, undisturbed {wanted}")


def _final_events(broker: redis.Redis, job: str) -> int:
    """How many final events a job has; the broker may just be started again after a fault."""
    ends_at = time.monotonic() + _BROKER_S
    while True:
        try:
            entries: Any = broker.xrange(f"tessera:job:{job}:events")
            break
        except redis.RedisError as error:
            if time.monotonic() > ends_at:
                raise TimeoutError(f"the broker does not answer: {error}") from None
            time.sleep(0.1)
    return sum(json.loads(fields["data"])["state"] in FINAL for _, fields in entries)


def _publications(topology: Topology) -> Counter[tuple[str, int]]:
    """How often workers say that they published, by content key and fence."""
    found = Counter[tuple[str, int]]()
    for path in topology.logs():
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                if entry["event"] == "computed" and entry["answer"] == "published":
                    found[entry["content"], entry["fence"]] += 1
    return found


def _ready(caller: Caller, topology: Topology) -> None:
    """Returns when the service can work; a start that the machine was too busy for is tried again."""
    for _ in range(5):
        topology.look_after()
        with suppress(TimeoutError):
            caller.insist("GET", "/readyz", 90)
            return
    raise TimeoutError("the service did not become ready")


@contextmanager
def _caller(topology: Topology, ledger: Ledger, models: dict[str, str]) -> Iterator[Caller]:
    caller = Caller(topology, ledger, models)
    try:
        yield caller
    finally:
        caller.close()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
