"""Networks as exporters write them: whichever wrote the file, the same ops and patterns come out (IMPORT-2)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tests
from compiler.frontend.lower import LowerModel
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph

FOLDER = Path(tests.__file__).parent / "data" / "exported"
FILES: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["files"]
# Kinds that one exporter writes as they are and another in many nodes.
KINDS = ("Gelu", "LayerNormalization", "RMSNormalization", "Swish", "HardSwish", "HardSigmoid", "Softmax")
LEFT_OVER = ("Erf", "Pow", "Reciprocal")


def imported(entry: dict[str, Any]) -> Graph:
    """The graph of an exported file after the pass."""
    source = ModelSource.from_bytes((FOLDER / entry["file"]).read_bytes())
    graph = LowerModel(dims=entry["dims"]).run(ReadModel().run(source))
    return RecognisePatterns(source=source).run(graph)


@pytest.mark.parametrize("network", sorted({entry["network"] for entry in FILES if "transformer" in entry["family"]}))
def test_a_transformer_comes_to_the_same_ops_from_every_exporter(network: str) -> None:
    found = []
    for entry in FILES:
        if entry["network"] == network:
            graph = imported(entry)
            kinds = Counter(op.kind for op in graph.ops)
            assert [kind for kind in LEFT_OVER if kinds[kind]] == []
            attentions = sum(pattern.kind == "attention" for pattern in graph.patterns)
            assert attentions == kinds["Softmax"] > 0
            found.append({kind: kinds[kind] for kind in KINDS})
    assert all(counts == found[0] for counts in found)
