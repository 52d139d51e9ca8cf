"""Names that mean something to a shell, a browser, a terminal or a file system, or are no text at all (API-7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx

from tests.corpus.build import NODE, edited, entry, raw_model, raw_node, raw_tensor_type, value_info, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "paths": "../../../../etc/passwd",
        "absolute paths": "/dev/null",
        "paths of another system": "C:\\Windows\\System32\\con.txt",
        "shell commands": "$(touch /tmp/owned); `id` | sh && rm -rf ~ #",
        "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;\"'",
        "line breaks": "first\r\nSet-Cookie: evil=1\n\nsecond",
        "control characters": "".join(chr(code) for code in range(32)),
        "terminal escapes": "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b31m",
        "zero bytes": "before\0after",
        "right-to-left overrides": "model\u202egnp.exe",
        "invisible characters": "\u200b\ufeff\u2028\u2029\u00ad",
        "characters beyond the first plane": "🧨" * 20,
        "combining characters": "e" + "\u0301" * 200,
        "placeholders": "%s%n%d {0} {name} ${x} {{}} %(x)s",
        "queries": "'; DROP TABLE jobs; --",
        "members of objects": "__proto__",
        "numbers": "1e999",
        "a space": " ",
        "dots": "..",
        "commas and quotes": "a,b\"c'd`e",
        "formulas": '=cmd|"/c calc"!A1',
    }
)

# Not UTF-8; protobuf hands such names over all the same.
BYTES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "latin": b"gew\xe4hr",
        "surrogates": b"\xed\xa0\x80\xed\xb0\x80",
        "overlong": b"\xc0\xae\xc0\xae/",
        "cut": b"name\xe2\x82",
        "beyond the last character": b"\xf7\xbf\xbf\xbf",
    }
)


def _everywhere(text: str) -> Build:
    """A text as the name of values, weights, nodes, the graph, a dimension and the tool."""

    def fill(model: Model) -> None:
        model.name = text
        x = model.input([1, 3, 8, 8], f"{text}-in")
        model.constant(model.random.standard_normal((4, 3, 3, 3)).astype("float32"), f"{text}-weight")
        c = model.node("Conv", [x, f"{text}-weight"], out=f"{text}-value", name=text, pads=[1] * 4)
        model.output(model.node("Relu", [c], out=text, name=f"{text}-second"))

    def change(proto: onnx.ModelProto) -> None:
        proto.producer_name = proto.producer_version = proto.domain = proto.doc_string = text
        proto.metadata_props.add(key=text, value=text)

    return edited(change, fill)


def _failing(text: str) -> Build:
    """A model that is refused at a node and a value of such names."""

    def fill(model: Model) -> None:
        model.output(model.node("Relu", [f"{text}-missing"], name=text))
        model.input([4], "x")

    return written(fill)


def _unknown_op(text: str) -> Build:
    return written(lambda m: m.output(m.node(text, [m.input([4])], name=text, domain="")))


def _attribute(text: str) -> Build:
    def fill(model: Model) -> None:
        model.output(model.node("DepthToSpace", [model.input([1, 4, 2, 2])], name="node", blocksize=2, mode=text))

    return written(fill)


def _dimension(text: str) -> Build:
    """A dynamic dimension of such a name, for which no value is given."""
    return edited(lambda p: p.graph.input[0].CopyFrom(value_info("x", [text, 3, 8, 8])))


def _raw(make: Callable[[bytes], tuple[bytes, bytes, bytes, bytes]], name: bytes) -> Build:
    """A Relu whose input, output, node and op type have the names that `make` makes of one."""

    def build() -> bytes:
        source, target, node, op_type = make(name)
        body = entry(1, source) + entry(2, target) + entry(3, node) + entry(4, op_type)
        return raw_model(
            entry(NODE, body), inputs=[raw_tensor_type(source, [4])], outputs=[raw_tensor_type(target, [4])]
        )

    return build


def _long(size: int) -> dict[str, Build]:
    """Names of many characters, each in another place."""
    name = b"n" * size
    return {
        "node": _raw(lambda n: (b"x", b"y", n, b"Relu"), name),
        "value": _raw(lambda n: (b"x", n, b"node", b"Relu"), name),
        "input": _raw(lambda n: (n, b"y", b"node", b"Relu"), name),
        "missing-value": lambda: raw_model(
            raw_node("Relu", [name], ["y"], "node"), outputs=[raw_tensor_type("y", [4])]
        ),
        "op-type": _raw(lambda n: (b"x", b"y", b"node", n), name),
        "dimension": lambda: _dimension("n" * size)(),
        "graph": edited(lambda p: setattr(p.graph, "name", "n" * size)),
    }


def _shared_long_name() -> bytes:
    """One long value name read by a thousand nodes: messages and keys repeat it."""
    name = "n" * 10_000
    nodes = raw_node("Relu", ["x"], [name]) + b"".join(raw_node("Relu", [name], [f"{i}"]) for i in range(1_000))
    outputs = [raw_tensor_type(f"{index}", [4]) for index in range(1_000)]
    return raw_model(nodes, inputs=[raw_tensor_type("x", [4])], outputs=outputs)


def _slug(text: str) -> str:
    return text.replace(" ", "-")


_TOO_LONG: Final = "name_too_long invalid_model dynamic_dim missing_value unknown_op"

CASES: Final[tuple[Case, ...]] = (
    *(
        case(f"names-of-{_slug(name)}", _everywhere(text), accept(), f"harmless as names: {name}")
        for name, text in TEXTS.items()
    ),
    *(
        case(f"a-refusal-naming-{_slug(name)}", _failing(text), reject("missing_value"), f"in a message: {name}")
        for name, text in TEXTS.items()
    ),
    *(
        case(
            f"an-op-type-of-{_slug(name)}",
            _unknown_op(text),
            reject("unknown_op invalid_model"),
            f"in a message: {name}",
        )
        for name, text in TEXTS.items()
        if name in ("terminal escapes", "line breaks", "markup", "zero bytes", "placeholders")
    ),
    *(
        case(
            f"an-attribute-of-{_slug(name)}", _attribute(text), reject("invalid_model", "node"), f"in a message: {name}"
        )
        for name, text in TEXTS.items()
        if name in ("terminal escapes", "line breaks", "zero bytes")
    ),
    *(
        case(f"a-dimension-of-{_slug(name)}", _dimension(text), accept(), f"in a title: {name}")
        for name, text in TEXTS.items()
        if name in ("terminal escapes", "line breaks", "markup", "placeholders", "a space")
    ),
    *(
        case(
            f"node-names-that-are-{_slug(name)}-bytes",
            _raw(lambda n: (b"x", b"y", n, b"Relu"), data),
            either("invalid_model not_onnx"),
            f"no UTF-8: {name}",
        )
        for name, data in BYTES.items()
    ),
    *(
        case(
            f"value-names-that-are-{_slug(name)}-bytes",
            _raw(lambda n: (n, n + b"2", b"node", b"Relu"), data),
            either("invalid_model not_onnx"),
            f"no UTF-8: {name}",
        )
        for name, data in BYTES.items()
    ),
    case(
        "an-op-type-that-is-no-text",
        _raw(lambda n: (b"x", b"y", b"node", n), b"\xff\xfe"),
        reject("unknown_op invalid_model not_onnx"),
        "no UTF-8",
    ),
    case(
        "a-producer-that-is-no-text",
        edited(lambda p: p.MergeFromString(entry(2, b"\xff\xfe"))),
        either("invalid_model not_onnx"),
        "no UTF-8",
    ),
    case(
        "a-domain-that-is-no-text",
        edited(lambda p: p.MergeFromString(entry(8, entry(1, b"\xff\xfe") + entry(2, 1)))),
        either("invalid_model not_onnx"),
        "no UTF-8",
    ),
    case(
        "a-dimension-that-is-no-text",
        lambda: raw_model(
            raw_node("Relu", ["x"], ["y"]),
            inputs=[entry(1, "x") + entry(2, entry(1, entry(1, 1) + entry(2, entry(1, entry(2, b"\xff\xfe")))))],
            outputs=[raw_tensor_type("y", [4])],
        ),
        reject("dynamic_dim invalid_model not_onnx"),
        "no UTF-8",
    ),
    *(
        case(f"a-name-of-a-megabyte-for-the-{place}", build, either(_TOO_LONG), f"a long name: {place}")
        for place, build in _long(2**20).items()
    ),
    *(
        case(f"a-name-of-5000-characters-for-the-{place}", build, either(_TOO_LONG), f"a long name: {place}")
        for place, build in _long(5_000).items()
    ),
    case("a-long-name-used-a-thousand-times", _shared_long_name, either("name_too_long"), "names multiply"),
    case("empty-node-names", edited(lambda p: [n.ClearField("name") for n in p.graph.node]), accept(), "legal"),
)
