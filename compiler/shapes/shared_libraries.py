"""Finds the libraries of a model's routines among those made already, and makes the others (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.errors import InternalError
from compiler.profile.schema import Profile
from compiler.shapes.canonical_routine import CanonicalRoutine, Sized
from compiler.shapes.make_library import make_library
from compiler.shapes.routine import Routine
from compiler.shapes.size_class import resident_class
from compiler.shapes.unit_library import Library, RenamedBuffers


class SharedLibraries:
    """The libraries of one compilation by signature, size class and what stationary weights leave of the profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._known: dict[tuple[str, str, int], Library | None] = {}

    def of(self, routine: CanonicalRoutine, resident_bytes: int) -> Library:
        """The library of a routine under its canonical names; `resident_bytes`: stationary weights in every core.

        The first of the routine's sizes at which a tile fits a core has it. Those are its size class beside a class of
        resident bytes, then its own ranges beside exactly these bytes, where the routine was found to fit.
        """
        rounded = resident_class(resident_bytes, self._profile.weight_memory_bytes)
        for sized in routine.size_classes:
            found = self._at(routine, sized, rounded if sized.is_class else resident_bytes)
            if found is not None:
                return found
        raise InternalError("a routine was chosen that fits no core", stage="shapes", op_type=routine.kinds[-1])

    def _at(self, routine: CanonicalRoutine, sized: Sized, resident_bytes: int) -> Library | None:
        key = (routine.signature, sized.text, resident_bytes)
        if key not in self._known:
            self._known[key] = make_library(sized, routine.signature, self._profile.beside(resident_bytes))
        return self._known[key]


def bound(library: Library, routine: CanonicalRoutine, names: Mapping[str, str]) -> Library:
    """A library as a model's routine uses it; `names`: the model's names of buffers by the canonical ones."""
    return replace(
        library,
        routine=Routine(ops=routine.ops, tiled=library.routine.tiled),
        buffers=RenamedBuffers(library.buffers, names),
        summed=tuple(routine.dims[name] for name in library.summed),
    )
