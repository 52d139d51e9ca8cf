"""RotaryEmbedding: values by the definitions against ONNX's reference (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.compiler.frontend.decompose.replacing import agree, reference, results
from tests.compiler.ops.calls import Values


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("by_position", [True, False])
def test_rotary_embedding_keeps_its_values(interleaved: int, turned: int, flat: bool, by_position: bool) -> None:
    random = np.random.default_rng(2)
    pairs = (turned or 8) // 2
    feeds: dict[str, Values] = {
        "x": random.standard_normal((2, 3, 16) if flat else (2, 2, 3, 8)).astype(np.float32),
        "cos": random.standard_normal((9, pairs) if by_position else (2, 3, pairs)).astype(np.float32),
        "sin": random.standard_normal((9, pairs) if by_position else (2, 3, pairs)).astype(np.float32),
    }
    if by_position:
        feeds["ids"] = np.array([[0, 1, 8], [3, 3, 2]], dtype=np.int64)
    heads: dict[str, Any] = {"num_heads": 2} if flat or turned else {}
    node = helper.make_node(
        "RotaryEmbedding",
        list(feeds),
        ["y"],
        interleaved=interleaved,
        rotary_embedding_dim=turned,
        **heads,
    )
    values, used = results(node, feeds, 23)
    agree(values["y"], reference(node, feeds, 23)[0])
    assert used["Transpose"] == 0
