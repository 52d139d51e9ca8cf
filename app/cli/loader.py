"""Packs the small loader into one file: a zip of the sources that read and run packages, runnable by Python."""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path
from typing import Final

import app.loader
import compiler

# The time stamp of every file in the archive, so that equal sources give equal bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
# The packages whose files are packed; everything else must be installed on the execution host.
_OURS: Final = ("app", "compiler")


def loader_bytes() -> bytes:
    """Returns the archive; `python FILE package --inputs in.npz` runs it."""
    buffer = io.BytesIO()
    main = Path(app.loader.__file__).with_name("__main__.py")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in {"__main__.py": main, **dict(sorted(sources(main).items()))}.items():
            entry = zipfile.ZipInfo(name, date_time=_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def sources(main: Path) -> dict[str, Path]:
    """Our own files that a program imports, directly or indirectly, by their names in the archive."""
    root = Path(compiler.__file__).parent.parent
    found: dict[str, Path] = {}
    todo = [main]
    while todo:
        for module in _imports(todo.pop()):
            parts = module.split(".")
            for count in range(1, len(parts) + 1):
                folder = root.joinpath(*parts[:count])
                path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
                name = str(path.relative_to(root))
                if path.is_file() and name not in found:
                    found[name] = path
                    todo.append(path)
    return found


def _imports(path: Path) -> list[str]:
    """Our own modules that a file imports; a name imported from a package may be a module itself."""
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if _is_ours(alias.name)]
    return found


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in _OURS
