"""`python -m tests.page [--images docs/images] [FOLDER ...]`: bytes and seconds to open of reports, and screenshots.

A folder holds the report.html that `tessera compile --out` wrote; without folders the three networks of
docs/benchmarks/0023-report.md are compiled.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from app.report_page.page import FILE_NAME, report_page
from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.exported import FOLDER
from tests.models import light_path
from tests.page.browser import browser, opened

_TIMES: Final = 5
_PROFILE: Final = "cluster4x4"
_NETWORKS: Final = {
    "ResNet-50": (light_path("resnet50"), {}),
    "BERT": (FOLDER / "bert_torchscript.onnx", {"dims": {"batch": 1, "sequence": 64}}),
    "DenseNet-121": (light_path("densenet121"), {}),
}
# Sections of the report that docs show, and in which colours.
_IMAGES: Final = {"graph": "light", "group": "light", "time": "dark", "roofline": "light"}
_IMAGE_WIDTH: Final = 1100
_IMAGE_HEIGHT: Final = 640


def main() -> None:
    """Print the table, and write the images where asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.page", description=__doc__)
    parser.add_argument("--images", type=Path, help="write screenshots of the first report to this folder")
    parser.add_argument("folders", nargs="*", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, browser() as chromium:
        folders = arguments.folders or [_compiled(name, Path(made)) for name in _NETWORKS]
        print("| report | groups | ops | KiB | s to open | s to draw all ops | requests | complaints |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for folder in folders:
            print(_row(chromium, folder / FILE_NAME), flush=True)
        if arguments.images is not None:
            _save_images(chromium, folders[0] / FILE_NAME, arguments.images)


def _compiled(name: str, root: Path) -> Path:
    path, options = _NETWORKS[name]
    source = ModelSource.from_bytes(path.read_bytes(), name=name)
    found = compile_model(source, builtin_profile(_PROFILE), parse_options(options), pictures=True)
    folder = root / name
    folder.mkdir()
    (folder / FILE_NAME).write_text(report_page(found.plan, found.report, found.pictures), encoding="utf-8")
    return folder


def _row(chromium: Any, file: Path) -> str:
    seconds, drawing = [], []
    for _ in range(_TIMES):
        with opened(chromium, file) as found:
            seconds.append(found.seconds)
            groups = found.page.locator("#groups tbody tr").count()
            begin = found.page.evaluate("performance.now()")
            found.page.get_by_role("button", name="Ops (").click()
            drawing.append((found.page.evaluate("performance.now()") - begin) / 1000)
            ops = found.page.locator("#drawing g.node").count()
            requests = [url for url in found.requests if not url.startswith(("data:", "file:"))]
    return (
        f"| {file.parent.name} | {groups} | {ops} | {file.stat().st_size / 1024:.0f} | {median(seconds):.2f} |"
        f" {median(drawing):.2f} | {len(requests)} | {len(found.complaints)} |"
    )


def _save_images(chromium: Any, file: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for section, scheme in _IMAGES.items():
        with opened(chromium, file, scheme=scheme, width=_IMAGE_WIDTH, height=_IMAGE_HEIGHT) as found:
            found.page.evaluate(f"document.getElementById('{section}').scrollIntoView()")
            found.page.screenshot(path=str(folder / f"report-{section}.png"))


if __name__ == "__main__":
    main()
