"""Weights outside the model file: absent, out of bounds, or somewhere they must never be read from (IMPORT-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx

from tests.corpus.archives import external_model, tar_of, weights, zip_of
from tests.corpus.build import edited
from tests.corpus.case import Build, Case, accept, case, either, reject

_MISSING: Final = reject("external_data", "w")
_NOWHERE: Final = reject("external_data external_data_path")
_LEAVES: Final = reject("external_data_path external_data invalid_archive")

# Entries of external_data that do not fit a file of 1,200 bytes.
BOUNDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "a negative offset": {"offset": "-4"},
        "an offset beyond the end": {"offset": "4096"},
        "an offset at the end": {"offset": "1200", "length": "1200"},
        "an offset that leaves too little": {"offset": "8", "length": "1200"},
        "an offset of 2 to the 63": {"offset": str(2**63)},
        "an offset of 5000 digits": {"offset": "9" * 5_000},
        "an offset that is no number": {"offset": "near the end"},
        "an offset in hexadecimal": {"offset": "0x10"},
        "an offset of digits from another script": {"offset": "٤"},
        "an offset with a fraction": {"offset": "4.0"},
        "an empty offset": {"offset": ""},
        "a length shorter than the shape": {"length": "1196"},
        "a length longer than the file": {"length": "99999"},
        "a negative length": {"length": "-1200"},
        "a length that is no number": {"length": "all of it"},
        "offset and length that wrap around": {"offset": str(2**64 - 4), "length": "1200"},
    }
)

# Locations that lead out of the upload, or to what is no member of it.
LOCATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "up one folder": "../weights.bin",
        "up many folders": "../../../../../../etc/passwd",
        "down and up again": "data/../../weights.bin",
        "an absolute path": "/etc/passwd",
        "an absolute path to a device": "/dev/zero",
        "an absolute path to the process": "/proc/self/mem",
        "two slashes in front": "//etc/passwd",
        "backslashes": "..\\..\\weights.bin",
        "a drive": "C:\\Windows\\win.ini",
        "a drive with slashes": "C:/Windows/win.ini",
        "a share": "\\\\server\\share\\weights.bin",
        "an address": "https://example.com/weights.bin",
        "a file address": "file:///etc/passwd",
        "a home folder": "~/weights.bin",
        "a variable": "$HOME/weights.bin",
        "percent signs": "%2e%2e%2fweights.bin",
        "wide dots": "．．/weights.bin",
        "a zero byte": "weights.bin\0.txt",
        "a line break": "weights.bin\n/etc/passwd",
        "a pipe": "|cat /etc/passwd",
        "a folder": "folder/",
        "a dot": ".",
        "two dots": "..",
        "nothing": "",
        "the model itself and its name twice": "model.onnx/model.onnx",
        "a name of 100000 characters": "w" * 100_000,
    }
)


def _zipped(model: bytes) -> Build:
    return lambda: zip_of(("model.onnx", model), ("weights.bin", weights()))


def _tarred(model: bytes) -> Build:
    return lambda: tar_of(("model.onnx", model), ("weights.bin", weights()))


def _bounded(entries: Mapping[str, str]) -> bytes:
    proto = onnx.load_from_string(external_model())
    for key, value in entries.items():
        proto.graph.initializer[0].external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return bytes(proto.SerializeToString())


def _twice(key: str, value: str) -> Callable[[], bytes]:
    """An entry of external_data given a second time."""

    def build() -> bytes:
        proto = onnx.load_from_string(external_model(offset="0", length="1200"))
        proto.graph.initializer[0].external_data.append(onnx.StringStringEntryProto(key=key, value=value))
        return zip_of(("model.onnx", proto.SerializeToString()), ("weights.bin", weights()))

    return build


def _inside_and_outside() -> bytes:
    proto = onnx.load_from_string(external_model())
    proto.graph.initializer[0].raw_data = weights()
    return zip_of(("model.onnx", proto.SerializeToString()), ("weights.bin", weights()))


def _constant_outside(proto: onnx.ModelProto) -> None:
    """An attribute's tensor may lie outside too, and every reader forgets to look there."""
    value = onnx.TensorProto(data_type=1, dims=[4, 3, 3, 3], data_location=onnx.TensorProto.EXTERNAL)
    value.external_data.append(onnx.StringStringEntryProto(key="location", value="/etc/passwd"))
    del proto.graph.initializer[:]
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], name="constant", value=value))


def _large_and_small(count: int) -> Build:
    """A weight that claims `count` elements of a file of 1,200 bytes."""
    return _zipped(external_model(dims=(count,)))


def _slug(text: str) -> str:
    return text.replace(" ", "-")


CASES: Final[tuple[Case, ...]] = (
    case("external-data-of-a-bare-file", external_model, _MISSING, "the weights were not uploaded"),
    case(
        "external-data-without-a-location", lambda: external_model(None), _NOWHERE, "weights outside, nobody says where"
    ),
    case(
        "external-data-by-an-absolute-path-of-a-bare-file",
        lambda: external_model("/etc/passwd"),
        reject("external_data external_data_path", "w"),
        "a file of the machine read as weights",
    ),
    case(
        "external-data-of-an-attribute",
        edited(_constant_outside),
        reject("external_data external_data_path", "constant"),
        "a file of the machine read as a constant",
    ),
    case(
        "external-data-without-a-location-in-an-archive",
        _zipped(external_model(None)),
        _NOWHERE,
        "an archive, and still nobody says where",
    ),
    case(
        "external-data-missing-from-the-archive",
        lambda: zip_of(("model.onnx", external_model())),
        reject("external_data", "weights.bin"),
        "the member is not there",
    ),
    case(
        "external-data-missing-from-the-tar",
        lambda: tar_of(("model.onnx", external_model())),
        reject("external_data", "weights.bin"),
        "the member is not there",
    ),
    case(
        "external-data-of-another-letter-case",
        lambda: zip_of(("model.onnx", external_model()), ("Weights.BIN", weights())),
        reject("external_data", "weights.bin"),
        "found on some machines and not on others",
    ),
    case(
        "external-data-shorter-than-the-shape",
        lambda: zip_of(("model.onnx", external_model()), ("weights.bin", weights(299))),
        _MISSING,
        "a short file",
    ),
    case(
        "external-data-of-0-bytes",
        lambda: zip_of(("model.onnx", external_model()), ("weights.bin", b"")),
        _MISSING,
        "an empty file",
    ),
    case(
        "external-data-of-a-huge-shape", _large_and_small(2**40), reject("external_data tensor_too_large", "w"), "4 TiB"
    ),
    case(
        "external-data-of-an-overflowing-shape",
        _zipped(external_model(dims=(2**62, 4))),
        reject("external_data tensor_too_large invalid_shape", "w"),
        "a product that wraps to 0",
    ),
    case(
        "external-data-of-a-negative-shape",
        _zipped(external_model(dims=(-300, -1))),
        reject("external_data invalid_shape invalid_tensor", "w"),
        "negative extents whose product is right",
    ),
    case(
        "external-data-that-is-the-model-itself",
        _zipped(external_model("model.onnx", length="64", dims=(16,))),
        either("external_data external_data_path invalid_shape"),
        "the model's own bytes as weights",
    ),
    case(
        "external-data-inside-and-outside",
        _inside_and_outside,
        either("invalid_tensor external_data"),
        "two sets of values",
    ),
    case(
        "external-data-with-two-locations",
        _twice("location", "other.bin"),
        reject("external_data external_data_path", "w"),
        "which one holds",
    ),
    case("external-data-with-two-offsets", _twice("offset", "0"), either("external_data"), "which one holds"),
    case("external-data-with-unknown-keys", _twice("colour", "red"), either("external_data"), "a key of no version"),
    case(
        "external-data-with-offset-and-length",
        lambda: zip_of(
            ("model.onnx", external_model(offset="4096", length="1200")), ("weights.bin", bytes(4_096) + weights())
        ),
        accept(),
        "legal: a part of a file",
    ),
    case(
        "external-data-with-a-checksum",
        _zipped(external_model(offset="0", length="1200", checksum="0" * 40)),
        either("external_data"),
        "a checksum that is wrong",
    ),
    case(
        "external-data-by-a-path-with-a-dot",
        _zipped(external_model("./weights.bin")),
        either("external_data external_data_path"),
        "the same file by a longer name",
    ),
    *(
        case(f"external-data-with-{_slug(name)}", _zipped(_bounded(entries)), _MISSING, f"bounds: {name}")
        for name, entries in BOUNDS.items()
    ),
    *(
        case(f"external-data-leads-to-{_slug(name)}", _zipped(external_model(location)), _LEAVES, f"a path: {name}")
        for name, location in LOCATIONS.items()
    ),
    *(
        case(
            f"external-data-of-a-tar-leads-to-{_slug(name)}",
            _tarred(external_model(LOCATIONS[name])),
            _LEAVES,
            f"a path: {name}",
        )
        for name in ("up one folder", "an absolute path", "a drive", "backslashes")
    ),
)
