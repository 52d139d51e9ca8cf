"""Networks quantised by ONNX Runtime's own tools: `python -m tests.quantised.models FOLDER [NETWORK ...]` makes them.

The float networks are the committed exports (tests/data/exported, named by their files without `.onnx`) and the light
networks of the onnx package with calibrated weights (`light_resnet50` and its like). Forms:

- `int8`: quantize_static, QDQ, weights per channel, int8 activations and weights
- `uint8`: the same with uint8 activations
- `int4`: as `int8` with int4 weights
- `dynamic`: quantize_dynamic, which writes DynamicQuantizeLinear with MatMulInteger and ConvInteger
- `dynamic_all`: the same with products of two activations among them (its extra option MatMulConstBOnly is False)

4-bit decoders need a package that is not locked; they are committed (four_bits.py).
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from tests.calibrate import calibrated
from tests.exported import ExportedModel, exported_models

Array = NDArray[Any]
Form = Literal["int8", "uint8", "int4", "dynamic", "dynamic_all"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
# A classifier of full size, small ones, detectors, an encoder, a vision transformer, a decoder.
NETWORKS: Final = (
    "light_resnet50",
    "resnet_dynamo",
    "mobilenet_v2_dynamo",
    "feature_pyramid_dynamo",
    "yolo_dynamo",
    "bert_dynamo",
    "vit_dynamo",
    "llama_dynamo",
)
_LIGHT: Final = "light_"
_SAMPLES: Final = 4
# Scales per channel need 13; the light networks are of 9.
_OPSET: Final = 17


def quantised_file(network: str, form: Form, folder: Path | None = None) -> Path:
    """A quantised network's file, made unless the folder has it from the same float network and tools.

    The folder is by default one in the system's temporary directory.
    """
    folder = folder or Path(tempfile.gettempdir()) / "tessera-quantised"
    folder.mkdir(parents=True, exist_ok=True)
    data = _float_bytes(network)
    parts = (data, form.encode(), onnxruntime.__version__.encode(), Path(__file__).read_bytes())
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
    path = folder / f"{network}-{form}-{digest}.onnx"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "quantised.onnx"
            _quantise(data, network, form, made)
            made.rename(path)
    return path


def float_model(network: str) -> onnx.ModelProto:
    """The float network; raises KeyError for an unknown name."""
    return onnx.load_from_string(_float_bytes(network))


def feeds(network: str, seed: int) -> dict[str, Array]:
    """Random inputs at the maxima of the free dimensions; calibration takes the seeds 0 to 3."""
    if not network.startswith(_LIGHT):
        return _exported()[network].feeds(seed)
    (image,) = (value for value in float_model(network).graph.input)
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    return {image.name: np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)}


def dims(network: str) -> dict[str, int]:
    """The maxima of the free dimensions."""
    return {} if network.startswith(_LIGHT) else dict(_exported()[network].dims)


@cache
def _float_bytes(network: str) -> bytes:
    if not network.startswith(_LIGHT):
        return _exported()[network].read()
    model = onnx.load_from_string(calibrated(network.removeprefix(_LIGHT)))
    return bytes(version_converter.convert_version(model, _OPSET).SerializeToString(deterministic=True))


@cache
def _exported() -> dict[str, ExportedModel]:
    return {model.file.removesuffix(".onnx"): model for model in exported_models()}


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Hands the quantiser one sample after the other."""

    def __init__(self, network: str) -> None:
        self._samples: Iterator[dict[str, Array]] = (feeds(network, seed) for seed in range(_SAMPLES))

    def get_next(self) -> dict[str, Array] | None:
        """The next sample; None at the end."""
        return next(self._samples, None)


def _quantise(data: bytes, network: str, form: Form, path: Path) -> None:
    floats, prepared = path.with_name("float.onnx"), path.with_name("prepared.onnx")
    floats.write_bytes(data)
    # what is symbolic in shapes needs sympy, which is not among the locked packages
    quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
    if form in ("dynamic", "dynamic_all"):
        model = onnx.load(prepared)
        # the tool turns weights of a Gemm and leaves the shape that the preparation noted
        del model.graph.value_info[:]
        quantization.quantize_dynamic(model, str(path), extra_options={"MatMulConstBOnly": form == "dynamic"})
        return
    kinds = quantization.QuantType
    quantization.quantize_static(
        str(prepared),
        str(path),
        _Samples(network),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=kinds.QUInt8 if form == "uint8" else kinds.QInt8,
        weight_type=kinds.QInt4 if form == "int4" else kinds.QInt8,
    )


def main(arguments: Sequence[str]) -> int:
    """Make the named networks (by default those wanted) in all forms and say what is in them."""
    logging.disable(logging.WARNING)
    if not arguments:
        print("usage: python -m tests.quantised.models FOLDER [NETWORK ...]", file=sys.stderr)
        return 2
    folder, names = Path(arguments[0]), arguments[1:] or NETWORKS
    for network in names:
        size = len(_float_bytes(network))
        for form in FORMS:
            path = quantised_file(network, form, folder)
            counts = Counter(node.op_type for node in onnx.load(path).graph.node)
            common = ", ".join(f"{count} {op_type}" for op_type, count in counts.most_common(8))
            print(f"{path.name}: {path.stat().st_size:,} of {size:,} bytes; {common}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
