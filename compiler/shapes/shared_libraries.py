"""Finds the libraries of a model's routines among the stored ones, and makes the others (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.errors import InternalError
from compiler.profile.load import profile_digest
from compiler.profile.schema import Profile
from compiler.shapes.canonical_routine import CanonicalRoutine
from compiler.shapes.make_library import make_library
from compiler.shapes.size_class import Sized, resident_class
from compiler.shapes.stored_units import StoredUnits
from compiler.shapes.unit_encoding import (
    DamagedUnitError,
    StoredLibrary,
    decode_library,
    encode_library,
    encode_units,
    library_of,
)
from compiler.shapes.unit_library import Library
from compiler.unit_key import LibraryFor, library_key, unit_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A routine whose library is wanted, and the bytes of stationary weights in every core beside it."""

    routine: CanonicalRoutine
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One size that a wanted library may be made for."""

    sized: Sized
    about: LibraryFor

    @property
    def key(self) -> str:
        """The key of the library."""
        return library_key(self.about)


class SharedLibraries:
    """The libraries of one compilation: equal routines have one, which is stored for other compilations."""

    def __init__(self, profile: Profile, stored: StoredUnits) -> None:
        self._profile = profile
        self._digest = profile_digest(profile)
        self._stored = stored
        # None where no tile fits a core at this size
        self._known: dict[str, Library | None] = {}

    def of(self, wanted: Sequence[Wanted]) -> list[tuple[str, Library]]:
        """The libraries of routines under their canonical names, each with its key, in order.

        Of each routine's sizes the first at which a tile fits a core has it. Those are its size class beside a class
        of resident bytes, then its own ranges beside exactly these bytes, where the routine was found to fit.
        """
        candidates = [self._candidates(one) for one in wanted]
        for turn in range(max(map(len, candidates), default=0)):
            lacking = (sizes[turn] for sizes in candidates if turn < len(sizes) and not self._those(sizes[:turn]))
            self._find({one.key: one for one in lacking})
        return [self._found(sizes) for sizes in candidates]

    def _found(self, sizes: Sequence[Candidate]) -> tuple[str, Library]:
        found = self._those(sizes)
        if not found:
            raise InternalError(
                "a routine was chosen that fits no core", stage="shapes", op_type=sizes[-1].sized.graph.ops[-1].kind
            )
        return found[0]

    def _those(self, sizes: Sequence[Candidate]) -> list[tuple[str, Library]]:
        """The libraries that are known of these sizes, in order."""
        return [(one.key, found) for one in sizes if (found := self._known.get(one.key)) is not None]

    def _candidates(self, wanted: Wanted) -> list[Candidate]:
        rounded = resident_class(wanted.resident_bytes, self._profile.weight_memory_bytes)
        return [
            Candidate(
                sized=sized,
                about=LibraryFor(
                    signature=wanted.routine.signature,
                    size=sized.text,
                    profile=self._digest,
                    resident_bytes=rounded if sized.is_class else wanted.resident_bytes,
                ),
            )
            for sized in wanted.routine.size_classes
        ]

    def _find(self, candidates: Mapping[str, Candidate]) -> None:
        """Read libraries that are not known yet; make those that are not stored, one after another."""
        missing = [key for key in candidates if key not in self._known]
        self._known |= read_libraries(self._stored, missing)
        for key in missing:
            if key not in self._known:
                self._known[key] = self._made(key, candidates[key])

    def _made(self, key: str, candidate: Candidate) -> Library | None:
        """A library that was not stored: by now another may have made it, else it is made and stored here."""
        with self._stored.building(key) as is_ours:
            found = read_libraries(self._stored, [key])
            if key in found:
                return found[key]
            values = library_values(candidate, self._profile)
            library = decode_library(values[key])
            if is_ours:
                self._stored.put_many(key, values, library.labels)
        return _library(library, values)


def library_values(candidate: Candidate, profile: Profile) -> dict[str, bytes]:
    """Make a library: its value and those of its units by key, the same whoever makes it."""
    about = candidate.about
    library = make_library(candidate.sized, about.signature, profile.beside(about.resident_bytes))
    values = {candidate.key: encode_library(about, candidate.sized, library)}
    if library is not None:
        values |= {unit_key(about, tile): value for tile, value in encode_units(library).items()}
    return values


def read_libraries(stored: StoredUnits, keys: Sequence[str]) -> dict[str, Library | None]:
    """The libraries that are stored with all their units, in two requests; None for a size at which no tile fits.

    Damaged values are dropped.
    """
    if not keys:
        return {}
    libraries = _decoded(stored, stored.get_many(keys))
    of_units = {key: library.unit_keys for key, library in libraries.items()}
    wanted = [unit for units in of_units.values() for unit in units]
    values = stored.get_many(wanted) if wanted else {}
    found: dict[str, Library | None] = {}
    for key, library in libraries.items():
        if any(unit not in values for unit in of_units[key]):
            continue
        try:
            found[key] = _library(library, values)
        except DamagedUnitError:
            stored.drop_damaged([key, *of_units[key]])
    stored.used({key: len(of_units[key]) for key in found})
    return found


def _decoded(stored: StoredUnits, values: Mapping[str, bytes]) -> dict[str, StoredLibrary]:
    found = {}
    for key, value in values.items():
        try:
            library = decode_library(value)
        except DamagedUnitError:
            stored.drop_damaged([key])
            continue
        if library_key(library.about) == key:
            found[key] = library
        else:
            stored.drop_damaged([key])
    return found


def _library(library: StoredLibrary, values: Mapping[str, bytes]) -> Library | None:
    return library_of(library, [values[key] for key in library.unit_keys]) if library.tiles else None
