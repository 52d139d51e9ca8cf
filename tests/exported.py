"""The committed exports of real networks (tests/data/exported), as tests and benchmarks take them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

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

    def read(self) -> bytes:
        """The file's bytes."""
        return (FOLDER / self.file).read_bytes()


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
        )
        for entry in manifest["files"]
    )
