"""Reads the files that users name: models, profiles, schedules."""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compiler.errors import ModelError, RequestError, printable
from compiler.frontend.source import ModelSource
from compiler.schedule import JSON_BYTES_MAX

if TYPE_CHECKING:
    from compiler.profile import Profile

LEADS_OUT: Final = "external_data_path"
# The first bytes of every executable and package (docs/executable.md, docs/packages.md); no model has them.
EXECUTABLE_MAGIC: Final = b"\x89TSRX"
PACKAGE_MAGIC: Final = b"\x89TSRP"
EXECUTABLE: Final = "an executable"
_PACKAGE: Final = "a package"
_ARRAYS: Final = "an .npz file of tensors"
_MODEL: Final = "an ONNX model"
_PROFILE: Final = "a hardware profile"
PLAN: Final = "a plan"
PAGE: Final = "a report page"
REPORT: Final = "a report of a compilation"
_MODEL_HINT: Final = "Give the path of an ONNX file"
# The commands that take a file of this kind, for files given in the wrong place.
_TAKERS: Final = {
    EXECUTABLE: "`tessera run`, `simulate`, `listing` and `trace` take executables, here",
    _PACKAGE: "`tessera run`, `table` and `package` take packages, here; else name the ONNX file",
    _ARRAYS: "`tessera run` and `simulate` take it with --inputs",
    _MODEL: "Give it as the first argument; `tessera compile --out DIR` makes an executable of it",
    _PROFILE: "Give it with --profile",
}
# How files of each kind begin; our own JSON and YAML begin with their schema.
_BEGINNINGS: Final = (
    (re.compile(re.escape(EXECUTABLE_MAGIC)), EXECUTABLE),
    (re.compile(re.escape(PACKAGE_MAGIC)), _PACKAGE),
    (re.compile(rb"PK\x03\x04.{26}[^\0]{0,400}\.npy", re.DOTALL), _ARRAYS),
    (re.compile(rb"\x08[\x01-\x7f][\x12\x1a\x22\x28\x32\x3a\x42]"), _MODEL),
    (re.compile(rb'\s*\{\s*"schema"\s*:\s*"tessera\.plan/'), PLAN),
    (re.compile(rb'\s*\{.*"schema"\s*:\s*"tessera\.profile/|\s*schema\s*:\s*tessera\.profile/', re.DOTALL), _PROFILE),
    (re.compile(rb'\s*\{\s*"schema"\s*:\s*"tessera\.report/'), REPORT),
    (re.compile(rb'\s*\{\s*"schema"\s*:\s*"tessera\.'), "a document of Tessera, such as a sweep's table"),
    (re.compile(rb'<!doctype html>.{0,200}<meta name="generator" content="Tessera">', re.DOTALL), PAGE),
)
_BEGINNING_BYTES: Final = 2**16
_CHUNK_BYTES: Final = 2**20


def existing_file(path: Path, hint: str) -> Path:
    """The path of a readable file; raises RequestError saying why it is not."""
    where = printable(str(path), 200)
    if path.is_dir():
        raise RequestError(f"{where} is a folder, not a file", code="not_a_file", actual=where, hint=hint)
    if not path.exists():
        raise RequestError(f"there is no file {where}", code="no_such_file", actual=where, hint=hint)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise RequestError(f"the file {where} cannot be read", code="not_readable", actual=where, hint=hint)
    return path


def kind_of(path: Path) -> str | None:
    """The kind of a file by its first bytes, if commands take or write that kind; else None."""
    with path.open("rb") as file:
        head = file.read(_BEGINNING_BYTES)
    return next((kind for pattern, kind in _BEGINNINGS if pattern.match(head)), None)


def refuse_other(path: Path, wanted: str, hint: str | None = None) -> None:
    """Raises RequestError for a file of another known kind; the readers judge unknown files.

    `hint` says what the command takes in this place; without it, commands that take the file are named.
    """
    kind = kind_of(path)
    if kind not in (wanted, None):
        raise RequestError(
            f"{printable(str(path), 200)} is {kind}, not {wanted}",
            code="invalid_request",
            actual=kind,
            hint=_hint_beside_plan(path)
            if kind in (PAGE, REPORT)
            else hint or _TAKERS.get(str(kind)) or f"Give {wanted}",
        )


def _hint_beside_plan(path: Path) -> str:
    if path.with_name("plan.json").is_file():
        return f"`tessera plan` and `explain` show the folder it is in: give {printable(str(path.parent), 200)}"
    return "`tessera plan` and `explain` show the plan.json that was written with it; else give the ONNX file"


def existing_model(path: Path, hint: str = _MODEL_HINT) -> Path:
    """The path of a model file; raises RequestError if it does not exist, ModelError if it is empty."""
    existing_file(path, hint)
    if path.stat().st_size == 0:
        raise ModelError(
            f"the model file {printable(str(path))} is empty",
            code="empty_model",
            stage="import",
            actual=0,
            hint=hint,
        )
    return path


def is_compiled(path: Path) -> bool:
    """Whether a file is an executable or a package, by its first bytes; raises as `existing_model`."""
    return is_executable(path) or starts_with(path, PACKAGE_MAGIC)


def named_profile(profile: str | None) -> str:
    """The profile to compile a model for; raises RequestError if the command names none."""
    if profile is None:
        raise RequestError(
            "a model is compiled for a profile, and none is named",
            code="no_profile",
            hint="Give --profile NAME, or the path of an executable or a package",
        )
    return profile


def is_executable(path: Path) -> bool:
    """Whether a file is an executable rather than a model, by its first bytes; raises as `existing_model`."""
    return starts_with(path, EXECUTABLE_MAGIC)


def starts_with(path: Path, first: bytes) -> bool:
    """Whether these are a file's first bytes; raises as `existing_model`."""
    with existing_model(path, "Give the path of an ONNX file, or of an executable or a package of one").open(
        "rb"
    ) as file:
        return file.read(len(first)) == first


def uncompiled_model(path: Path) -> Path:
    """The path of an ONNX model file; raises RequestError for another known kind, else as `existing_model`."""
    refuse_other(existing_model(path), _MODEL)
    return path


def existing_executable(path: Path) -> Path:
    """The path of an executable; raises RequestError for any other file, else as `existing_model`."""
    if not is_executable(path):
        refuse_other(path, EXECUTABLE)
        raise RequestError(
            f"{printable(str(path), 200)} is no executable",
            code="invalid_request",
            actual=printable(str(path), 200),
            hint="`tessera compile --out DIR` writes one; `tessera run` takes a model too",
        )
    return path


def existing_arrays(path: Path) -> Path:
    """The path of an inputs file; raises RequestError if it does not exist or is a file of another known kind."""
    refuse_other(existing_file(path, "Give the path of an .npz file"), _ARRAYS)
    return path


def open_model(path: Path) -> ModelSource:
    """A model file and the files of external data beside it, as memory maps, read in place."""
    mapping = _mapped(uncompiled_model(path))
    name = printable(path.name, 200)
    files = {location: _mapped(file) for location, file in files_beside(path).items()}
    return ModelSource.from_buffer(mapping, name=name, files=files)


def files_beside(path: Path) -> dict[str, Path]:
    """The files of external data that a model names and that lie in its folder, by the location it gives.

    Locations outside of the folder, also through a link, are refused. The import reports missing files.
    """
    from compiler.frontend.read import external_paths

    found: dict[str, Path] = {}
    folder = path.parent.resolve()
    for location in external_paths(ModelSource(name=path.name, data=_mapped(path), sha256="")):
        try:
            file = (folder / location).resolve()
            is_there = file.is_file() and file.stat().st_size > 0
        except (OSError, RuntimeError):  # a name that is too long, or a link to itself
            continue
        if not file.is_relative_to(folder):
            raise ModelError(
                f"external data {printable(location, 120)!r} leads out of the model's folder",
                code=LEADS_OUT,
                stage="import",
                actual=printable(location, 120),
                limit="a file in the folder of the model",
                hint="Copy the file to where the link is",
            )
        if is_there:
            found[location] = file
    return found


def packed(path: Path, files: Mapping[str, Path], target: Path) -> Path:
    """A zip of a model and its external data, stored without compression: a single upload for a service.

    Equal files give equal bytes, whatever their times, so the service recognises a repeated upload by its digest.
    """
    name = "model.onnx"
    while name in files:
        name = f"the-{name}"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for member, file in {name: path, **files}.items():
            entry = zipfile.ZipInfo(member)
            entry.file_size = file.stat().st_size
            with file.open("rb") as source, archive.open(entry, "w") as copy:
                shutil.copyfileobj(source, copy, _CHUNK_BYTES)
    return target


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def with_schedules(settings: Iterable[str]) -> list[str]:
    """Replaces `schedule=FILE` in the settings by the text of the file (TILE-9).

    JSON given in place stays. Raises RequestError naming the file if it does not exist, exceeds the limit for
    schedules, or is not JSON.
    """
    return [
        f"schedule={_schedule_text(word.removeprefix('schedule='))}" if word.startswith("schedule=") else word
        for word in settings
    ]


def _schedule_text(value: str) -> str:
    if value.lstrip().startswith(("{", "[")) or value.strip() == "null":
        return value
    path = existing_file(Path(value), "Give the path of a plan.json, or the schedule itself as a JSON object")
    if path.stat().st_size > JSON_BYTES_MAX:
        raise RequestError(
            f"the schedule file {printable(value)} is too large",
            code="invalid_schedule",
            actual=path.stat().st_size,
            limit=JSON_BYTES_MAX,
            hint="Give a plan.json, or an object of groups, fuse and apart",
        )
    try:
        return json.dumps(json.loads(path.read_bytes(), object_pairs_hook=_each_once))
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"the schedule file {printable(value)} is not JSON",
            code="invalid_schedule",
            actual=printable(str(error)),
            hint="Give a plan.json, or an object of groups, fuse and apart",
        ) from None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; raises ValueError for a repeated field, because only one of its values would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} stands twice in one object")
    return found


def profile_text(name_or_file: str) -> bytes | None:
    """The bytes of a profile file, or None if a profile is given by name.

    Raises RequestError for a folder, a path without a file, and a file of another kind.
    """
    from compiler.profile import builtin_names

    path = Path(name_or_file)
    is_path = path.suffix in (".yaml", ".yml", ".json") or len(path.parts) > 1
    if name_or_file in builtin_names() or not (is_path or path.exists()):
        return None
    names = ", ".join(builtin_names())
    refuse_other(existing_file(path, f"Give a profile file, or the name of a built-in profile: {names}"), _PROFILE)
    return path.read_bytes()


def load_profile(name_or_file: str) -> Profile:
    """Loads a profile by built-in name or file; raises RequestError for neither, ProfileError for a bad file."""
    from compiler.profile import builtin_profile, parse_profile

    text = profile_text(name_or_file)
    if text is None:
        return builtin_profile(name_or_file)
    return parse_profile(text, origin=printable(Path(name_or_file).name, 80))
