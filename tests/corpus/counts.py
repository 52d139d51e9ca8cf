"""Too many of something: nodes, values, inputs, attributes, axes, letters; mostly two bytes each (IMPORT-4)."""

from __future__ import annotations

from typing import Final

from tests.corpus.build import entry, one_node, raw_model, raw_node, raw_tensor_type
from tests.corpus.case import Build, Case, case, either, reject

_TOO_LARGE: Final = "tensor_too_large expansion_too_large"
_LIMIT: Final = f"{_TOO_LARGE} model_too_large too_many_nodes too_many_values name_too_long"
_NUMBER: Final = b"NUMBER!"
_OPEN: Final = either(f"{_TOO_LARGE} invalid_shape")


def _einsum(equation: str, *shapes: tuple[int, ...]) -> Build:
    return one_node("Einsum", shapes, equation=equation)


def _numbered(field: bytes, count: int) -> bytes:
    """A field again and again, each time with its own number in the place of `_NUMBER`."""
    before, after = field.split(_NUMBER)
    return b"".join(b"%b%07d%b" % (before, index, after) for index in range(count))


def _relu_nodes(count: int) -> Build:
    """Nodes without a name, all reading the input; written as bytes, since messages would take a gigabyte."""

    def build() -> bytes:
        nodes = _numbered(raw_node("Relu", ["x"], [_NUMBER]), count)
        return raw_model(nodes, inputs=[raw_tensor_type("x", [4])], outputs=[raw_tensor_type("0000000", [4])])

    return build


def _fields(nodes: bytes = b"", initializers: bytes = b"", inputs: int = 0, outputs: int = 0) -> bytes:
    return raw_model(
        raw_node("Relu", ["x"], ["y"]) + nodes,
        inputs=[raw_tensor_type("x", [4]), *(raw_tensor_type(f"i{index}", [1]) for index in range(inputs))],
        outputs=[raw_tensor_type("y", [4])] + [raw_tensor_type("y", [4])] * outputs,
        initializers=initializers,
    )


def _small_tensors(count: int) -> bytes:
    return _numbered(entry(5, entry(1, 1) + entry(2, 1) + entry(8, _NUMBER) + entry(9, bytes(4))), count)


def _string_attribute(size: int) -> bytes:
    attribute = entry(1, "mode") + entry(4, b"x" * size) + entry(20, 3)
    node = raw_node("Relu", ["x"], ["h"]) + entry(
        1, entry(1, "h") + entry(2, "y") + entry(4, "Elu") + entry(5, attribute)
    )
    return raw_model(node, inputs=[raw_tensor_type("x", [4])], outputs=[raw_tensor_type("y", [4])])


def _integers_attribute(count: int) -> bytes:
    attribute = entry(1, "kernel_shape") + entry(8, 1) * count + entry(20, 7)
    node = entry(1, entry(1, "x") + entry(2, "y") + entry(4, "MaxPool") + entry(5, attribute))
    return raw_model(node, inputs=[raw_tensor_type("x", [1, 1, 4, 4])], outputs=[raw_tensor_type("y", [4])])


def _many_attributes(count: int) -> bytes:
    attributes = b"".join(entry(5, entry(1, f"a{i}") + entry(3, i) + entry(20, 2)) for i in range(count))
    node = entry(1, entry(1, "x") + entry(2, "y") + entry(4, "Relu") + attributes)
    return raw_model(node, inputs=[raw_tensor_type("x", [4])], outputs=[raw_tensor_type("y", [4])])


def _wide_rank(count: int) -> bytes:
    node = raw_node("Relu", ["x"], ["y"])
    return raw_model(node, inputs=[raw_tensor_type("x", [1] * count)], outputs=[raw_tensor_type("y", [1])])


_MANY: Final = either(f"{_LIMIT} invalid_model duplicate_value missing_value invalid_shape unknown_op")

COUNTS: Final = (
    case(
        "a-million-nodes",
        _relu_nodes(1_000_000),
        reject("too_many_nodes too_many_values model_too_large"),
        "a file of 20 MB",
    ),
    case(
        "a-million-empty-nodes",
        lambda: _fields(nodes=entry(1, b"") * 1_000_000),
        reject(f"{_LIMIT} unknown_op invalid_model"),
        "two bytes each",
    ),
    case(
        "a-million-initialisers", lambda: _fields(initializers=_small_tensors(1_000_000)), _MANY, "weights nobody reads"
    ),
    case(
        "a-million-empty-initialisers", lambda: _fields(initializers=entry(5, b"") * 1_000_000), _MANY, "two bytes each"
    ),
    case("a-hundred-thousand-inputs", lambda: _fields(inputs=100_000), _MANY, "inputs nobody reads"),
    case("a-hundred-thousand-outputs", lambda: _fields(outputs=100_000), _MANY, "one value answered over and over"),
    case(
        "a-node-of-100000-inputs",
        lambda: _fields(nodes=raw_node("Sum", ["x"] * 100_000, ["s"])),
        _MANY,
        "one wide node",
    ),
    case(
        "a-node-of-100000-outputs",
        lambda: _fields(nodes=raw_node("Split", ["x"], [f"s{i}" for i in range(100_000)])),
        _MANY,
        "one wide node",
    ),
    case("a-node-of-100000-attributes", lambda: _many_attributes(100_000), _MANY, "one long node"),
    case("a-string-attribute-of-50-megabytes", lambda: _string_attribute(50_000_000), _MANY, "text without an end"),
    case(
        "a-list-attribute-of-a-million-integers",
        lambda: _integers_attribute(1_000_000),
        _MANY,
        "a kernel of a million axes",
    ),
    case("an-input-of-65-axes", lambda: _wide_rank(65), _MANY, "more axes than arrays can have"),
    case("an-input-of-100000-axes", lambda: _wide_rank(100_000), _MANY, "a very long shape"),
)

EINSUMS: Final = (
    case(
        "einsum-of-a-huge-outer-product",
        _einsum("a,b,c,d->abcd", *[(2**16,)] * 4),
        reject(_TOO_LARGE, "node"),
        "2^64 elements",
    ),
    case(
        "einsum-of-26-operands",
        _einsum(",".join("abcdefghijklmnopqrstuvwxyz") + "->", *[(64,)] * 26),
        _OPEN,
        "a contraction whose order matters more than the age of the world",
    ),
    case(
        "einsum-of-a-megabyte",
        _einsum("i" * 1_000_000 + "->", (2,)),
        either("invalid_shape invalid_model name_too_long"),
        "an equation of a million letters",
    ),
    case(
        "einsum-of-spaces",
        _einsum(" " * 100_000 + "ij->ji", (2, 3)),
        either("invalid_shape invalid_model name_too_long"),
        "an equation mostly of spaces",
    ),
)


CASES: Final[tuple[Case, ...]] = (*COUNTS, *EINSUMS)
