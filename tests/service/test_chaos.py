"""A short sample of `make chaos`, of the faults that need only Python, and what its judge notices (issue 24)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.redis_urls import connect
from compiler.version import COMPILER_VERSION
from tests.chaos.__main__ import Chosen, disturb, known, running
from tests.chaos.run import Accepted, Caller, Ledger, Outcome, compare, judge, undisturbed
from tests.chaos.topology import Embedded
from tests.chaos.work import Work, plan

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_kills_freezes_damaged_blobs_and_upgrades_lose_change_and_repeat_nothing(tmp_path: Path) -> None:
    works = plan(24, 14)
    ledger = disturb("embedded", tmp_path, Chosen(works, 16, 24, preload=False), known(tmp_path, works))
    assert ledger.violations == {}
    assert len(ledger.accepted) >= 14
    assert sum(count for name, count in ledger.counts.items() if name.startswith("fault: ")) == 16


@dataclass
class Scene:
    """A service with a finished job of some kinds, and what is known of them."""

    topology: Embedded
    broker: Any
    expected: dict[tuple[str, Work], Outcome]

    def accepted(self) -> Ledger:
        """The jobs asked for once more, which are answered from the cache."""
        ledger = Ledger()
        caller = Caller(self.topology, ledger, {})
        for _, work in self.expected:
            caller.final(caller.submit(work))
        caller.close()
        return ledger


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    works = [
        Work(kind=kind, model="chain-2", profile="edge4", number=1) for kind in ("compilation", "simulation", "sweep")
    ]
    with running(Embedded(tmp_path_factory.mktemp("judged"))) as topology:
        found = undisturbed(topology, [Work(kind="compilation", model="chain-2", profile="edge4", number=0), *works])
        broker = connect(topology.broker_url)
        yield Scene(topology, broker, {(COMPILER_VERSION, work): outcome for work, outcome in found.items()})
        broker.close()


def _lose(scene: Scene, accepted: Accepted) -> None:
    scene.broker.delete(f"tessera:job:{accepted.job}")


def _hold(scene: Scene, accepted: Accepted) -> None:
    scene.broker.hset(f"tessera:job:{accepted.job}", "state", "running")


def _end_again(scene: Scene, accepted: Accepted) -> None:
    scene.broker.xadd(f"tessera:job:{accepted.job}:events", {"data": json.dumps({"state": "succeeded"})})


def _publish_again(scene: Scene, accepted: Accepted) -> None:
    log = scene.topology.logs()[0]
    content = scene.broker.hget(f"tessera:job:{accepted.job}", "content")
    line = next(line for line in log.read_text().splitlines() if '"published"' in line and content in line)
    log.write_text(f"{log.read_text()}{line}\n")


def _take_another_result(scene: Scene, accepted: Accepted) -> None:
    record = f"tessera:job:{accepted.job}"
    scene.broker.hset(record, "plan", scene.broker.hget(record, "report"))


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        (None, set()),
        (_lose, {"lost"}),
        (_hold, {"stuck"}),
        (_end_again, {"published twice"}),
        (_take_another_result, {"different"}),
        (_publish_again, {"published twice"}),
    ],
)
def test_the_judge_notices_what_went_wrong(
    scene: Scene, change: Callable[[Scene, Accepted], None] | None, noticed: set[str]
) -> None:
    ledger = scene.accepted()
    if change is not None:
        change(scene, next(one for one in ledger.accepted if one.work.number == 1))
    judge(scene.topology, ledger, settle_s=2)
    if change is _publish_again:  # other cases have the same log
        log = scene.topology.logs()[0]
        log.write_text("".join(f"{line}\n" for line in log.read_text().splitlines()[:-1]))
    if noticed != {"stuck"}:
        compare(scene.topology, ledger, scene.expected)
    assert set(ledger.violations) == noticed


def test_the_judge_notices_a_wrong_byte(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Caller.once

    def flipped(caller: Caller, method: str, path: str, **more: Any) -> httpx.Response | None:
        answer = once(caller, method, path, **more)
        if answer is None or not path.endswith("/plan"):
            return answer
        headers = {"ETag": answer.headers["ETag"]}
        return httpx.Response(200, headers=headers, content=answer.content[:-1] + b"?", request=answer.request)

    ledger = scene.accepted()
    monkeypatch.setattr(Caller, "once", flipped)
    compare(scene.topology, ledger, scene.expected)
    assert "wrong bytes served" in ledger.violations


def test_the_judge_notices_an_answer_500(scene: Scene) -> None:
    ledger = scene.accepted()
    caller = Caller(scene.topology, ledger, {})
    scene.broker.hset(f"tessera:job:{ledger.accepted[0].job}", "created_ms", "no time")
    assert caller.once("GET", f"/v1/jobs/{ledger.accepted[0].job}") is None
    caller.close()
    assert set(ledger.violations) == {"internal errors"}
