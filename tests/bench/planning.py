"""How long grouping and tiling take (pass `fuse`), in processor seconds: docs/benchmarks/0027-planning.md.

`python -m tests.bench planning [BEFORE] [NETWORK/CHIP/OBJECTIVE[/choose] ...]`: with BEFORE, the folder of another
checkout of this repository, both plan each network in turn, in processes of their own, and their plans are compared.
With `/choose` it is pass `choose` of a whole compilation, and executables are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, Final

from msgspec.json import encode as json_encode

from compiler.compile import compile_model
from compiler.frontend.precision import SetPrecision
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.fusion.map_chips import MappedGraph
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.choose import ChoosePlans
from compiler.program.executable import write
from tests.models import import_graph, light_path, light_source, partition_of

NETWORKS: Final = ("resnet50", "densenet121")
# Each chip with the precision of one that computes in eight bits only.
CHIPS: Final = {"cluster4x4": "", "edge4": "", "manycore2x64": "", "polar4x4": "int8"}
CASES: Final = tuple(f"{network}/{chip}/latency" for network, chip in product(NETWORKS, CHIPS))


def run(*names: str) -> None:
    """Print the processor seconds of each case; with a folder first, before and after."""
    before = Path(names[0]).resolve() if names and Path(names[0]).is_dir() else None
    here = Path(__file__).resolve().parents[2]
    sources = [here] if before is None else [before, here]
    print("| network, chip, objective | " + ("" if before is None else "before | ratio | same plan | ") + "seconds |")
    print("|---|---:|" + ("" if before is None else "---:|---|---:|"))
    for case in [name for name in names if "/" in name and not Path(name).is_dir()] or CASES:
        found = [_planned_by(source, case) for source in sources]
        old, new = found[0], found[-1]
        row = [case.replace("/", ", ")]
        if before is not None:
            ratio = new["seconds"] / old["seconds"]
            row += [f"{old['seconds']:.2f}", f"{ratio:.2f}", "yes" if new["plan"] == old["plan"] else "no"]
        row.append(f"{new['seconds']:.2f}")
        print(f"| {' | '.join(row)} |", flush=True)


def _planned_by(source: Path, case: str) -> dict[str, Any]:
    """What the code in a folder says of a case, in a process of its own."""
    command = [sys.executable, "-P", __file__, case]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _plan(case: str) -> dict[str, Any]:
    """Processor seconds of planning a case the second time (the first one loads code), and a digest of the plan."""
    network, chip, objective, *what = case.split("/")
    if what == ["choose"]:
        return _choose(network, chip, objective)
    precision = CHIPS.get(chip, "")
    profile = builtin_profile(chip)
    options = parse_options({"objective": objective, **({"precision": precision} if precision else {})})
    graph = import_graph(light_path(network).read_bytes())
    if precision:
        graph = SetPrecision(precision=precision).run(graph)
    partitioned = partition_of(graph, profile, options)
    seconds = 0.0
    for _ in range(2):
        begin = process_time()
        fused = FuseSegments(options=options, compilers=SegmentCompilers(profile, options)).run(partitioned)
        seconds = process_time() - begin
    groups = [(group.ops, group.choice.tiling, group.choice.cost) for part in fused.segments for group in part.groups]
    return {"seconds": seconds, "plan": sha256(repr(groups).encode()).hexdigest()}


def _choose(network: str, chip: str, objective: str) -> dict[str, Any]:
    """The same of choosing by simulation in a whole compilation, and a digest of plan and executable."""
    seconds, run = 0.0, ChoosePlans.run

    def timed(choose: ChoosePlans, mapped: MappedGraph) -> MappedGraph:
        nonlocal seconds
        begin = process_time()
        found = run(choose, mapped)
        seconds = process_time() - begin
        return found

    options = parse_options({"objective": objective, "verify": "none"})
    ChoosePlans.run = timed  # type: ignore[method-assign,assignment]
    for _ in range(2):
        found = compile_model(light_source(network), builtin_profile(chip), options)
    assert found.executable is not None
    digest = sha256(json_encode(found.plan))
    for part in write(found.executable):
        digest.update(part)
    return {"seconds": seconds, "plan": digest.hexdigest()}


def main(arguments: Sequence[str]) -> None:
    """Plan one case, and print what `run` asks for."""
    print(json.dumps(_plan(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
