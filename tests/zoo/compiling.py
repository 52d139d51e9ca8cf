"""The compile step: every exported model on the chips, with values verified; one result per model, chip and compiler.

Runs in the project's environment. A result lies in the cache by the model's digest, the chip and the compiler's digest,
so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import compiler
from tests.zoo.children import Limits, Outcome, run_all
from tests.zoo.entry import draw

EVERY_MODEL_ON: Final = "cluster4x4"
A_FIFTH_ON: Final = ("edge4", "manycore2x64")
LIMITS: Final = Limits(cpu_s=240, memory_bytes=6 * 2**30)
_MESSAGE_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one model on one chip.

    `state` is `ok`, an error's code, or `time`, `memory`, `crash`, `died`; figures are None unless it is `ok`. `native`
    is the chips' share of all multiply-accumulates. `values`: the worst error over its limit (`error_over_limit`), None
    where `unchecked` says why nothing was compared.
    """

    name: str
    family: str
    chip: str
    compiler: str
    state: str
    message: str = ""
    trace: str = ""
    cpu_s: float = 0.0
    nodes: int = 0
    native: float | None = None
    host_nodes: int | None = None
    unknown_host_nodes: int | None = None
    groups: int | None = None
    segments: int | None = None
    dram_over_floor: float | None = None
    latency_over_bound: float | None = None
    simulated_over_bound: float | None = None
    values: float | None = None
    unchecked: str = ""
    degraded: tuple[str, ...] = ()


def compiler_digest() -> str:
    """Names the compiler by its sources, so that a result of another state of the work tree is not taken for ours."""
    found = hashlib.sha256()
    root = Path(compiler.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def commit() -> str:
    """The commit of the work tree, `+` after it if the compiler was changed since."""
    root = Path(compiler.__file__).parent
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def chips_for(name: str) -> tuple[str, ...]:
    """The chips that a model is compiled for: one for all, the others for a seeded fifth."""
    return (EVERY_MODEL_ON, *(A_FIFTH_ON if draw(name, 5) == 0 else ()))


def compile_all(
    records: Mapping[str, Mapping[str, Any]],
    models: Path,
    results: Path,
    *,
    again: bool,
    workers: int,
    chips: Sequence[str],
) -> None:
    """Compile what has no result of this compiler yet; prints a line for each."""
    results.mkdir(parents=True, exist_ok=True)
    digest = compiler_digest()
    tasks = {}
    for name in sorted(records, key=lambda name: draw(name, 2**32)):
        record = records[name]
        if record.get("reason"):
            continue
        for chip in chips_for(name):
            path = result_path(results, record["sha256"], chip, digest)
            if (again or not path.exists()) and (not chips or chip in chips):
                tasks[f"{name} on {chip}"] = (record, chip, path)
    todo = [(key, partial(compile_one, models, record, chip)) for key, (record, chip, _) in tasks.items()]
    _load()
    for done, (key, outcome) in enumerate(run_all(todo, LIMITS, workers=workers), 1):
        record, chip, path = tasks[key]
        result = result_of(record, chip, digest, outcome)
        path.write_text(json.dumps(asdict(result), indent=1) + "\n")
        print(f"[{done}/{len(tasks)}] {key}: {_line(result)}", flush=True)


def result_path(results: Path, sha256: str, chip: str, digest: str) -> Path:
    """Where the result of a model on a chip by a compiler lies."""
    return results / f"{sha256[:16]}-{chip}-{digest}.json"


def _load() -> None:
    """Import the compiler once, before children are forked."""
    importlib.import_module("compiler.compile")


def compile_one(models: Path, record: Mapping[str, Any], chip: str) -> dict[str, Any]:
    """In a child: compile and verify one model; the figures, or the error."""
    from compiler.compile import compile_model
    from compiler.errors import TesseraError
    from compiler.options import parse_options
    from compiler.profile import builtin_profile

    options = parse_options({"dims": record["dims"]})
    data = model_path(models, record).read_bytes()
    try:
        compilation = compile_model(data, builtin_profile(chip), options)
    except TesseraError as error:
        return {"state": error.code, "message": str(error).split("\n")[0][:_MESSAGE_CHARACTERS]}
    return figures(compilation.plan, compilation.report)


def model_path(models: Path, record: Mapping[str, Any]) -> Path:
    """The model's file: exported into the cache, or where its package has it."""
    return Path(record["path"]) if "path" in record else models / f"{record['name']}.onnx"


def figures(plan: Any, report: Any) -> dict[str, Any]:
    """What the table says of a compilation that succeeded."""
    totals, native, values = plan.totals, plan.native, report.values
    macs = native.chip_macs + native.host_macs
    simulated = totals.simulated_latency_s
    return {
        "state": "ok",
        "native": native.chip_macs / macs if macs else None,
        "host_nodes": native.host_nodes,
        "unknown_host_nodes": native.host_nodes_of_unknown_work,
        "groups": sum(len(segment.groups) for segment in plan.segments),
        "segments": len(plan.segments),
        "dram_over_floor": totals.dram_gap_to_floor,
        "latency_over_bound": totals.latency_gap_to_bound,
        "simulated_over_bound": simulated / totals.latency_bound_s if simulated and totals.latency_bound_s else None,
        "values": error_over_limit(values),
        "unchecked": "" if values.checked else values.reason or "",
        "degraded": [_text(entry) for entry in getattr(plan, "degraded", ())],
    }


def error_over_limit(values: Any) -> float | None:
    """The worst error of an output over its limit; of what groups hand to groups where no output can be judged.

    A limit of 0 that holds gives 0.
    """
    found = values if values.max_error is not None else values.between
    if found is None or found.max_error is None:
        return None
    return float(found.max_error / (found.limit or 1.0))


def _text(entry: object) -> str:
    """A `degraded` entry in one line."""
    fields = getattr(entry, "__struct_fields__", None)
    if fields is None:
        return str(entry)
    return "; ".join(f"{name}: {getattr(entry, name)}" for name in fields)[:_MESSAGE_CHARACTERS]


def result_of(record: Mapping[str, Any], chip: str, digest: str, outcome: Outcome) -> Result:
    """The result as it is kept."""
    common: dict[str, Any] = {
        "name": record["name"],
        "family": record["family"],
        "chip": chip,
        "compiler": digest,
        "cpu_s": round(outcome.cpu_s, 2),
        "nodes": record["nodes"],
    }
    if outcome.ended == "done":
        found = dict(outcome.value)
        return Result(**common, **{**found, "degraded": tuple(found.get("degraded", ()))})
    state = "crash" if outcome.ended == "failed" else outcome.ended
    message = outcome.detail.split("\n")[0][:_MESSAGE_CHARACTERS]
    return Result(**common, state=state, message=message, trace=outcome.value or "")


def _line(result: Result) -> str:
    if result.state != "ok":
        return f"{result.state}: {result.message} ({result.cpu_s:.0f} s)"
    ratio = "–" if result.latency_over_bound is None else f"{result.latency_over_bound:.2f}"
    simulated = "–" if result.simulated_over_bound is None else f"{result.simulated_over_bound:.2f}"
    values = result.unchecked or ("–" if result.values is None else f"{result.values:.2g}")
    return (
        f"{result.nodes} nodes, {result.groups} groups, {result.host_nodes} host, latency {ratio},"
        f" simulated {simulated}, values {values}, {len(result.degraded)} degraded ({result.cpu_s:.0f} s)"
    )


def results_of(results: Path, records: Iterable[Mapping[str, Any]], digest: str) -> list[Result]:
    """The results of one compiler that exist, in the order of names and chips."""
    found = []
    for record in records:
        for chip in () if record.get("reason") else chips_for(record["name"]):
            path = result_path(results, record["sha256"], chip, digest)
            if path.exists():
                fields = json.loads(path.read_text())
                found.append(Result(**{**fields, "degraded": tuple(fields["degraded"])}))
    return found


if __name__ == "__main__":
    sys.exit("run python -m tests.zoo compile")
