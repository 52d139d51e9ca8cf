"""Processor seconds until a command answers, and of the first jobs of an installation (`first-answer [TREE]`).

What runs is a copy of TREE (by default this one), so that its machine code is stored or not as the row says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.service.harness import light_model

_ROOT = Path(__file__).parents[2]
_RESNET = str(light_model("resnet50"))
_ON = ("--profile", "cluster4x4")
_RUNS = 5
_ANSWERS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("--version",),
    ("compile", "--no-such-option"),
    ("compile", "nonesuch.onnx", *_ON),
    ("compile", _RESNET, "--profile", "nonesuch"),
    ("plan", _RESNET, "--profile", "nonesuch"),
    ("run", _RESNET, "--profile", "nonesuch"),
    ("sweep", _RESNET, "--profile", "nonesuch"),
)
# Two jobs of one embedded service; prints what its worker used until it was ready, and for each job.
_JOBS = """
import json, sys, tempfile
from pathlib import Path
import psutil
from app.client.client import Client
from app.settings import Settings
from app.supervisor.service import EmbeddedService

def used(pid):
    parent = psutil.Process(pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    ended = times[0].children_user + times[0].children_system
    return sum(one.user + one.system for one in times) + ended

model = Path(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    with EmbeddedService(Settings(data_dir=Path(folder), port=0)) as service, Client(service.url) as client:
        service.wait_until(timeout_s=600)
        worker = service.pids["worker"]
        marks = [0.0, used(worker)]
        uploaded = client.upload_model(model)
        for options in ({}, {"strict": True}):
            job = client.submit(uploaded, "cluster4x4", options)
            for _ in client.follow(job.id):
                pass
            assert client.job(job.id).state == "succeeded"
            marks.append(used(worker))
print(json.dumps([after - before for before, after in zip(marks, marks[1:])]))
"""


def run(tree: Path = _ROOT) -> None:
    """Print the tables."""
    print("| command | processor seconds |\n|---|---:|")
    with _installed(tree) as folder:
        for words in _ANSWERS:
            seconds = min(_seconds(folder, "-m", "app.cli", *words) for _ in range(_RUNS))
            print(f"| `tessera {' '.join(words).replace(_RESNET, 'MODEL')}` | {seconds:.2f} |")
        print(f"| `tessera compile`, no machine code stored | {_compile(folder):.1f} |")
        print(f"| `tessera compile`, stored | {_compile(folder):.1f} |", flush=True)
    with _installed(tree) as folder:
        if (folder / "compiler" / "kernels.py").exists():
            print(f"| set-up: `python -m compiler.kernels` | {_seconds(folder, '-m', 'compiler.kernels'):.1f} |")
            print(f"| set-up: MB of machine code stored | {_stored_bytes(folder) / 1e6:.1f} |", flush=True)
        answer = subprocess.run(
            [sys.executable, "-c", _JOBS, _RESNET],
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            text=True,
            check=True,
        )
        for name, seconds in zip(
            ("until it is ready", "first job", "second job"), json.loads(answer.stdout), strict=True
        ):
            print(f"| worker, {name} | {seconds:.1f} |")


@contextmanager
def _installed(tree: Path) -> Iterator[Path]:
    """A copy of a tree's packages, without machine code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("app", "compiler", "worker"):
            shutil.copytree(tree / package, folder / package, ignore=shutil.ignore_patterns("*.nbi", "*.nbc"))
        _seconds(folder, "-m", "compileall", "-q", ".")
        yield folder


def _stored_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.nb[ic]"))


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}


def _compile(folder: Path) -> float:
    return _seconds(folder, "-m", "app.cli", "compile", _RESNET, *_ON)


def _seconds(folder: Path, *words: str) -> float:
    """Processor seconds of a Python program and the processes that it waited for."""
    with Path(os.devnull).open("w") as nowhere:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=_environment(folder), stdout=nowhere, stderr=nowhere
        )
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return usage.ru_utime + usage.ru_stime
