"""Ask ONNX Runtime about every file that Tessera refuses: `python -m tests.corpus.refusals [--quick] [WORD ...]`.

The files are those of the corpus, the tests of the ONNX backend suite that are skipped (all others pass, see
tests/backend) and the exported networks. Of a refused file that ONNX Runtime loads and runs the table gives our code
and the limit of ours that justifies it (IMPORT-7); a file without one ends the command with 1. Words choose files whose
names contain one of them, `--quick` leaves out slow cases and exported networks. The table of a whole run is
docs/benchmarks/0019-refusals.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx
from onnx.backend.test.loader import load_model_tests

from tests.backend.skips import SKIPS
from tests.corpus.cases import CASES
from tests.corpus.runtime import ask
from tests.corpus.sandbox import Sandbox
from tests.exported import exported_models

# Limits by our code and a part of the message; those with a number stand in docs/supported-ops.md.
LIMITS: Final[Mapping[tuple[str, str], str]] = {
    ("dynamic_dim", ""): "the request gives an extent for every free dimension (IMPORT-10)",
    ("unknown_dim", ""): "the request names dimensions of the model only",
    ("invalid_option", ""): "the request's options are of the documented types and ranges",
    ("unsupported_op", "option strict"): "the request forbids nodes on the host (option strict)",
    ("name_too_long", ""): "characters of a name",
    ("nesting_too_deep", "subgraphs"): "levels of subgraphs",
    ("too_many_nodes", ""): "nodes, those of subgraphs and functions included",
    ("too_many_values", "the graph"): "initializers, inputs, outputs and value descriptions together",
    ("too_many_values", "a node"): "inputs or outputs of one node",
    ("does_not_fit", ""): "the profile's memories: no tile of the op fits a core",
    ("op_too_large", ""): "the profile's DRAM",
    ("tensor_too_large", "for the host"): "bytes of what a node on the host reads or makes",
    ("invalid_model", "UTF-8"): "names are UTF-8 text: they stand in documents as JSON",
    ("missing_value", "a node reads value"): "a function reads its own inputs and values, as ONNX says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file and the options that Tessera compiles it with; `extents` are the same for ONNX Runtime."""

    name: str
    data: bytes
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def extents(self) -> dict[str, int]:
        """The extents of named dimensions that the options give."""
        given: Any = self.options.get("dims", {})
        return {name: extent for name, extent in given.items() if isinstance(extent, int)}


def files(words: Sequence[str], *, quick: bool) -> Iterator[File]:
    """The files whose names contain one of the words, or all."""

    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    for case in CASES:
        if wanted(case.name) and not (quick and case.slow):
            yield File(name=case.name, data=case.build(), options=case.options)
    for test in (test for kind in ("node", "simple", "pytorch-operator", "pytorch-converted") for test in _suite(kind)):
        if test.name in SKIPS and wanted(test.name):
            model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
            yield File(name=test.name, data=model.SerializeToString())
    for network in exported_models():
        if wanted(network.file) and not quick:
            yield File(name=network.file, data=network.read(), options={"dims": network.dims})


def _suite(kind: str) -> Sequence[Any]:
    return load_model_tests(kind=kind)


def limit_of(code: str, message: str) -> str:
    """The limit of ours that a refusal rests on; empty if there is none."""
    return next((limit for (known, part), limit in LIMITS.items() if known == code and part in message), "")


def main(arguments: Sequence[str]) -> int:
    """Print the table and what became of the files; 1 if a refusal has no limit."""
    words = [word for word in arguments if not word.startswith("--")]
    came: Counter[str] = Counter()
    missing = 0
    print("| file | our code | limit |\n|---|---|---|")
    with Sandbox() as sandbox:
        for file in files(words, quick="--quick" in arguments):
            outcome = sandbox.compile(file.data, file.options)
            if outcome.ended != "rejected":
                came[outcome.ended] += 1
                continue
            answer = ask(file.data, file.extents)
            came[answer.came] += 1
            if answer.came == "ran":
                limit = limit_of(outcome.code, outcome.message)
                missing += not limit
                print(f"| {file.name} | {outcome.code} | {limit or '**none**: ' + outcome.message} |", flush=True)
    print(f"\nfiles: {dict(came)}; refused without a limit although ONNX Runtime runs them: {missing}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
