"""/v1/models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from app.context import ContextDependency
from app.http import MULTIPART, etag, immutable, media_type
from app.listing import PAGE, Cursor, Limit
from app.models import service
from app.models.schemas import Model, ModelPage
from app.problems import Problem
from app.uploads import Form, file_name, receive_form, receive_raw
from compiler.errors import RequestError, printable

router = APIRouter(prefix="/v1/models", tags=["models"])

ModelId = Annotated[str, Path(description="SHA-256 of the file, in lower-case hex", max_length=200)]
# Media types that tools use for an ONNX file, or a zip or tar of one; the worker decides by the bytes.
_RAW_TYPES = (
    "application/octet-stream",
    "application/onnx",
    "application/x-onnx",
    "application/x-protobuf",
    "application/zip",
    "application/x-zip-compressed",
    "application/x-tar",
    "application/gzip",
    "application/x-gzip",
    "application/x-gtar",
)
_HOW = "a model is uploaded as its bytes or as a form"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_RAW_CONTENT = dict.fromkeys(_RAW_TYPES, _BINARY)
_RAW_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _RAW_CONTENT}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **_RAW_CONTENT,
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": ["model"],
                    "additionalProperties": False,
                    "properties": {"model": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


@router.post(
    "",
    operation_id="uploadModel",
    status_code=201,
    response_model=Model,
    responses={200: {"model": Model}, 413: {"model": Problem}, 415: {"model": Problem}, 422: {"model": Problem}},
    openapi_extra=_BODY,
)
async def upload_model(
    request: Request,
    context: ContextDependency,
    name: Annotated[str, Query(description="A name for people, if the body is the file itself", max_length=500)] = "",
) -> Response:
    """Upload an ONNX file, or a zip or tar of one and its external data, as the body or as the part `model` of a form.

    200 if it was there already.
    """
    settings = context.settings
    kind = media_type(request, (*_RAW_TYPES, MULTIPART), _HOW)
    with context.uploads.place(context.owner):
        if kind == MULTIPART:
            form = await receive_form(
                request,
                context.models,
                settings.max_upload_bytes,
                settings.max_document_bytes,
                frozenset(["model"]),
            )
        else:
            form = await receive_raw(request, context.models, settings.max_upload_bytes, file_name(name))
        return await _keep(context, form, None)


@router.put(
    "/{model_id}",
    operation_id="putModel",
    status_code=201,
    response_model=Model,
    responses={200: {"model": Model}, 413: {"model": Problem}, 415: {"model": Problem}, 422: {"model": Problem}},
    openapi_extra=_RAW_BODY,
)
async def put_model(
    request: Request,
    context: ContextDependency,
    model_id: ModelId,
    name: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Upload an ONNX file, or a zip or tar of one, whose SHA-256 is known; refused if the bytes have another."""
    media_type(request, _RAW_TYPES, _HOW)
    with context.uploads.place(context.owner):
        form = await receive_raw(request, context.models, context.settings.max_upload_bytes, file_name(name))
        return await _keep(context, form, model_id)


@router.get("", operation_id="listModels", response_model_exclude_none=True)
def list_models(context: ContextDependency, cursor: Cursor = None, limit: Limit = PAGE) -> ModelPage:
    """The models, newest first, in pages."""
    return service.listed(context, cursor, limit)


@router.get(
    "/{model_id}",
    operation_id="getModel",
    response_model=Model,
    responses={304: {"description": "Not modified"}, 404: {"model": Problem}},
)
def get_model(request: Request, context: ContextDependency, model_id: ModelId) -> Response:
    """The record of a model."""
    model = service.get(context, model_id)
    return immutable(request, model.id, model.model_dump_json().encode())


@router.delete(
    "/{model_id}",
    operation_id="deleteModel",
    status_code=204,
    responses={404: {"model": Problem}, 409: {"model": Problem}},
)
def delete_model(context: ContextDependency, model_id: ModelId) -> None:
    """Delete a model; refused while a job that has not finished needs it."""
    service.delete(context, model_id)


async def _keep(context: ContextDependency, form: Form, expected_sha256: str | None) -> Response:
    with form:
        received = form.files.get("model")
        if received is None:
            raise RequestError(
                "the form has no file named 'model'",
                code="missing_model",
                stage="request",
                actual=", ".join(printable(name, 60) for name in form.fields) or "no parts",
            )
        if form.fields:
            unknown = printable(min(form.fields), 60)
            raise RequestError(
                f"the form has an unknown part {unknown!r}",
                code="invalid_request",
                stage="request",
                actual=unknown,
                limit="model",
            )
        model, new = await context.uploads.put(service.keep, context, received, expected_sha256)
    return JSONResponse(
        model.model_dump(mode="json"),
        status_code=201 if new else 200,
        headers={"Location": f"/v1/models/{model.id}", "ETag": etag(model.id)},
    )
