"""UI-1, SIM-5: `tessera sweep`, `size` and `compare` without a server, in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.cli.point_pool import MAX_ATTEMPTS, Computed, PointPool
from app.cli.sweep_table import print_sweep
from app.comparisons.compare import Compiled, compare
from app.sweeps.report import SweepReport
from compiler.compile import plan_model
from compiler.options import parse_options
from compiler.profile import Profile, builtin_profile, parse_profile, profile_json
from compiler.profile.fields import with_fields
from compiler.report.plan import NativeShare, Plan
from tests.models import Model
from tests.service.harness import children_of, conv_chain, gone, program_of, until

TESSERA = Path(sys.executable).with_name("tessera")
# choosing plans would take most of the time of each point
BY_RULES = ("--set", "fusion=rules")


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def chain(ops: int) -> bytes:
    """Convolutions with weights of their own and activations, which fuse where memory allows."""
    model = Model(name="chain")
    x = model.input([1, 8, 32, 32], "image")
    for number in range(ops):
        x = model.relu(model.conv(x, 8, 8, 3, name=f"conv{number}"))
    model.output(x)
    return model.data()


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a chain of four convolutions in it and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("chain.onnx").write_bytes(chain(4))


def swept(*words: str) -> dict[str, Any]:
    answer = tessera("sweep", "chain.onnx", "--workers", "1", *BY_RULES, *words, "--json")
    assert answer.exit_code == 0, answer.output
    return dict(json.loads(answer.stdout))


def test_a_sweep_gives_the_figures_that_a_compilation_of_each_profile_gives() -> None:
    report = swept("--profile", "edge4", "--grid", "nram=64KiB,256KiB", "--grid", "dram_bandwidth=6.4GB/s,12.8GB/s")
    assert [point["state"] for point in report["points"]] == ["succeeded"] * 4
    profile = with_fields(
        builtin_profile("edge4"), {"nram.capacity_bytes": 65536, "dram.bandwidth_bytes_per_s": 6_400_000_000}
    )
    Path("varied.json").write_bytes(profile_json(profile))
    words = ["compile", "chain.onnx", "--profile", "varied.json", *BY_RULES, "--no-verify", "--out", "out"]
    assert tessera(*words).exit_code == 0
    plan, described = (json.loads(Path("out", name).read_text()) for name in ("plan.json", "report.json"))
    figures = report["points"][0]["figures"]
    assert {name: figures[name] for name in ("dram_bytes", "dram_bytes_floor", "energy_j", "latency_bound_s")} == {
        name: plan["totals"][name] for name in ("dram_bytes", "dram_bytes_floor", "energy_j", "latency_bound_s")
    }
    assert figures["estimated_latency_s"] == plan["totals"]["latency_s"]
    cycles = sum(program["simulated_cycles"] for program in described["programs"])
    assert figures["simulated_latency_s"] == cycles / profile.clock_hz


@pytest.mark.full
def test_a_sweep_is_the_same_however_many_processes_compute_it() -> None:
    words = ["sweep", "chain.onnx", "-p", "edge4", "-p", "cluster4x4", "--grid", "nram=128KiB,256KiB,0", "--json"]
    one, three = (tessera(*words, "--workers", count) for count in ("1", "3"))
    assert (one.exit_code, one.stdout) == (three.exit_code, three.stdout)
    assert [point["state"] for point in json.loads(one.stdout)["points"]] == ["succeeded", "succeeded", "failed"] * 2


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal of 80 columns."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.usefixtures("terminal")
def test_the_table_fits_the_terminal_loses_no_column_and_says_what_was_not_run() -> None:
    words = ["-p", "edge4", *BY_RULES, "--grid", "nram=64KiB,0", "--out", "sweep.json"]
    answer = tessera("sweep", "chain.onnx", *words)
    assert answer.exit_code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "nram latency energy DRAM × minimum chip memory" in " ".join(answer.stdout.split())
    for text in (
        "64 KiB",
        "2 of 2 points",
        "Latency simulated",
        "nram of each core",
        "Host runs nothing;",
        "invalid_profile (1)",
    ):
        assert text in " ".join(answer.stdout.split()), text
    assert json.loads(Path("sweep.json").read_text())["schema"] == "tessera.sweep/1"


@pytest.mark.slow
def test_a_sweep_says_for_which_points_the_host_runs_something() -> None:
    report = msgspec.convert(swept("-p", "edge4", "--grid", "nram=64KiB,128KiB,256KiB"), SweepReport)
    share = NativeShare(chip_nodes=7, host_nodes=1, chip_macs=3, host_macs=1, host_nodes_of_unknown_work=0)
    last = report.points[-1]
    assert last.figures is not None
    assert last.figures.native is not None
    assert last.figures.native.host_nodes == 0
    changed = replace(last, figures=replace(last.figures, native=share))
    out = StringIO()
    print_sweep(replace(report, points=(*report.points[:-1], changed)), Console(file=out))
    assert "Host         in 2 points: runs nothing; every node runs on the accelerator\n" in out.getvalue()
    assert "in 1 point: runs 1 of 8 nodes: 25 % of the multiply-accumulates; times and energy leave" in out.getvalue()


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (["-p", "edge4", "--grid", "nrm=1"], 2, "unknown_field"),
        (["-p", "edge4", "--grid", "nram=1,1"], 2, "invalid_grid"),
        (["-p", "nonesuch"], 2, "unknown_profile"),
        (["-p", "edge4", "--set", "fuson=none"], 2, "unknown_option"),
        (["-p", "edge4", "--workers", "2", "--server", "http://localhost:1"], 2, "invalid_request"),
        (["-p", "edge4", "--server", "http://localhost:1"], 2, "service_unreachable"),
        (["-p", "edge4", "--grid", "sram=256KiB,1MiB"], 3, "no_point_succeeded"),
        (["-p", "edge4", "--set", "time_limit_s=0.001"], 3, "time_limit"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_said_with_its_exit_code(words: list[str], exit_code: int, code: str) -> None:
    answer = tessera("sweep", "chain.onnx", *words)
    assert (answer.exit_code, code in answer.output) == (exit_code, True), answer.output
    assert "Traceback" not in answer.output


@pytest.mark.slow
def test_a_point_whose_process_is_killed_is_computed_by_another() -> None:
    profiles = [profile for _, profile in zip(range(4), variants(), strict=False)]
    Path("long.onnx").write_bytes(conv_chain(30))
    with PointPool(Path("long.onnx"), ["verify=none"], 2) as pool:
        found = pool.run(profiles)
        first = next(found)
        (victim, *_) = before = workers_of(psutil.Process())
        victim.kill()
        rest = dict([first, *found])
        left = workers_of(psutil.Process())
    assert sorted(rest) == [0, 1, 2, 3]
    assert all(computed.problem is None for computed in rest.values())
    assert (len(before), len(left), victim in left) == (2, 2, False)
    assert gone(left)


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes of a pool; Python starts one more beside them, which looks after their resources."""
    return [child for child in children_of(process) if "spawn_main" in program_of(child)]


@pytest.mark.slow
def test_a_point_whose_process_dies_each_time_fails_and_the_others_are_computed() -> None:
    # no process lives beyond its first breath: the model's file is no longer there when it looks for it
    with PointPool(Path("nonesuch.onnx"), ["verify=none"], 1) as pool:
        ((_, computed),) = pool.run([builtin_profile("edge4")])
    assert computed.problem is not None
    assert (computed.problem["code"], computed.problem["actual"]) == ("worker_lost", MAX_ATTEMPTS)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupted_size_shows_and_writes_the_values_that_are_finished(
    done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PointPool.run

    def cut_off(pool: PointPool, profiles: Sequence[Profile]) -> Iterator[tuple[int, Computed]]:
        yield from run(pool, profiles[:done])
        raise KeyboardInterrupt

    monkeypatch.setattr(PointPool, "run", cut_off)
    words = ["--field", "nram", "--target", "latency=1s", "--workers", "1", "--out", "size.json"]
    answer = tessera("size", "chain.onnx", "-p", "edge4", *BY_RULES, *words)
    report = json.loads(Path("size.json").read_text())
    assert (answer.exit_code, report["state"], len(report["curve"])) == (130, "cancelled", done)
    assert f"Interrupted: {done} values done" in answer.stdout
    assert (report["smallest"] is not None) == (done > 0)


def variants() -> Iterator[Profile]:
    for capacity in range(64, 1024, 8):
        yield with_fields(builtin_profile("edge4"), {"nram.capacity_bytes": capacity * 1024})


@pytest.mark.slow
def test_ctrl_c_keeps_the_points_that_are_finished_and_leaves_no_process() -> None:
    Path("long.onnx").write_bytes(conv_chain(40))
    grid = "nram=" + ",".join(f"{capacity}KiB" for capacity in range(64, 1024, 8))
    words = [str(TESSERA), "sweep", "long.onnx", "-p", "edge4", *BY_RULES, "--grid", grid, "--workers", "2"]
    words += ["--out", "s.json"]
    # these tests may run where Ctrl-C is ignored
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (
        Path("progress").open("wb") as progress,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=progress, start_new_session=True, preexec_fn=hears
        ) as process,
    ):
        until(lambda: "of 120 points" in Path("progress").read_text().partition("\n")[2], "a tenth of the points")
        children = workers_of(psutil.Process(process.pid))
        assert len(children) == 2
        os.killpg(process.pid, signal.SIGINT)
        text = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130
    assert "Traceback" not in text
    report = json.loads(Path("s.json").read_text())
    states = [point["state"] for point in report["points"]]
    assert (report["state"], set(states)) == ("cancelled", {"succeeded", "cancelled"})
    assert f"interrupted: {states.count('succeeded')} of {len(states)} points done" in text
    assert all((point["figures"] is not None) == (point["state"] == "succeeded") for point in report["points"])
    until(lambda: gone(children), "its processes to end")


# size


def sized(*words: str, how: tuple[str, ...] = BY_RULES) -> Result:
    return tessera("size", "chain.onnx", "-p", "edge4", "--field", "nram", "--workers", "1", *how, *words)


@pytest.mark.slow
def test_a_size_is_the_least_value_tried_that_reaches_the_target() -> None:
    words = ["--target", "dram_bytes=1.05xfloor", "--from", "4KiB", "--to", "128KiB", "--granularity", "4KiB", "--json"]
    # by rules no value reaches it
    answer = sized(*words, how=())
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    curve = {point["value"]: point for point in report["curve"]}
    assert [point["value"] for point in report["curve"]] == sorted(curve)
    for point in report["curve"]:
        figures = point["row"]["figures"]
        assert point["reached"] == (figures is not None and figures["dram_bytes"] <= 1.05 * figures["dram_bytes_floor"])
    smallest = report["smallest"]
    assert curve[smallest]["reached"]
    assert not curve[smallest - report["granularity"]]["reached"]
    assert min(value for value, point in curve.items() if point["reached"]) == smallest
    assert report["larger_misses"] == [value for value, p in curve.items() if value > smallest and not p["reached"]]


@pytest.mark.slow
def test_a_target_that_no_value_reaches_is_said_with_the_nearest() -> None:
    answer = sized("--target", "energy=1nJ", "--from", "64KiB", "--to", "128KiB")
    assert answer.exit_code == 3
    assert "None of the 2 values tried reaches the target" in answer.stdout.replace("\n", " ")
    assert "target_not_reached" in answer.stderr
    assert "Nearest is" in answer.stderr
    assert "1 nJ" in answer.stderr, "figures in the error have units"


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(("target", "least"), [("1KiB", "the minimum"), ("latency=1ns", "the bound")])
def test_a_target_below_the_bound_is_refused_after_the_ends_of_the_range(target: str, least: str) -> None:
    answer = sized("--target", target)
    assert answer.exit_code == 3
    assert " ".join(answer.stdout.split()).count(" missed ") == 2
    assert "so no others were tried" in answer.stdout
    assert "target_impossible" in answer.stderr
    assert least in answer.stderr
    assert "widen" not in answer.stderr


def test_a_field_of_a_memory_that_the_profile_lacks_is_refused_at_once_with_fields_that_it_has() -> None:
    for more in ((), ("--from", "1MiB", "--to", "4MiB", "--granularity", "1MiB")):
        answer = sized("--target", "1ms", "--field", "sram", *more)
        assert (answer.exit_code, answer.stdout) == (3, "")
        assert "edge4 has no sram" in answer.stderr
        assert "nram: vary one of them" in answer.stderr


def test_a_failed_point_keeps_the_columns_of_the_table_and_its_hint_is_said() -> None:
    answer = tessera("sweep", "chain.onnx", "-p", "edge4", "--grid", "sram=256KiB,1MiB")
    assert "     sram  latency  energy  DRAM  × minimum  chip memory\n" in answer.stdout
    assert "  256 KiB  failed: no_such_part\n" in answer.stdout
    assert "vary one of them" in answer.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--target", "speed=1"], "invalid_target"),
        (["--target", "latency=1ms", "--from", "2MiB", "--to", "1MiB"], "invalid_range"),
        (["--target", "latency=1ms", "--from", "2 parsecs"], "invalid_quantity"),
        (["--target", "latency=1ms", "--field", "srm"], "unknown_field"),
        (["--target", "0.9xminimum"], "invalid_target"),
    ],
)
def test_what_is_wrong_with_a_size_is_a_matter_of_usage(words: list[str], code: str) -> None:
    answer = sized(*words)
    assert (answer.exit_code, code in answer.output) == (2, True), answer.output


# compare


@cache
def plan(strategy: str, objective: str = "latency", ops: int = 4) -> Plan:
    options = parse_options({"fusion": strategy, "objective": objective})
    return plan_model(chain(ops), builtin_profile("edge4"), options).plan


def test_groups_are_paired_by_the_nodes_they_cover_and_nothing_is_counted_twice() -> None:
    a, b = plan("rules"), plan("none")
    document = compare(Compiled(plan=a, report=None), Compiled(plan=b, report=None))
    for side, found in ((a, [pair.a for pair in document.groups]), (b, [pair.b for pair in document.groups])):
        groups = [group for segment in side.segments for group in segment.groups]
        sums = [entry for entry in found if entry is not None]
        assert sorted(name for entry in sums for name in entry.groups) == sorted(group.id for group in groups)
        assert sum(entry.dram_bytes for entry in sums) == sum(group.dram_bytes for group in groups)
        assert sum(entry.estimated_latency_s for entry in sums) == pytest.approx(side.totals.latency_s)
    wide = document.groups[0]
    assert wide.a is not None
    assert wide.b is not None
    assert (len(wide.a.groups), len(wide.b.groups) > 1, wide.same) == (1, True, False)
    assert document.a.options == {"fusion": "rules"}
    totals = {row.figure: row for row in document.totals}
    percent = totals["dram_bytes"].change_percent
    assert percent == pytest.approx(100 * (b.totals.dram_bytes / a.totals.dram_bytes - 1))
    assert totals["simulated_latency_s"].a is None


def test_a_compilation_beside_itself_differs_in_nothing() -> None:
    document = compare(Compiled(plan=plan("none"), report=None), Compiled(plan=plan("none"), report=None))
    assert document.same_model
    assert all(pair.same and pair.a == pair.b for pair in document.groups)
    assert {row.change_percent for row in document.totals} <= {0.0, None}


def test_what_only_one_side_has_stands_alone_at_the_end() -> None:
    document = compare(Compiled(plan=plan("none", ops=2), report=None), Compiled(plan=plan("none", ops=4), report=None))
    assert not document.same_model
    assert [pair.a is None for pair in document.groups] == [False] * 2 + [True] * 2


@pytest.mark.usefixtures("terminal")
def test_folders_and_plans_are_compared_and_fit_the_terminal() -> None:
    for strategy in ("search", "none"):
        words = [
            "compile",
            "chain.onnx",
            "-p",
            "edge4",
            "--no-verify",
            "--set",
            f"fusion={strategy}",
            "--out",
            strategy,
        ]
        assert tessera(*words).exit_code == 0
    answer = tessera("compare", "search", "none")
    assert answer.exit_code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "nodes names a b DRAM a DRAM b latency a latency b" in " ".join(answer.stdout.split())
    for text in ("fusion=search", "fusion=none", "latency, simulated", "Host, b      runs nothing;", "s0.g0"):
        assert text in answer.stdout
    assert "latency simulated:" in answer.stdout
    # nothing is chosen by simulation there, so both plans are one
    assert tessera("plan", "chain.onnx", "-p", "edge4", "--set", "fusion=none", "--out", "planned").exit_code == 0
    same = tessera("compare", "planned", "none").stdout.partition("latency estimated:")[2]
    rows = [row.split()[-4:] for row in same.splitlines()[2:]]  # each latency with its unit
    assert rows
    assert all(row[:2] == row[2:] for row in rows)
    alone = json.loads(tessera("compare", "search/plan.json", "none", "--json").stdout)
    assert alone == json.loads(tessera("compare", "search", "none", "--json").stdout)


@pytest.mark.parametrize(("name", "text"), [("plan.json", "{}"), ("plan.json", "\x00"), ("other.json", "{}")])
def test_what_is_no_compilation_cannot_be_compared(name: str, text: str) -> None:
    Path("folder").mkdir()
    Path("folder", name).write_text(text)
    answer = tessera("compare", "folder", "folder")
    assert answer.exit_code == 2
    assert "Traceback" not in answer.output


@pytest.mark.slow
def test_a_profile_file_may_be_swept() -> None:
    Path("mine.json").write_bytes(profile_json(parse_profile(profile_json(builtin_profile("edge4")))))
    assert swept("--profile", "mine.json", "--grid", "cores=2,4")["profiles"][0]["name"] == "edge4"
