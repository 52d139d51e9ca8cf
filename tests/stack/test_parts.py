"""What `make stack` is made of, without hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack.compose import FILES, compose, variables_of
from tests.stack.hosts import namespaces
from tests.stack.scenario import publications


def test_a_machine_that_permits_no_namespaces_is_named_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "unshare"
    program.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PermissionError, match=r"Operation not permitted.*sysctl.*--cap-add SYS_ADMIN"):
        namespaces()


def test_files_of_compose_are_merged_as_compose_does() -> None:
    api = compose(*FILES)["services"]["api"]
    assert api["secrets"] == ["tessera_broker_url", "tessera_cache_url", "s3_credentials"]
    variables = variables_of(api)
    assert variables["TESSERA_STORE_ENDPOINT"] == "http://store:8333"
    assert variables["TESSERA_ALLOWED_HOSTS"] == "api,"


def test_publications_are_read_from_a_workers_log() -> None:
    lines = [
        '{"event": "computed", "answer": "published", "content": "a", "fence": 1}',
        '{"event": "computed", "answer": "stale", "content": "b", "fence": 2}',
        '{"event": "child_started"}',
        "no JSON",
    ]
    assert publications(lines) == [("a", 1)]
