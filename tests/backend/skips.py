"""The tests of the suite that are not run, each with the reason. Names are the suite's, without the device."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_RANDOM: Final = "ONNX does not say which numbers a seed stands for; the stored outputs are those of one generator"
_PICTURES: Final = "ImageDecoder needs Pillow, which Tessera does not depend on"
_HALF: Final = (
    "one element of 192 is 0.3979 as stored, 0.3984 here and 0.3983 exactly; the suite allows 1e-3 of it, and float16 "
    "has steps of 6e-4 of it there"
)
_GRADIENT: Final = "neither ONNX Runtime nor onnx.reference, which run what stays on the host, has Gradient"
_CORNERS: Final = "ONNX Runtime, which runs this on the host, aligns corners of extents that it has not rounded"

SKIPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "test_MaxPool2d_stride_padding_dilation": (
            "a window of 591 × 791 float32 is 1.8 MiB, and a core has 512 KiB: the compiler says that no tile fits"
        ),
        "test_attention_4d_causal_fp16": _HALF,
        "test_attention_4d_causal_fp16_expanded": _HALF,
        "test_bernoulli": _RANDOM,
        "test_bernoulli_double": _RANDOM,
        "test_bernoulli_double_expanded": _RANDOM,
        "test_bernoulli_expanded": _RANDOM,
        "test_bernoulli_seed": _RANDOM,
        "test_bernoulli_seed_expanded": _RANDOM,
        "test_dft_inverse_opset19": (
            "ten elements are 1.9e-7 as stored, 3e-15 here and 0 exactly; the suite allows differences of 1e-7 at 0"
        ),
        "test_gradient_of_add": _GRADIENT,
        "test_gradient_of_add_and_mul": _GRADIENT,
        "test_image_decoder_decode_bmp_rgb": _PICTURES,
        "test_image_decoder_decode_jpeg2k_rgb": _PICTURES,
        "test_image_decoder_decode_jpeg_bgr": _PICTURES,
        "test_image_decoder_decode_jpeg_grayscale": _PICTURES,
        "test_image_decoder_decode_jpeg_rgb": _PICTURES,
        "test_image_decoder_decode_png_rgb": _PICTURES,
        "test_image_decoder_decode_pnm_rgb": _PICTURES,
        "test_image_decoder_decode_tiff_rgb": _PICTURES,
        "test_image_decoder_decode_webp_rgb": _PICTURES,
        "test_maxunpool_export_with_output_shape": (
            "ONNX Runtime, which runs this on the host, takes the indices for places in a map of output_shape; the "
            "stored outputs take them for places in the smaller map, padded afterwards"
        ),
        "test_resize_downsample_scales_cubic_align_corners": _CORNERS,
        "test_resize_downsample_scales_linear_align_corners": _CORNERS,
        "test_training_dropout": _RANDOM,
        "test_training_dropout_default": _RANDOM,
        "test_training_dropout_default_mask": _RANDOM,
        "test_training_dropout_mask": _RANDOM,
    }
)
