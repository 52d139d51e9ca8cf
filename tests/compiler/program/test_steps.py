"""What a step of a group emits follows from its counters: asked for in another order, it says the same (SCHED-3)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import hypothesis
import pytest
from hypothesis import assume

from compiler.errors import LimitError
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import machine_of
from compiler.program.group import GroupLowering
from compiler.program.iteration import At, Loop, Step
from compiler.program.lower import handed_out
from compiler.program.residents import place_residents, resident_parts
from compiler.program.segment import lowering_of
from compiler.program.steps.action import Action
from compiler.program.steps.group_steps import recorder_of
from compiler.program.steps.recorder import Recorder
from tests.compiler.program.test_lowering_random import KINDS, Case, cases

_REFUSED = ("not_lowered", "no_engine")


def _lowering(case: Case) -> tuple[GroupLowering, Recorder]:
    (group,) = case.groups
    facts, ops = case.network.facts, group.geometry.indices
    made = frozenset(facts.graph.ops[op].output for op in ops)
    decoders = Decoders(facts.graph, case.network.source)
    context = Context(facts, machine_of(case.profile), made, handed_out(facts, ops), decoders)
    recorder = recorder_of(context)
    if case.profile.is_stationary:
        place_residents(context, case.profile, resident_parts(context, case.profile, ops, case.resident_bytes))
    return lowering_of(context, group, {op: number for number, op in enumerate(ops)}), recorder


def _steps(body: Sequence[Step | Loop], at: At) -> Iterator[tuple[Step, At]]:
    """All steps of an iteration, with their counters."""
    for entry in body:
        if isinstance(entry, Step):
            yield entry, at
        else:
            for number in range(entry.count(at)):
                yield from _steps(entry.body, (*at, number))


def _emitted(recorder: Recorder, step: Step, at: At) -> list[Action]:
    """What one step does."""
    if step.emit is not None:
        step.emit(at)
    return recorder.taken()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_say_the_same_in_whatever_order_they_are_asked(kind: str) -> None:
    """SCHED-3, on chips with and without SRAM; only what commands wait for follows from what was before."""

    @hypothesis.settings(max_examples=8, phases=[hypothesis.Phase.generate])
    @hypothesis.given(cases(kind=kind))
    def every(case: Case) -> None:
        try:
            lowering, recorder = _lowering(case)
        except LimitError as error:
            assume(error.code not in _REFUSED)
            raise
        body = (*lowering.brings, *lowering.body)
        asked = [entry for number in range(len(lowering.rounds)) for entry in _steps(body, (number,))]
        try:
            once = [_emitted(recorder, step, at) for step, at in asked]
        except LimitError as error:
            assume(error.code not in _REFUSED)
            raise
        order = list(range(len(asked)))
        random.Random(len(order)).shuffle(order)
        for number in (*order, *range(len(asked))):
            assert once[number] == _emitted(recorder, *asked[number]), (asked[number][0].name, asked[number][1])

    every()
