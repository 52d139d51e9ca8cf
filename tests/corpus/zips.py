"""Zip files that carry a model: legal ones, damaged ones, bombs, and members that are no plain files (IMPORT-1)."""

from __future__ import annotations

import stat
import zipfile
from typing import Final

from tests.corpus.archives import RawMember, deflated_zeros, external_model, raw_zip, weights, zip_of, zip_with_mode
from tests.corpus.build import small_file
from tests.corpus.case import Build, Case, accept, case, either, reject

_BAD: Final = reject("invalid_archive")
_BOMB: Final = reject("archive_too_large invalid_archive model_too_large external_data")
_NO_FILE: Final = reject("external_data external_data_path invalid_archive")
_OPEN: Final = either("invalid_archive external_data external_data_path")


def _pair() -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return ("model.onnx", external_model()), ("weights.bin", weights())


def _cut(archive: bytes, part: float) -> bytes:
    return archive[: int(len(archive) * part)]


def _zip_bomb(declared: int, *, inside_model: bool = False) -> Build:
    """4 GiB of zeros in 4 MiB, as the weights or as the model; the header declares the given size."""

    def build() -> bytes:
        zeros = deflated_zeros(2**32)
        if inside_model:
            return raw_zip([RawMember("model.onnx", zeros, method=8, size=declared)])
        model = RawMember("model.onnx", external_model(dims=(2**30 - 1,)))
        return raw_zip([model, RawMember("weights.bin", zeros, method=8, size=declared)])

    return build


def _overlapping() -> bytes:
    """A thousand directory entries over the same 16 MiB of zeros."""
    zeros = RawMember("weights.bin", deflated_zeros(2**24), method=8, size=2**24)
    return raw_zip([RawMember("model.onnx", external_model()), zeros], overlapping=1_000)


def _overlapping_names() -> bytes:
    """Two members of different names whose data is the same bytes of the file."""
    first, second = RawMember("model.onnx", external_model()), RawMember("weights.bin", weights())
    data = first.local() + second.local()
    shared = RawMember("other.bin", weights()).central(len(first.local()))
    directory = first.central(0) + second.central(len(first.local())) + shared
    end = raw_zip([first])[-18:]
    counts = (3).to_bytes(2, "little") * 2
    sizes = len(directory).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return data + directory + b"PK\5\6" + end[:4] + counts + sizes + b"\0\0"


def _many_members(count: int) -> Build:
    def build() -> bytes:
        out, directory = bytearray(), bytearray()
        for index in range(count):
            member = RawMember(f"{index}.txt", b"")
            directory += member.central(len(out))
            out += member.local()
        for name, data in _pair():
            member = RawMember(name, data)
            directory += member.central(len(out))
            out += member.local()
        entries = (min(count + 2, 0xFFFF)).to_bytes(2, "little") * 2
        sizes = len(directory).to_bytes(4, "little") + len(out).to_bytes(4, "little")
        return bytes(out + directory) + b"PK\5\6" + bytes(4) + entries + sizes + b"\0\0"

    return build


def _flagged(flags: int, method: int = 0) -> Build:
    return lambda: raw_zip([RawMember("model.onnx", small_file(), flags=flags, method=method)])


def _wrong_checksum() -> bytes:
    archive = bytearray(zip_of(*_pair()))
    archive[archive.index(weights()) + 8] ^= 0x40
    return bytes(archive)


def _linked(mode: int, data: bytes = b"/etc/passwd") -> Build:
    return lambda: zip_with_mode("weights.bin", data, mode, ("model.onnx", external_model()))


def _zip_name(name: str) -> Build:
    return lambda: zip_of((name, b"root::0:0::/:/bin/sh\n"), *_pair())


def _two(*names: str) -> Build:
    return lambda: raw_zip([RawMember(name, small_file()) for name in names])


CASES: Final[tuple[Case, ...]] = (
    case("a-zip-of-a-model", lambda: zip_of(("model.onnx", small_file())), accept(), "legal"),
    case("a-zip-with-external-data", lambda: zip_of(*_pair()), accept(), "legal"),
    case(
        "a-compressed-zip-with-external-data",
        lambda: zip_of(*_pair(), compression=zipfile.ZIP_DEFLATED),
        accept(),
        "legal",
    ),
    case(
        "a-zip-with-a-comment",
        lambda: zip_of(*_pair(), comment=b"PK\5\6" * 100),
        either("invalid_archive"),
        "a comment that looks like the end of the directory",
    ),
    case(
        "a-zip-whose-model-lies-in-a-folder",
        lambda: zip_of(("export/model.onnx", external_model()), ("export/weights.bin", weights())),
        accept(),
        "legal: locations count from the model's folder",
    ),
    case(
        "a-zip-with-folders-and-notes",
        lambda: zip_of(("data/", b""), ("README.md", b"notes"), *_pair()),
        accept(),
        "legal",
    ),
    case(
        "a-zip-with-a-desktop's-shadow-files",
        lambda: zip_of(*_pair(), ("__MACOSX/._model.onnx", b"\0\5\x16\7")),
        accept(),
        "legal: a second name that ends like a model's",
    ),
    case("a-zip-in-bzip2", lambda: zip_of(*_pair(), compression=zipfile.ZIP_BZIP2), _OPEN, "a method few tools write"),
    case("a-zip-in-lzma", lambda: zip_of(*_pair(), compression=zipfile.ZIP_LZMA), _OPEN, "a method few tools write"),
    case(
        "a-zip-behind-a-program",
        lambda: b"MZ" + bytes(500) + zip_of(*_pair()),
        either("invalid_archive not_onnx"),
        "a self-extracting archive",
    ),
    case("a-zip-of-nothing", lambda: b"PK\5\6" + bytes(18), _BAD, "a directory without entries"),
    case(
        "a-zip-without-a-model",
        lambda: zip_of(("notes.txt", b"no model here")),
        _BAD,
        "a document, a wheel, a checkpoint",
    ),
    case("a-zip-of-two-models", _two("a.onnx", "b.onnx"), _BAD, "which one is meant"),
    case("a-zip-of-one-name-twice", _two("model.onnx", "model.onnx"), _BAD, "which one holds"),
    case(
        "a-zip-of-weights-twice",
        lambda: raw_zip([RawMember(n, d) for n, d in (*_pair(), _pair()[1])]),
        reject("invalid_archive external_data"),
        "which one holds",
    ),
    case("a-zip-of-names-equal-but-for-a-dot", _two("model.onnx", "./model.onnx"), _BAD, "one file by two names"),
    case("a-zip-in-a-zip", lambda: zip_of(("inner.zip", zip_of(*_pair()))), _BAD, "a nested archive"),
    case(
        "a-zip-named-like-a-model-in-a-zip",
        lambda: zip_of(("model.onnx", zip_of(*_pair()))),
        reject("invalid_archive not_onnx"),
        "a nested archive in disguise",
    ),
    case(
        "a-zip-of-a-model-of-0-bytes",
        lambda: zip_of(("model.onnx", b"")),
        reject("empty_model not_onnx invalid_archive"),
        "an empty member",
    ),
    case(
        "a-zip-of-a-web-page",
        lambda: zip_of(("model.onnx", b"<html>Not Found</html>")),
        reject("not_onnx empty_graph invalid_model"),
        "a member that is no model",
    ),
    case("a-zip-cut-in-half", lambda: _cut(zip_of(*_pair()), 0.5), _BAD, "an upload that broke off"),
    case("a-zip-cut-in-its-directory", lambda: zip_of(*_pair())[:-30], _BAD, "no end of the directory"),
    case("a-zip-cut-to-its-first-bytes", lambda: zip_of(*_pair())[:4], _BAD, "a signature and nothing else"),
    case(
        "a-zip-whose-offsets-are-wrong",
        lambda: raw_zip([RawMember("model.onnx", small_file())], offset_shift=2**20),
        _BAD,
        "a member beyond the end of the file",
    ),
    case(
        "a-zip-whose-offsets-lead-elsewhere",
        lambda: raw_zip([RawMember("model.onnx", small_file())], offset_shift=40),
        _BAD,
        "a member that begins in the middle of another",
    ),
    case(
        "a-zip-whose-count-lies",
        lambda: raw_zip([RawMember("model.onnx", small_file())], count=60_000),
        either("invalid_archive"),
        "more entries declared than there are",
    ),
    case(
        "a-zip-whose-checksum-is-wrong",
        _wrong_checksum,
        either("invalid_archive external_data"),
        "damage to the weights",
    ),
    case(
        "a-zip-whose-size-lies",
        lambda: raw_zip([RawMember("model.onnx", small_file(), size=10**9)]),
        _BAD,
        "a stored member that declares another size",
    ),
    case("an-encrypted-zip", _flagged(1), _BAD, "a password"),
    case("a-zip-of-a-method-that-nobody-knows", _flagged(0, 99), _BAD, "compression method 99"),
    case(
        "a-zip-of-a-broken-stream",
        lambda: raw_zip([RawMember("model.onnx", b"\xff" * 99, method=8, size=900)]),
        _BAD,
        "a stream that does not inflate",
    ),
    case("a-zip-bomb", _zip_bomb(2**32 - 1), _BOMB, "4 GiB of zeros in 4 MiB, as weights"),
    case("a-zip-bomb-that-declares-little", _zip_bomb(1_200), _BOMB, "4 GiB of zeros declared as 1,200 bytes"),
    case("a-zip-bomb-as-the-model", _zip_bomb(2**32 - 1, inside_model=True), _BOMB, "4 GiB of zeros as the model"),
    case(
        "a-zip-bomb-as-the-model-that-declares-little",
        _zip_bomb(1_000, inside_model=True),
        reject("archive_too_large invalid_archive not_onnx"),
        "a model of 1,000 bytes that inflates without end",
    ),
    case("a-zip-whose-members-overlap", _overlapping, _BOMB, "a thousand entries over one member"),
    case(
        "a-zip-whose-members-share-bytes",
        _overlapping_names,
        either("invalid_archive external_data"),
        "two entries, one data",
    ),
    case(
        "a-zip-of-60000-members",
        _many_members(60_000),
        either("archive_too_large invalid_archive"),
        "a large directory",
    ),
    case(
        "a-zip-whose-weights-are-a-link",
        _linked(stat.S_IFLNK | 0o777),
        _NO_FILE,
        "a symbolic link to a file of the machine",
    ),
    case("a-zip-whose-weights-are-a-device", _linked(stat.S_IFCHR | 0o666, b""), _NO_FILE, "a device by its mode"),
    case("a-zip-whose-weights-are-a-pipe", _linked(stat.S_IFIFO | 0o666, b""), _NO_FILE, "a pipe by its mode"),
    case(
        "a-zip-whose-model-is-a-link",
        lambda: zip_with_mode("model.onnx", b"/etc/passwd", stat.S_IFLNK | 0o777),
        reject("invalid_archive not_onnx external_data_path"),
        "a model that is elsewhere",
    ),
    case("a-zip-that-climbs", _zip_name("../../etc/cron.d/job"), _OPEN, "a member that wants to be written elsewhere"),
    case(
        "a-zip-of-an-absolute-path", _zip_name("/etc/cron.d/job"), _OPEN, "a member that wants to be written elsewhere"
    ),
    case("a-zip-of-a-path-of-another-system", _zip_name("..\\..\\job.bat"), _OPEN, "backslashes"),
    case(
        "a-zip-whose-model-climbs",
        lambda: zip_of(("../model.onnx", small_file())),
        _OPEN,
        "the model outside the archive",
    ),
    case(
        "a-zip-of-names-that-control-terminals", _zip_name("\x1b[2Jjob\n.txt"), _OPEN, "escape codes in a member's name"
    ),
    case(
        "a-zip-without-a-model-but-with-an-evil-name",
        lambda: zip_of(("\x1b[31m\n<script>.txt", b"")),
        reject("invalid_archive external_data_path"),
        "a name that a message might repeat",
    ),
)
