"""Options of a simulation, as the records carry them from the API to the worker."""

from __future__ import annotations

import msgspec

from compiler.cache_key import simulation_key


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a simulation, as its record holds them: blobs by digest.

    `job` is the compilation that made the executable, `report` its report, whose limits judge the outputs; both are
    None for an uploaded executable. If `inputs` is None, the inputs are generated from the seed.
    """

    executable: str
    seed: int
    inputs: str | None = None
    job: str | None = None
    report: str | None = None
    time_limit_s: float | None = None
    memory_limit_bytes: int | None = None

    def content_key(self, model: str, name: str) -> str:
        """The content key of the simulation of a named executable, judged by this model; "" if there is none."""
        judge = (model, self.report or "") if model else ()
        return simulation_key(self.executable, name=name, inputs_sha256=self.inputs, seed=self.seed, judge=judge)
