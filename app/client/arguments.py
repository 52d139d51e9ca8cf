"""Converts a caller's model, profile and options into the forms that the compiler and the service accept."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.input_files import (
    LEADS_OUT,
    files_beside,
    load_profile,
    open_model,
    packed,
    profile_text,
    uncompiled_model,
)
from compiler.errors import ModelError, ProfileError, RequestError, TesseraError, printable
from compiler.frontend.source import ModelSource
from compiler.options import Options, parse_options
from compiler.profile import Profile, parse_profile, profile_json

if TYPE_CHECKING:
    from onnx import ModelProto

    ModelInput = str | os.PathLike[str] | bytes | ModelProto
    ProfileInput = str | os.PathLike[str] | bytes | Mapping[str, object] | Profile
    OptionsInput = Mapping[str, object] | Options | None

# The name of a model that is given without a file.
_NAME = "model"


def model_source(model: ModelInput) -> ModelSource:
    """A model to compile here; raises RequestError or ModelError for an invalid one."""
    if isinstance(model, str | os.PathLike):
        return open_model(uncompiled_model(Path(model)))
    return ModelSource.from_bytes(_model_bytes(model), name=_NAME)


@contextmanager
def model_file(model: ModelInput) -> Iterator[tuple[io.BytesIO | io.BufferedReader, str]]:
    """A model as one file to upload, and its name; a model with external data is packed into an archive.

    The service checks the model itself; only external data outside of its folder is refused before the upload.
    """
    if not isinstance(model, str | os.PathLike):
        yield io.BytesIO(_model_bytes(model)), _NAME
        return
    path = uncompiled_model(Path(model))
    try:
        files = files_beside(path)
    except TesseraError as error:
        if error.code == LEADS_OUT:
            raise
        files = {}
    with ExitStack() as stack:
        if files:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            file = stack.enter_context(packed(path, files, Path(folder) / "model.zip").open("rb"))
        else:
            file = stack.enter_context(path.open("rb"))
        yield file, path.name


def _model_bytes(model: bytes | ModelProto) -> bytes:
    if isinstance(model, bytes):
        return model
    serialise = getattr(model, "SerializeToString", None)
    if serialise is None:
        raise RequestError(
            "a model is a path, the bytes of a file, or an onnx.ModelProto",
            code="invalid_request",
            actual=type(model).__name__,
            hint="Such as compile(pathlib.Path('model.onnx'), 'edge4')",
        )
    try:
        return bytes(serialise())
    except Exception as error:  # noqa: BLE001 - protobuf raises errors of its own, which depend on its implementation
        raise ModelError(
            "the ModelProto cannot be serialised",
            code="invalid_model",
            stage="import",
            actual=printable(str(error), 200),
            hint="Save a model of more than 2 GiB to a file with external data and give its path",
        ) from None


def hardware(profile: ProfileInput) -> Profile:
    """A profile to compile for here; raises RequestError for an unknown name, ProfileError for a bad profile."""
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str | os.PathLike):
        return load_profile(os.fspath(profile))
    return parse_profile(_profile_bytes(profile))


def profile_upload(profile: ProfileInput) -> bytes | None:
    """A profile as a file to upload, or None if a name or digest refers to one on the service."""
    if isinstance(profile, str | os.PathLike):
        return profile_text(os.fspath(profile))
    return _profile_bytes(profile)


def _profile_bytes(profile: bytes | Mapping[str, object] | Profile) -> bytes:
    if isinstance(profile, bytes):
        return profile
    if isinstance(profile, Profile):
        return profile_json(profile)
    try:
        return json.dumps(dict(profile)).encode()
    except (TypeError, ValueError) as error:
        raise ProfileError(
            "the profile is no mapping of plain values",
            actual=printable(str(error), 200),
            hint="Give a name, the path of a file, a mapping as in a profile file, or a tessera.Profile",
        ) from None


def chosen_options(options: OptionsInput) -> Options:
    """Options for a compilation here; raises RequestError naming the option."""
    return options if isinstance(options, Options) else parse_options(options or {})


def option_values(options: OptionsInput) -> dict[str, object]:
    """The options that were set, as a service takes them. A newer service may have other defaults."""
    if not isinstance(options, Options):
        return dict(options or {})
    default = msgspec.to_builtins(Options())
    return {name: value for name, value in msgspec.to_builtins(options).items() if value != default[name]}
