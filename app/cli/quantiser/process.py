"""The process in which ONNX Runtime's quantiser runs: `python -m app.cli.quantiser.process FOLDER`.

In: a folder with a float model and samples of its inputs, as `quantise.py` writes them. Out: the quantised model in the
same folder; a failure is a line of JSON on standard output, with the exit code 1.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import onnx
import onnx.version_converter

from app.cli.quantiser.report import Activations
from app.cli.quantiser.samples import Samples

FLOAT_MODEL: Final = "float.onnx"
QUANTISED_MODEL: Final = "quantised.onnx"
_PREPARED_MODEL: Final = "prepared.onnx"
_DEFAULT_DOMAIN: Final = ("", "ai.onnx")
# The first operator set whose DequantizeLinear takes a scale per channel.
_PER_CHANNEL_OPSET: Final = 13
_TASK: Final = "task.json"


class _Values(msgspec.Struct, frozen=True, kw_only=True):
    """A file of one input's values: the same in all samples, or with a leading axis of samples."""

    file: str
    is_shared: bool
    is_text: bool


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    activations: Activations
    op_types: tuple[str, ...]
    samples: int
    inputs: dict[str, _Values]


def write_task(folder: Path, samples: Samples, activations: Activations, op_types: Sequence[str]) -> None:
    """Writes samples and options for the process; without `op_types` it quantises all that it can. Raises OSError."""
    inputs: dict[str, _Values] = {}
    for is_shared, arrays in ((False, samples.several), (True, samples.shared)):
        for name, array in arrays.items():
            is_text = array.dtype.hasobject
            values = _Values(file=f"{len(inputs)}.npy", is_shared=is_shared, is_text=is_text)
            np.save(folder / values.file, array.astype(np.str_) if is_text else array, allow_pickle=False)
            inputs[name] = values
    task = _Task(activations=activations, op_types=tuple(op_types), samples=samples.count, inputs=inputs)
    (folder / _TASK).write_bytes(msgspec.json.encode(task))


class _Reader:
    """ONNX Runtime's view of the samples: one after another, then None."""

    def __init__(self, samples: Samples) -> None:
        self._rest: Iterator[dict[str, Any]] = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        """The next sample."""
        return next(self._rest, None)


def _samples(folder: Path, task: _Task) -> Samples:
    several: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for name, values in task.inputs.items():
        array: Any = np.load(folder / values.file, mmap_mode=None if values.is_text else "r", allow_pickle=False)
        (shared if values.is_shared else several)[name] = array.astype(object) if values.is_text else array
    return Samples(count=task.samples, several=several, shared=shared)


def _raise_opset(path: Path) -> None:
    """Converts a model of an operator set without scales per channel to the first that has them."""
    model = onnx.load(path)
    version = min((entry.version for entry in model.opset_import if entry.domain in _DEFAULT_DOMAIN), default=None)
    if version is not None and version < _PER_CHANNEL_OPSET:
        onnx.save(onnx.version_converter.convert_version(model, _PER_CHANNEL_OPSET), path)


def quantise(folder: Path) -> None:
    """Quantises the float model of a folder: int8 weights per channel, QuantizeLinear and DequantizeLinear nodes.

    Raises what ONNX Runtime and onnx raise.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    _raise_opset(folder / FLOAT_MODEL)
    task = msgspec.json.decode((folder / _TASK).read_bytes(), type=_Task)
    # symbolic shape inference needs sympy, which nothing else here does; onnx's own infers ranks and types
    quant_pre_process(str(folder / FLOAT_MODEL), str(folder / _PREPARED_MODEL), skip_symbolic_shape=True)
    quantize_static(
        str(folder / _PREPARED_MODEL),
        str(folder / QUANTISED_MODEL),
        _Reader(_samples(folder, task)),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type={"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}[task.activations],
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(task.op_types),
    )


def main(folder: str) -> int:
    """Quantises; prints a failure."""
    logging.disable()  # progress and advice of the quantiser
    try:
        quantise(Path(folder))
    except Exception as error:  # noqa: BLE001 - whatever the quantiser raises is the parent's to report
        failure: Mapping[str, object] = {"type": type(error).__name__, "message": str(error)[:2000]}
        sys.stdout.write(json.dumps({**failure, "errno": getattr(error, "errno", None)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
