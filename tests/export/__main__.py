"""Export all networks: `python -m tests.export [NAME ...]`; without names all of them, and the manifest."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from tests.export import catalogue
from tests.export.checks import multiply_accumulates, relative_error, run
from tests.export.exporters import build_module, export, outputs_of
from tests.export.network import Input, Network, Variant

FOLDER = Path(__file__).parent.parent / "data" / "exported"
SEED = 2026
DEPENDS_ON_INPUT = 1e-2


def main(names: list[str]) -> int:
    """Write the files of the named networks, or all files and the manifest anew."""
    logging.disable(logging.WARNING)
    known = {network.name: network for network in catalogue.networks()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown network {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    manifest = FOLDER / "manifest.json"
    chosen = [network for name, network in known.items() if not names or name in names]
    files = [entry for network in chosen for entry in _write(network)]
    if names and manifest.exists():
        files += [entry for entry in json.loads(manifest.read_text())["files"] if entry["network"] not in names]
    refused = [
        {"network": network.name, "exporter": exporter, "reason": reason}
        for network in known.values()
        for exporter, reason in network.not_exported.items()
    ]
    files.sort(key=lambda entry: str(entry["file"]))
    manifest.write_text(json.dumps({"files": files, "not_exported": refused}, indent=1) + "\n")
    for path in FOLDER.glob("*.onnx"):
        if path.name not in {entry["file"] for entry in files}:
            path.unlink()
    print(f"{len(files)} files, {sum(int(entry['bytes']) for entry in files)} bytes")
    return 0


def _write(network: Network) -> list[dict[str, Any]]:
    """Export in every variant, check the values, write the files; the manifest's entries."""
    module = build_module(network, SEED)
    entries = []
    for variant in network.variants:
        data = export(network, variant, module)
        entry = _entry(network, variant, module, data)
        (FOLDER / entry["file"]).write_bytes(data)
        entries.append(entry)
        print(f"{entry['file']}: {entry['nodes']} nodes, {entry['bytes']} bytes, error {entry['relative_error']}")
    return entries


def _entry(network: Network, variant: Variant, module: Any, data: bytes) -> dict[str, Any]:
    model = onnx.load_model_from_string(data)
    error = max(_compare(network, module, data, other=other) for other in (False, True))
    inputs = network.input_values(network.dims, seed=7)
    return {
        "file": f"{network.name}_{variant.suffix}.onnx",
        "network": network.name,
        "family": network.family,
        "exporter": variant.exporter,
        "optimised": variant.optimise,
        "opset": next(entry.version for entry in model.opset_import if entry.domain == ""),
        "ir_version": model.ir_version,
        "nodes": len(model.graph.node),
        "inputs": {entry.name: _describe(entry) for entry in network.inputs},
        "dims": dict(network.dims),
        "other_dims": dict(network.other_dims),
        "outputs": {
            value.name: list(output.shape) for value, output in zip(model.graph.output, run(data, inputs), strict=True)
        },
        "macs": multiply_accumulates(model, inputs),
        "tolerance": network.tolerance,
        "relative_error": float(f"{error:.1e}"),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _describe(entry: Input) -> Mapping[str, Any]:
    described: dict[str, Any] = {"dtype": "float32" if entry.high is None else "int64", "shape": list(entry.shape)}
    return described if entry.high is None else described | {"values_below": entry.high}


def _compare(network: Network, module: Any, data: bytes, *, other: bool) -> float:
    """The error against torch at one set of shapes; raises if it is large or the outputs ignore the inputs."""
    results = []
    for seed in (11, 12):
        inputs = network.input_values(network.other_dims if other else network.dims, seed)
        results.append((outputs_of(module, inputs), run(data, inputs)))
    error = max(relative_error(expected, actual) for expected, actual in results)
    if error > network.tolerance:
        raise ValueError(f"{network.name}: onnxruntime and torch differ by {error}")
    for index, (one, two) in enumerate(zip(results[0][0], results[1][0], strict=True)):
        if relative_error([one], [two]) < DEPENDS_ON_INPUT:
            raise ValueError(f"{network.name}: output {index} hardly depends on the inputs")
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
