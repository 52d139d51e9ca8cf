"""Reading what the command line names: model files and profiles."""

from __future__ import annotations

import mmap
from pathlib import Path

from compiler.errors import ModelError, RequestError, printable
from compiler.frontend.source import ModelSource
from compiler.profile import Profile, builtin_names, builtin_profile, parse_profile


def existing_model(path: Path) -> Path:
    """The path of a model file; raises RequestError if there is none, ModelError if it is empty."""
    if not path.is_file():
        raise RequestError(
            f"there is no model file {printable(str(path))}",
            code="no_such_file",
            actual=printable(str(path)),
            hint="Give the path of an ONNX file",
        )
    if path.stat().st_size == 0:
        raise ModelError(
            f"the model file {printable(str(path))} is empty",
            code="empty_model",
            stage="import",
            actual=0,
            hint="Give an ONNX file",
        )
    return path


def open_model(path: Path) -> ModelSource:
    """A model file as a memory map, read in place."""
    with existing_model(path).open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return ModelSource.from_buffer(mapping, name=printable(path.name, 200))


def profile_text(name_or_file: str) -> bytes | None:
    """The bytes of a profile file, or None if a built-in profile is meant."""
    if name_or_file in builtin_names():
        return None
    path = Path(name_or_file)
    return path.read_bytes() if path.is_file() else None


def load_profile(name_or_file: str) -> Profile:
    """A profile by built-in name or file; raises RequestError for neither, ProfileError for a bad file."""
    text = profile_text(name_or_file)
    if text is None:
        return builtin_profile(name_or_file)
    return parse_profile(text, origin=printable(Path(name_or_file).name, 80))
