"""Large but legal: chains, fans and nests that a quadratic walk or a recursive one does not survive."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from tests.corpus.build import raw_integer, raw_model, raw_node, raw_tensor_type
from tests.corpus.case import Build, Case, accept, case

_TYPE: Final = raw_tensor_type("x", [1, 4, 4, 4])


def _model(nodes: bytes, output: str) -> bytes:
    return raw_model(nodes, inputs=[_TYPE], outputs=[raw_tensor_type(output, [])])


def _chain(length: int) -> Build:
    """Relus one after another."""

    def build() -> bytes:
        names = ["x", *(f"v{index}" for index in range(length))]
        nodes = b"".join(raw_node("Relu", [before], [after], after) for before, after in pairwise(names))
        return _model(nodes, names[-1])

    return build


def _wide_sum(count: int) -> Build:
    """One value read by many nodes, whose results one node adds up."""

    def build() -> bytes:
        names = [f"v{index}" for index in range(count)]
        nodes = b"".join(raw_node("Relu", ["x"], [name], name) for name in names)
        return _model(nodes + raw_node("Sum", names, ["total"], "total"), "total")

    return build


def _many_sinks(count: int) -> Build:
    """One value read by many nodes, each of them an output."""

    def build() -> bytes:
        names = [f"v{index}" for index in range(count)]
        nodes = b"".join(raw_node("Relu", ["x"], [name], name) for name in names)
        return raw_model(nodes, inputs=[_TYPE], outputs=[raw_tensor_type(name, [1, 4, 4, 4]) for name in names])

    return build


def _nested_residuals(depth: int) -> Build:
    """A skip connection around a skip connection...: as many values are alive as it is deep."""

    def build() -> bytes:
        down = b"".join(raw_node("Relu", ["x" if i == 0 else f"d{i - 1}"], [f"d{i}"], f"d{i}") for i in range(depth))
        begin = f"d{depth - 1}"
        up = b"".join(
            raw_node("Add", [begin if i == 0 else f"u{i - 1}", f"d{depth - 1 - i}"], [f"u{i}"], f"u{i}")
            for i in range(depth)
        )
        return _model(down + up, f"u{depth - 1}")

    return build


def _dense(count: int) -> Build:
    """Every node reads all earlier values: count^2 / 2 edges."""

    def build() -> bytes:
        names = ["x"]
        nodes = bytearray()
        for index in range(count):
            nodes += raw_node("Sum", names, [f"v{index}"], f"v{index}")
            names.append(f"v{index}")
        return _model(bytes(nodes), names[-1])

    return build


def _diamonds(count: int) -> Build:
    """Fork and join, one after another: 2^count paths."""

    def build() -> bytes:
        nodes = bytearray()
        value = "x"
        for index in range(count):
            left, right, joined = f"l{index}", f"r{index}", f"j{index}"
            nodes += raw_node("Relu", [value], [left], left) + raw_node("Sigmoid", [value], [right], right)
            nodes += raw_node("Add", [left, right], [joined], joined)
            value = joined
        return _model(bytes(nodes), value)

    return build


def _wide_concat(count: int) -> Build:
    """Eight values concatenated over and over."""

    def build() -> bytes:
        nodes = b"".join(raw_node("Relu", ["x"], [f"v{index}"], f"v{index}") for index in range(8))
        names = [f"v{index % 8}" for index in range(count)]
        return _model(nodes + raw_node("Concat", names, ["all"], "all", attributes=raw_integer("axis", 1)), "all")

    return build


CASES: Final[tuple[Case, ...]] = (
    case("a-chain-of-1000-nodes", _chain(1_000), accept(), "a walk that is quadratic or recursive"),
    case("a-chain-of-10000-nodes", _chain(10_000), accept(), "a walk that is quadratic or recursive", slow=True),
    case("a-concat-of-1000-parts", _wide_concat(1_000), accept(), "one wide node"),
    case("a-concat-of-5000-parts", _wide_concat(5_000), accept(), "one wide node"),
    case("a-value-read-by-2000-nodes", _wide_sum(2_000), accept(), "fan-out and fan-in"),
    case("two-thousand-outputs", _many_sinks(2_000), accept(), "fan-out without an end in common", slow=True),
    case("residuals-nested-100-deep", _nested_residuals(100), accept(), "many values alive at once"),
    case("residuals-nested-500-deep", _nested_residuals(500), accept(), "many values alive at once", slow=True),
    case("a-dense-network-of-100-nodes", _dense(100), accept(), "5,000 edges"),
    case("a-dense-network-of-300-nodes", _dense(300), accept(), "45,000 edges", slow=True),
    case("two-hundred-diamonds-in-a-row", _diamonds(200), accept(), "2^200 paths"),
    case("a-thousand-diamonds-in-a-row", _diamonds(1_000), accept(), "2^1000 paths", slow=True),
)
