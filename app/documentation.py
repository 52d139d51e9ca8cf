"""The interactive documentation at /docs: Swagger UI, whose files are served from a package under `_FILES`."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse

_FILES: Final = "/static-offline-docs"  # where fastapi_offline mounts them


def install_documentation(app: FastAPI) -> None:
    """Add the page, and `/` which leads there."""
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
