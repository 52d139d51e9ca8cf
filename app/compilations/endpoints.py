"""/v1/compilations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.compilations import service
from app.compilations.schemas import CompilationRequest
from app.compilations.service import Wanted
from app.context import Context, ContextDependency
from app.http import JSON, MULTIPART, json_object, media_type, read_bounded, request_from
from app.jobs import accept_jobs
from app.jobs.schemas import Job
from app.models import service as models
from app.problems import Problem, request_id_of
from app.profiles import service as profiles
from app.uploads import Form, receive_form
from compiler.errors import RequestError, printable
from compiler.profile import Profile, parse_profile

router = APIRouter(prefix="/v1/compilations", tags=["compilations"])

_PARTS = {
    "model": {"type": "string", "description": "The ONNX file, or a zip or tar of one, or the id of an uploaded model"},
    "profile": {"type": "string", "description": "A profile file (JSON or YAML), or a name or digest"},
    "options": {"type": "object", "description": "As JSON"},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": CompilationRequest.model_json_schema()},
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["model", "profile"],
                    "properties": _PARTS,
                },
                "encoding": {"options": {"contentType": JSON}},
            },
        },
    }
}


@router.post(
    "",
    operation_id="createCompilation",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Job, "description": "The outcome is known"},
        400: {"model": Problem},
        413: {"model": Problem},
        415: {"model": Problem},
        422: {"model": Problem},
    },
    openapi_extra=_BODY,
)
async def create_compilation(
    request: Request,
    context: ContextDependency,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Compile a model for a profile, both given by reference (JSON) or uploaded with the request (form)."""
    if media_type(request, (JSON, MULTIPART), "a compilation is asked for in JSON or as a form") == MULTIPART:
        wanted = await _from_form(request, context)
    else:
        wanted = await _from_json(request, context)
    accepted = await run_in_threadpool(
        service.submit,
        context,
        wanted,
        idempotency_key=idempotency_key,
        request_id=request_id_of(request),
    )
    return await accept_jobs.answer(request, context, accepted)


async def _from_json(request: Request, context: Context) -> Wanted:
    values = json_object(await read_bounded(request, context.settings.max_document_bytes), "the body")
    body = request_from(values, CompilationRequest)

    def resolve() -> Wanted:
        if models.find(context, body.model) is None:
            raise service.unknown_model(body.model)
        return Wanted(
            model=body.model,
            profile=profiles.resolve(context, body.profile),
            options=service.checked_options(context, body.options),
        )

    return await run_in_threadpool(resolve)


async def _from_form(request: Request, context: Context) -> Wanted:
    settings = context.settings
    with context.uploads.place(context.owner):
        form = await receive_form(
            request, context.models, settings.max_upload_bytes, settings.max_document_bytes, frozenset(["model"])
        )
        with form:
            return await context.uploads.put(_resolve_form, context, form)


def _resolve_form(context: Context, form: Form) -> Wanted:
    unknown = sorted((form.fields.keys() | form.files.keys()) - _PARTS.keys())
    missing = sorted({"model", "profile"} - form.fields.keys() - form.files.keys())
    if unknown or missing:
        raise RequestError(
            f"the form has {'an unknown part' if unknown else 'no part'} {(unknown or missing)[0]!r}",
            code="invalid_request",
            stage="request",
            actual=printable((unknown or missing)[0], 60),
            limit="model, profile, options",
        )
    # All small parts are checked first: a request with a bad option stores no model.
    options = service.checked_options(context, json_object(form.fields.get("options", b"{}"), "the part 'options'"))
    profile = _form_profile(context, form.fields["profile"])
    if "model" in form.files:
        model, _ = models.keep(context, form.files["model"])
        return Wanted(model=model.id, profile=profile, options=options)
    reference = form.fields["model"].decode("utf-8", "replace").strip()
    if models.find(context, reference) is None:
        raise service.unknown_model(reference)
    return Wanted(model=reference, profile=profile, options=options)


def _form_profile(context: Context, part: bytes) -> Profile:
    """A profile's text holds at least one `:`; a name or digest is one word without any."""
    text = part.decode("utf-8", "replace").strip()
    if text and ":" not in text and len(text.split()) == 1:
        return profiles.resolve(context, text)
    profile = parse_profile(part)
    profiles.create(context, part)
    return profile
