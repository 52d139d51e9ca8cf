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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.chaos.faults import Faults
from tests.chaos.topology import Topology
from tests.chaos.work import TABLE_SHAPES, Work, base_of, body, model_bytes
from tests.service.harness import FINAL

# After the last fault everything accepted is final, and every result can be read, within this time.
SETTLE_S: Final = 240.0
_SUBMITTERS: Final = 4
_READERS: Final = 3
_DOCUMENTS: Final = ("plan", "report", "executable", "outputs", "package")
# Answers that say honestly that something is not possible at the moment.
_LATER: Final = (429, 503, 507)

Outcome = Mapping[str, str]
"""The digest of each result by name, or the code of the problem."""


@dataclass(slots=True)
class Accepted:
    """A job that was answered 200 or 202."""

    job: str
    work: Work
    version: str
    base_version: str
    """Of a simulation, the version that made its executable; else the same."""


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

    def __init__(self, url: str, ledger: Ledger, models: dict[str, str]) -> None:
        self._http = httpx.Client(base_url=url, timeout=15, trust_env=False)
        self._ledger, self._models = ledger, models

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
        """Asks for a job until it is accepted; for a simulation its executable is made first."""
        base = self.done(self.submit(base_of(work), fresh=fresh)) if work.kind == "simulation" else None
        path, values = body(work, self.upload(work.model, again=fresh), None if base is None else base.job)
        key = {"Idempotency-Key": f"{time.monotonic_ns()}-{threading.get_ident()}"}
        answer = self.insist("POST", path, json=values, headers=key)
        if not fresh and answer.status_code == 422 and answer.json()["code"] == "unknown_model":
            self._ledger.count("jobs asked for again (unknown_model)")  # its file was damaged
            return self.submit(work, fresh=True)
        if answer.status_code not in (200, 202):
            raise AssertionError(f"{work} was refused: {answer.status_code} {answer.text}")
        found = answer.json()
        version = str(found["versions"]["compiler"])
        accepted = Accepted(str(found["id"]), work, version, version if base is None else base.version)
        self._ledger.accept(accepted)
        return accepted

    def done(self, accepted: Accepted) -> Accepted:
        """A job that has succeeded; one whose input was damaged is asked for again."""
        while True:
            found = self.final(accepted)
            if found["state"] == "succeeded":
                return accepted
            if found.get("problem", {}).get("code") != "input_lost":
                raise AssertionError(f"{accepted}: {found}")
            self._ledger.count("jobs asked for again (input_lost)")
            accepted = self.submit(accepted.work, fresh=True)

    def final(self, accepted: Accepted, patience_s: float = SETTLE_S) -> dict[str, Any]:
        """The job once it is final; raises TimeoutError if it is not in time, and LookupError if it is unknown."""
        ends_at = time.monotonic() + patience_s
        while time.monotonic() < ends_at:
            answer = self.once("GET", f"/v1/jobs/{accepted.job}")
            if answer is not None and answer.status_code == 404:
                raise LookupError(f"{accepted.job}: {answer.text}")
            if answer is not None and answer.json()["state"] in FINAL:
                return dict(answer.json())
            time.sleep(0.2)
        raise TimeoutError(f"{accepted}: not final")

    def outcome(self, accepted: Accepted, patience_s: float = SETTLE_S) -> Outcome:
        """What came of a job. Results that are damaged are waited for, for the service makes them again."""
        found = self.final(accepted, patience_s)
        if found["state"] != "succeeded":
            return {"state": found["state"], "code": str(found.get("problem", {}).get("code"))}
        if accepted.work.kind == "sweep":
            table = self.insist("GET", f"/v1/sweeps/{accepted.job}").json()
            for point in table["points"]:
                point.pop("job", None)
                if (point["problem"] or {}).get("code") == "input_lost":
                    return {"state": "failed", "code": "input_lost"}
            return {"state": "succeeded", "table": _digest(json.dumps(table, sort_keys=True).encode())}
        links = {name: found["links"][name] for name in _DOCUMENTS if name in found["links"]}
        return {"state": "succeeded"} | {
            name: self.checked(self.insist("GET", link, patience_s)) for name, link in links.items()
        }

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
                if document is not None:
                    self.checked(document)
        if accepted.work.kind == "package" and "package" in links:
            shape = dice.choice(TABLE_SHAPES[accepted.work.model])
            query = {"profile": accepted.work.profile, "shape": shape}
            table = self.once("GET", f"/v1/models/{answer.json()['model']['digest']}/tables", params=query)
            if table is not None and table.status_code == 200:
                self.checked(table)

    def final_events(self, job: str) -> int:
        """How many final events the stream of a job has."""
        answer = self.insist("GET", f"/v1/jobs/{job}/events")
        states = [json.loads(line[5:])["state"] for line in answer.text.splitlines() if line.startswith("data:")]
        return sum(state in FINAL for state in states)


def undisturbed(topology: Topology, works: Sequence[Work]) -> dict[Work, Outcome]:
    """What comes of each work when nothing happens."""
    ledger = Ledger()
    with _caller(topology, ledger, {}) as caller:
        _ready(caller)
        accepted = {work: caller.submit(work) for work in dict.fromkeys(works)}
        found = {work: caller.outcome(one) for work, one in accepted.items()}
    assert not ledger.violations, ledger.violations
    return found


def disturbed(topology: Topology, faults: Faults, works: Sequence[Work], count: int, seed: int) -> Ledger:
    """Asks for all work while `count` faults happen, both spread evenly; returns when the service may settle."""
    ledger, models = Ledger(), dict[str, str]()
    done, ended, begun = 0, threading.Event(), time.monotonic()

    def submit(mine: Sequence[tuple[int, Work]]) -> None:
        with _caller(topology, ledger, models) as caller:
            for number, work in mine:
                while number * count > (done + 1) * len(works) and not ended.is_set():
                    time.sleep(0.05)
                try:
                    caller.submit(work)
                except (TimeoutError, LookupError, AssertionError) as error:
                    what = {TimeoutError: "stuck", LookupError: "lost"}.get(type(error), "different")
                    ledger.violate(what, f"{type(error).__name__}: {error}")

    def read(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        with _caller(topology, ledger, models) as caller:
            while not ended.is_set():
                caller.look(dice)
                time.sleep(0.1)

    def look_after() -> None:
        while not ended.wait(0.3):
            topology.look_after()

    with ThreadPoolExecutor(_SUBMITTERS + _READERS + 1) as pool:
        waiting = [pool.submit(look_after)]
        with _caller(topology, ledger, models) as caller:
            _ready(caller)
        numbered = list(enumerate(works))
        submitting = [pool.submit(submit, numbered[first::_SUBMITTERS]) for first in range(_SUBMITTERS)]
        waiting += [pool.submit(read, number) for number in range(_READERS)]
        try:
            kinds, names = faults.kinds(), list[str]()
            for _ in range(count):
                if not names:
                    names = faults.dice.sample(sorted(kinds), len(kinds))
                name = names.pop()
                missed = len(faults.missed)
                kinds[name]()
                ledger.count(f"fault: {name}" if len(faults.missed) == missed else f"no process to hit: {name}")
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


def judge(topology: Topology, ledger: Ledger) -> None:
    """Waits for every accepted job; notes those that are unknown, that do not end, and that ended twice."""
    ends_at = time.monotonic() + SETTLE_S
    with _caller(topology, ledger, {}) as caller:
        for accepted in list(ledger.accepted):
            try:
                caller.final(accepted, max(1.0, ends_at - time.monotonic()))
                if caller.final_events(accepted.job) != 1:
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
                found = caller.outcome(accepted, max(1.0, ends_at - time.monotonic()))
                while found.get("code") == "input_lost":  # said honestly: what was damaged is asked for again
                    ledger.count("jobs asked for again (input_lost)")
                    accepted = caller.submit(accepted.work, fresh=True)
                    found = caller.outcome(accepted)
            except (TimeoutError, LookupError, AssertionError) as error:
                ledger.violate("stuck" if isinstance(error, TimeoutError) else "lost", str(error))
                continue
            ledger.count(f"job: {accepted.work.kind}, {found['state']}")
            wanted = expected[accepted.version, accepted.work]
            if accepted.base_version != accepted.version:  # its report names another executable
                found, wanted = ({name: one.get(name, "") for name in ("state", "outputs")} for one in (found, wanted))
            if found != wanted:
                ledger.violate("different", f"{accepted}: {found}, undisturbed {wanted}")


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


def _ready(caller: Caller) -> None:
    """Returns when the service can work."""
    caller.insist("GET", "/readyz", 120)


@contextmanager
def _caller(topology: Topology, ledger: Ledger, models: dict[str, str]) -> Iterator[Caller]:
    caller = Caller(topology.url, ledger, models)
    try:
        yield caller
    finally:
        caller.close()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
