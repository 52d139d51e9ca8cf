"""/livez, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import redis
from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from app.context import ContextDependency, OpenContextDependency
from app.errors import ForbiddenError, StoreUnavailableError
from app.health.figures import exposition
from app.jobs.identity import Identity
from app.jobs.records import WorkerSign
from app.keys.owners import LOCAL, LOCAL_WORD
from app.problems import Problem, problem_response, request_id_of

router = APIRouter(tags=["health"])

# A disk or a server may hang; the answer may not.
_CHECK_S = 1.5


class Alive(BaseModel):
    """The process answers."""

    status: str = "alive"


class Ready(BaseModel):
    """Everything a job needs is there."""

    status: str = "ready"
    workers: int
    degraded: str | None = Field(
        default=None,
        description="What is missing and can be done without (`cache`), and why the broker may lose records "
        "(`durability unknown`, `appendfsync is everysec`); separated by commas",
    )


@router.get("/livez", operation_id="live")
async def live() -> Alive:
    """Whether the API process answers."""
    return Alive()


@router.get("/readyz", operation_id="ready", response_model=Ready, responses={503: {"model": Problem}})
async def ready(request: Request, context: OpenContextDependency) -> Response:
    """Whether the records, the store and at least one worker are there, within two seconds; without its cache the
    service is slower, and `degraded`; so it is with a broker that may lose records."""
    checks: dict[str, Callable[[], Any]] = {
        "cache": context.cache.ping,
        "broker": context.broker.ping,
        "store": context.store.check,
        "models": context.models.check,
        "worker": context.records.workers,
        "durability": context.records.durability.ask,
    }
    found = await asyncio.gather(*(_result(check, context.probes) for check in checks.values()))
    results = dict(zip(checks, found, strict=True))
    durability = results.pop("durability")
    missing = [] if results.pop("cache") else ["cache"]
    missing += durability.concerns if durability else ()
    failing = [name for name, result in results.items() if not result]
    signs: list[WorkerSign] = results["worker"] or []
    fit = [sign for sign in signs if sign.identity == context.records.identity]
    others = None
    if signs and not fit:
        failing.append("worker")
        others = _difference(context.records.identity, signs)
    if failing:
        parts = {
            "code": "not_ready",
            "stage": "service",
            "message": f"not ready: {', '.join(failing)}" + (f"; {others}" if others else ""),
            "actual": ", ".join(failing),
            "hint": _worker_hint(context.settings.rekey_after_s, others) if failing == ["worker"] else None,
        }
        return problem_response(parts, 503, request_id_of(request), {"Retry-After": "1"})
    answer = Ready(workers=len(fit), degraded=", ".join(missing) or None)
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


def _difference(own: Identity, signs: Iterable[WorkerSign]) -> str:
    """Why no live worker takes the jobs of this process."""
    versions = {sign.identity.version for sign in signs}
    if own.version in versions:
        return "workers live, but of another store: check TESSERA_DATA_DIR"
    return f"workers live, but of version {', '.join(sorted(versions))}, and this is {own.version}"


def _worker_hint(rekey_after_s: float, others: str | None) -> str:
    if others is None:
        return "A worker gives a sign of life every second"
    return (
        "Jobs wait for a worker of their version and store. Those of an older version are given to workers of this one "
        f"when no other has lived for {rekey_after_s:.0f} s"
    )


@router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse, responses={403: {"model": Problem}})
def metrics(request: Request, context: ContextDependency) -> Response:
    """Figures for Prometheus (docs/service.md): those of the service, which each API process gives alike, and those of
    this process about its own requests. They cover all owners, so a key needs the owner `local`."""
    if context.owner.name != LOCAL:
        raise ForbiddenError(
            "the metrics of the service are for its operator",
            stage="request",
            actual=context.owner.name,
            limit=LOCAL_WORD,
            hint=f"Use a key made with `tessera keys create NAME --owner {LOCAL_WORD}`",
        )
    return Response(exposition(context, request.app.state.requests), media_type=CONTENT_TYPE_LATEST)


async def _result(check: Callable[[], Any], threads: CapacityLimiter) -> Any:
    """What a check returns, True for nothing; None if it fails or takes too long. A thread that hangs is left alone."""
    with move_on_after(_CHECK_S), suppress(redis.RedisError, OSError, StoreUnavailableError):
        result = await to_thread.run_sync(check, abandon_on_cancel=True, limiter=threads)
        return True if result is None else result
    return None
