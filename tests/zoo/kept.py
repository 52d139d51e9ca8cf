"""The few networks of the zoo that are committed: small ones of kinds that tests/data/exported does not have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "data" / "zoo"
KEPT: Final = (
    "albert",  # positions gathered from constants of other lengths, by the older exporter
    "conv-tasnet",  # separation of sound: global normalisations, long rows
    "gemma-past",  # a decoder with its cache, grouped queries, rotary positions, free dimensions
    "mamba2",  # a state-space model: cumulative sums, segments
    "min-gru",  # a recurrent network as a parallel scan
    "perceiver",  # attention from a few latents to many inputs
    "restormer",  # attention over channels, pixel shuffles
    "stylegan2",  # weights that are computed from an input
    "superpoint",  # a pose network that keeps full resolution
    "tcn",  # dilated one-dimensional convolutions, free dimensions
    "vae-encoder",  # GroupNorm, attention on a map
    "vits",  # speech: flows, transposed convolutions
    "volume-unet",  # three-dimensional convolutions
    "whisper-encoder",  # speech: one-dimensional convolutions before a transformer
)


def keep(models: Path) -> None:
    """Copy the kept networks and their records from the cache; raises FileNotFoundError if one was not exported."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        record = json.loads((models / f"{name}.json").read_text())
        kept = {key: record[key] for key in ("family", "exporter", "dims", "sha256")}
        (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        shutil.copyfile(models / f"{name}.onnx", FOLDER / f"{name}.onnx")


def record_of(name: str) -> dict[str, Any]:
    """What the export step said of a kept network: family, exporter, maxima of its free dimensions, digest."""
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return record
