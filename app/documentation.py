"""The description of the API (OpenAPI) beyond what FastAPI makes of the endpoints, and the page that shows it at /docs.

An endpoint declares the statuses of its own; those that any request can get, the shape of errors, headers and the
schemas of documents are added here, each defined once under `components`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse

from app.comparisons.compare import ComparisonDocument
from app.jobs.schemas import JobEvent
from app.problems import MEDIA_TYPE, Problem
from app.simulations.report import SimulationReport
from app.sweeps.report import SweepReport
from app.tables.document import TablesDocument
from compiler.profile import Profile
from compiler.report.plan import Plan, Report

_FILES: Final = "/static-offline-docs"  # where fastapi_offline mounts them

# Every error of the API, by its status: the name of the shared response and when it is answered.
_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("MalformedRequest", "The request is not HTTP/1.1, or its body cannot be read at all"),
    401: ("KeyRequired", "There is no key, or one that does not hold"),
    403: ("Forbidden", "A web page of another site sent the request, or the key is not the operator's"),
    404: ("NotFound", "There is no such thing, or no longer"),
    408: ("RequestTimeout", "The request did not arrive in time"),
    409: ("Conflict", "The state of the resource forbids the request"),
    413: ("TooLarge", "The body is larger than what is accepted"),
    415: ("UnsupportedMediaType", "The header Content-Type is missing or names a type that is not accepted here"),
    421: ("Misdirected", "The service is not known by the host name of the request"),
    422: ("Refused", "A value of the request is not accepted; `code` and `detail` say which and why"),
    429: ("TooMany", "A limit of the key is reached"),
    431: ("HeadTooLarge", "The target and the headers of the request are too large"),
    500: ("InternalError", "Tessera failed, which is our fault"),
    503: ("Unavailable", "The service cannot answer at the moment: try again"),
    507: ("StorageFull", "The disk of the service is full: try again later"),
}
# What a request can be answered wherever it goes.
_ANYWHERE: Final = (400, 403, 408, 421, 431, 500, 503, 507)
# What a request can be answered where keys are asked for.
_WITH_KEY: Final = (401, 429)
# Beyond these, what a body can be answered.
_WITH_BODY: Final = (413, 415, 422)
_HEADERS: Final[Mapping[str, str]] = {
    "X-Request-ID": "The id of this request in the service's log; the caller's own if it sent a plain word",
    "Traceresponse": "The trace and the span of this request, in the form of `traceparent`",
    "Retry-After": "Seconds after which to ask again",
    "WWW-Authenticate": "How a key is sent",
    "Location": "Where the resource is found",
    "ETag": "Identifies the bytes, for If-None-Match",
    "Cache-Control": "Whether and for how long the answer may be kept",
    "Preference-Applied": "The `wait` that was granted",
}
_HEADERS_OF_ERRORS: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
    507: ("Retry-After",),
}
# Documents whose bytes are not made by FastAPI, with the types that make them.
_DOCUMENTS: Final[Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    "getPlan": (Plan,),
    "getReport": (Report, SimulationReport),
    "getSweep": (SweepReport,),
    "compareJobs": (ComparisonDocument,),
    "getTables": (TablesDocument,),
    "getProfile": (Profile,),
}
# Where the parameters of further requests are found in what is answered, by its type and for one operation.
_LINKED: Final[Mapping[str, Mapping[str, str]]] = {
    "Job": {"job_id": "$response.body#/id"},
    "Model": {"model_id": "$response.body#/id"},
    "ProfileSummary": {"profile": "$response.body#/digest"},
    "createSweep": {"sweep_id": "$response.body#/id"},
}


def install_documentation(app: FastAPI) -> None:
    """Completes the description, and adds its page and `/`, which leads there."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(described())
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    assert app.openapi_url is not None
    page = get_swagger_ui_html(
        openapi_url=app.openapi_url,
        title=f"{app.title}: HTTP API",
        swagger_js_url=f"{_FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{_FILES}/swagger-ui.css",
        swagger_favicon_url=f"{_FILES}/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},  # it asks no other service
    ).body
    scripts = re.findall(rb"<script>(.*?)</script>", bytes(page), re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts)
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src 'self' {sources};"
        " style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")


def _complete(schema: dict[str, Any]) -> None:
    """Makes a description of FastAPI's say all that the service answers."""
    components = schema["components"]
    components["headers"] = {name: _header(name) for name in _HEADERS}
    components["responses"] = {name: _error(status, about) for status, (name, about) in _ERRORS.items()}
    kinds = sorted({kind for kinds in _DOCUMENTS.values() for kind in kinds}, key=lambda kind: kind.__name__)
    _, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    parts["JobEvent"] = JobEvent.model_json_schema()
    assert not parts.keys() & components["schemas"].keys()
    components["schemas"] |= parts
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own
        components["schemas"].pop(name, None)
    components["links"] = {
        _link(source, operation): {"operationId": operation["operationId"], "parameters": parameters}
        for source, parameters in _LINKED.items()
        for operation in _operations(schema)
        if any(name in parameters and where == "path" for name, where in _parameters(operation))
    }
    for operation in _operations(schema):
        _complete_operation(operation, components["links"])


def _operations(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in schema["paths"].values():
        yield from methods.values()


def _parameters(operation: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(parameter["name"], parameter["in"]) for parameter in operation.get("parameters", ())]


def _link(source: str, operation: Mapping[str, Any]) -> str:
    return f"{source}.{operation['operationId']}"


def _complete_operation(operation: dict[str, Any], links: Mapping[str, Any]) -> None:
    responses = operation["responses"]
    kinds = _DOCUMENTS.get(operation["operationId"])
    if kinds is not None:
        choices = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
        responses["200"]["content"]["application/json"]["schema"] = (
            choices[0] if len(choices) == 1 else {"anyOf": choices}
        )
    errors = {int(status) for status in responses if status[0] in "45"}
    errors.update(_ANYWHERE, _WITH_KEY if "security" in operation else ())
    errors.update(_WITH_BODY if "requestBody" in operation else ())
    for status in errors:
        responses[str(status)] = {"$ref": f"#/components/responses/{_ERRORS[status][0]}"}
    for status, response in responses.items():
        if status[0] not in "23":
            continue
        response["headers"] = _referred("headers", _headers_of(status, responses))
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        sources = (schema.get("$ref", "").rpartition("/")[2], operation["operationId"])
        found = [link for link in links if link.partition(".")[0] in sources]
        if found and status != "304":
            response["links"] = _referred("links", found)
    operation["responses"] = dict(sorted(responses.items()))


def _headers_of(status: str, responses: Mapping[str, Any]) -> list[str]:
    """The headers of an answer that is no error, by what else its operation answers."""
    names = ["X-Request-ID", "Traceresponse"]
    if status in ("200", "304") and "304" in responses:
        names += ["ETag", "Cache-Control"]
    if {"201", "202"} & responses.keys() and status != "304":
        names += ["Location"]
    if "201" in responses:
        names += ["ETag"]
    if status == "202":
        names += ["Retry-After"]
    if "202" in responses:
        names += ["Preference-Applied"]
    return names


def _referred(section: str, names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/{section}/{name}"} for name in names}


def _header(name: str) -> dict[str, Any]:
    always = name not in (
        "Preference-Applied",
        "X-Request-ID",
        "Traceresponse",
    )  # a connection that ends early has no request's id
    return {"description": _HEADERS[name], "schema": {"type": "string"}, "required": always}


def _error(status: int, about: str) -> dict[str, Any]:
    names = ["X-Request-ID", "Traceresponse", *_HEADERS_OF_ERRORS.get(status, ())]
    content = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    return {"description": about, "headers": _referred("headers", names), "content": content}
