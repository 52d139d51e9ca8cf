"""The committed exports of real networks (tests/data/exported), as tests and benchmarks take them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "data" / "exported"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """One exported network: its file, exporter, maxima of its dynamic dims, nodes and multiply-accumulates."""

    file: str
    network: str
    exporter: str
    nodes: int
    macs: int
    dims: dict[str, int]
    inputs: dict[str, dict[str, Any]]

    def read(self) -> bytes:
        """The file's bytes."""
        return (FOLDER / self.file).read_bytes()

    def feeds(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random values of the inputs at the maxima, within the bounds that the manifest states."""
        generator = np.random.default_rng(seed)
        result: dict[str, NDArray[Any]] = {}
        for name, entry in self.inputs.items():
            shape = [self.dims[extent] if isinstance(extent, str) else extent for extent in entry["shape"]]
            if entry["dtype"].startswith("int"):
                result[name] = generator.integers(0, entry.get("values_below", 2), shape).astype(entry["dtype"])
            elif entry["dtype"] == "bool":
                result[name] = generator.integers(0, 2, shape).astype(np.bool_)
            else:
                result[name] = generator.standard_normal(shape).astype(entry["dtype"])
        return result


def exported_models() -> tuple[ExportedModel, ...]:
    """All of them, as the manifest lists them."""
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    return tuple(
        ExportedModel(
            file=entry["file"],
            network=entry["network"],
            exporter=entry["exporter"],
            nodes=entry["nodes"],
            macs=entry["macs"],
            dims=entry["dims"],
            inputs=entry["inputs"],
        )
        for entry in manifest["files"]
    )
