"""Gives jobs that wait for workers of another version or store to those that live (API-5)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from app.errors import StoreUnavailableError
from app.jobs.identity import Identity, queue_name
from app.jobs.inputs import missing_input
from app.jobs.options_text import kept_options, options_text
from app.jobs.records import QueueState, Records
from app.jobs.results import ResultCache
from app.profiles.stored import stored_profile
from app.simulations.options import SimulationOptions
from app.store import BlobStore
from compiler.cache_key import cache_key
from compiler.errors import TesseraError
from compiler.options import Options
from compiler.profile import profile_json

log = structlog.get_logger(__name__)

_INTERVAL_S: Final = 1.0
# A longer gap between two looks counts as this one: after a pause of the machine, workers need a moment for their sign.
_MOST_S: Final = 3.0
# Computations of a queue that one round moves; the relay has other work. Those that stay are passed over until its end.
_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """What a computation becomes: its content key, the fields that change, and its outcome if that is known."""

    content: str
    work: Mapping[str, str]
    outcome: Mapping[str, str] | None


@dataclass(slots=True, kw_only=True)
class Rekeyer:
    """Moves computations for which no worker lives to the present identity, if workers of that live.

    It waits for `rekey_after_s` without a worker. To an older version, or from another store, it moves nothing while an
    API process of their own identity lives, since workers may still come. So two API processes of different versions
    never move a job back and forth: each moves only from where nobody works to where somebody does.
    """

    records: Records
    results: ResultCache
    models: BlobStore
    store: BlobStore
    rekey_after_s: float
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _has_more: bool = False
    _no_worker_s: dict[str, float] = field(default_factory=dict)
    _no_api_s: dict[str, float] = field(default_factory=dict)
    _staying: dict[str, int] = field(default_factory=dict)

    def round(self) -> int:
        """Says that this process lives and moves some computations, once a second while there are none to move.

        Returns how many it moved.
        """
        now = self.clock()
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        if self._looked_at is not None and passed_s < _INTERVAL_S and not self._has_more:
            return 0
        self._looked_at = now
        passed_s = min(passed_s, _MOST_S)
        self.records.note_api()
        queues = self.records.queues()
        self._no_worker_s = _longer(self._no_worker_s, {q.name: q.slots > 0 for q in queues}, passed_s)
        self._no_api_s = _longer(self._no_api_s, {q.name: q.has_api for q in queues}, passed_s)
        own, served = self.records.identity, {queue.name for queue in queues if queue.slots}
        moved = 0
        for queue in queues:
            target = queue_name(queue.kind, own)
            if queue.name != target and target in served and self._is_left(queue):
                moved += self._move(queue, target)
        self._has_more = moved > 0
        return moved

    def _is_left(self, queue: QueueState) -> bool:
        """Whether nobody will work on a queue, as far as one can tell."""
        own = self.records.identity
        if self._no_worker_s[queue.name] < self.rekey_after_s:
            return False
        comes_forward = own.is_newer(queue.identity) and queue.identity.store in (own.store, "")
        return comes_forward or self._no_api_s[queue.name] >= self.rekey_after_s

    def _move(self, queue: QueueState, target: str) -> int:
        moved, staying = 0, self._staying.get(queue.name, 0)
        found = self.records.queued(queue.name, staying, _AT_ONCE)
        with suppress(StoreUnavailableError):  # what is left is moved when the store answers
            for content, fields in found:
                becomes = self._becomes(content, fields, queue.identity, target)
                if becomes is not None:
                    fence = int(fields["fence"])
                    moved += self.records.rekey(content, fence, becomes.content, becomes.work, becomes.outcome)
        self._staying[queue.name] = staying + len(found) - moved if found else 0
        if moved:
            log.warning("jobs_rekeyed", queue=queue.name, to=target, computations=moved)
        return moved

    def _becomes(self, content: str, fields: Mapping[str, str], before: Identity, target: str) -> _Moved | None:
        """What a computation becomes; None if its inputs are in another store, which may come back."""
        work = {"queue": target, "profile": fields["profile"], "options": fields["options"]}
        comes_from_elsewhere = before.is_known and before.store != self.records.identity.store
        try:
            if comes_from_elsewhere and missing_input(fields, self.models, self.store) is not None:
                return None
            if fields.get("kind") == "simulation":
                options = msgspec.json.decode(fields["options"], type=SimulationOptions)
                new = options.content_key(fields["model"], fields["model_name"])
            else:
                profile = stored_profile(self.store, fields["profile"])
                chosen = msgspec.json.decode(options_text(self.store, fields["options"]), type=Options)
                new = cache_key(fields["model"], profile, chosen, name=fields["model_name"])
                work["profile"] = self.store.keep(profile_json(profile))
                text = msgspec.json.encode(chosen, order="deterministic").decode()
                work["options"] = kept_options(self.store, text)
        except FileNotFoundError:
            if comes_from_elsewhere:
                return None
            new = content  # the worker says what is lost
        except StoreUnavailableError:
            raise
        except (TesseraError, msgspec.ValidationError) as error:
            return _Moved(content=content, work=work, outcome=_refused(before, self.records.identity, error))
        return _Moved(content=new, work=work, outcome=self.results.get(new))


def _longer(absent_s: Mapping[str, float], is_there: Mapping[str, bool], passed_s: float) -> dict[str, float]:
    """How long something has been absent, for each queue; 0 for a queue that is seen for the first time."""
    return {
        queue: 0.0 if there or queue not in absent_s else absent_s[queue] + passed_s
        for queue, there in is_there.items()
    }


def _refused(before: Identity, present: Identity, error: Exception) -> Mapping[str, str]:
    problem = {
        "code": "version_gone",
        "stage": "service",
        "message": f"the job was requested of version {before.version}, whose workers are gone, and its options or "
        f"profile mean nothing to version {present.version}: {error}",
        "actual": before.version,
        "limit": present.version,
        "hint": "Submit it again with options of this version",
    }
    return {"state": "failed", "problem": json.dumps(problem)}
