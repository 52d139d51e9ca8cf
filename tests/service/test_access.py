"""Who may use the service: refused and accepted requests over HTTP (docs/service.md)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from app.cli.serving import read_settings
from app.client.client import Client
from app.supervisor.service import EmbeddedService
from compiler.errors import RequestError
from tests.service.harness import Api, conv_chain, until
from tests.service.test_api import assert_problem

pytestmark = pytest.mark.service
PATHS = ("/", "/docs", "/openapi.json", "/livez", "/readyz", "/metrics", "/v1/models", "/v1/nothing")
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}


def port_of(api: Api) -> int:
    port = api.http.base_url.port
    assert port is not None
    return port


@pytest.mark.matrix(first=12, rest=12)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1:{port}", "localhost@evil", ""]
)
def test_a_foreign_host_is_refused_everywhere(api: Api, path: str, host: str) -> None:
    answer = api.http.get(path, headers={"Host": host.format(port=port_of(api))})
    problem = assert_problem(answer, 421, "host_not_allowed", "TESSERA_ALLOWED_HOSTS")
    assert "localhost" in problem["limit"]


def test_two_hosts_are_refused(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", port_of(api))) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(1000).split()[1] == b"421"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1", "127.0.0.1:9", "[::1]:{port}"])
def test_loopback_names_are_hosts_at_any_port(api: Api, host: str) -> None:
    assert api.http.get("/v1/models", headers={"Host": host.format(port=port_of(api))}).status_code == 200


def test_names_of_the_setting_are_hosts_too(start: Callable[..., tuple[EmbeddedService, Api]]) -> None:
    _, api = start(until="/livez", allowed_hosts="tessera.lan, 192.0.2.7")
    for host, status in (("Tessera.lan:443", 200), ("192.0.2.7", 200), ("localhost", 200), ("other.lan", 421)):
        assert api.http.get("/livez", headers={"Host": host}).status_code == status, host
    own = {"Host": "tessera.lan", "Origin": "https://tessera.lan", "Sec-Fetch-Site": "same-origin"}
    assert api.http.get("/livez", headers=own).status_code == 200
    other = {**own, "Origin": "https://localhost"}
    assert_problem(api.http.get("/livez", headers=other), 403, "other_site", "https://localhost")


def test_a_service_that_listens_everywhere_has_the_addresses_of_this_machine() -> None:
    settings = read_settings({"host": "0.0.0.0"})
    assert settings.listens_on_loopback
    assert not read_settings({"host": "192.0.2.7"}).listens_on_loopback
    with pytest.raises(RequestError, match=r"ALLOWED_HOSTS.*http://a"):
        read_settings({"allowed_hosts": "b, http://a"})


@pytest.mark.matrix(first=40, rest=40)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {**LINK, "Sec-Fetch-Dest": "iframe"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_pages_of_other_sites_are_refused_for_every_method(
    api: Api, path: str, method: str, headers: dict[str, str]
) -> None:
    answer = api.http.request(method, path, headers=headers)
    assert answer.status_code == 403
    if method != "HEAD":
        assert_problem(answer, 403, "other_site", f"http://127.0.0.1:{port_of(api)}")


def test_links_of_other_sites_lead_to_the_documentation_alone(api: Api) -> None:
    assert api.http.get("/", headers=LINK).status_code == 307
    assert api.http.get("/docs", headers=LINK).status_code == 200
    for path in ("/v1/models", "/v1/jobs/x/report.html", "/openapi.json", "/metrics"):
        assert_problem(api.http.get(path, headers=LINK), 403, "other_site")
    assert_problem(api.http.post("/docs", headers=LINK), 403, "other_site")


def test_the_own_pages_and_programs_are_answered(api: Api, service: EmbeddedService) -> None:
    host = f"127.0.0.1:{port_of(api)}"
    own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert api.http.get("/v1/models", headers=own).status_code == 200
    assert api.http.get("/v1/models", headers={"Sec-Fetch-Site": "none"}).status_code == 200  # typed by the user
    form: dict[str, Any] = {"model": ("net.onnx", conv_chain(3)), "profile": (None, "edge4")}
    assert api.http.post("/v1/compilations", files=form, headers=own).status_code in (200, 202)
    assert api.http.post("/v1/compilations", files=form).status_code in (200, 202)  # as `curl -F` does
    with Client(service.url) as client:
        assert client.profiles()


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-origin"}, {"Referer": "https://evil.example/"}])
def test_a_form_of_a_browser_that_does_not_say_its_origin_is_refused(api: Api, headers: dict[str, str]) -> None:
    form = {"model": ("net.onnx", b"x")}
    for path in ("/v1/models", "/v1/compilations", "/v1/simulations"):
        assert_problem(api.http.post(path, files=form, headers=headers), 403, "other_site", "no Origin")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models"),
        ("PUT", f"/v1/models/{'0' * 64}"),
        ("POST", "/v1/profiles"),
        ("POST", "/v1/compilations"),
        ("POST", "/v1/simulations"),
        ("POST", "/v1/sweeps"),
        ("POST", "/v1/comparisons"),
    ],
)
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_says_its_type_and_none_is_assumed(api: Api, method: str, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = api.http.request(method, path, content=b"{}", headers=headers)
    assert_problem(answer, 415, "unsupported_media_type", kind or "no Content-Type")


@pytest.mark.parametrize("path", ["/livez", "/v1/models", "/v1/nothing", "/docs", "/openapi.json"])
def test_every_answer_carries_the_security_headers(api: Api, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}, {"Origin": "null"}):
        answer = api.http.get(path, headers=headers)
        assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "'unsafe-inline'" not in policy.partition("style-src")[0]


def logged(service: EmbeddedService, number: str) -> bool:
    lines = (service.log_dir / "api.log").read_text().splitlines()
    return any(number in line and '"request_refused"' in line for line in lines)


def test_refusals_are_counted_and_logged(api: Api, service: EmbeddedService) -> None:
    def counted() -> dict[str, float]:
        text = api.http.get("/metrics").text
        found = re.findall(r'tessera_requests_refused_total\{code="(\w+)"\} ([0-9.]+)', text)
        return {code: float(count) for code, count in found}

    before = counted()
    refused: list[Any] = [
        api.http.get("/v1/jobs", headers={"Host": "counted.example"}),
        api.http.get("/v1/jobs", headers={"Origin": "https://counted.example"}),
    ]
    after = counted()
    for answer in refused:
        code = answer.json()["code"]
        assert after[code] == before.get(code, 0) + 1
        number = answer.headers["x-request-id"]
        until(lambda number=number: logged(service, number), "the refusal in the log")  # type: ignore[misc]
