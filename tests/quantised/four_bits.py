"""A decoder with 4-bit weights as ONNX Runtime's tool writes it, committed in tests/data/quantised.

`python -m tests.quantised.four_bits` writes the files anew. It needs onnx_ir, which the environment of
`make export-models` has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx

from tests.exported import ExportedModel, exported_models

FOLDER: Final = Path(__file__).parents[1] / "data" / "quantised"
NETWORK: Final = "llama_dynamo.onnx"
BLOCK_SIZE: Final = 32
# MatMulNBits with zero points; MatMul of weights dequantised by blocks: int4 without zero points, uint4 with them
FORMS: Final = ("matmul_nbits", "qdq_int4", "qdq_uint4")


def four_bit_file(form: str) -> Path:
    """The decoder's file in one of the forms."""
    return FOLDER / f"llama_{form}.onnx"


def decoder() -> ExportedModel:
    """The float decoder, whose inputs and free dimensions are those of the files."""
    (found,) = (model for model in exported_models() if model.file == NETWORK)
    return found


def main() -> None:
    """Write the files of all forms."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.quant_utils import QuantFormat

    FOLDER.mkdir(parents=True, exist_ok=True)
    for form in FORMS:
        quantiser = MatMulNBitsQuantizer(
            onnx.load_from_string(decoder().read()),
            block_size=BLOCK_SIZE,
            is_symmetric=form == "qdq_int4",
            quant_format=QuantFormat.QOperator if form == "matmul_nbits" else QuantFormat.QDQ,
        )
        quantiser.process()
        four_bit_file(form).write_bytes(quantiser.model.model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
