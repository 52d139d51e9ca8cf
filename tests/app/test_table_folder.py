"""SHAPE-7: tables kept in a folder, by several processes, in bounded room."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from app.cli.table_folder import TableFolder
from app.tables.table_encoding import StoredAxis, StoredRun, StoredTable
from compiler.errors import RequestError

SIMPLE = StoredTable(
    kind="simple",
    settled=False,
    simple_cycles=10.0,
    optimised_cycles=None,
    shape=(7,),
    runs=(StoredRun(unit=0, shared=0, order=(0,), axes=(StoredAxis(start=0, length=7, count=1, mode=0),)),),
)
BEST = msgspec.structs.replace(SIMPLE, kind="optimised", settled=True, optimised_cycles=9.0)
BLOCK = 4096


def key(number: int) -> str:
    return f"{number:064x}"


def file_of(folder: TableFolder, number: int) -> Path:
    (found,) = folder.path.glob(f"*/??/{key(number)}")
    return found


def test_a_table_is_kept_until_a_better_one_comes_and_no_simple_one_takes_its_place(tmp_path: Path) -> None:
    folder = TableFolder(path=tmp_path)
    assert folder.read(key(1)) is None
    for table, kept in ((SIMPLE, SIMPLE), (BEST, BEST), (SIMPLE, BEST)):
        folder.write(key(1), table)
        assert folder.read(key(1)) == kept
    file_of(folder, 1).write_bytes(b"damaged")
    assert folder.read(key(1)) is None
    folder.write(key(1), SIMPLE)
    assert folder.read(key(1)) == SIMPLE


def test_writers_take_turns_so_that_what_was_looked_at_is_what_is_replaced(tmp_path: Path) -> None:
    """A better table that comes while another process is about to write a simple one stays."""
    folder = TableFolder(path=tmp_path)
    folder.write(key(1), SIMPLE)
    better = tmp_path / "better"
    TableFolder(path=better).write(key(1), BEST)
    with (tmp_path / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=folder.write, args=(key(1), SIMPLE))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        file_of(folder, 1).write_bytes(file_of(TableFolder(path=better), 1).read_bytes())
    writer.join(60)
    assert folder.read(key(1)) == BEST


def test_processes_at_once_lose_nothing_and_leave_nothing_half_written(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from app.cli.table_folder import TableFolder\n"
        "from tests.app.test_table_folder import BEST, SIMPLE, key\n"
        "folder = TableFolder(path=Path(sys.argv[1]))\n"
        "for number in range(40):\n"
        "    folder.write(key(number), (BEST, SIMPLE)[(number + int(sys.argv[2])) % 2])\n"
        "    folder.prune()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait(timeout=80) for process in running] == [0, 0, 0]
    folder = TableFolder(path=tmp_path)
    assert all(folder.read(key(number)) == BEST for number in range(40))
    assert [path.name for path in tmp_path.rglob(".*")] == [".lock"]


def test_the_tables_that_were_not_read_for_longest_make_room(tmp_path: Path) -> None:
    folder = TableFolder(path=tmp_path, limit_bytes=10 * BLOCK)
    for number in range(10):
        folder.write(key(number), SIMPLE)
        os.utime(file_of(folder, number), (number, number))
    assert folder.prune() == 0
    assert folder.read(key(0)) == SIMPLE  # used just now
    folder.write(key(10), SIMPLE)
    assert folder.prune() == 2
    left = [number for number in range(11) if folder.read(key(number)) is not None]
    assert left == [0, *range(3, 11)]


def test_only_tables_go_whatever_else_is_in_the_folder(tmp_path: Path) -> None:
    folder = TableFolder(path=tmp_path, limit_bytes=0)
    folder.write(key(1), SIMPLE)
    mine = [tmp_path / "T1" / "00" / "letter.txt", tmp_path / "Tea" / "00" / key(1), tmp_path / "notes"]
    half = file_of(folder, 1).with_name(f".{key(2)}.0123abcd")
    old = file_of(folder, 1).with_name(f".{key(3)}.0123abcd")
    other_version = tmp_path / "T0" / "00" / key(4)
    for path in (*mine, half, old, other_version):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    os.utime(old, (time.time() - 7200,) * 2)
    assert folder.prune() == 2
    assert all(path.exists() for path in (*mine, half))
    assert not any(path.exists() for path in (old, other_version))


def test_the_limit_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TABLES", str(tmp_path))
    assert TableFolder.of(None) == TableFolder(path=tmp_path, limit_bytes=64 << 20)
    monkeypatch.setenv("TESSERA_TABLES_BYTES", "8192")
    assert TableFolder.of(tmp_path / "own") == TableFolder(path=tmp_path / "own", limit_bytes=8192)
    for wrong in ("-1", "64 MiB", "٣", "9" * 19):
        monkeypatch.setenv("TESSERA_TABLES_BYTES", wrong)
        with pytest.raises(RequestError, match="no number of bytes"):
            TableFolder.of(None)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RequestError) as caught:
        TableFolder(path=tmp_path / "file" / "tables").write(key(1), SIMPLE)
    assert caught.value.code == "cache_not_writable"
    assert str(tmp_path) in str(caught.value.actual)
