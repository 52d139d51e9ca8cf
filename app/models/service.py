"""Operations on models. The file is never parsed here; the worker does that (API-3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import cast

from app.context import Context
from app.errors import ConflictError, NotFoundError
from app.jobs.records import owned
from app.keys.use import too_many_bytes, too_many_items
from app.listing import page
from app.models.schemas import Model, ModelPage
from app.store import is_digest
from app.uploads import ReceivedFile
from compiler.errors import ModelError, RequestError, printable

DEFAULT_NAME = "model.onnx"


def keep(context: Context, received: ReceivedFile, expected_sha256: str | None = None) -> tuple[Model, bool]:
    """Move a received file into the store and make it known; True if it is new.

    Raises ModelError for an empty file, RequestError if the digest is not the expected one, QuotaError if the owner has
    no room for it.
    """
    writer = received.writer
    if writer.size_bytes == 0:
        raise ModelError(
            "the uploaded model is empty",
            code="empty_model",
            stage="upload",
            actual=0,
            hint="Send the bytes of an ONNX file, or of a zip or tar of one",
        )
    digest = writer.sha256
    if expected_sha256 is not None and digest != expected_sha256:
        raise RequestError(
            "the uploaded bytes do not have the SHA-256 that the URL names",
            code="digest_mismatch",
            stage="upload",
            actual=digest,
            limit=expected_sha256,
        )
    for _ in range(200):
        answer, then = context.records.pin_model(
            digest,
            owner=context.owner.name,
            size_bytes=writer.size_bytes,
            limits=context.owner.limits,
            pin_s=context.settings.upload_pin_s,
        )
        if answer == "full":
            raise too_many_bytes(context.owner, then)
        if answer == "crowded":
            raise too_many_items(context.owner, then)
        if answer == "pinned":
            break
        time.sleep(0.05)  # its deletion is in progress, which takes as long as removing a file
    else:
        raise ConflictError("this model is being deleted", code="model_in_use", actual=digest)
    writer.commit()
    new = context.records.register_model(
        digest, received.filename or DEFAULT_NAME, writer.size_bytes, owner=context.owner.name
    )
    return get(context, digest), new


def get(context: Context, digest: str) -> Model:
    """A model by its id; raises NotFoundError."""
    fields = find(context, digest)
    if fields is None:
        raise NotFoundError(
            f"there is no model {printable(digest, 80)}",
            code="unknown_model",
            actual=printable(digest, 80),
            hint="A model's id is the SHA-256 of its file; list them with GET /v1/models",
        )
    return _model(digest, fields)


def find(context: Context, digest: str) -> dict[str, str] | None:
    """The owner's record of a model, or None; one whose file was lost is unknown, so that it is uploaded again."""
    if not is_digest(digest):
        return None
    fields = cast(dict[str, str], context.broker.hgetall(_record(context, digest)))
    # the file is looked at last: how long that takes would say that another owner has it
    return fields if fields and context.models.holds(digest) else None


def listed(context: Context, cursor: str | None, limit: int) -> ModelPage:
    """A page of the models."""
    rows, following = page(context.broker, owned(context.owner.name, "models"), cursor, limit)
    pipeline = context.broker.pipeline(transaction=False)
    for digest, _ in rows:
        pipeline.hgetall(_record(context, digest))
    records = pipeline.execute()
    items = [_model(digest, fields) for (digest, _), fields in zip(rows, records, strict=True) if fields]
    return ModelPage(items=items, next_cursor=following)


def delete(context: Context, digest: str) -> None:
    """Forgets a model, and removes its file with the last owner's; raises NotFoundError, or ConflictError while a job
    needs it."""
    get(context, digest)
    answer = context.records.delete_model(digest, owner=context.owner.name)
    if answer == "in_use":
        raise ConflictError(
            "the model is needed by a job that has not finished",
            code="model_in_use",
            actual=digest,
            hint="Cancel its jobs or wait for them",
        )
    if answer == "deleted":
        context.models.delete(digest)
        context.records.removed_blobs([digest])


def _record(context: Context, digest: str) -> str:
    return owned(context.owner.name, f"model:{digest}")


def _model(digest: str, fields: dict[str, str]) -> Model:
    return Model(
        id=digest,
        name=fields["name"],
        size_bytes=int(fields["size_bytes"]),
        created_at=datetime.fromtimestamp(int(fields["created_ms"]) / 1000, UTC),
    )
