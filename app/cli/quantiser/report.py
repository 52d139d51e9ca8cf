"""The report of `tessera quantise --json`: its types and canonical bytes."""

from __future__ import annotations

from typing import Literal

import msgspec

from compiler.report.execution import Part
from compiler.report.plan import ModelRef

Activations = Literal["int8", "uint8"]


class OutputAccuracy(Part, frozen=True, kw_only=True):
    """One output of the quantised model against the float model's, over all samples.

    Errors are absolute; one that is not finite is null. `snr_db` is 10 log10 of the float output's energy over the
    error's, null for integers and without an error or a signal. `same_class_share` is the share of rows whose largest
    element stands in the same column, for floats of two axes, else null. `reason` says why the output was not compared.
    """

    tensor: str
    type: str
    equal_share: float | None = None
    max_error: float | None = None
    mean_error: float | None = None
    snr_db: float | None = None
    same_class_share: float | None = None
    reason: str | None = None


class OpCount(Part, frozen=True, kw_only=True):
    """The nodes of one op type: how many read and give 8-bit integers, and which stay in float."""

    op_type: str
    quantised: int
    in_float: tuple[str, ...]


class QuantiseReport(Part, frozen=True, kw_only=True):
    """How a float model was quantised, and how far its outputs moved on the samples.

    `float_bytes` counts the model file with its external data, `quantised_bytes` the quantised file. `ops` counts the
    nodes of the quantised model, as ONNX Runtime's preparation left them.
    """

    schema: Literal["tessera.quantised/1"] = "tessera.quantised/1"
    model: ModelRef
    quantiser: str
    activations: Activations
    weights: Literal["int8"] = "int8"
    samples: int
    outputs: tuple[OutputAccuracy, ...]
    float_bytes: int
    quantised_bytes: int
    ops: tuple[OpCount, ...]


def report_json(report: QuantiseReport) -> bytes:
    """The report's canonical bytes: UTF-8 JSON on one line, fields in schema order."""
    return msgspec.json.encode(report) + b"\n"
