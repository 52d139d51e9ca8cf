"""The package of a compilation, or the reason why there is none (SHAPE-10)."""

from __future__ import annotations

import json

import structlog

from app.errors import StoreUnavailableError
from app.jobs.results import Outcome
from app.store import BlobStore
from compiler.compile import compile_package
from compiler.errors import InternalError, TesseraError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.profile import Profile
from compiler.shapes.package import write_package
from compiler.shapes.prepared import PreparedModel
from compiler.shapes.stored_units import StoredUnits

log = structlog.get_logger(__name__)


class _Phases:
    """An observer that marks passes as those of the package."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def phase(self, name: str, step: int, total: int) -> None:
        """A pass begins."""
        self._observer.phase(f"package: {name}", step, total)

    def cancelled(self) -> bool:
        """Whether no job waits any more."""
        return self._observer.cancelled()


def package_outcome(
    source: ModelSource,
    profile: Profile,
    options: Options,
    observer: Observer,
    store: BlobStore,
    stored: StoredUnits,
) -> Outcome:
    """The part of a job's outcome for its package: the blob's digest, or the problem that prevented it.

    That of a static model holds the tables of its one shape (SHAPE-9). Shape units that `stored` holds are not made
    again. The plan holds in both cases. Raises CompilationCancelledError, StoreUnavailableError.
    """
    try:
        prepared = compile_package(source, profile, options, observer=_Phases(observer), stored=stored)
        return {"package": _stored(prepared, source, store)}
    except StoreUnavailableError:
        raise
    except InternalError as error:
        log.error("packager_at_fault", error=str(error), exc_info=True)
        return {"no_package": json.dumps(error.to_dict())}
    except TesseraError as error:
        log.info("no_package", code=error.code, error=str(error))
        return {"no_package": json.dumps(error.to_dict())}


def _stored(prepared: PreparedModel, source: ModelSource, store: BlobStore) -> str:
    file = opened(prepared.model.graph.source, source)
    with store.writer() as writer:
        for piece in write_package(prepared.model, prepared.tables, lambda constant: materialise(constant, file)):
            writer.write(memoryview(piece))
        return writer.commit()
