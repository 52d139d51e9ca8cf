"""The small loader as an execution host has it: one file, Python and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from app.cli.loader import loader_bytes


def written_loader(folder: Path) -> Path:
    """The loader beside a folder that holds numpy and nothing else."""
    (folder / "loader.pyz").write_bytes(loader_bytes())
    (folder / "packages").mkdir()
    numpy = Path(np.__file__).parent
    for name in ("numpy", "numpy.libs"):
        if (numpy.parent / name).exists():
            (folder / "packages" / name).symlink_to(numpy.parent / name)
    return folder / "loader.pyz"


def load(loader: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the loader where only the standard library and numpy are to be had."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(loader.parent / "packages"), **variables}
    command = [sys.executable, "-S", str(loader), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=loader.parent, capture_output=True, text=True, check=False)
