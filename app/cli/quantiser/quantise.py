"""Quantises a float model on samples of its inputs, and compares the two models on them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx

from app.cli.quantiser.accuracy import Accuracy
from app.cli.quantiser.op_counts import is_quantised_already, op_counts
from app.cli.quantiser.process import FLOAT_MODEL, QUANTISED_MODEL, write_task
from app.cli.quantiser.report import Activations, QuantiseReport
from app.cli.quantiser.samples import Samples, samples_of
from app.input_files import open_model
from app.simulations.arrays import MAX_BYTES, Array
from app.telemetry import NO_TELEMETRY
from compiler.errors import InternalError, LimitError, ModelError, RequestError, TesseraError, printable
from compiler.frontend.read import OnnxModel, ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.report.plan import ModelRef
from compiler.simulator.reference import Reference, run_reference, whole_model

STAGE: Final = "quantise"
_RUNTIME: Final = "ONNX Runtime"
# The first IR version whose initializers need not be inputs.
_CONSTANTS_IR: Final = 4
_CHECK: Final = "Check that the arrays fit together, and the model with onnx.checker.check_model"
_FEWER: Final = "Quantise fewer op types, such as --ops Conv,Gemm,MatMul: others may compute indices or infinities"
# Takes what is being done, for people.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """A quantised model's bytes, and the report about it."""

    data: bytes
    report: QuantiseReport


def quantised(
    source: ModelSource,
    arrays: Mapping[str, Array],
    folder: Path,
    say: Say,
    *,
    activations: Activations = "int8",
    op_types: Sequence[str] = (),
) -> Quantised:
    """Quantises the ops of these types (without any: of all that ONNX Runtime quantises) on samples of the inputs.

    `folder` is an empty one for temporary files. Raises ModelError for a model that is quantised already or that ONNX
    Runtime cannot run or quantise, RequestError for arrays that are not the model's inputs, LimitError beyond a limit.
    """
    model = ValidateModel().run(ReadModel().run(source))
    _refuse_quantised(model.proto)
    samples = samples_of(model.proto.graph, arrays)
    say("running the float model")
    expected = _float_outputs(source, samples)
    say("quantising")
    path = _quantised_file(model, samples, activations, op_types, folder)
    target = open_model(path)
    say("running the quantised model")
    outputs = {value.name: Accuracy(name=value.name) for value in model.proto.graph.output}
    judge = ""
    for number, sample in enumerate(samples):
        run = _run(target, sample, number, "quantised", _FEWER)
        judge = run.judge
        for name, accuracy in outputs.items():
            accuracy.add(expected[number][name], run.values.get(name))
    ops = op_counts(ReadModel().run(target).proto.graph)
    if not any(count.quantised for count in ops):
        raise ModelError(
            "the model has nothing that ONNX Runtime quantises",
            code="nothing_to_quantise",
            stage=STAGE,
            actual=", ".join(printable(count.op_type, 40) for count in ops[:8]) or "no nodes on floats",
            limit="an op such as Conv, Gemm, MatMul or Add on float tensors of known rank",
            hint="Name other op types with --ops" if op_types else "Compile the model as it is",
        )
    report = QuantiseReport(
        model=ModelRef(name=source.name, sha256=source.sha256),
        quantiser=judge,
        activations=activations,
        samples=samples.count,
        outputs=tuple(accuracy.result() for accuracy in outputs.values()),
        float_bytes=source.size_bytes + sum(len(data) for data in source.files.values()),
        quantised_bytes=target.size_bytes,
        ops=ops,
    )
    return Quantised(data=path.read_bytes(), report=report)


def _refuse_quantised(proto: onnx.ModelProto) -> None:
    node = next((node for node in proto.graph.node if is_quantised_already(node)), None)
    if node is not None:
        raise ModelError(
            "the model is quantised already",
            code="already_quantised",
            stage=STAGE,
            node=printable(node.name, 120) or None,
            op_type=node.op_type,
            actual=node.op_type,
            limit="a float model",
            hint="Compile the model as it is, or give the float model that it was made of",
        )


def _float_outputs(source: ModelSource, samples: Samples) -> list[Mapping[str, Any]]:
    """The float model's outputs for each sample; raises LimitError if they take too much memory."""
    found = []
    size_bytes = 0
    for number, sample in enumerate(samples):
        values = _run(source, sample, number, "float", _CHECK).values
        size_bytes += sum(getattr(value, "nbytes", 0) for value in values.values())
        if size_bytes > MAX_BYTES:
            raise LimitError(
                "the outputs of all samples take too much memory",
                code="outputs_too_large",
                stage=STAGE,
                actual=f"{size_bytes} bytes after {number + 1} of {samples.count} samples",
                limit=MAX_BYTES,
                hint=f"Give at most {max(number, 1)} samples",
            )
        found.append(values)
    return found


def _run(source: ModelSource, sample: Mapping[str, Array], number: int, which: str, hint: str) -> Reference:
    """A run on ONNX Runtime; raises ModelError if it cannot run the model on a sample."""
    run = run_reference(source, sample, zeros_for_missing=True)  # drops inputs with defaults that no node reads
    if not run.judge.startswith(_RUNTIME):
        raise ModelError(
            f"ONNX Runtime, which quantises, could not run the {which} model on sample {number}",
            code="not_run",
            stage=STAGE,
            actual=printable(run.reason, 300),
            limit="a model and inputs that ONNX Runtime runs",
            hint=hint,
        )
    return run


def _quantised_file(
    model: OnnxModel, samples: Samples, activations: Activations, op_types: Sequence[str], folder: Path
) -> Path:
    """Runs the quantiser in a process of its own; raises what ended it as an error of ours."""
    proto = _without_defaults(whole_model(model), {*samples.several, *samples.shared})
    (folder / FLOAT_MODEL).write_bytes(proto.SerializeToString())
    write_task(folder, samples, activations, op_types)
    # -P: no module of the folder that the command runs in is imported
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app.cli.quantiser.process", str(folder)],
        env={**os.environ, "TMPDIR": str(folder), NO_TELEMETRY: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    path = folder / QUANTISED_MODEL
    if done.returncode or not path.is_file():
        raise _failure(done.returncode, done.stdout)
    return path


def _without_defaults(proto: onnx.ModelProto, given: Collection[str]) -> onnx.ModelProto:
    """A model in which an input with a default is a constant or, if it is given, an input without a default."""
    defaults = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name in given or value.name not in defaults]
    constants = [tensor for tensor in proto.graph.initializer if tensor.name not in given]
    if len(inputs) == len(proto.graph.input) and len(constants) == len(defaults):
        return proto
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    del found.graph.input[:], found.graph.initializer[:]
    found.graph.input.extend(inputs)
    found.graph.initializer.extend(constants)
    found.ir_version = max(proto.ir_version, _CONSTANTS_IR)
    return found


def _failure(code: int, said: bytes) -> TesseraError:
    """The error of a quantiser that ended with an exit code, and a line of JSON or nothing."""
    try:
        told = json.loads(said.splitlines()[-1])
        kind, message, number = str(told["type"]), str(told["message"]), told["errno"]
    except (ValueError, KeyError, IndexError, TypeError):
        if code >= 0:
            return InternalError("the process that quantises ended", stage=STAGE, actual=f"exit code {code}")
        kind, message, number = "", f"its process ended with signal {-code}", None
    if kind == "MemoryError" or number == errno.ENOMEM:
        return LimitError(
            "quantising takes more memory than there is",
            code="memory_limit",
            stage=STAGE,
            actual=kind,
            hint="Give fewer or smaller samples, or free memory",
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        return RequestError(
            "there is no room for the quantiser's temporary files",
            code="cannot_write",
            stage=STAGE,
            actual=printable(message, 300),
            hint="Make room, or set TMPDIR to a folder on another disk",
        )
    return ModelError(
        "ONNX Runtime's quantiser failed on the model",
        code="not_quantised",
        stage=STAGE,
        actual=printable(" ".join((kind, *message.split())).strip(), 300),
        limit="a float model that onnxruntime.quantization.quantize_static takes",
        hint="Simplify or export the model again; onnx.checker.check_model checks the file",
    )
