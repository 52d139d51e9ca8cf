"""Degraded planning: ops that a step of the compiler fails on are planned in a simpler way (IMPORT-7).

In: a `DefectError`, which names the groups of ops that a step failed on. Out: the ops to plan one by one, the ops to
leave to the host, and an entry for plan and report. Time and memory limits never lead here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from compiler.errors import InternalError, TesseraError, printable
from compiler.ops.op_facts import GraphFacts

# What a defect of ours looks like; MemoryError, and what a caller's time limit raises, are none of these.
DEFECTS: Final = (
    InternalError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
OP_BY_OP: Final = "op by op"
ON_HOST: Final = "on the host"
LEFT_OUT: Final = "without this step"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGroup:
    """Ops that a step failed on together: the ONNX nodes they come from, and the tensors they make."""

    nodes: tuple[str, ...]
    results: tuple[str, ...]


def failed_group(facts: GraphFacts, ops: Iterable[int]) -> FailedGroup:
    """The ops of a graph as an error names them."""
    members = [facts.graph.ops[op] for op in sorted(ops)]
    return FailedGroup(
        nodes=tuple(dict.fromkeys(node for op in members for node in op.origin)),
        results=tuple(op.output for op in members),
    )


class DefectError(InternalError):
    """A step of the compiler failed on some groups of ops; each could be planned in a simpler way.

    `plain`: the error to raise where degrading is not allowed. `definition`: the op definitions are wrong, so import
    has to leave the ONNX nodes to the host.
    """

    def __init__(
        self,
        message: str,
        *,
        groups: Sequence[FailedGroup],
        stage: str,
        actual: object | None = None,
        limit: object | None = None,
        plain: TesseraError | None = None,
        definition: bool = False,
    ) -> None:
        super().__init__(
            message,
            stage=stage,
            node=groups[0].nodes[0] if groups else None,
            actual=actual,
            limit=limit,
            hint="This is a defect of Tessera; option degraded=allow plans around it where there is a way",
        )
        self.groups = tuple(groups)
        self.plain = plain
        self.definition = definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """One entry of plan and report: the ONNX nodes, the step that failed on them and how, and what was done instead."""

    nodes: tuple[str, ...]
    stage: str
    failed: str
    instead: str


@dataclass(slots=True, kw_only=True)
class Degradations:
    """What one compilation has planned in a simpler way so far; lives as long as the compilation.

    `alone` and `host` are tensors: the ops that make them are planned one by one, or left to the host. `nodes` are ONNX
    nodes that import leaves to the host.
    """

    allowed: bool = True
    alone: set[str] = field(default_factory=set)
    host: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    entries: list[Degraded] = field(default_factory=list)

    def take(self, error: DefectError) -> bool:
        """Note a simpler way for each group of the error; False if that is not allowed, or there is none left."""
        if not self.allowed:
            return False
        known = len(self.alone) + len(self.host) + len(self.nodes)
        for group in error.groups:
            if error.definition:
                self.nodes.update(group.nodes)
                self._note(group.nodes, error.stage or "", error, ON_HOST)
                continue
            results = set(group.results)
            together = len(results) > 1 and not results <= self.alone
            (self.alone if together else self.host).update(results)
            self._note(group.nodes, error.stage or "", error, OP_BY_OP if together else ON_HOST)
        return len(self.alone) + len(self.host) + len(self.nodes) > known

    def leave_out(self, step: str, error: Exception) -> bool:
        """Note that a step which only improves the graph is left out; False if that is not allowed."""
        if self.allowed:
            self._note((), step, error, LEFT_OUT)
        return self.allowed

    def _note(self, nodes: tuple[str, ...], stage: str, error: Exception, instead: str) -> None:
        """Add an entry, once: steps may fail again in the same way when they run again."""
        entry = Degraded(nodes=nodes, stage=stage, failed=reason_of(error), instead=instead)
        if entry not in self.entries:
            self.entries.append(entry)


def reason_of(error: BaseException) -> str:
    """One line on what failed."""
    if isinstance(error, TesseraError):
        actual = "" if error.actual is None else f": {error.actual}"
        return printable(f"{error.message}{actual}")
    return printable(f"{type(error).__name__}: {error}")


@contextmanager
def defects_of(stage: str, groups: Iterable[FailedGroup]) -> Iterator[None]:
    """Raise DefectError naming the groups where the block fails by a defect of ours."""
    try:
        yield
    except DefectError:
        raise
    except DEFECTS as error:
        raise DefectError(
            "a step of the compiler failed", groups=tuple(groups), stage=stage, actual=reason_of(error)
        ) from error
