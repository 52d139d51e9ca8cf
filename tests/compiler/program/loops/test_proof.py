"""PROG-4, PROG-6: a program of loops is refused exactly when the expanded one is, and described alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest

from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, ENTRY_START, SOURCE_ADDRESS, TARGET_ADDRESS
from compiler.program.loops.proof import ProvedProgram, prove
from compiler.program.loops.statement_accesses import accesses_of_statements
from compiler.program.program import OUTPUT, Opcode, Program, Resident, Role
from tests.compiler.program.builder import (
    CORE0,
    DRAM,
    IODMA0,
    IODMA1,
    NRAM0,
    NRAM1,
    WRAM0,
    Bound,
)
from tests.compiler.program.loops.chains import ROW, LoopBuilder, random_chain
from tests.compiler.program.loops.changes import KINDS, changed
from tests.compiler.program.loops.expander import expanded, instances_of
from tests.compiler.program.loops.groups import LONG, lowered_group, random_clusters, random_sums, sliced_concat
from tests.compiler.program.plain_proof import PlainProof, judge
from tests.compiler.program.random_programs import random_program
from tests.compiler.program.test_mutations import LIMITS, mutate


def group_program(seed: int) -> Program | None:
    """A group of one to three ops as statements; None where none fits."""
    found = lowered_group(seed)
    return None if found is None else found.program


# What is found wrong command by command, in the order of commands.
ONE_BY_ONE = ("unwritten", "dependency", "overlap")


def judged(program: Program, plain: Program, **options: Any) -> tuple[str, ProvedProgram | None]:
    """`safe` or `refused`, and what the proof found; fails where the judge of plain programs does not agree."""
    second = judge(plain, **options)
    try:
        found = prove(program, **options)
    except ProgramError as error:
        check_fault(program, error, second)
        return "refused", None
    assert not second.faults
    assert found.peak_bytes == second.peak_bytes
    assert found.touched_bytes == second.touched_bytes
    counts = Counter(plain.commands["opcode"].tolist())
    assert dict(found.commands) == counts
    return "safe", found


def check_fault(program: Program, error: ProgramError, second: PlainProof) -> None:
    """What a program is refused for is wrong with the plain one too, in the same command where it is a single one."""
    assert error.violation in {violation for violation, _ in second.faults}
    if error.violation in ONE_BY_ONE and error.tile:
        commands = [(its.statement, its.counters) for its in instances_of(program)]
        assert error.command is not None
        assert (error.violation, commands.index((error.command, error.tile))) in second.faults


def check_changes(programs: Iterable[Program], seeds: range) -> Counter[str]:
    """Change programs, and compare the verdicts; how often each kind of change is safe, and refused."""
    listed, counts = list(programs), Counter[str]()
    for seed in seeds:
        random = np.random.default_rng(seed)
        kind = KINDS[seed % len(KINDS)]
        program = changed(listed[seed // len(KINDS) % len(listed)], kind, random)
        if program is None:
            continue
        try:
            check_loops(program)
        except ProgramError:
            # no loops at all: nothing to compare with
            continue
        verdict, _ = judged(program, expanded(program))
        counts[f"{kind}: {verdict}"] += 1
    return counts


@pytest.mark.parametrize("seed", range(10))
def test_random_groups_are_proved_like_their_expanded_programs(seed: int) -> None:
    program = group_program(seed)
    assert program is not None
    verdict, _ = judged(program, expanded(program))
    assert verdict == "safe"


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize("seed", [1, 3, 4, 42, 96, 671])
def test_random_groups_under_an_sram_are_proved_like_their_expanded_programs(seed: int) -> None:
    """Of 42 and 96 weights pass the SRAM, through places that take turns.

    In 671 a smaller last tile overwrites rows of a larger one, which were last read amidst its inner iterations.
    """
    found = lowered_group(seed, random_clusters)
    assert found is not None
    verdict, _ = judged(found.program, expanded(found.program))
    assert verdict == "safe"


@pytest.mark.matrix(first=3, rest=5)
@pytest.mark.parametrize("seed", range(16))
def test_sums_in_parts_are_proved_like_their_expanded_programs(seed: int) -> None:
    """Parts of what is summed loop: a program has as many statements for many of them as for few."""
    found = lowered_group(seed, random_sums)
    assert found is not None
    verdict, _ = judged(found.program, expanded(found.program))
    assert verdict == "safe"


@pytest.mark.parametrize(("first", "last"), [(0, 40), pytest.param(40, 120, marks=pytest.mark.slow)])
def test_random_chains_are_judged_like_their_expanded_programs(first: int, last: int) -> None:
    """Nests one after another and side by side; what a nest writes to the DRAM another one reads."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        program = random_chain(seed)
        verdict, found = judged(program, expanded(program))
        counts[verdict] += 1
        if found is not None and found.iterations >= LONG:
            counts["long"] += 1
            counts["jumped"] += found.jumped > 0
    assert min(counts["safe"], counts["refused"]) > (last - first) / 4
    assert counts["jumped"] >= 0.7 * counts["long"] > 0


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 1), pytest.param(1, 2, marks=pytest.mark.slow), pytest.param(2, 8, marks=pytest.mark.full)],
)
def test_changed_programs_are_refused_exactly_when_the_expanded_ones_are(first: int, last: int) -> None:
    """Turns `first` to `last` of the changes of each group and chain."""
    groups = [found for seed in (1, 2, 5, 9) if (found := group_program(seed)) is not None]
    groups += [its.program for seed in (34, 12) if (its := lowered_group(seed, random_clusters)) is not None]
    groups += [its.program for seed in (3, 17) if (its := lowered_group(seed, random_sums)) is not None]
    counts = check_changes(groups, range(24 * first, 24 * last))
    counts += check_changes(map(random_chain, range(20)), range(30 * first, 30 * last))
    concats = [its.program for seed in (0, 4) if (its := lowered_group(seed, sliced_concat)) is not None]
    counts += check_changes(concats, range(12 * first, 12 * last))
    assert {key.split(": ")[1] for key in counts} == {"safe", "refused"}
    # each kind of change is noticed sometimes
    assert {key.split(": ")[0] for key in counts if key.endswith("refused")} == set(KINDS)


@pytest.mark.parametrize(("first", "last"), [(0, 60), pytest.param(60, 160, marks=pytest.mark.slow)])
def test_programs_without_loops_are_judged_alike(first: int, last: int) -> None:
    """PROG-4: residents, partial sums, spills, and one number changed at random."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        program, _ = random_program(seed % 16)
        if seed >= 16:
            program = mutate(program, np.random.default_rng(seed))
        program = _sorted_waits(program)
        counts[judged(program, program, limits=LIMITS)[0]] += 1
    assert min(counts["safe"], counts["refused"]) > (last - first) / 6


def _sorted_waits(program: Program) -> Program:
    """The program with the waits of each command in order, as loops want them."""
    offsets = program.wait_offsets.tolist()
    if offsets != sorted(offsets) or offsets[0] != 0 or offsets[-1] != len(program.waits):
        return program
    parts = [np.unique(program.waits[a:b]) for a, b in pairwise(offsets)]
    waits = np.concatenate([*parts, program.waits[:0]])
    return program.once(program.commands, np.cumsum([0, *map(len, parts)]).astype(np.int32), waits)


@pytest.mark.matrix(first=0, rest=0)
@pytest.mark.parametrize("block", range(6))
def test_50_random_groups_and_200_changed_ones(block: int) -> None:
    """Issue 26, in blocks of every sixth: verdicts are equal; 70 % of long loops are jumped over."""
    lowered = ((seed, program) for seed in range(block, 1500, 6) if (program := group_program(seed)) is not None)
    groups, long = dict(islice(lowered, 50)), Counter[str]()
    assert len(groups) == 50
    for seed, program in groups.items():
        verdict, found = judged(program, expanded(program))
        assert verdict == "safe", seed
        assert found is not None
        if found.iterations >= LONG:
            long["all"] += 1
            long["jumped"] += found.jumped > 0
    assert long["jumped"] >= 0.7 * long["all"]
    small = [program for program in groups.values() if len(program.commands) < 120]
    counts = check_changes(small, range(200 * block, 200 * (block + 1)))
    assert {key.split(": ")[1] for key in counts} == {"safe", "refused"}


# --- one loop by hand -------------------------------------------------------------------------------------------------


def ramp(rows: int, **changes: Any) -> Program:
    """Row by row: load into one of two buffers, ReLU, store: statements 0, 1 and 2."""
    made = LoopBuilder()
    source, target = (
        made.builder.region(name, role, (rows, 4)) for name, role in (("x", Role.INPUT), ("y", Role.OUTPUT))
    )
    table = made.builder.table("Relu", ((rows, 4),), (rows, 4))
    space, runs = made.space(0, 0, [rows], [1]), [(0, 1, rows)]
    ring = (2, 64, 0, [1, *[0] * 7])
    second = BINDING_ADDRESS + BINDING_FIELDS
    made.builder.transfer(Opcode.LOAD, IODMA0, (DRAM, source), (NRAM0, 0), ROW, waits=())
    made.loop(space, runs, {1: 2}, [(SOURCE_ADDRESS, 0, ROW)], [(TARGET_ADDRESS, *ring)])
    box = ((0, 1), (0, 4))
    bounds = ((0, Bound(place=NRAM0, address=0, box=box)), (OUTPUT, Bound(place=NRAM0, address=256, box=box)))
    made.builder.call(CORE0, table, box, bounds, waits=())
    terms = [(ENTRY_START, 0, 1), (BINDING_ADDRESS + 1, 0, 1), (second + 1, 0, 1)]
    made.loop(space, runs, {0: 0, 2: 2}, terms, [(BINDING_ADDRESS, *ring), (second, *ring)])
    made.builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 256), (DRAM, target), ROW, waits=())
    made.loop(space, runs, {1: 0}, [(TARGET_ADDRESS, 0, changes.get("stored", ROW))], [(SOURCE_ADDRESS, *ring)])
    made.waits[1] = changes.get("call_waits", made.waits[1])
    return made.build()


def refused(program: Program) -> ProgramError:
    """The error with which a program is refused, as it is without loops."""
    with pytest.raises(ProgramError) as found:
        prove(program)
    check_fault(program, found.value, judge(expanded(program)))
    return found.value


def test_what_is_judged_does_not_depend_on_how_many_iterations_there_are() -> None:
    few, many = (prove(ramp(rows)) for rows in (100, 10_000))
    assert few.judged == many.judged < 60
    assert many.iterations == 10_000
    assert many.jumped > 9_900
    assert dict(many.commands) == {Opcode.LOAD: 10_000, Opcode.STORE: 10_000, Opcode.COMPUTE: 10_000}
    assert many.touched_bytes == 6 * ROW * 10_000
    assert many.peak_bytes[NRAM0] == 256 + 64 + ROW


@pytest.mark.parametrize("seed", range(6))
def test_slices_of_a_concat_are_judged_from_a_few_of_them(seed: int) -> None:
    """A slice needs nothing of the maps that others are made of, wherever these begin."""
    found = lowered_group(seed, sliced_concat)
    assert found is not None
    program = found.program
    plain = expanded(program)
    assert len(program.commands) < len(plain.commands)
    assert judged(program, plain)[0] == "safe"
    its = accesses_of_statements(Instances(program), DEFAULT_LIMITS, ())
    assert not its.are_apart.any()


def test_an_error_names_statement_and_tile() -> None:
    error = refused(ramp(40, call_waits={0: 1}))
    assert (error.violation, error.command, error.tile) == ("dependency", 1, (0,))
    assert str(error).startswith(
        "command 1 at tile 0: reads bytes of nram 0 that was written by command 0, for which it"
    )


def test_the_dram_is_written_once_and_completely() -> None:
    assert refused(ramp(40, stored=0)).violation == "write-once"
    assert refused(ramp(40, stored=4)).violation == "write-once"
    program = ramp(40)
    runs = program.loops.runs.copy()
    runs["count"][2] -= 1
    error = refused(replace(program, loops=replace(program.loops, runs=runs)))
    assert error.violation == "incomplete"


def test_an_address_leaves_its_memory_only_at_the_last_tile() -> None:
    program = ramp(40)
    places = tuple(replace(place, capacity_bytes=256 + 64 + ROW - 1) for place in program.places[2:3])
    program = replace(program, places=(*program.places[:2], *places, *program.places[3:]))
    assert refused(program).violation == "address"


def test_an_address_is_aligned_at_all_tiles() -> None:
    """Two bytes more at each tile and 0, 2 or 4 by a ring: at the first, the next and the ends all is in line."""
    program = ramp(39)
    loops = program.loops
    term = np.array([(BINDING_ADDRESS, 0, 2)], dtype=loops.terms.dtype)
    terms = np.concatenate([loops.terms[:1], np.sort(np.concatenate([loops.terms[1:4], term])), loops.terms[4:]])
    offsets, rings = loops.term_offsets.copy(), loops.rings.copy()
    offsets[2:] += 1
    rings["modulus"][1], rings["size"][1] = 3, 2
    error = refused(replace(program, loops=replace(loops, terms=terms, term_offsets=offsets, rings=rings)))
    assert (error.violation, error.tile) == ("alignment", (3,))


def test_a_mark_that_moves_on_is_not_taken_for_one_that_is_known() -> None:
    """For three iterations the core learns at the end how far the loads are, and then no more.

    At the beginning of the fourth it still knows enough, and all marks have moved as they did an iteration before; but
    what it knows of the loads stays behind.
    """

    def made(learns: int) -> Program:
        build, rows = LoopBuilder(), 40
        source = build.builder.region("x", Role.INPUT, (rows, 4))
        space = build.space(0, 0, [rows], [1])
        build.builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 256), ROW, waits=())
        build.loop(space, [(1, 1, rows - 1)], {})
        build.builder.transfer(Opcode.LOAD, IODMA0, (DRAM, source), (NRAM0, 0), ROW, waits=())
        build.loop(space, [(0, 1, rows)], {0: 0}, [(SOURCE_ADDRESS, 0, ROW)])
        build.builder.transfer(Opcode.LOAD, IODMA1, (DRAM, source), (NRAM1, 0), ROW, waits=())
        build.loop(space, [(0, 1, rows)], {})
        build.builder.barrier(CORE0, waits=())
        build.loop(space, [(0, 1, learns)], {1: 0, 2: 0})
        if learns < rows:
            build.builder.barrier(CORE0, waits=())
            build.loop(space, [(learns, 1, rows - learns)], {2: 0})
        return build.build()

    assert prove(made(40)).jumped > 30
    error = refused(made(3))
    assert (error.command, error.tile, error.violation) == (0, (4,), "dependency")


def test_a_jump_does_not_leave_out_when_a_wait_reaches_an_engine_that_stands_still() -> None:
    """The load of iteration 10 is waited for from iteration 25 on, for three iterations; later its data is read."""
    build = LoopBuilder()
    source = build.builder.region("x", Role.INPUT, (1, 4))
    space = build.space(0, 0, [60], [1])
    build.builder.barrier(CORE0, waits=())
    build.loop(space, [(0, 1, 28)], {1: 15})
    build.builder.transfer(Opcode.LOAD, IODMA0, (DRAM, source), (NRAM0, 0), ROW, waits=())
    build.loop(space, [(10, 1, 1)], {})
    build.builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 256), ROW, waits=())
    build.loop(space, [(40, 1, 20)], {})
    verdict, found = judged(build.build(), expanded(build.build()))
    assert verdict == "safe"
    assert found is not None
    assert found.jumped > 40


def test_weights_that_stay_are_not_overwritten_at_any_tile() -> None:
    """PROG-4: a buffer that walks through a memory comes to where a weight lies."""
    build, rows = LoopBuilder(), 40
    source, _ = (build.builder.region(n, r, (rows, 4)) for n, r in (("x", Role.INPUT), ("w", Role.WEIGHT)))
    resident = Resident(place=WRAM0, address=37 * ROW, region=1, starts=(0, 0), lengths=(1, 4), strides=(ROW, 4))
    build.builder.residents.append(resident)
    space = build.space(0, 0, [rows], [1])
    build.builder.transfer(Opcode.LOAD, IODMA0, (DRAM, source), (WRAM0, 0), ROW, waits=())
    build.loop(space, [(0, 1, rows)], {}, [(SOURCE_ADDRESS, 0, ROW), (TARGET_ADDRESS, 0, ROW)])
    error = refused(build.build())
    assert (error.violation, error.tile) == ("read-only", (37,))


def test_what_another_nest_reads_has_to_be_written_before() -> None:
    """A nest reads the tiles of the nest before; it may follow so closely that each is just written."""

    def made(distance: int, other_engine: int = IODMA1) -> Program:
        build, rows = LoopBuilder(), 40
        source, target = (
            build.builder.region(n, r, (rows, 4)) for n, r in (("x", Role.INPUT), ("y", Role.INTERMEDIATE))
        )
        runs, terms = [(0, 1, rows)], [(SOURCE_ADDRESS, 0, ROW)]
        first, then = build.space(0, 0, [rows], [1]), build.space(1, 0, [rows], [1])
        build.builder.transfer(Opcode.LOAD, IODMA0, (DRAM, source), (NRAM0, 0), ROW, waits=())
        build.loop(first, runs, {}, terms)
        build.builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 0), (DRAM, target), ROW, waits=())
        build.loop(first, runs, {}, [(TARGET_ADDRESS, 0, ROW)])
        memory = NRAM0 if other_engine == IODMA0 else NRAM1
        build.builder.transfer(Opcode.LOAD, other_engine, (DRAM, target), (memory, 64), ROW, waits=())
        build.loop(then, [(0, 1, rows - 8)], {1: distance}, terms)
        return build.build()

    assert prove(made(0)).jumped > 60
    # the first 32 tiles are read, and the last 8 need not have been written; nothing is jumped over while they are not
    verdict, found = judged(made(8), expanded(made(8)))
    assert verdict == "safe"
    assert found is not None
    assert found.jumped < 40
    assert refused(made(9)).violation == "dependency"
    # one engine runs in order, however little it waits for
    assert prove(made(39, IODMA0)).jumped > 30


@pytest.mark.parametrize("is_ordered", [True, False])
def test_reads_of_another_area_at_later_tiles_are_not_jumped_over(is_ordered: bool) -> None:
    """A loop reads an input, and then what another engine writes, which stands behind the input in the DRAM."""
    rows, made = 32, LoopBuilder()
    source, between, target = (
        made.builder.region(name, role, (count, 4))
        for name, role, count in (
            ("x", Role.INPUT, rows),
            ("b", Role.INTERMEDIATE, rows),
            ("y", Role.OUTPUT, 2 * rows),
        )
    )
    assert between == source + rows * ROW
    copies = ((IODMA0, NRAM0, between, rows, 0), (IODMA1, NRAM1, target, 2 * rows, 1))
    for engine, place, written, count, nest in copies:
        space, runs = made.space(nest, 0, [count], [1]), [(0, 1, count)]
        made.builder.transfer(Opcode.LOAD, engine, (DRAM, source), (place, 0), ROW, waits=())
        made.loop(space, runs, {1: 0} if nest and is_ordered else {}, [(SOURCE_ADDRESS, 0, ROW)])
        made.builder.transfer(Opcode.STORE, engine, (place, 0), (DRAM, written), ROW, waits=())
        made.loop(space, runs, {}, [(TARGET_ADDRESS, 0, ROW)])
    if is_ordered:
        assert judged(made.build(), expanded(made.build()))[0] == "safe"
    else:
        assert refused(made.build()).violation == "dependency"


def test_tiles_of_two_shapes_in_turn_are_jumped_over() -> None:
    """At a border tiles read less: they are judged apart, and come again."""
    found = lowered_group(34, random_clusters)
    assert found is not None
    _, proof = judged(found.program, expanded(found.program))
    assert proof is not None
    assert proof.jumped > proof.iterations / 2


def test_limits_bound_what_the_proof_may_take() -> None:
    assert refused_by_limit(touched_bytes=ROW * 6 * 40 - 1) == "the commands touch too many bytes"
    assert refused_by_limit(shadow_bytes=2) == "the memories touched are too large to be verified"
    assert refused_by_limit(looped_commands=119) == "loops make too many commands"
    prove(ramp(40), ProgramLimits(touched_bytes=ROW * 6 * 40, looped_commands=120))


def refused_by_limit(**limits: int) -> str:
    """The message with which a small loop is refused under some limits."""
    with pytest.raises(ProgramError) as found:
        prove(ramp(40), ProgramLimits(**limits))
    assert found.value.violation == "size"
    return found.value.message
