"""The work of a simulation: reads the executable and inputs from the store, writes outputs and report back."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec

from app.jobs.records import Lease
from app.jobs.results import Outcome
from app.settings import Settings
from app.simulations.arrays import Array, read_arrays, write_arrays
from app.simulations.options import SimulationOptions
from app.simulations.report import simulation_json
from app.simulations.simulate import Judge, Watcher, simulate
from app.store import BlobStore
from compiler.frontend.source import ModelSource
from worker.lease_keeper import Keeper


def run_simulation(lease: Lease, keeper: Keeper, models: BlobStore, store: BlobStore, settings: Settings) -> Outcome:
    """Runs the simulation and returns references to the outputs and the report; raises what `simulate` raises."""
    options = msgspec.json.decode(lease.options, type=SimulationOptions)
    watcher = Watcher(keeper.phase, keeper.cancelled)
    given = None if options.inputs is None else _inputs(store, options.inputs, settings.max_upload_bytes)
    limits, skipped = _limits(store, options.report)
    with store.mapped(options.executable) as data:

        def run(judge: Judge | None) -> Outcome:
            found = simulate(
                data,
                options.executable,
                given=given,
                seed=options.seed,
                judge=judge,
                limit_bytes=settings.memory_limit_bytes,
                watcher=watcher,
            )
            outputs = io.BytesIO()
            write_arrays(outputs, found.outputs)
            return {
                "state": "succeeded",
                "outputs": store.put(outputs.getvalue()),
                "report": store.put(simulation_json(found.report)),
            }

        if not lease.model:
            return run(None)
        with models.mapped(lease.model) as model:
            source = ModelSource(name=lease.model_name, data=model, sha256=lease.model)
            return run(Judge(source=source, limits=limits, skipped=skipped))


def _inputs(store: BlobStore, digest: str, limit_bytes: int) -> dict[str, Array]:
    with store.mapped(digest) as data:
        return read_arrays(io.BytesIO(data), limit_bytes=limit_bytes)


def _limits(store: BlobStore, report: str | None) -> tuple[dict[str, float], frozenset[str]]:
    """The results of the compilation's own check: the limit of each output, and which outputs are random."""
    if report is None:
        return {}, frozenset()
    values: dict[str, Any] = json.loads(store.read(report))["values"]
    # widened limits hold only for the inputs of the compilation's own check
    plain = [output for output in values["outputs"] if output.get("verdict", "plain") == "plain"]
    return {output["tensor"]: output["limit"] for output in plain}, frozenset(values["skipped"])
