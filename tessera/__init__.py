"""Tessera in Python: `compile` compiles here, `Client` and `AsyncClient` on a service (docs/python.md).

A name is imported from where it is defined when it is first used, so `import tessera` takes next to no time.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.client.client import AsyncClient, Client
    from app.client.errors import ServiceError, UnreachableError
    from app.client.local import compile  # noqa: A004 - used as tessera.compile
    from app.client.results import Compilation, Executable, Plan, Report, Run
    from app.client.types import Job, JobEvent, Model, ProfileSummary
    from compiler.errors import InternalError, LimitError, ModelError, ProfileError, RequestError, TesseraError
    from compiler.options import Options
    from compiler.profile import Profile

    __version__: str

__all__ = [
    "AsyncClient",
    "Client",
    "Compilation",
    "Executable",
    "InternalError",
    "Job",
    "JobEvent",
    "LimitError",
    "Model",
    "ModelError",
    "Options",
    "Plan",
    "Profile",
    "ProfileError",
    "ProfileSummary",
    "Report",
    "RequestError",
    "Run",
    "ServiceError",
    "TesseraError",
    "UnreachableError",
    "__version__",
    "compile",
]

_MODULES = {
    "app.client.client": ("AsyncClient", "Client"),
    "app.client.errors": ("ServiceError", "UnreachableError"),
    "app.client.local": ("compile",),
    "app.client.results": ("Compilation", "Executable", "Plan", "Report", "Run"),
    "app.client.types": ("Job", "JobEvent", "Model", "ProfileSummary"),
    "compiler.errors": ("InternalError", "LimitError", "ModelError", "ProfileError", "RequestError", "TesseraError"),
    "compiler.options": ("Options",),
    "compiler.profile": ("Profile",),
}
_HOME = MappingProxyType({name: module for module, names in _MODULES.items() for name in names})


if not TYPE_CHECKING:  # a type checker knows the names above and refuses others

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("compiler.version").COMPILER_VERSION
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
