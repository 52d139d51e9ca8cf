"""Opens a report in headless Chromium as a user's browser would, and notes what it complains about and asks for."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

# An ordinary laptop.
WIDTH: Final = 1366
HEIGHT: Final = 768
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
# Nothing of the browser's own asks the network either.
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_DRAWN: Final = "html[data-drawn='true']"
_TWO_FRAMES: Final = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A page that is open: errors and warnings of its console, addresses it asked for, wall seconds until it was drawn.

    `page` is playwright's.
    """

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    seconds: float


def browser_path() -> str:
    """The browser that TESSERA_BROWSER names, or an installed Chromium; raises RuntimeError if there is none."""
    path = os.environ.get("TESSERA_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise RuntimeError(f"no browser: install one of {', '.join(_NAMES)}, or name one in TESSERA_BROWSER")
    return path


@contextmanager
def browser(*arguments: str) -> Iterator[Any]:
    """A headless browser, with further arguments."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=browser_path(), args=[*_ARGUMENTS, *arguments])
        try:
            yield made
        finally:
            made.close()


@contextmanager
def opened(
    made: Any, file: Path, *, scheme: str = "light", width: int = WIDTH, height: int = HEIGHT
) -> Iterator[Opened]:
    """A report in a fresh profile of the browser, drawn."""
    context = made.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    try:
        page = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        begun = time.perf_counter()
        page.goto(file.resolve().as_uri())
        page.wait_for_selector(_DRAWN, state="attached")
        page.evaluate(_TWO_FRAMES)
        seconds = time.perf_counter() - begun
        yield Opened(page=page, complaints=complaints, requests=requests, seconds=seconds)
    finally:
        context.close()
