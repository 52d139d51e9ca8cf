"""Tar files that carry a model: legal ones, damaged ones, and members that are no plain files (IMPORT-1)."""

from __future__ import annotations

import gzip
import tarfile
from typing import Final

from tests.corpus.archives import external_model, tar_edited, tar_entry, tar_of, tar_with, weights, zip_of
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


def _tar_kind(kind: bytes, target: str = "", data: bytes = b"") -> Build:
    """A tar whose weights are something else than a file."""
    model = external_model()
    return lambda: tar_with([(tarfile.TarInfo("model.onnx"), model), (tar_entry("weights.bin", kind, target), data)])


def _tar_size(size: bytes) -> Build:
    """A tar whose first header declares another size; 12 bytes, octal or base 256."""

    def change(header: bytearray) -> None:
        header[124:136] = size

    return lambda: tar_edited(tar_of(*_pair()), 0, change)


def _tar_sparse() -> bytes:
    """A GNU sparse file that claims 8 TiB and holds nothing."""
    data = tar_with([(tar_entry("weights.bin", b"S"), b""), (tarfile.TarInfo("model.onnx"), external_model())])

    def change(header: bytearray) -> None:
        header[345:386] = b"\0" * 41
        header[386:410] = b"%011o\0%011o\0" % (0, 512)
        header[483:495] = b"\x80" + (2**43).to_bytes(11, "big")

    return tar_edited(data, 0, change)


def _tar_pax(**headers: str) -> Build:
    """A tar whose weights carry extended headers."""
    entry = tar_entry("weights.bin", tarfile.REGTYPE, pax_headers=headers)
    members = [(tarfile.TarInfo("model.onnx"), external_model()), (entry, weights())]
    return lambda: tar_with(members, kind=tarfile.PAX_FORMAT)


def _tar_name(name: str) -> Build:
    """A tar with a further member that wants to be written elsewhere."""
    return lambda: tar_of((name, b"root::0:0::/:/bin/sh\n"), *_pair(), kind=tarfile.GNU_FORMAT)


CASES: Final[tuple[Case, ...]] = (
    case("a-tar-of-a-model", lambda: tar_of(("model.onnx", small_file())), accept(), "legal"),
    case("a-tar-with-external-data", lambda: tar_of(*_pair()), accept(), "legal"),
    case("a-gnu-tar-with-external-data", lambda: tar_of(*_pair(), kind=tarfile.GNU_FORMAT), accept(), "legal"),
    case("a-pax-tar-with-external-data", _tar_pax(comment="äöü"), accept(), "legal"),
    case(
        "a-tar-with-a-long-name",
        lambda: tar_of((f"{'d' * 90}/{'e' * 90}/n.txt", b""), *_pair(), kind=tarfile.GNU_FORMAT),
        accept(),
        "legal: a name of two blocks",
    ),
    case(
        "a-tar-in-gzip", lambda: gzip.compress(tar_of(*_pair()), mtime=0), either("invalid_archive not_onnx"), "tar.gz"
    ),
    case("a-tar-of-nothing", lambda: bytes(10_240), reject("invalid_archive not_onnx"), "end marks only"),
    case("a-tar-without-a-model", lambda: tar_of(("notes.txt", b"no model")), _BAD, "no member ends in .onnx"),
    case(
        "a-tar-of-two-models",
        lambda: tar_of(("a.onnx", small_file()), ("b.onnx", small_file())),
        _BAD,
        "which one is meant",
    ),
    case(
        "a-tar-of-one-name-twice",
        lambda: tar_of(*_pair(), _pair()[1]),
        reject("invalid_archive external_data"),
        "which one",
    ),
    case("a-tar-in-a-zip", lambda: zip_of(("model.tar", tar_of(*_pair()))), _BAD, "a nested archive"),
    case(
        "a-tar-cut-in-half",
        lambda: _cut(tar_of(*_pair()).rstrip(b"\0"), 0.5),
        reject("invalid_archive external_data not_onnx"),
        "an upload that broke off",
    ),
    case(
        "a-tar-cut-in-its-weights",
        lambda: tar_of(*_pair())[: 512 + 512 + 512 + 600],
        reject("invalid_archive external_data"),
        "a member that ends early",
    ),
    case(
        "a-tar-whose-checksum-is-wrong",
        lambda: tar_of(*_pair())[:148] + b"000000\0 " + tar_of(*_pair())[156:],
        reject("invalid_archive not_onnx"),
        "a damaged header",
    ),
    case(
        "a-tar-of-an-absurd-size",
        _tar_size(b"\x80" + (2**62).to_bytes(11, "big")),
        reject("invalid_archive archive_too_large"),
        "2^62 bytes declared",
    ),
    case(
        "a-tar-of-an-absurd-octal-size",
        _tar_size(b"77777777777\0"),
        reject("invalid_archive archive_too_large"),
        "8 GiB",
    ),
    case(
        "a-tar-of-a-negative-size",
        _tar_size(b"\xff" * 12),
        reject("invalid_archive archive_too_large not_onnx"),
        "-1 bytes: a reader that goes backwards never ends",
    ),
    case(
        "a-tar-of-a-size-that-is-no-number", _tar_size(b"not a number"), reject("invalid_archive not_onnx"), "letters"
    ),
    case(
        "a-sparse-tar",
        _tar_sparse,
        reject("invalid_archive archive_too_large external_data external_data_path"),
        "8 TiB of holes",
    ),
    case(
        "a-tar-of-a-size-in-an-extended-header",
        _tar_pax(size=str(2**60)),
        reject("invalid_archive archive_too_large external_data"),
        "2^60 bytes declared on the side",
    ),
    case(
        "a-tar-of-a-negative-size-in-an-extended-header",
        _tar_pax(size="-512"),
        reject("invalid_archive archive_too_large external_data"),
        "a reader that goes backwards never ends",
    ),
    case(
        "a-tar-of-a-path-in-an-extended-header",
        _tar_pax(path="../../etc/passwd"),
        reject("invalid_archive external_data external_data_path"),
        "another name on the side",
    ),
    case(
        "a-tar-of-a-large-extended-header",
        _tar_pax(comment="x" * 20_000_000),
        either("invalid_archive archive_too_large"),
        "20 MB of remarks",
    ),
    case("a-tar-whose-weights-are-a-link", _tar_kind(tarfile.SYMTYPE, "/etc/passwd"), _NO_FILE, "a symbolic link out"),
    case(
        "a-tar-whose-weights-are-a-link-inside",
        _tar_kind(tarfile.SYMTYPE, "model.onnx"),
        _NO_FILE,
        "a symbolic link inside",
    ),
    case("a-tar-whose-weights-are-a-link-to-themselves", _tar_kind(tarfile.SYMTYPE, "weights.bin"), _NO_FILE, "a loop"),
    case("a-tar-whose-weights-are-a-hard-link", _tar_kind(tarfile.LNKTYPE, "/etc/passwd"), _NO_FILE, "a hard link out"),
    case(
        "a-tar-whose-weights-are-a-hard-link-inside",
        _tar_kind(tarfile.LNKTYPE, "model.onnx"),
        _NO_FILE,
        "a hard link inside",
    ),
    case("a-tar-whose-weights-are-a-device", _tar_kind(tarfile.CHRTYPE), _NO_FILE, "a device"),
    case("a-tar-whose-weights-are-a-disk", _tar_kind(tarfile.BLKTYPE), _NO_FILE, "a block device"),
    case("a-tar-whose-weights-are-a-pipe", _tar_kind(tarfile.FIFOTYPE), _NO_FILE, "a reader that waits for ever"),
    case("a-tar-whose-weights-are-a-folder", _tar_kind(tarfile.DIRTYPE), _NO_FILE, "a folder"),
    case("a-tar-that-climbs", _tar_name("../../etc/cron.d/job"), _OPEN, "a member that wants to be written elsewhere"),
    case(
        "a-tar-of-an-absolute-path", _tar_name("/etc/cron.d/job"), _OPEN, "a member that wants to be written elsewhere"
    ),
)
