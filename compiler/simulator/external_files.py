"""Refuses executables that name files: everything that the host needs lies in the executable itself."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto

from compiler.program.errors import ExecutableError
from compiler.program.executable import Executable, HostSegment


def refuse_outside(executable: Executable) -> None:
    """Raises ExecutableError if a host node or constant would make the host open a file."""
    for number, segment in enumerate(executable.segments):
        if isinstance(segment, HostSegment):
            for node in segment.nodes:
                _refuse(onnx.NodeProto, node.node, f"nodes of segment {number}")
                for function in node.functions:
                    _refuse(onnx.FunctionProto, function, f"nodes of segment {number}")
    for constant in executable.constants:
        if constant.form == "tensor":
            _refuse(onnx.TensorProto, bytes(constant.data.view()), "constants")


def _refuse(kind: type[Message], data: bytes, section: str) -> None:
    """Raises ExecutableError if an ONNX message names external data."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise ExecutableError("this is no ONNX message", section=section, offset=0) from None
    if any(tensor.external_data or tensor.data_location for tensor in _tensors(message)):
        raise ExecutableError(
            "a tensor's data lies outside of the executable", section=section, offset=0, code="external_data"
        )


def _tensors(message: Message) -> Iterator[TensorProto]:
    """Every tensor of a message, at any depth."""
    todo = [message]
    while todo:
        found = todo.pop()
        if isinstance(found, TensorProto):
            yield found
        for field, value in found.ListFields():
            if field.message_type is not None:
                todo += [value] if isinstance(value, Message) else list(value)
