"""Ops over one long axis, and attention over long sequences: where they run, and what compiling them costs.

`python -m tests.bench long-axes [CASE ...]`, where a case is an op (`Softmax`), a chip (`edge4`) or a length
(`1000003`), compiles those that match every kind of word given. Each compilation has a process of its own.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from signal import SIGKILL, SIGXCPU
from time import process_time
from typing import TYPE_CHECKING, Final

from compiler.compile import Compilation, compile_model
from compiler.errors import TesseraError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CHIPS: Final = ("cluster4x4", "edge4", "polar4x4")
# Powers of ten, and primes: these cannot be cut into equal rows.
LENGTHS: Final = (1_000, 10_000, 100_000, 1_000_000, 1_000_003, 10_000_000, 99_999_989, 100_000_000)
SEQUENCES: Final = (512, 2_048, 8_192, 32_768)
ATTENTION: Final = "attention"
_FIGURE: Final = re.compile(r"\d+")
_HEADS: Final = 8
_WIDTH: Final = 64
_LIMIT_S: Final = 120
_LIMIT_BYTES: Final = 3 * 2**30
# ONNX Runtime needs both tensors of an op, and attention's scores, beside ours.
_JUDGED_LENGTH: Final = 10_000_000
_JUDGED_SEQUENCE: Final = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a compilation; `unjudged`: without values, `degraded`: planned around a failure of a step."""

    what: str
    why: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    ratio: float = 0.0

    def __str__(self) -> str:
        if not self.seconds:
            return self.what
        figures = f"{self.seconds:.1f} s, {self.peak_bytes / 2**20:,.0f} MiB"
        return f"{self.what}, {figures}" + (f", {self.ratio:.2f}" if self.ratio else "")


def _row(op: str, axis: int) -> Callable[[int], Model]:
    """A model of one op over [1, length] with one result."""

    def build(length: int) -> Model:
        model = Model(opset=18)
        model.output(model.node(op, [model.input([1, length])], name="long", axis=axis))
        return model

    return build


def _reduction(op: str) -> Callable[[int], Model]:
    def build(length: int) -> Model:
        model = Model(opset=18)
        model.output(model.node(op, [model.input([1, length]), model.ints(1)], name="long", keepdims=1))
        return model

    return build


def _layer_normalization(length: int) -> Model:
    model = Model(opset=18)
    inputs = [model.input([1, length]), model.input([length])]
    model.output(model.node("LayerNormalization", inputs, name="long", axis=-1))
    return model


def _instance_normalization(length: int) -> Model:
    model = Model(opset=18)
    inputs = [model.input([1, 1, length]), model.weight(1), model.weight(1)]
    model.output(model.node("InstanceNormalization", inputs, name="long"))
    return model


def _global_average_pool(length: int) -> Model:
    model = Model(opset=18)
    model.output(model.node("GlobalAveragePool", [model.input([1, 1, length])], name="long"))
    return model


def _cum_sum(length: int) -> Model:
    model = Model(opset=18)
    model.output(model.node("CumSum", [model.input([1, length]), model.constant(1, dtype="int64")], name="long"))
    return model


def _top_k(length: int) -> Model:
    model = Model(opset=18)
    values, _ = model.nodes_out("TopK", [model.input([1, length]), model.ints(5)], ("values", "indices"), name="long")
    model.output(values)
    return model


def _attention(length: int) -> Model:
    model = Model(opset=18)
    query, key, value = (
        model.input([_HEADS, *shape]) for shape in ((length, _WIDTH), (_WIDTH, length), (length, _WIDTH))
    )
    scores = model.node("Mul", [model.node("MatMul", [query, key]), model.constant(0.125, dtype="float32")])
    model.output(model.node("MatMul", [model.node("Softmax", [scores], axis=-1), value]))
    return model


OPS: Final[dict[str, Callable[[int], Model]]] = {
    "Softmax": _row("Softmax", axis=-1),
    "LogSoftmax": _row("LogSoftmax", axis=-1),
    "LayerNormalization": _layer_normalization,
    "ReduceSum": _reduction("ReduceSum"),
    "ReduceMax": _reduction("ReduceMax"),
    "ReduceMean": _reduction("ReduceMean"),
    "ArgMax": _row("ArgMax", axis=1),
    "CumSum": _cum_sum,
    "TopK": _top_k,
    "GlobalAveragePool": _global_average_pool,
    "InstanceNormalization": _instance_normalization,
    ATTENTION: _attention,
}


def run(words: tuple[str, ...] = ()) -> None:
    """Print a row per op and length, a column per chip, and below the table why what is not on the chip is not."""
    ops = [op for op in OPS if op in words] or list(OPS)
    chips = [chip for chip in CHIPS if chip in words] or list(CHIPS)
    asked = {int(word) for word in words if word.isdigit()}
    print(f"| op | length | {' | '.join(chips)} |\n|---|---:|{'---|' * len(chips)}", flush=True)
    reasons: dict[str, tuple[int, str]] = {}  # by the text without figures: its number, and the first such text
    for op in ops:
        for length in _lengths(op, asked):
            judged = length <= (_JUDGED_SEQUENCE if op == ATTENTION else _JUDGED_LENGTH)
            data = OPS[op](length).data()
            cells = []
            for chip in chips:
                found = _in_child(data, chip, "values" if judged else "none")
                note = ""
                if found.why:
                    number, _ = reasons.setdefault(_FIGURE.sub("N", found.why), (len(reasons) + 1, found.why))
                    note = f" ({number})"
                cells.append(f"{found}{note}")
            print(f"| {op} | {length:,} | {' | '.join(cells)} |", flush=True)
    print()
    for number, why in reasons.values():
        print(f"{number}. {why}")


def _lengths(op: str, asked: set[int]) -> Iterable[int]:
    known = SEQUENCES if op == ATTENTION else LENGTHS
    return [length for length in known if not asked or length in asked]


def _in_child(data: bytes, chip: str, verify: str) -> Outcome:
    """The outcome of one compilation, which has a limit of processor time and of memory."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_compile, args=(sender, data, chip, verify))
    child.start()
    sender.close()
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        child.join()
        outcome = Outcome(what="too long" if child.exitcode in (-SIGXCPU, -SIGKILL) else "crash")
    child.join()
    return outcome


def _compile(sender: Connection, data: bytes, chip: str, verify: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT_S, _LIMIT_S))
    resource.setrlimit(resource.RLIMIT_DATA, (_LIMIT_BYTES, _LIMIT_BYTES))
    begun = process_time()
    try:
        compilation = compile_model(data, builtin_profile(chip), parse_options({"verify": verify}))
        what, why = _where(compilation)
        ratio = compilation.plan.totals.dram_bytes / max(compilation.plan.totals.dram_bytes_floor, 1)
    except MemoryError:
        what, why, ratio = "memory", "", 0.0
    except TesseraError as error:
        what, why, ratio = "refused", " ".join(str(error).split()), 0.0
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sender.send(Outcome(what=what, why=why, seconds=process_time() - begun, peak_bytes=peak_bytes, ratio=ratio))


def _where(compilation: Compilation) -> tuple[str, str]:
    plan = compilation.plan
    if plan.degraded:
        return "degraded", "; ".join(
            dict.fromkeys(f"{one.stage}, {one.failed}: {one.instead}" for one in plan.degraded)
        )
    hosted = [node.reason for segment in plan.segments for node in segment.host]
    if hosted:
        return "on host", "; ".join(dict.fromkeys(hosted))
    return ("on chip" if compilation.report.values_checked else "on chip unjudged"), ""
