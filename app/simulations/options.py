"""What a simulation runs on, as the records carry it from the API to the worker."""

from __future__ import annotations

import msgspec


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a simulation runs on, as its record holds it: blobs by digest.

    `job` is the compilation that made the executable, `report` its report, whose limits judge the outputs; both are
    None for an uploaded executable. `inputs` None: they are made up from the seed.
    """

    executable: str
    seed: int
    inputs: str | None = None
    job: str | None = None
    report: str | None = None
    time_limit_s: float | None = None
    memory_limit_bytes: int | None = None
