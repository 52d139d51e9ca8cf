"""Small parts of the service, each on its own: HTTP, settings, URLs, problems, processes."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import pytest
from fastapi import Request
from pydantic import ValidationError

from app import errors
from app.cli.failures import show
from app.documents import documents
from app.http import decode_cursor, encode_cursor, not_modified, preferred_wait_s
from app.jobs.queue import create_celery
from app.keys.owners import Owner
from app.problems import problem, status_of
from app.profiles import service as profiles
from app.redis_urls import celery_url, client_url
from app.settings import Settings
from app.uploads import file_name
from compiler.errors import InternalError, LimitError, ModelError, ProfileError, RequestError, TesseraError
from compiler.profile import builtin_profile, profile_digest
from tests.service.harness import conv_chain

ROOT = Path(__file__).parents[2]


def request(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": pairs})


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=3", 3.0),
        ("respond-async, wait=3", 3.0),
        ('wait="4"', 4.0),
        ("wait=999", 30.0),
        ("await=3", None),
        ("wait=x", None),
        ("", None),
    ],
)
def test_the_wait_preference_is_read_and_bounded(header: str, seconds: float | None) -> None:
    assert preferred_wait_s(request(prefer=header), 30.0) == seconds


@pytest.mark.parametrize(
    ("header", "matches"), [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False)]
)
def test_if_none_match_is_compared_with_the_digest(header: str, matches: bool) -> None:
    assert not_modified(request(if_none_match=header), "a") == matches


def test_a_cursor_comes_back_as_it_was_and_anything_else_is_refused() -> None:
    assert decode_cursor(encode_cursor((1.5, "x"))) == (1.5, "x")
    for text in ("", "!", "e30", "é", encode_cursor((1.5, "x"))[:-3]):
        with pytest.raises(RequestError, match="cursor"):
            decode_cursor(text)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.MalformedError("m"), 400),
        (errors.NotFoundError("m"), 404),
        (errors.ConflictError("m"), 409),
        (errors.TooLargeError("m"), 413),
        (errors.UnsupportedMediaError("m"), 415),
        (errors.UnavailableError("m"), 503),
        (RequestError("m"), 422),
        (ModelError("m"), 422),
        (ProfileError("m"), 422),
        (LimitError("m"), 422),
        (InternalError("m"), 500),
        (TesseraError("m"), 500),
    ],
)
def test_each_class_of_errors_has_its_status(error: TesseraError, status: int) -> None:
    assert status_of(error) == status


def test_text_of_a_model_in_a_problem_is_one_printable_line() -> None:
    shown = problem({"code": "c", "message": "a\x1b[31m\nb", "node": "n\r\n" + "x" * 1000}, 422, None)
    assert shown.detail == "a\\x1b[31m\\nb"
    assert shown.node is not None
    assert len(shown.node) < 400
    assert "\n" not in shown.node


@pytest.mark.parametrize("length", [10, 301, 20_000])
def test_a_hint_is_whole_over_http_and_on_the_command_line(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    error = RequestError("wrong", hint="x" * length)
    assert problem(error.to_dict(), 422, None).hint == error.hint
    show(error, as_json=False)
    assert "x" * length in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("net.onnx", "net.onnx"),
        ("/a/b/net.onnx", "net.onnx"),
        ("..\\..\\net", "net"),
        ("..", ".."),
        ("a\0b", "a\\x00b"),
    ],
)
def test_a_file_name_has_no_folders_and_no_control_characters(given: str, shown: str) -> None:
    assert file_name(given) == shown


def test_one_of_the_two_urls_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_BROKER_URL", "redis://localhost")
    with pytest.raises(ValidationError, match="both"):
        Settings()
    monkeypatch.setenv("TESSERA_CACHE_URL", "redis://localhost/1")
    assert not Settings().embedded


def test_a_setting_is_read_from_a_file_unless_a_variable_gives_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tessera_broker_url").write_text("redis://:secret@broker/0\n")
    (tmp_path / "tessera_cache_url").write_text("redis://:secret@cache/0\n")
    (tmp_path / "tessera_port").write_text("1")
    (tmp_path / "another.conf").write_text("of another program")
    monkeypatch.setenv("TESSERA_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("TESSERA_PORT", "2")
    settings = Settings()
    assert (settings.broker_url, settings.cache_url) == ("redis://:secret@broker/0", "redis://:secret@cache/0")
    assert (settings.port, Settings(port=3).port) == (2, 3)
    monkeypatch.setenv("TESSERA_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(ValidationError, match="no folder"):
        Settings()


def test_a_redis_url_is_given_to_each_library_in_its_form() -> None:
    for url in ("unix:///run/r.sock?db=2", "redis+socket:///run/r.sock?virtual_host=2"):
        assert client_url(url) == "unix:///run/r.sock?db=2"
        assert celery_url(url) == "redis+socket:///run/r.sock?virtual_host=2"
    assert celery_url("rediss://h:1/0") == client_url("rediss://h:1/0") == "rediss://h:1/0"
    with pytest.raises(RequestError, match="Redis URL"):
        client_url("http://h")


def test_celery_is_set_as_api_6_says() -> None:
    """API-6."""
    settings = Settings(broker_url="redis://localhost", cache_url="redis://localhost", time_limit_s=100)
    celery = create_celery(settings, ["short", "long"])
    conf = celery.conf
    assert (conf.task_serializer, conf.accept_content) == ("json", ["json"])
    assert conf.task_acks_late
    assert not conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert 100 < conf.task_soft_time_limit < conf.task_time_limit
    assert conf.worker_max_memory_per_child > 0
    assert conf.worker_max_tasks_per_child > 0
    assert conf.worker_soft_shutdown_timeout > 0
    assert {queue.name for queue in conf.task_queues} == {"short", "long"}
    timeouts = {
        conf.visibility_timeout,
        conf.broker_transport_options["visibility_timeout"],
        conf.result_backend_transport_options["visibility_timeout"],
    }
    assert len(timeouts) == 1
    assert min(timeouts) > conf.task_time_limit
    celery.close()


def test_the_committed_documents_are_those_of_the_code() -> None:
    """Rewrite them with `make openapi`."""
    for name, text in documents().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is not up to date: make openapi"


def test_no_document_points_to_a_text_outside_the_repository() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text()
        assert not re.search(r"\b(SPEC|HOUSE_STYLE|FACTS)\b", text), page
        for target in re.findall(r"\]\(([^)#:%\s]+)(?:#[^)]*)?\)", text) if page.suffix == ".md" else ():
            assert (page.parent / target).exists(), f"{page} points to {target}"


def test_no_operation_of_the_document_lacks_a_description() -> None:
    document = json.loads(documents()["openapi.json"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (path, method)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_app_does_not_import_worker_and_only_the_worker_and_the_command_line_compile() -> None:
    for path in (ROOT / "app").rglob("*.py"):
        for name in imports_of(path):
            assert name.split(".")[0] != "worker", (path, name)
            # app.documents writes the generated pages, app.simulations.simulate is what worker and command line run,
            # app.client compiles for its caller, app.input_files opens the models of both: none is part of a service
            apart = ("documents.py", "simulate.py", "input_files.py")
            if not {"cli", "client"} & set(path.parts) and path.name not in apart:
                assert name not in ("compiler.compile", "compiler.pipeline"), (path, name)
                assert not name.startswith("compiler.frontend"), (path, name)


def test_only_the_command_line_imports_the_command_line() -> None:
    for folder in ("app", "worker", "compiler", "tessera"):
        for path in (ROOT / folder).rglob("*.py"):
            if "cli" not in path.relative_to(ROOT).parts:
                assert not any(f"{name}.".startswith("app.cli.") for name in imports_of(path)), path


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("worker.app", ("fastapi", "uvicorn", "starlette")),
        ("worker.task", ("fastapi", "uvicorn", "starlette")),
        ("app.main", ("onnx", "celery", "compiler.compile", "app.simulations.simulate")),
        ("app.cli.main", ("fastapi", "celery", "onnx")),
    ],
)
def test_a_process_loads_only_what_it_needs(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


# What no wrong argument and no question about the command itself has to wait for.
SLOW = ("onnx", "google.protobuf", "onnxruntime", "numba", "httpx", "redis", "perfetto", "compiler.pipeline", "celery")
LISTED = "import atexit, sys; atexit.register(lambda: sys.stderr.write(repr([m for m in {!r} if m in sys.modules])))"
RUN = "sys.argv[0] = 'tessera'; from app.cli.console_script import run; run()"


@pytest.mark.matrix(first=5, rest=11)
@pytest.mark.parametrize(
    ("words", "exit_code", "modules"),
    [
        (["--help"], 0, (*SLOW, "numpy", "yaml")),
        (["compile", "-h"], 0, (*SLOW, "numpy", "yaml")),
        (["--version"], 0, (*SLOW, "numpy", "yaml")),
        (["--show-completion", "bash"], 0, (*SLOW, "numpy", "yaml")),
        (["compile", "--no-such-option"], 2, (*SLOW, "numpy", "yaml")),
        (["compile", "nonesuch.onnx", "--profile", "edge4"], 2, (*SLOW, "numpy", "yaml")),
        (["run", "nonesuch.onnx", "--profile", "edge4"], 2, (*SLOW, "numpy", "yaml")),
        (["plan", "net.onnx", "--profile", "edge4", "--set", "nonesuch=1"], 2, (*SLOW, "numpy", "yaml")),
        (["compile", "net.onnx", "--profile", "edge4", "--out", "net.onnx"], 2, SLOW),
        *(
            ([command, "net.onnx", "--profile", "nonesuch", *more], 2, SLOW)
            for command, *more in (
                ("compile",),
                ("plan",),
                ("explain",),
                ("run",),
                ("listing",),
                ("trace", "--out", "trace"),
                ("table",),
                ("package", "--out", "package"),
                ("sweep",),
                ("size", "--field", "sram", "--target", "2ms"),
            )
        ),
        (["sweep", "net.onnx", "--profile", "edge4", "--grid", "nonesuch=1"], 2, SLOW),
        (["table", "net.onnx", "--profile", "edge4", "--shape", "nonsense"], 2, SLOW),
        (["run", "net.onnx", "--profile", "edge4", "--shape", "nonsense"], 2, SLOW),
        *(
            ([command, "net.onnx", "-p", "edge4", "--server", "nonsense"], 2, SLOW)
            for command in ("plan", "compile", "run")
        ),
        (["serve"], 2, (*SLOW, "fastapi", "numpy", "yaml")),
        (["size", "net.onnx", "--profile", "edge4", "--field", "sram", "--target", "nonesuch"], 2, SLOW),
    ],
)
def test_a_wrong_argument_is_answered_before_the_compiler_is_imported(
    words: list[str], exit_code: int, modules: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(conv_chain(1))
    answer = subprocess.run(
        [sys.executable, "-c", f"{LISTED.format(modules)}; {RUN}", *words],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TESSERA_PORT": "nonsense",
            "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert answer.returncode == exit_code, answer.stderr
    assert answer.stderr.endswith("[]"), answer.stderr


def test_shells_complete_commands_and_options() -> None:
    for typed, expected in (("tessera comp", {"compile", "compare"}), ("tessera compile --ser", {"--server"})):
        asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_TESSERA_COMPLETE": "complete_bash"}
        answer = subprocess.run(
            [sys.executable, "-c", f"import sys; {RUN}"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert set(answer.stdout.split()) == expected, answer.stderr


@pytest.mark.parametrize("target", ["demo", "serve", "test"])
def test_make_compiles_the_machine_code_before_it_starts_anything(target: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}", target], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    started = {"test": "-m pytest"}.get(target, f"tessera {target}")
    assert 0 < done.index("-m compiler.kernels") < done.index(started)


def test_a_profile_that_is_deleted_twice_at_once_is_not_taken_for_a_builtin_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both requests found it; the second comes after the first has deleted it."""
    mine = msgspec.structs.replace(builtin_profile("edge4"), name="mine")
    monkeypatch.setattr(profiles, "get", lambda _context, _name: mine)
    context = MagicMock(owner=Owner(name="ann"))
    context.records.delete_profile.return_value = "unknown"
    profiles.delete(context, "mine")
    context.records.delete_profile.assert_called_once_with(profile_digest(mine), owner="ann")


def test_the_description_of_the_api_says_that_errors_are_problems() -> None:
    """API-4: it said application/json, and FastAPI's own form of some errors."""
    described = json.loads((ROOT / "docs" / "openapi.json").read_text())
    components = described["components"]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for code, response in operation["responses"].items():
                if code[0] in "45":
                    named = components["responses"][response["$ref"].rpartition("/")[2]]
                    assert list(named["content"]) == ["application/problem+json"], (path, method, code)
    for response in components["responses"].values():
        assert response["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert "HTTPValidationError" not in components["schemas"]


def test_the_description_states_each_answer_and_leaves_none_open() -> None:
    """API-8: `default` stood for what was not described, and what any request can get was missing."""
    described = json.loads((ROOT / "docs" / "openapi.json").read_text())
    anywhere = {"400", "403", "408", "421", "431", "500", "503", "507"}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"].keys()
            assert "default" not in answers
            assert anywhere <= answers, (path, method)
            assert "requestBody" not in operation or {"413", "415", "422"} <= answers, (path, method)
    events = described["paths"]["/v1/jobs/{job_id}/events"]["get"]["responses"]["200"]["content"]
    assert list(events) == ["text/event-stream"]  # it said application/json
    responses = described["components"]["responses"]
    assert "WWW-Authenticate" in responses["KeyRequired"]["headers"]
    for name in ("TooMany", "Unavailable", "StorageFull"):
        assert "Retry-After" in responses[name]["headers"], name


def test_the_readme_says_how_to_start_the_service_in_containers() -> None:
    assert "docker compose up" in (ROOT / "README.md").read_text()


def test_each_test_that_the_findings_name_exists() -> None:
    text = (ROOT / "docs" / "benchmarks" / "0024-service.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 30
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
