"""What a computation reads from the stores."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from app.simulations.options import SimulationOptions
from app.store import BlobStore


def missing_input(fields: Mapping[str, str], models: BlobStore, store: BlobStore) -> str | None:
    """The digest of an input that is not in its store: the model, or what a simulation runs; None if all are there.

    `fields` are those of a job or of a computation.
    """
    if fields["model"] and not models.holds(fields["model"]):
        return fields["model"]
    if fields.get("kind") != "simulation":
        return None
    options = msgspec.json.decode(fields["options"], type=SimulationOptions)
    read = (options.executable, options.inputs, options.report)
    return next((digest for digest in read if digest is not None and not store.holds(digest)), None)
