"""The body of the one task: takes the lease, compiles or simulates, writes the blobs, publishes under the fence."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import redis
import structlog

from app.errors import StoreUnavailableError
from app.full_disk import FULL, STORAGE_FULL
from app.jobs.options_text import options_text
from app.jobs.records import Lease, Records
from app.jobs.results import Outcome, ResultCache
from app.metrics import Observation, record
from app.profiles.stored import stored_profile
from app.settings import Settings
from app.store import BlobStore
from app.sweeps.figures import figures_json, figures_of
from app.tables.address_tables import AddressTableCache
from app.trace_context import TraceContext
from app.units.unit_cache import UnitCache
from compiler.compile import compile_model
from compiler.errors import CompilationCancelledError, InternalError, TesseraError
from compiler.frontend.source import ModelSource
from compiler.options import Options
from compiler.profile import Profile
from compiler.program.executable import write
from compiler.report.plan import plan_json, report_json
from worker.lease_keeper import Keeper, return_free_memory
from worker.packages import package_outcome
from worker.simulate import run_simulation

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Computer:
    """Works on computations in one process."""

    records: Records
    results: ResultCache
    models: BlobStore
    store: BlobStore
    units: UnitCache
    addresses: AddressTableCache
    settings: Settings

    def run(self, content: str, fence: int, worker: str) -> str:
        """Works on a computation if this delivery is the first of its fence; returns the result for the log."""
        lease = self.records.lease(content, fence, worker)
        if lease is None:
            return "duplicate"
        trace = TraceContext.after(lease.trace)
        try:
            with structlog.contextvars.bound_contextvars(
                content=content,
                fence=fence,
                attempt=lease.attempt,
                jobs=lease.jobs,
                request_id=lease.request_id,
                **trace.log_fields,
            ):
                return self._work(lease)
        finally:
            gc.collect()
            return_free_memory()

    def _work(self, lease: Lease) -> str:
        begun = time.monotonic()
        with Keeper(self.records, lease, self.settings) as keeper:
            try:
                outcome, cacheable = self._outcome(lease, keeper)
            except CompilationCancelledError:
                return self.records.stopped(lease)
            if cacheable:
                self._remember(lease.content, outcome)
            answer = self.records.publish(lease, outcome)
        duration_s = time.monotonic() - begun
        log.info(
            "computed",
            answer=answer,
            state=outcome["state"],
            duration_s=round(duration_s, 4),
            peak_bytes=keeper.peak_bytes,
        )
        if answer == "published":
            self._record(lease, outcome["state"], duration_s, keeper.phases)
        return answer

    def _record(self, lease: Lease, state: str, duration_s: float, phases: Mapping[str, float]) -> None:
        """Adds what was measured to the figures of the service."""
        measured = [
            Observation("queue_wait_seconds", (lease.kind,), lease.waited_s),
            Observation("computation_seconds", (lease.kind, state), duration_s),
            *(Observation("phase_seconds", (lease.kind, phase), seconds) for phase, seconds in phases.items()),
        ]
        record(self.records.client, measured)

    def _remember(self, content: str, outcome: Outcome) -> None:
        """Puts an outcome into the cache before it is published, so that a later identical request finds it.

        The outcome depends on the content alone, so it is kept even if another worker publishes it.
        """
        try:
            self.results.put(content, outcome)
        except (redis.RedisError, OSError) as error:  # a cache: the next request computes it again
            log.warning("result_not_cached", error=type(error).__name__)

    def _compile(self, lease: Lease, keeper: Keeper) -> Outcome:
        """The outcome of a compilation: references to its documents, and to its executable if there is one."""
        profile = stored_profile(self.store, lease.profile)
        options = msgspec.json.decode(options_text(self.store, lease.options), type=Options)
        with self.models.mapped(lease.model) as data:
            source = ModelSource(name=lease.model_name, data=data, sha256=lease.model)
            compilation = compile_model(
                source,
                profile,
                options,
                observer=keeper,
                announce=lambda plan: keeper.announce(lambda: self.store.put(plan_json(plan))),
                pictures=True,
                addresses=self.addresses,
            )
            outcome = {
                "state": "succeeded",
                "plan": self.store.put(plan_json(compilation.plan)),
                "report": self.store.put(report_json(compilation.report)),
                "pictures": self.store.put(msgspec.json.encode(compilation.pictures, order="sorted")),
                "figures": figures_json(figures_of(compilation.plan, compilation.report, profile)),
            }
            if compilation.plan.degraded:
                log.error("degraded", entries=[f"{e.stage}: {e.failed}" for e in compilation.plan.degraded])
                outcome["degraded"] = str(len(compilation.plan.degraded))
            if compilation.executable is not None:
                with self.store.writer() as writer:
                    for piece in write(compilation.executable):
                        writer.write(piece)
                    outcome["executable"] = writer.commit()
            # what a static model's package holds is made for those who ask: it costs as much again as a small plan
            if compilation.plan.ranges or options.tables:
                outcome |= self._package(lease, source, profile, options, keeper)
        return outcome

    def _package(
        self, lease: Lease, source: ModelSource, profile: Profile, options: Options, keeper: Keeper
    ) -> Outcome:
        """The part of an outcome for its package; the units that it uses are listed for all who wait for it."""
        owners = self.records.owners(lease.content)
        units = self.units.for_owners(owners, keeper.cancelled)
        outcome = package_outcome(source, profile, options, keeper, self.store, units)
        if "package" in outcome:
            late = set(self.records.owners(lease.content)).difference(owners)
            units.remember(outcome["package"], sorted(late))
        return outcome

    def _demand_unchanged(self, model: str) -> None:
        """Raises FileNotFoundError if a model was damaged while it was read: no outcome of it counts then."""
        if not self.models.exists(model):
            raise FileNotFoundError(model)

    def _outcome(self, lease: Lease, keeper: Keeper) -> tuple[Outcome, bool]:
        """The outcome, and whether the same request would give the same outcome again."""
        try:
            if lease.kind == "simulation":
                return run_simulation(lease, keeper, self.models, self.store, self.settings), True
            try:
                return self._compile(lease, keeper), True
            finally:
                self._demand_unchanged(lease.model)
        except redis.RedisError:
            raise  # nothing can be published either: the lease runs out, and the work is tried again
        except StoreUnavailableError as error:
            return _failed(error.to_dict()), False
        except InternalError as error:
            log.error("compiler_at_fault", error=str(error), exc_info=True)
            return _failed(error.to_dict()), False
        except TesseraError as error:
            log.info("refused", kind=lease.kind, code=error.code, error=str(error))
            return _failed(error.to_dict()), True
        except FileNotFoundError as error:
            log.warning("input_lost", error=str(error))
            return _failed(
                {
                    "code": "input_lost",
                    "stage": "store",
                    "message": f"what the {lease.kind} needs was lost or damaged in the store",
                    "actual": lease.model_name,
                    "hint": "Upload the model, and the profile if it is your own, and submit it again",
                }
            ), False
        except MemoryError:
            limit = self.settings.memory_limit_bytes
            return _failed(
                {
                    "code": "memory_limit",
                    "stage": "service",
                    "message": f"the {lease.kind} needs more memory than the service gives to one",
                    "limit": limit,
                    "hint": "Use verify=none or a smaller model, or raise TESSERA_MEMORY_LIMIT_BYTES",
                }
            ), False
        except CompilationCancelledError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                log.error("storage_full", error=str(error))
                return _failed(STORAGE_FULL), False
            log.exception("computation_failed")
            return _failed(
                {
                    "code": "internal_error",
                    "stage": "service",
                    "message": "Tessera failed in an unexpected way; this is our fault",
                    "hint": "Report it with the id of the job",
                }
            ), False


def _failed(problem: Mapping[str, object]) -> Outcome:
    return {"state": "failed", "problem": json.dumps(problem)}
