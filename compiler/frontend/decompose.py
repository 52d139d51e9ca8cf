"""Placeholder until the definitions are there."""

from collections.abc import Callable

import onnx

from compiler.ops.base import Call


def decompose(node: onnx.NodeProto, call: Call, fresh: Callable[[str], str]) -> tuple[onnx.NodeProto, ...] | None:
    """Nothing yet."""
    del node, call, fresh
    return None
