"""The export step: every network of the catalogue to an ONNX file that ONNX Runtime loads and runs.

Runs in the export environment. A file lies in the folder beside its record (`NAME.json`), which also says why there is
no file. What has a record is not exported again.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.export.network import Network, Values
from tests.zoo.children import Limits, Outcome, run_all
from tests.zoo.entry import SEED, draw

LIMITS: Final = Limits(cpu_s=300, memory_bytes=12 * 2**30)
# Outputs of two random inputs that differ by less, in proportion, make a poor check of values.
DEPENDS_ON_INPUT: Final = 1e-3
_REASON_CHARACTERS: Final = 300


def export_all(networks: Sequence[Network], folder: Path, *, again: Sequence[str], workers: int) -> None:
    """Export the networks that have no record yet, or whose names are in `again`; families mixed, seeded."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        network for network in networks if network.name in again or not record_path(folder, network.name).exists()
    ]
    wanted.sort(key=lambda network: draw(network.name, 2**32))
    if not wanted:
        return
    _load()
    tasks = [(network.name, partial(_export, network, folder)) for network in wanted]
    by_name = {network.name: network for network in wanted}
    for done, (name, outcome) in enumerate(run_all(tasks, LIMITS, workers=workers), 1):
        record = _record(by_name[name], outcome)
        record_path(folder, name).write_text(json.dumps(record, indent=1) + "\n")
        state = record["reason"] or f"{record['nodes']} nodes, {record['bytes']} bytes, {record['exporter']}"
        print(f"[{done}/{len(wanted)}] {name}: {state} ({outcome.cpu_s:.0f} s)", flush=True)


def _load() -> None:
    """Import what most children need once, before they are forked."""
    from tests.zoo.libraries import operators

    operators()
    for name in ("timm", "transformers"):
        importlib.import_module(name)


def record_path(folder: Path, name: str) -> Path:
    """Where a network's record lies."""
    return folder / f"{name}.json"


def _record(network: Network, outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {"name": network.name, "family": network.family, "reason": None}
    if outcome.ended == "done":
        return {**record, **outcome.value}
    return record | {"reason": f"{outcome.ended}: {outcome.detail}"[:_REASON_CHARACTERS], "trace": outcome.value}


def _export(network: Network, folder: Path) -> dict[str, Any]:
    """In a child: build, export by the first exporter that can, run; what the record says of it."""
    import onnx
    import torch

    from tests.export.exporters import export
    from tests.zoo.libraries import operators
    from tests.zoo.modules import prepare

    operators()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    module = prepare(network, SEED)
    refusals = []
    for variant in network.variants:
        try:
            data = export(network, variant, module)
        except Exception as error:  # noqa: BLE001 - the exporters raise anything
            refusals.append(_said(f"{variant.exporter}: {type(error).__name__}: {error}"))
            continue
        try:
            depends = _judge(network, data)
        except Exception as error:  # noqa: BLE001 - so does the runtime
            refusals.append(_said(f"{variant.exporter}, then ONNX Runtime: {type(error).__name__}: {error}"))
            continue
        (folder / f"{network.name}.onnx").write_bytes(data)
        return {
            "exporter": variant.exporter,
            "dims": dict(network.dims),
            "nodes": len(onnx.load_model_from_string(data).graph.node),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "depends_on_input": depends,
            "refusals": [text[:_REASON_CHARACTERS] for text in refusals],
        }
    return {"reason": "; ".join(text.split("\n")[0][:_REASON_CHARACTERS] for text in refusals), "refusals": refusals}


def _said(message: str) -> str:
    """A message without the folder that the zoo runs in and without colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", message).replace(f"{Path.cwd()}/", "")


def _judge(network: Network, data: bytes) -> float:
    """Run the file on two inputs; how much its outputs differ, in proportion. Raises if it does not run."""
    from tests.export.checks import run

    one, two = (run(data, network.input_values(network.dims, seed)) for seed in (11, 12))
    return difference(one, two)


def difference(one: Sequence[Values], two: Sequence[Values]) -> float:
    """The largest difference of two sets of outputs in proportion; 1 where even the shapes differ."""
    worst = 0.0
    for left, right in zip(one, two, strict=True):
        if left.shape != right.shape:
            return 1.0
        if left.dtype.kind not in "fiub" or not left.size:
            continue
        left, right = left.astype(np.float64), right.astype(np.float64)
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            raise ValueError("outputs are not finite")
        worst = max(worst, float(np.abs(left - right).max()) / (float(np.abs(left).max()) or 1.0))
    return worst


def records(folder: Path) -> Mapping[str, dict[str, Any]]:
    """All records by name, sorted."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
