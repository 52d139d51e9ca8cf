"""UI-2: the package `tessera` without a service: imports, arguments, results and what a notebook shows of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

import tessera
from compiler.profile import builtin_profile, profile_digest, profile_json
from tests.models import Model
from tests.service.harness import conv_chain

if TYPE_CHECKING:
    from collections.abc import Callable

NASTY = "<script>alert(1)</script>&amp;[bold]"


def small() -> bytes:
    """A convolution and an activation, with names that are markup."""
    model = Model(name="net")
    model.output(model.relu(model.conv(model.input([1, 3, 8, 8], NASTY), 3, 4, 3, name=NASTY)))
    return model.data()


def test_importing_the_package_imports_nothing_else_of_weight() -> None:
    program = "import sys; before = set(sys.modules); import tessera; print(*set(sys.modules) - before)"
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in answer.stdout.split()} - {"tessera"} <= set(sys.stdlib_module_names)


def test_every_public_name_is_there_and_no_other() -> None:
    assert sorted(dir(tessera)) == tessera.__all__
    for name in tessera.__all__:
        assert getattr(tessera, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        exec("tessera.nonesuch")


def test_a_client_has_each_method_of_the_asynchronous_one() -> None:
    methods = {name for name in vars(tessera.AsyncClient) if not name.startswith("_")}
    assert methods <= set(dir(tessera.Client))
    assert tessera.Client.compile.__doc__ == tessera.AsyncClient.compile.__doc__


@pytest.mark.parametrize(
    ("model", "profile"),
    [
        (lambda path: path, lambda _: "edge4"),
        (str, lambda path: path.with_name("edge4.json")),
        (lambda path: path.read_bytes(), lambda path: path.with_name("edge4.json").read_bytes()),
        (onnx.load, lambda _: json.loads(profile_json(builtin_profile("edge4")))),
        (onnx.load, lambda _: builtin_profile("edge4")),
    ],
    ids=["Path and name", "str and file", "bytes", "ModelProto and mapping", "ModelProto and Profile"],
)
def test_models_and_profiles_are_taken_in_every_form(
    model: Callable[[Path], Any], profile: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(small())
    path.with_name("edge4.json").write_bytes(profile_json(builtin_profile("edge4")))
    plan = tessera.compile(model(path), profile(path), {"verify": "none", "fusion": "none"}).plan
    assert plan.profile.digest == profile_digest(builtin_profile("edge4"))
    assert plan.model.sha256 in (
        sha256(path.read_bytes()).hexdigest(),
        sha256(onnx.load(path).SerializeToString()).hexdigest(),
    )
    assert plan.options["fusion"] == "none"


def test_what_a_callback_raises_reaches_the_caller() -> None:
    def stop(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tessera.compile(small(), "edge4", on_plan=stop)
    with pytest.raises(ZeroDivisionError):
        tessera.compile(small(), "edge4", on_phase=stop)


def test_what_is_no_model_or_profile_is_refused_in_words(tmp_path: Path) -> None:
    wrong: Any = 5
    with pytest.raises(tessera.RequestError, match=r"a path, the bytes of a file, or an onnx\.ModelProto"):
        tessera.compile(wrong, "edge4")
    with pytest.raises(tessera.ProfileError, match="no mapping of plain values"):
        tessera.compile(small(), {"name": object()})
    with pytest.raises(tessera.RequestError, match="there is no file"):
        tessera.compile(tmp_path / "nonesuch.onnx", "edge4")
    with pytest.raises(tessera.RequestError, match="there is no file"):
        tessera.Compilation.load(tmp_path)


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_the_tables_of_the_command_line_with_names_escaped() -> None:
    found = tessera.compile(small(), "edge4")
    run = found.run(seed=1)
    assert found.executable is not None
    for shown in (found, found.plan, found.report, found.executable, run):
        page = Seen(shown._repr_html_())
        assert page.tags <= {"pre", "span"}, type(shown)
        assert len(repr(shown)) < 1000
        if shown not in (found.report, found.executable):
            assert page.text.strip() == str(shown).strip()
    assert "<script>" in Seen(found.executable._repr_html_()).text
    assert "layer by layer" in str(found)
    assert "outputs verified" in repr(found)


def test_a_folder_gives_back_what_was_saved_and_no_executable_where_there_is_none(tmp_path: Path) -> None:
    found = tessera.compile(small(), "edge4", {"verify": "none"})
    assert found.save(tmp_path / "a") == ["plan.json", "report.json", "report.html", "executable.tsx", "listing.txt"]
    again = tessera.Compilation.load(tmp_path / "a")
    again.save(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    run = again.run(seed=1)
    run.save(tmp_path / "outputs.npz")
    assert (tmp_path / "outputs.npz").stat().st_size > sum(values.nbytes for values in run.outputs.values())
    (tmp_path / "b" / "executable.tsx").unlink()
    bare = tessera.Compilation.load(tmp_path / "b")
    assert bare.executable is None
    with pytest.raises(tessera.RequestError, match="no executable"):
        bare.run()


def test_limits_hold_in_the_main_thread_and_are_refused_elsewhere() -> None:
    with pytest.raises(tessera.LimitError, match="time_limit_s"):
        tessera.compile(conv_chain(30), "edge4", {"time_limit_s": 0.1})  # takes seconds
    said: list[str] = []

    def elsewhere() -> None:
        try:
            tessera.compile(small(), "edge4", {"time_limit_s": 60.0})
        except tessera.RequestError as error:
            said.append(error.message)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in said[0]
