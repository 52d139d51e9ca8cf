"""UI-1, API-2: the command line with a service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.client.client import Client
from app.client.errors import ServiceError
from app.client.types import Job
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, parse_profile, profile_json
from tests.service.harness import Api, conv_chain, until
from tests.service.models import SIDECARS, dynamic, lstm, written

pytestmark = pytest.mark.service
TESSERA = Path(sys.executable).with_name("tessera")


def test_a_service_and_this_process_give_the_same_plan(service: EmbeddedService, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(conv_chain(5, channels=9))
    words = ["compile", str(tmp_path / "net.onnx"), "--profile", "edge4", "--set", "start_rule=B"]
    words += ["--set", "fusion=none"]
    here = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "here")])
    there = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "there"), "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    for name in ("plan.json", "report.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def both(service: EmbeddedService, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command, which are the same in this process and on the service."""
    here = CliRunner().invoke(cli, [*words, "--profile", "edge4"])
    there = CliRunner().invoke(cli, [*words, "--profile", "edge4", "--server", service.url])
    assert (here.exit_code, here.stdout) == (there.exit_code, there.stdout), there.output
    assert "Traceback" not in here.output + there.output
    return here.exit_code, here.stdout, there.stderr


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("group", [None, "s0.g0", "s1", "s1.g0"])
def test_a_service_and_this_process_explain_a_plan_in_the_same_words(
    service: EmbeddedService, tmp_path: Path, group: str | None
) -> None:
    """UI-1; the model's weights lie beside it, and the service gets all in one archive."""
    words = ["explain", str(written(tmp_path)), "--set", 'partition=["relu"]', "--set", "merge=none", "--verify"]
    code, text, _ = both(service, *words, *(["--group", group] if group else []))
    assert code == 0
    assert ("net.onnx on edge4: 2 groups in 2 segments" if group is None else group) in text


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "names"),
    [
        (["--group", "s7"], 2, "unknown_group", "s1.g0"),
        (["--set", 'partition=["nonesuch"]'], 2, "unknown_node", "nonesuch"),
        (["--set", "merge=sideways"], 2, "invalid_option", "forward-greedy"),
        (["--strict"], 3, "unsupported_op", "the number of steps is fixed"),
        (["--set", "dims.batch=2"], 2, "unknown_dim", "batch"),
    ],
)
def test_a_service_and_this_process_refuse_the_same_with_the_same_exit_code(
    service: EmbeddedService, tmp_path: Path, words: list[str], exit_code: int, code: str, names: str
) -> None:
    path = lstm(tmp_path / "net.onnx")
    answer = both(service, "explain", path, *words)
    assert answer[:2] == (exit_code, "")
    assert code in answer[2]
    assert names in answer[2]


def test_strategies_compared_on_a_service_are_a_job_each_and_the_figures_are_those_of_this_process(
    service: EmbeddedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UI-1: only how long planning took the service does not say."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(conv_chain(19))  # of no other test: the service keeps the first name of a model
    asked: list[object] = []
    ask = Client.submit

    def asking(client: Client, model: Path, profile: str, options: dict[str, object]) -> Job:
        asked.append(options["fusion"])
        return ask(client, model, profile, options)

    monkeypatch.setattr(Client, "submit", asking)
    words = ["plan", str(path), "--profile", "edge4", "--compare", "rules,none", "--json"]
    here = CliRunner().invoke(cli, words)
    there = CliRunner().invoke(cli, [*words, "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    ours, theirs = json.loads(here.stdout), json.loads(there.stdout)
    for row in theirs["strategies"]:
        assert row.pop("planning_s") is None
    for row in ours["strategies"]:
        assert row.pop("planning_s") > 0
    assert ours == theirs
    assert asked == ["rules", "none"]


def test_missing_dimensions_are_all_named_and_given_ones_reach_the_service(
    service: EmbeddedService, tmp_path: Path
) -> None:
    path = dynamic(tmp_path / "net.onnx")
    exit_code, _, said = both(service, "compile", path, "--set", "dims.height=6")
    assert exit_code == 3
    for name in ("dynamic_dim", "batch", "width"):
        assert name in said
    words = ["--set", 'dims.batch={"min":1,"max":8}', "--set", "dims.height=6", "--set", "dims.width=7", "--json"]
    exit_code, text, _ = both(service, "compile", path, *words, "--set", "merge=optimal")
    plan = json.loads(text)
    assert (exit_code, plan["dims"]) == (0, {"batch": 8, "height": 6, "width": 7})
    assert plan["options"]["merge"] == "optimal"


def test_a_model_with_external_data_goes_to_the_service_as_one_archive(
    service: EmbeddedService, api: Api, tmp_path: Path
) -> None:
    """IMPORT-1."""
    words = ["compile", str(written(tmp_path)), "--profile", "edge4", "--json"]
    here = json.loads(CliRunner().invoke(cli, words).stdout)
    there, again = (json.loads(CliRunner().invoke(cli, [*words, "--server", service.url]).stdout) for _ in range(2))
    assert again == there  # the service has the archive already
    assert here["model"]["name"] == there["model"]["name"] == "net.onnx"
    assert there["model"]["sha256"] in {model["id"] for model in models(api)}
    apart = {"model": None, "report": None}
    assert {**here, **apart} == {**there, **apart}
    assert here["report"]["values"] == there["report"]["values"]
    assert here["segments"][0]["weight_bytes"] == 4 * (8 * 3 * 3 * 3 + 4 * 8 * 3 * 3)


def models(api: Api) -> list[dict[str, object]]:
    return list(api.http.get("/v1/models", params={"limit": 200}).json()["items"])


def test_a_link_out_of_the_folder_is_refused_and_nothing_is_sent(
    service: EmbeddedService, api: Api, tmp_path: Path
) -> None:
    """IMPORT-4."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(folder)
    (folder / SIDECARS["w"]).rename(tmp_path / "outside.bin")
    (folder / SIDECARS["w"]).symlink_to("../outside.bin")
    known = models(api)
    exit_code, _, said = both(service, "compile", str(path))
    assert exit_code == 3
    assert "external_data_path" in said
    assert models(api) == known


@pytest.mark.parametrize("lost", [[SIDECARS["v"]], [SIDECARS["w"], SIDECARS["v"]]])
def test_a_missing_file_of_a_model_is_named_by_the_service_too(
    service: EmbeddedService, tmp_path: Path, lost: list[str]
) -> None:
    path = written(tmp_path)
    for name in lost:
        (tmp_path / name).unlink()
    exit_code, _, said = both(service, "compile", str(path))
    assert exit_code == 3
    assert "external_data" in said
    assert any(name in said for name in lost)


def test_a_failed_job_is_an_exit_code_and_one_block(service: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no network")
    words = ["compile", str(path), "--profile", "edge4", "--server", service.url]
    answer = CliRunner().invoke(cli, words)
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "ONNX" in answer.stderr
    words[3] = "nonesuch"
    answer = CliRunner().invoke(cli, [*words, "--json"])
    assert (answer.exit_code, json.loads(answer.stderr)["code"]) == (2, "unknown_profile")


def test_a_profile_of_the_service_is_shown_annotated(service: EmbeddedService) -> None:
    text = profile_json(builtin_profile("edge4")).replace(b'"edge4"', b'"of-the-service"')
    with Client(service.url) as client:
        client.upload_profile(text)
    shown = CliRunner().invoke(cli, ["profiles", "show", "of-the-service", "--server", service.url])
    assert shown.exit_code == 0
    assert profile_json(parse_profile(shown.stdout.encode())) == text
    unknown = CliRunner().invoke(cli, ["profiles", "show", "nonesuch", "--server", service.url])
    assert (unknown.exit_code, "unknown_profile" in unknown.stderr) == (2, True)


def test_the_client_does_all_verbs(service: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(conv_chain(9))
    values = {**json.loads(profile_json(builtin_profile("edge4"))), "name": "of-the-client"}
    with Client(service.url) as client:
        profile = client.upload_profile(json.dumps(values).encode())
        assert profile.name in {found.name for found in client.profiles()}
        model = client.upload_model(path)
        assert client.upload_model(path) == model
        job = client.submit(model, profile.digest, {"fusion": "none"}, idempotency_key="client")
        assert client.submit(model, profile.digest, {"fusion": "none"}, idempotency_key="client").id == job.id
        states = [event.state for event in client.follow(job.id)]
        assert (states[0], states[-1]) == ("queued", "succeeded")
        assert client.finished(job.id).state == "succeeded"
        assert client.plan(job).model.sha256 == model.id
        assert client.report(job).profile.digest == profile.digest
        assert client.cancel(job.id).state == "succeeded"
        assert {found.name for found in client.profiles()} >= {"edge4", "cluster4x4"}
        with pytest.raises(ServiceError, match="no job") as caught:
            client.job("nobody")
        assert (caught.value.code, caught.value.status) == ("unknown_job", 404)


def test_the_profiles_of_a_service_are_listed(service: EmbeddedService) -> None:
    answer = CliRunner().invoke(cli, ["profiles", "--server", service.url, "--json"])
    assert {"cluster4x4", "edge4"} <= {row["name"] for row in json.loads(answer.stdout)}


def socket_folders() -> set[Path]:
    return set(Path("/tmp").glob(f"tessera-{os.getuid()}-*"))


def answers(folder: Path) -> bool:
    """Whether a server listens on the socket of a folder."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(folder / "redis.sock")) == 0


@pytest.mark.slow
def test_the_demo_shows_a_plan_and_leaves_nothing(tmp_path: Path) -> None:
    others = socket_folders()
    answer = subprocess.run(
        [TESSERA, "demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"TMPDIR": str(tmp_path), "PATH": "", "COLUMNS": "100"},
    )
    assert answer.returncode == 0, answer.stderr
    for word in ("light_resnet50.onnx", "succeeded", "layer by layer", "minimum", "stopped"):
        assert word in answer.stdout
    assert list(tmp_path.iterdir()) == []
    # services of other tests come and go meanwhile
    until(lambda: not [folder for folder in socket_folders() - others if not answers(folder)], "nothing left", 30)
