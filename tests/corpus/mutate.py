"""Random damage to valid models, reproducible from a seed: bytes of the file, or fields of the message."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

# Numbers at which something overflows, wraps, or turns negative.
_NUMBERS: Final = (0, 1, -1, 2, 7, 63, 255, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
_FLOATS: Final = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"))
_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_ENUM: 31,
    FieldDescriptor.CPPTYPE_UINT64: 63,
}


def mutant(seed: int, originals: tuple[bytes, ...]) -> bytes:
    """One of the originals, damaged once to four times."""
    source = random.Random(seed)
    data = source.choice(originals)
    for _ in range(source.choice((1, 1, 2, 4))):
        data = source.choice(_DAMAGES)(source, data)
    return data


def _flip(source: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 8))):
        if out:
            out[source.randrange(len(out))] ^= 1 << source.randrange(8)
    return bytes(out)


def _overwrite(source: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 4))):
        if out:
            out[source.randrange(len(out))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
    return bytes(out)


def _truncate(source: random.Random, data: bytes) -> bytes:
    return data[: source.randrange(len(data) + 1)]


def _insert(source: random.Random, data: bytes) -> bytes:
    position = source.randrange(len(data) + 1)
    return data[:position] + source.randbytes(source.choice((1, 2, 8, 100))) + data[position:]


def _remove(source: random.Random, data: bytes) -> bytes:
    position = source.randrange(len(data) + 1)
    return data[:position] + data[position + source.choice((1, 2, 8, 100)) :]


def _repeat(source: random.Random, data: bytes) -> bytes:
    begin, end = sorted(source.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[begin:end] + data[end:]


def _fields(source: random.Random, data: bytes) -> bytes:
    """Change a field of the message where the bytes still are one; else flip bits."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception:  # noqa: BLE001 - whatever the parser says, these bytes are no message any more
        return _flip(source, data)
    places = list(_places(proto))
    if not places:
        return _flip(source, data)
    owner, field = source.choice(places)
    try:
        source.choice(_CHANGES)(source, owner, field, places)
        return bytes(proto.SerializeToString())
    except (ValueError, TypeError):  # a value that the field cannot hold, or text that is none
        return _flip(source, data)


Places = list[tuple[Message, FieldDescriptor]]


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field that is set, of a message and all messages inside it."""
    for field, value in message.ListFields():
        yield message, field
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _places(inner)


def _clear(_: random.Random, owner: Message, field: FieldDescriptor, __: Places) -> None:
    owner.ClearField(field.name)


def _swap(source: random.Random, _: Message, field: FieldDescriptor, places: Places) -> None:
    """Exchange the contents of two fields of one kind, wherever they are."""
    same = [message for message, other in places if other.full_name == field.full_name]
    first, second = source.choice(same), source.choice(same)
    contents = _only(first, field), _only(second, field)
    for target, content in ((first, contents[1]), (second, contents[0])):
        target.ClearField(field.name)
        target.MergeFrom(content)


def _only(message: Message, field: FieldDescriptor) -> Message:
    """A copy of a message that has kept one field."""
    copy = type(message)()
    copy.CopyFrom(message)
    for present, _ in copy.ListFields():
        if present.name != field.name:
            copy.ClearField(present.name)
    return copy


def _change(source: random.Random, owner: Message, field: FieldDescriptor, places: Places) -> None:
    """Another value for a number or a text; an element less, twice, or elsewhere for a list."""
    values: Any = getattr(owner, field.name)
    if field.is_repeated:
        index = source.randrange(len(values))
        action = source.randrange(3)
        if action == 0:
            del values[index]
        elif action == 1:
            values.extend([values[index]])
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            other = source.randrange(len(values))
            kept = type(values[index])()
            kept.CopyFrom(values[index])
            values[index].CopyFrom(values[other])
            values[other].CopyFrom(kept)
        else:
            values[index] = _value(source, field, places)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        owner.ClearField(field.name)
    else:
        setattr(owner, field.name, _value(source, field, places))


def _value(source: random.Random, field: FieldDescriptor, places: Places) -> Any:
    """A value at an edge of the field's type; for text, one that stands elsewhere in the model."""
    bits = _INTEGERS.get(field.cpp_type)
    if bits is not None:
        number = source.choice(_NUMBERS)
        return number % 2**bits if bits in (31, 63) else (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return source.choice(_FLOATS)
    texts = [
        text
        for message, other in places
        if other.cpp_type == FieldDescriptor.CPPTYPE_STRING and other.type == field.type
        for text in (getattr(message, other.name) if other.is_repeated else (getattr(message, other.name),))
    ]
    return source.choice([*texts, b"\xff\0" if field.type == FieldDescriptor.TYPE_BYTES else "\x1b[31m\n"])


_CHANGES: Final = (_clear, _swap, _change, _change, _change)
_DAMAGES: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _flip,
    _overwrite,
    _truncate,
    _insert,
    _remove,
    _repeat,
    *(_fields,) * 10,
)
