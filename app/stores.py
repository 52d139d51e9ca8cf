"""Opens the two stores of the service, in a directory or in a bucket, as the settings say."""

from __future__ import annotations

import configparser
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.private_files import private_file, private_folder
from app.settings import Settings
from app.store import DOCUMENTS, MODELS, NO_HOOKS, BlobStore, StoreHooks, document_store, model_store, sync_folder

if TYPE_CHECKING:
    from obstore.store import S3Config
    from obstore.store import S3Store as Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Uploaded models; profiles, documents, executables and tensors."""

    models: BlobStore
    documents: BlobStore


def open_stores(
    settings: Settings, models: StoreHooks = NO_HOOKS, documents: StoreHooks = NO_HOOKS, *, patient: bool = True
) -> Stores:
    """The stores of these settings; nothing is sent before the first use. Callers that wait want no patience."""
    if settings.store_url is None:
        root = settings.store_dir
        return Stores(models=model_store(root, models), documents=document_store(root, documents))
    from app.s3_store import S3Store  # slow to import, and not needed with a directory

    uploads = _bucket(settings, settings.store_patience_s)
    bucket = uploads if patient else _bucket(settings, settings.store_answer_s)

    def opened(folder: str, hooks: StoreHooks) -> S3Store:
        return S3Store(
            bucket,
            folder,
            settings.copies_dir / folder,
            hooks,
            limit_bytes=settings.store_copies_bytes,
            uploads=uploads,
            pause_s=0.0 if patient else settings.store_answer_s,
        )

    return Stores(models=opened(MODELS, models), documents=opened(DOCUMENTS, documents))


def store_id(settings: Settings) -> str:
    """The id of the store, the same for all that share it; made at the first call.

    Raises OSError, or StoreUnavailableError if a bucket does not answer.
    """
    fresh = secrets.token_hex(16)
    if settings.store_url is None:
        path = settings.store_dir / "id"
        private_folder(path.parent)
        with suppress(FileExistsError):
            new = path.with_name(f"id-{fresh}")
            with private_file(new, "x") as file:
                file.write(fresh.encode())
                os.fsync(file.fileno())
            try:
                os.link(new, path)  # the whole id or none
            finally:
                new.unlink()
            sync_folder(path.parent)
        return path.read_text()
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    from app.s3_store import unavailable

    bucket = _bucket(settings, settings.store_patience_s)
    try:
        with suppress(AlreadyExistsError, PreconditionError):
            obstore.put(bucket, "id", fresh.encode(), mode="create")
        return bytes(obstore.get(bucket, "id").bytes()).decode()
    except BaseError as error:
        raise unavailable(type(error).__name__) from error


def _bucket(settings: Settings, answer_s: float) -> Bucket:
    from app.s3_store import open_bucket

    assert settings.store_url is not None
    config: S3Config = {"virtual_hosted_style_request": not settings.store_path_style, **_keys_of_file()}
    if settings.store_region is not None:
        config["region"] = settings.store_region
    if settings.store_endpoint is not None:
        config["endpoint"] = settings.store_endpoint
    endpoint = settings.store_endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return open_bucket(settings.store_url, config, answer_s=answer_s, allow_http=(endpoint or "").startswith("http://"))


def _keys_of_file() -> S3Config:
    """The keys of AWS_SHARED_CREDENTIALS_FILE, or of its usual place, unless the environment has keys."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return {}
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(Path.home() / ".aws" / "credentials")
    parser = configparser.RawConfigParser()
    parser.read(path)
    profile = os.environ.get("AWS_PROFILE", "default")
    found = dict(parser.items(profile)) if parser.has_section(profile) else {}
    names = {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    }
    keys: S3Config = {}
    for ours, theirs in names.items():
        if theirs in found:
            keys[ours] = found[theirs]  # type: ignore[literal-required]
    return keys


if __name__ == "__main__":
    print(store_id(Settings()))
