"""What the compiler itself makes of the routine that a library from elsewhere says it is for (SHAPE-1)."""

from __future__ import annotations

from compiler.errors import RequestError, TesseraError
from compiler.ops import ALL_KINDS
from compiler.profile.load import profile_digest
from compiler.profile.schema import Profile
from compiler.shapes.canonical_routine import canonical_routine, is_described
from compiler.shapes.extents import Range
from compiler.shapes.package import MEANINGLESS
from compiler.shapes.records import graph_of, whole_numbers
from compiler.shapes.shared_libraries import Candidate, library_values
from compiler.shapes.unit_encoding import StoredLibrary


def rebuilt(library: StoredLibrary, profile: Profile) -> dict[str, bytes]:
    """What the compiler itself makes of the routine, size and profile that a library says it is for, by key.

    Raises RequestError for values of which no routine can be made.
    """
    header = library.header
    try:
        graph = graph_of(header["graph"], 0)
        ranges = {
            str(name): Range(low=low, high=high, step=step)
            for name, (low, high, step) in ((name, whole_numbers(one)) for name, one in header["ranges"].items())
        }
        if any(op.kind not in ALL_KINDS for op in graph.ops) or any(one.low < 1 for one in ranges.values()):
            raise ValueError("an unknown op, or a range below 1")
        routine = canonical_routine(graph, range(len(graph.ops)), ranges, header["in_place"])
        if not is_described(routine) or library.about.profile != profile_digest(profile):
            raise ValueError("a routine or a profile that its key does not describe")
        for sized in routine.size_classes:
            if (routine.signature, sized.text) == (library.about.signature, library.about.size):
                return library_values(Candidate(sized=sized, about=library.about), profile)
        raise ValueError("a routine of another signature or size")
    except (TesseraError, *MEANINGLESS) as error:
        raise RequestError(
            "the units are for a routine that this version of the compiler does not know",
            code="invalid_units",
            stage="units",
            actual=f"{type(error).__name__}: {str(error)[:200]}",
            hint="Push units that the same version of Tessera made",
        ) from None
