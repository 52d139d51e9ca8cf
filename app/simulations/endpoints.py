"""/v1/simulations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from app.context import Context, ContextDependency
from app.http import JSON, MULTIPART, json_object, media_type, read_bounded
from app.jobs import accept_jobs
from app.jobs.schemas import Job
from app.problems import Problem, request_id_of
from app.simulations import service
from app.simulations.inputs import DEFAULT_SEED
from app.simulations.schemas import SimulationRequest
from app.simulations.service import Target, Wanted
from app.uploads import Form, ReceivedFile, receive_form
from compiler.errors import RequestError, printable

router = APIRouter(prefix="/v1/simulations", tags=["simulations"])

_FILES = frozenset(("executable", "inputs"))
_PARTS = {
    "executable": {
        "type": "string",
        "format": "binary",
        "description": "An executable file (docs/executable.md); either this or `job`",
    },
    "job": {"type": "string", "description": "Id of a compilation that succeeded; either this or `executable`"},
    "inputs": {
        "type": "string",
        "format": "binary",
        "description": "An .npz file whose keys are the names of the model's inputs; without it they are made up",
    },
    "seed": {
        "type": "string",
        "pattern": "^[0-9]{1,19}$",
        "description": f"Of the inputs that are made up [{DEFAULT_SEED}]; not together with `inputs`",
    },
    "options": {"type": "object", "description": "time_limit_s and memory_limit_bytes, as JSON"},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": SimulationRequest.model_json_schema()},
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": _PARTS,
                },
                "encoding": {"options": {"contentType": JSON}},
            },
        },
    }
}


@router.post(
    "",
    operation_id="createSimulation",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Job, "description": "The outcome is known"},
        400: {"model": Problem},
        404: {"model": Problem},
        409: {"model": Problem},
        413: {"model": Problem},
        415: {"model": Problem},
        422: {"model": Problem},
    },
    openapi_extra=_BODY,
)
async def create_simulation(
    request: Request,
    context: ContextDependency,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Run an executable, uploaded or of a compilation, on given inputs or on inputs generated from a seed."""
    kind = media_type(request, (JSON, MULTIPART), "a simulation is asked for in JSON or as a form")
    wanted = await (_from_form if kind == MULTIPART else _from_json)(request, context)
    accepted = await run_in_threadpool(
        service.submit, context, wanted, idempotency_key=idempotency_key, request_id=request_id_of(request)
    )
    return await accept_jobs.answer(request, context, accepted)


async def _from_json(request: Request, context: Context) -> Wanted:
    values = json_object(await read_bounded(request, context.settings.max_document_bytes), "the body")
    try:
        body = SimulationRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise _invalid(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}", hint="The body is {job, seed, options}"
        ) from None
    return await run_in_threadpool(_resolved, context, body)


def _resolved(context: Context, body: SimulationRequest) -> Wanted:
    time_limit_s, memory_limit_bytes = service.bounds(context, body.options)
    return Wanted(
        target=service.of_job(context, body.job),
        seed=body.seed,
        inputs=None,
        time_limit_s=time_limit_s,
        memory_limit_bytes=memory_limit_bytes,
    )


async def _from_form(request: Request, context: Context) -> Wanted:
    settings = context.settings
    with context.uploads.place(context.owner):
        form = await receive_form(
            request, context.store, settings.max_upload_bytes, settings.max_document_bytes, _FILES
        )
        with form:
            return await context.uploads.put(_resolve_form, context, form)


def _resolve_form(context: Context, form: Form) -> Wanted:
    """Small parts and the owner's room are checked first: a refused request leaves no file behind."""
    given = form.fields.keys() | form.files.keys()
    unknown = sorted(given - _PARTS.keys())
    if unknown:
        raise _invalid(f"the form has an unknown part {printable(unknown[0], 60)!r}", actual=printable(unknown[0], 60))
    for name in sorted(_FILES & form.fields.keys()):
        raise _invalid(f"the part {name!r} is no file", hint="Send it with a file name")
    if len(given & {"executable", "job"}) != 1:
        raise _invalid("the form has both an executable and a job, or neither", limit="one of executable, job")
    if {"inputs", "seed"} <= given:
        raise _invalid("the form has both inputs and a seed", limit="one of inputs, seed")
    seed = _seed(form.fields["seed"]) if "seed" in form.fields else DEFAULT_SEED
    time_limit_s, memory_limit_bytes = service.bounds(
        context, json_object(form.fields.get("options", b"{}"), "the part 'options'")
    )
    service.check_room(context, sum(file.writer.size_bytes for file in form.files.values()))
    if "job" in form.fields:
        target = service.of_job(context, form.fields["job"].decode("utf-8", "replace").strip())
    else:
        file = form.files["executable"]
        target = Target(executable=_kept(file, "executable"), name=file.filename or "executable")
    return Wanted(
        target=target,
        seed=seed,
        inputs=_kept(form.files["inputs"], "inputs") if "inputs" in form.files else None,
        time_limit_s=time_limit_s,
        memory_limit_bytes=memory_limit_bytes,
    )


def _kept(file: ReceivedFile, part: str) -> str:
    if file.writer.size_bytes == 0:
        raise _invalid(f"the file of the part {part!r} is empty", actual=0)
    return file.writer.commit()


def _seed(part: bytes) -> int:
    text = part.decode("utf-8", "replace").strip()
    if not text.isdecimal() or not text.isascii() or len(text) > 19 or int(text) >= 2**63:
        raise _invalid("the seed is no number", actual=printable(text, 40), limit="0 to 2^63 - 1")
    return int(text)


def _invalid(
    message: str, *, actual: object | None = None, limit: object | None = None, hint: str | None = None
) -> RequestError:
    return RequestError(message, code="invalid_request", stage="request", actual=actual, limit=limit, hint=hint)
