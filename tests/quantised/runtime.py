"""ONNX Runtime as the other judge of quantised models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


def run_unfused(
    model: onnx.ModelProto, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Array]:
    """The values of a model's outputs (or any named) by ONNX Runtime: one thread, no optimisation, no QDQ fusion."""
    if outputs is not None:
        wanted = onnx.ModelProto()
        wanted.CopyFrom(model)
        del wanted.graph.output[:]
        wanted.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        model = wanted
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return {name: np.asarray(value) for name, value in zip(names, session.run(None, dict(inputs)), strict=True)}


def processor_features() -> tuple[str, ...]:
    """The processor's vector extensions; none where the system does not list them."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(sorted(flag for flag in flags if flag.startswith(("avx", "amx"))))


def mixed_signs_saturate(features: Sequence[str]) -> bool:
    """Whether ONNX Runtime's integer kernels saturate pairs of uint8 x int8 products at 16 bits.

    They do on x86 processors without VNNI. Weights of 7 bits are safe, as are operands of one sign.
    """
    return "avx" in features and not any("vnni" in feature for feature in features)
