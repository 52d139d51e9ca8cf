"""What a run of the backend suite comes to: passed, skipped, failed, and in how many tests the chip computed an op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SUITE_TESTS: Final = 2033
# Of the whole suite: tests that pass, and tests of those in which at least one op ran natively.
MINIMUM_PASSED: Final = 2005
MINIMUM_NATIVE: Final = 630
# The name under which a test reports its native ops.
PROPERTY: Final = "native_ops"
_CLASSES: Final = "tests/backend/test_backend.py::OnnxBackend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Numbers of tests; `native` are those of the passed ones in which at least one op ran on the simulated chip."""

    passed: int
    native: int
    skipped: int
    failed: int

    @property
    def is_whole(self) -> bool:
        """True if all tests of the suite were run or skipped."""
        return self.passed + self.skipped + self.failed == SUITE_TESTS

    @property
    def holds(self) -> bool:
        """False if the whole suite was run and stays below its minima."""
        enough = self.passed >= MINIMUM_PASSED and self.native >= MINIMUM_NATIVE
        return enough or not self.is_whole

    def __str__(self) -> str:
        """One line."""
        text = f"{self.passed} passed, {self.native} of them with ops on the simulated chip, "
        text += f"{self.skipped} skipped, {self.failed} failed"
        if self.is_whole:
            text += f" (whole suite; at least {MINIMUM_PASSED} and {MINIMUM_NATIVE})"
        return text


def summary_of(reports: Mapping[str, Sequence[Any]]) -> Summary | None:
    """The summary of pytest's reports by outcome; None if there is none of the suite."""

    def of_suite(*outcomes: str) -> list[Any]:
        found = (report for outcome in outcomes for report in reports.get(outcome, ()))
        return [report for report in found if getattr(report, "nodeid", "").startswith(_CLASSES)]

    passed, skipped, failed = of_suite("passed"), of_suite("skipped"), of_suite("failed", "error")
    if not (passed or skipped or failed):
        return None
    return Summary(
        passed=len(passed),
        native=sum(any(native_ops(report)) for report in passed),
        skipped=len(skipped),
        failed=len({report.nodeid for report in failed}),
    )


def native_ops(report: Any) -> list[int]:
    """The native ops of each executable that the reported test ran."""
    return [ops for name, value in report.user_properties if name == PROPERTY for ops in value]
