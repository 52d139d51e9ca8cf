"""Malformed and hostile files meet their verdict, in bounded memory and time, without a trace (IMPORT-1, IMPORT-4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.corpus.case import Case, accept, either, reject
from tests.corpus.cases import CASES
from tests.corpus.sandbox import MEMORY_BYTES, MESSAGE_CHARACTERS, Outcome, Sandbox, objections

ACCEPTED = Outcome(ended="accepted", host=("loop",))
REFUSED = Outcome(ended="rejected", error_type="ModelError", code="cycle", message="value 'a' depends on itself")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One server process for all cases of this test process."""
    with Sandbox() as started:
        yield started


@pytest.mark.matrix(first=20, rest=50)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.full] * case.slow) for case in CASES]
)
def test_a_file_meets_its_verdict(case: Case, sandbox: Sandbox) -> None:
    """IMPORT-4: never a crash, a hang, a trace, or more memory than is allowed; a refusal names what is wrong."""
    assert objections(case, sandbox.compile(case.build(), case.options)) == []


@pytest.mark.parametrize("name", ["convolution-the-largest-integers-everywhere"])
def test_a_file_that_missed_its_verdict_meets_it(name: str, sandbox: Sandbox) -> None:
    """What was wrong once is in every run, if it is quick."""
    (case,) = [its for its in CASES if its.name == name]
    assert objections(case, sandbox.compile(case.build(), case.options)) == []


def test_every_case_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


def test_the_same_files_are_made_twice() -> None:
    small = [
        case for case in CASES if not case.name.startswith(("a-million", "a-hundred-thousand", "16-", "a-zip-bomb"))
    ]
    assert [case.name for case in small[::13] if case.build() != case.build()] == []


def expecting(expected: object) -> Case:
    """A case of which only the verdict matters."""
    return replace(CASES[0], expected=expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        (accept(), ACCEPTED),
        (accept("loop"), ACCEPTED),
        (reject("cycle missing_value", "'a'"), REFUSED),
        (either("cycle"), REFUSED),
        (either("cycle"), ACCEPTED),
    ],
)
def test_the_expected_outcome_is_met_with_no_objection(expected: object, outcome: Outcome) -> None:
    assert objections(expecting(expected), outcome) == []


@pytest.mark.parametrize(
    ("expected", "outcome", "objection"),
    [
        (reject("cycle"), ACCEPTED, "accepted, but should be refused"),
        (accept("conv"), ACCEPTED, "node 'conv' is not on the host"),
        (accept(), REFUSED, "refused, but should compile"),
        (reject("duplicate_value"), REFUSED, "another code than duplicate_value"),
        (either("duplicate_value"), REFUSED, "another code than duplicate_value"),
        (reject("cycle", "'z'"), REFUSED, "does not mention"),
        (reject("cycle"), replace(REFUSED, flaws=("the message has 9999 characters",)), "9999 characters"),
        (reject("cycle"), replace(REFUSED, stderr="Traceback (most recent call last):"), "wrote to the error stream"),
        (reject("cycle"), replace(REFUSED, peak_bytes=MEMORY_BYTES + 1), "took 1024 MiB"),
        (either("cycle"), replace(REFUSED, ended="raised"), "raised instead of a verdict"),
        (either("cycle"), Outcome(ended="died", error_type="SIGSEGV"), "died instead of a verdict"),
    ],
)
def test_another_outcome_is_objected_to(expected: object, outcome: Outcome, objection: str) -> None:
    assert any(objection in found for found in objections(expecting(expected), outcome))


@pytest.mark.parametrize(
    ("behaviour", "limits", "ended", "error_type"),
    [
        ("hang", {"cpu_seconds": 1}, "died", "SIGXCPU"),
        ("sleep", {"wall_seconds": 1}, "died", "SIGKILL"),
        ("allocate", {}, "raised", "MemoryError"),
        ("crash", {}, "died", "SIGSEGV"),
        ("raise", {}, "raised", "ZeroDivisionError"),
    ],
)
def test_the_sandbox_sees_a_process_that_misbehaves(
    behaviour: str, limits: dict[str, int], ended: str, error_type: str, sandbox: Sandbox
) -> None:
    outcome = sandbox.probe(behaviour, **limits)
    assert (outcome.ended, outcome.error_type) == (ended, error_type)
    assert objections(expecting(either("cycle")), outcome) != []


def test_the_sandbox_measures_memory(sandbox: Sandbox) -> None:
    assert MEMORY_BYTES * 3 // 4 < sandbox.probe("stay-large").peak_bytes < 2 * MEMORY_BYTES


def test_the_sandbox_keeps_what_is_written_to_the_error_stream(sandbox: Sandbox) -> None:
    assert "Traceback" in sandbox.probe("write").stderr


def test_the_sandbox_finds_flaws_of_a_message(sandbox: Sandbox) -> None:
    flaws = sandbox.probe("flawed").flaws
    assert any("not printable" in flaw for flaw in flaws)
    assert any(f"{6 * MESSAGE_CHARACTERS}" in flaw for flaw in flaws)
    assert any("no JSON" in flaw for flaw in flaws)


def test_the_sandbox_serves_on_after_a_death(sandbox: Sandbox) -> None:
    sandbox.probe("crash")
    assert sandbox.compile(b"").code == "empty_model"


def test_the_corpus_is_large_enough_and_has_both_verdicts() -> None:
    kinds = Counter(type(case.expected).__name__ for case in CASES)
    assert kinds["Reject"] >= 80
    assert kinds["Accept"] >= 20
