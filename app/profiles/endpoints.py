"""/v1/profiles."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from app.context import ContextDependency
from app.http import JSON, YAML, etag, immutable, media_type, read_bounded
from app.listing import PAGE, Cursor, Limit
from app.problems import Problem
from app.profiles import service
from app.profiles.schemas import ProfilePage, ProfileSummary
from compiler.profile import builtin_profile, profile_digest, profile_json

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])

ProfileName = Annotated[str, Path(description="Name or digest", max_length=200)]
_OBJECT = {"schema": {"type": "object", "description": "docs/schemas/profile.json"}}
_EXAMPLE = {"examples": {"edge4": {"value": json.loads(profile_json(builtin_profile("edge4")))}}}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {JSON: _OBJECT | _EXAMPLE, YAML: _OBJECT}}}


@router.post(
    "",
    operation_id="createProfile",
    status_code=201,
    response_model=ProfileSummary,
    responses={
        200: {"model": ProfileSummary},
        409: {"model": Problem},
        415: {"model": Problem},
        422: {"model": Problem},
    },
    openapi_extra=_BODY,
)
async def create_profile(request: Request, context: ContextDependency) -> Response:
    """Upload a hardware profile in JSON or YAML; 200 if it was there already."""
    media_type(request, (JSON, YAML), "a profile is uploaded in JSON or YAML")
    data = await read_bounded(request, context.settings.max_document_bytes)
    summary, new = await run_in_threadpool(service.create, context, data)
    return JSONResponse(
        summary.model_dump(mode="json", exclude_none=True),
        status_code=201 if new else 200,
        headers={"Location": f"/v1/profiles/{summary.digest}", "ETag": etag(summary.digest)},
    )


@router.get("", operation_id="listProfiles", response_model_exclude_none=True)
def list_profiles(context: ContextDependency, cursor: Cursor = None, limit: Limit = PAGE) -> ProfilePage:
    """The built-in profiles, then those of users, newest first, in pages."""
    return service.listed(context, cursor, limit)


@router.get(
    "/{profile}",
    operation_id="getProfile",
    responses={304: {"description": "Not modified"}, 404: {"model": Problem}},
    response_model=dict[str, Any],
)
def get_profile(
    request: Request,
    context: ContextDependency,
    profile: ProfileName,
) -> Response:
    """The canonical form of a profile, by name or digest."""
    found = service.get(context, profile)
    return immutable(request, profile_digest(found), profile_json(found))


@router.delete(
    "/{profile}",
    operation_id="deleteProfile",
    status_code=204,
    responses={404: {"model": Problem}, 409: {"model": Problem}},
)
def delete_profile(context: ContextDependency, profile: ProfileName) -> None:
    """Delete a user's profile, by name the latest of that name; jobs that use it continue. Built-in ones stay."""
    service.delete(context, profile)
