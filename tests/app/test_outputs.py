"""Files that the command line writes: checked before the work, whole or not there, and output that nobody reads."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import compiling
from app.cli.main import cli
from app.client.output_folder import Compiled
from app.outputs import check_file, whole_files
from compiler.errors import RequestError
from tests.service.harness import light_model
from tests.service.models import network

ROOT = Path(__file__).parents[2]
PROFILE = ("-p", "edge4")
VARIED = (*PROFILE, "--grid", "nram=256KiB")
SIZED = (*PROFILE, "--field", "nram", "--target", "latency=1ms")
WRITERS = {
    "compile": (*PROFILE, "--out"),
    "plan": (*PROFILE, "--out"),
    "plan --pictures": (*PROFILE, "--pictures"),
    "plan --compare": (*PROFILE, "--compare", "rules,none", "--out"),
    "run": (*PROFILE, "--outputs"),
    "trace": (*PROFILE, "--out"),
    "sweep": (*VARIED, "--out"),
    "size": (*SIZED, "--out"),
    "package": (*PROFILE, "--out"),
}
FOLDERS = ("compile", "plan", "plan --pictures", "plan --compare")


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a small network in it and nothing else."""
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(network().data())


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling is a failure of the test."""

    def begun(*_: object, **__: object) -> None:
        pytest.fail("the work began")

    monkeypatch.setattr("compiler.compile.compile_model", begun)
    monkeypatch.setattr("compiler.compile.compile_package", begun)
    monkeypatch.setattr("app.cli.point_pool.PointPool.run", begun)


def command(writer: str, path: str) -> list[str]:
    return [writer.split()[0], "net.onnx", *WRITERS[writer], path]


def refused(words: list[str]) -> str:
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 2, answer.output
    assert "cannot_write" in answer.stderr
    return answer.stderr


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer not in FOLDERS])
def test_a_file_in_a_missing_folder_or_in_the_place_of_one_is_refused_before_the_work(writer: str) -> None:
    assert "there is no folder" in refused(command(writer, "missing/file"))
    assert "it is a folder, not a file" in refused(command(writer, "."))
    assert "no file can be made in /proc" in refused(command(writer, "/proc/file"))


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("writer", FOLDERS)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(writer: str) -> None:
    assert "net.onnx is a file, not a folder" in refused(command(writer, "net.onnx"))
    assert "net.onnx is a file, not a folder" in refused(command(writer, "net.onnx/deeper"))
    assert "no file can be made in /proc" in refused(command(writer, "/proc/folder"))


@pytest.mark.usefixtures("no_work")
def test_a_folder_in_the_place_of_a_document_is_refused_before_the_work() -> None:
    Path("out/plan.json").mkdir(parents=True)
    assert "out/plan.json: it is a folder, not a file" in refused(command("compile", "out"))


def tessera(*words: str, stdout: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )


def test_a_full_disk_leaves_the_files_that_were_there_and_nothing_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out").mkdir()
    beginnings = {  # of files that may be replaced
        "plan.json": '{"schema": "tessera.plan/1"}',
        "report.json": '{"schema": "tessera.report/1"}',
    }
    before = {name: f"{text} of before" for name, text in beginnings.items()}
    for name, text in before.items():
        Path("out", name).write_text(text)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiled = compiling.compiled

    def then_full(*words: Any, **named: Any) -> Compiled:
        found = compiled(*words, **named)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # enough for some of the files
        return found

    monkeypatch.setattr(compiling, "compiled", then_full)
    try:
        answer = CliRunner().invoke(cli, ["compile", "net.onnx", *PROFILE, "--no-verify", "--out", "out"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.exit_code == 2, answer.output
    assert "not written: a file would be larger" in answer.stderr
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_files_are_written_all_or_none_and_a_full_disk_is_said(number: int) -> None:
    Path("a").write_text("before")

    def written() -> None:
        with whole_files() as fresh:
            fresh(Path("a")).write_text("after")
            fresh(Path("b")).write_text("af")
            raise OSError(number, os.strerror(number))

    with pytest.raises(RequestError, match="the disk is full"):
        written()
    assert {path.name for path in Path().iterdir()} == {"a", "net.onnx"}
    assert Path("a").read_text() == "before"


def test_what_was_moved_before_a_failure_is_said() -> None:
    def written() -> None:
        with whole_files() as fresh:
            fresh(Path("a")).write_text("after")
            fresh(Path("b")).write_text("after")
            Path("b").mkdir()

    with pytest.raises(RequestError, match=r"b was not written: Is a directory") as raised:
        written()
    assert str(Path("a").resolve()) in str(raised.value.hint)
    assert {path.name for path in Path().iterdir()} == {"a", "b", "net.onnx"}


def test_a_device_that_is_full_is_not_said_to_be_as_it_was() -> None:
    def written() -> None:
        with whole_files() as fresh:
            fresh(Path("/dev/full")).write_text("text")

    with pytest.raises(RequestError, match="/dev/full was not written: the disk is full") as raised:
        written()
    assert "as they were" not in str(raised.value.hint)


WRITE_AND_WAIT = """
import sys
from pathlib import Path
from app.outputs import check_file, whole_files

with whole_files() as fresh:
    fresh(Path("out/plan.json")).write_text("half")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_the_next_write_removes_what_a_killed_process_left_and_nothing_of_one_that_lives() -> None:
    Path("out/.tessera-mine").mkdir(parents=True)
    program = [sys.executable, "-c", WRITE_AND_WAIT]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    program,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
        killed, alive = writers
        killed.kill()
        killed.wait()
        assert len(list(Path("out").glob(".tessera-*"))) == 3
        with whole_files() as fresh:
            fresh(Path("out/report.json")).write_text("whole")
        assert len(list(Path("out").glob(".tessera-*"))) == 2
        alive.communicate(b"")
        assert alive.returncode == 0
    assert Path("out/plan.json").read_text() == "half"
    assert {path.name for path in Path("out").iterdir()} == {"plan.json", "report.json", ".tessera-mine"}


def test_a_link_stays_a_link_and_a_device_is_written_to_as_it_is() -> None:
    Path("real").write_text("before")
    Path("real").chmod(0o640)
    Path("link").symlink_to("real")
    with whole_files() as fresh:
        fresh(Path("link")).write_text("after")
        fresh(Path("/dev/null")).write_text("nowhere")
    assert (Path("link").is_symlink(), Path("real").read_text()) == (True, "after")
    assert Path("real").stat().st_mode & 0o777 == 0o640
    assert Path("/dev/null").is_char_device()


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("words", [["--help"], ["profiles"], ["version"], ["listing", "net.onnx", *PROFILE]])
def test_a_reader_that_has_seen_enough_ends_a_command_without_noise(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    answer = tessera(*words, stdout=write)
    os.close(write)
    assert answer.returncode == 0
    assert [line for line in answer.stderr.splitlines() if not line.startswith("net.onnx: ")] == []


def test_a_pipe_is_written_to_as_it_is() -> None:
    read, write = os.pipe()
    with whole_files() as fresh:
        check_file(Path(f"/proc/self/fd/{write}"))
        fresh(Path(f"/proc/self/fd/{write}")).write_text("all of it")
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "all of it"


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_to_itself_is_refused_before_the_work(writer: str) -> None:
    Path("loop").symlink_to("loop")
    assert "leads to itself" in refused(command(writer, "loop"))


@pytest.mark.usefixtures("no_work")
def test_the_folder_of_each_compared_strategy_is_checked_before_the_work() -> None:
    Path("out").mkdir()
    Path("out/none").touch()
    assert "none is a file" in refused(command("plan --compare", "out"))


def test_a_file_system_without_locks_takes_files_and_keeps_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with whole_files() as fresh:
        fresh(Path("text")).write_text("written")
    assert Path("text").read_text() == "written"
    assert not list(Path().glob(".tessera-*"))


@pytest.mark.parametrize("words", [["compile", "net.onnx", *PROFILE], ["plan", "net.onnx", *PROFILE]])
def test_a_plan_is_shown_though_its_files_cannot_be_written(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    answer = CliRunner().invoke(cli, [*words, "--out", "out"])
    assert answer.exit_code == 2
    assert "the disk is full" in answer.stderr
    assert "Limited by" in answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [["compile", "net.onnx", *PROFILE], ["plan", "net.onnx", *PROFILE]])
def test_a_command_whose_reader_is_gone_writes_its_files(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    answer = tessera(*words, "--out", "out", stdout=write)
    os.close(write)
    assert answer.returncode == 0, answer.stderr
    assert {"plan.json", "report.json", "report.html"} <= {path.name for path in Path("out").iterdir()}


@pytest.mark.parametrize("words", [["profiles"], ["version"]])
def test_output_that_cannot_be_written_is_said_once(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        answer = tessera(*words, stdout=full)
    assert answer.returncode == 2
    assert answer.stderr.count("No space left on device") == 1
    assert "Traceback" not in answer.stderr


# Raises SIGINT when a module is looked for, or when so much processor time was spent.
INTERRUPT = """
import os, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
signal.signal(signal.SIGVTALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
signal.setitimer(signal.ITIMER_VIRTUAL, {seconds})
from app.cli.console_script import run
run()
"""


def ended(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python program's end, with Ctrl-C as it is in a terminal: these tests may run where it is ignored."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def interrupted(module: str, seconds: float, *words: str) -> None:
    answer = ended(INTERRUPT.format(module=module, seconds=seconds), *words, *PROFILE)
    said = [line for line in answer.stderr.splitlines() if not re.fullmatch(r"\w+\.onnx: [a-z, ]+", line)]
    assert (answer.returncode, said) == (130, [])


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize("module", ["typer", "app.cli.main", "app.cli.compiling", "numpy", "onnx", "compiler.pipeline"])
def test_ctrl_c_during_an_import_is_exit_code_130_and_no_traceback(module: str) -> None:
    interrupted(module, 0, "plan", "net.onnx")


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.6, 0.9])
def test_ctrl_c_once_python_has_started_is_exit_code_130_and_no_traceback(seconds: float) -> None:
    interrupted("", seconds, "compile", str(light_model("squeezenet")))  # takes far longer


@pytest.mark.parametrize("callback", ["__del__", "weakref", "library"])
def test_ctrl_c_whose_error_python_or_a_library_drops_is_not_lost(callback: str) -> None:
    program = f"""
import os, signal, sys, time, weakref
import app.cli.main
from app.cli import console_script

class Thing:
    if {callback == "__del__"}:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

def command():
    thing = Thing()
    ref = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT)) if {callback == "weakref"} else None
    del thing
    if {callback == "library"}:  # Cython drops what is raised while it imports
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            pass
    time.sleep(60)

app.cli.main.cli = command
console_script.run()
"""
    answer = ended(program)
    assert (answer.returncode, answer.stderr) == (130, "")


def test_a_repeated_ctrl_c_does_not_disturb_what_cleans_up_after_it(tmp_path: Path) -> None:
    done = tmp_path / "done"
    program = f"""
import os, signal, time
import app.cli.main
from app.cli import console_script

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    finally:
        try:
            time.sleep(4 * console_script._AGAIN_S)
        finally:
            open({str(done)!r}, "w").close()

app.cli.main.cli = command
console_script.run()
"""
    answer = ended(program)
    assert (answer.returncode, answer.stderr) == (130, "")
    assert done.exists()


@pytest.mark.parametrize("presses", [1, 2])
def test_nothing_repeats_a_ctrl_c_that_was_heard(presses: int) -> None:
    program = f"""
import os, signal, time
import app.cli.main
from app.cli import console_script

def command():
    try:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        finally:
            if {presses} > 1:
                os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        console_script.heard()
        time.sleep(4 * console_script._AGAIN_S)
        print("done")

app.cli.main.cli = command
console_script.run()
"""
    answer = ended(program)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "done\n", "")
