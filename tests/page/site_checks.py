"""What web pages of other sites reach of a running service, in a real browser; `make page` runs these."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from app.supervisor.service import EmbeddedService
from tests.page.browser import browser
from tests.service.harness import Api, conv_chain, settings, until

# Both lead to this machine: the first is another site, the second a name that was rebound to the service.
ATTACKER: Final = "attacker.test"
REBOUND: Final = "rebound.test"
SECRET: Final = "secret-network.onnx"
# Each way in which a script sends a request; the answer is what the script could read.
ATTEMPT: Final = """async ([url, method, mode, type, body]) => {
    try {
        const answer = await fetch(url, {method, mode, headers: type ? {'Content-Type': type} : {}, body});
        return [answer.type, answer.status, await answer.text()];
    } catch (error) {
        return ['failed', 0, ''];
    }
}"""
FORM: Final = """([url, body]) => {
    const form = Object.assign(document.createElement('form'), {
        action: url, method: 'POST', enctype: 'multipart/form-data', target: 'frame'});
    for (const [name, value] of Object.entries(body)) {
        form.append(Object.assign(document.createElement('input'), {name, value}));
    }
    document.body.append(Object.assign(document.createElement('iframe'), {name: 'frame'}), form);
    form.submit();
}"""


class _Page(BaseHTTPRequestHandler):
    """An empty page at every path."""

    def do_GET(self) -> None:
        """Answer it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><body></body>")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A service with one model and one finished job, the browser, and the port of another web server."""

    api: Api
    model: str
    job: dict[str, Any]
    chromium: Any
    other_port: int

    @property
    def port(self) -> int:
        """The service's."""
        return int(str(self.api.http.base_url.port))

    def refused(self) -> float:
        """How many requests the service refused by who sent them."""
        lines = self.api.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("tessera_requests_refused_total"))

    def state(self) -> list[Any]:
        """Models, jobs and profiles of the service."""
        return [self.api.http.get(f"/v1/{kind}").json() for kind in ("models", "jobs", "profiles")]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    other = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    arguments = (
        f"--host-resolver-rules=MAP {ATTACKER} 127.0.0.1, MAP {REBOUND} 127.0.0.1",
        # what protects local addresses in some browsers alone must not be what these tests see
        "--disable-features=LocalNetworkAccessChecks",
    )
    with EmbeddedService(settings(tmp_path_factory.mktemp("service"))) as service, browser(*arguments) as chromium:
        service.wait_until()
        api = Api(service.url)
        model = api.upload(conv_chain(3), SECRET)
        job = api.finished(api.submit(model, "edge4"))
        yield Scene(api=api, model=model, job=job, chromium=chromium, other_port=other.server_port)
        api.http.close()
    other.shutdown()
    other.server_close()


def attempts(scene: Scene, service: str) -> list[list[str | None]]:
    """URL, method, mode, content type and body of what a hostile page tries."""
    body = {"model": scene.model, "profile": "edge4", "options": {"fusion": "none"}}
    document = json.dumps(body)
    reads = ("models", f"models/{scene.model}", "jobs", f"jobs/{scene.job['id']}/plan", "profiles/edge4")
    read = [[f"{service}/v1/{path}", "GET", mode, None, None] for path in reads for mode in ("cors", "no-cors")]
    start = [
        [f"{service}/v1/compilations", "POST", mode, kind, document]
        for mode, kind in (
            ("cors", "application/json"),
            ("cors", "text/plain"),
            ("no-cors", "text/plain"),
            ("no-cors", None),
        )
    ]
    delete = [
        [f"{service}/v1/models/{scene.model}", "DELETE", "cors", None, None],
        [f"{service}/v1/jobs/{scene.job['id']}", "DELETE", "cors", None, None],
    ]
    upload = [[f"{service}/v1/models?name=x", "POST", "no-cors", None, "bytes"]]
    return read + start + delete + upload


def hostile(scene: Scene, page: Any, service: str) -> list[Any]:
    """What the page could read after it has tried everything, a form last."""
    found = [page.evaluate(ATTEMPT, attempt) for attempt in attempts(scene, service)]
    before = scene.refused()
    page.evaluate(FORM, [f"{service}/v1/compilations", {"model": scene.model, "profile": "edge4"}])
    until(lambda: scene.refused() > before, "the form to be refused")
    return found


@pytest.mark.parametrize("host", [ATTACKER, "localhost", "127.0.0.1"])
@pytest.mark.parametrize("service", ["127.0.0.1", "localhost", REBOUND])
def test_a_page_of_another_site_reads_nothing_and_starts_nothing(scene: Scene, host: str, service: str) -> None:
    state = scene.state()
    page = scene.chromium.new_page()
    try:
        page.goto(f"http://{host}:{scene.other_port}/")
        found = hostile(scene, page, f"http://{service}:{scene.port}")
    finally:
        page.close()
    # opaque answers have neither status nor text for a script
    assert {tuple(answer) for answer in found} <= {("failed", 0, ""), ("opaque", 0, "")}
    assert scene.state() == state


def test_a_page_whose_name_was_rebound_to_the_service_reads_nothing_and_starts_nothing(scene: Scene) -> None:
    """For the browser the service is the page's own site, so only the name of the host tells."""
    state = scene.state()
    page = scene.chromium.new_page()
    own = f"http://{REBOUND}:{scene.port}"
    try:
        page.route(f"{own}/page", lambda route: route.fulfill(body="<body></body>", content_type="text/html"))
        page.goto(f"{own}/page")
        found = hostile(scene, page, own)
    finally:
        page.close()
    assert len(found) == len(attempts(scene, own))
    for kind, status, text in found:
        assert (kind, status) == ("basic", 421)
        assert json.loads(text)["code"] == "host_not_allowed"
        assert SECRET not in text
    assert scene.state() == state


def test_no_page_shows_or_loads_what_the_service_has(scene: Scene) -> None:
    page = scene.chromium.new_page()
    loaded = """([tag, url]) => new Promise(done => {
        const made = Object.assign(document.createElement(tag), {onload: () => done('loaded')});
        made.onerror = () => done('failed');
        made[tag === 'link' ? 'href' : 'src'] = url;
        if (tag === 'link') made.rel = 'stylesheet';
        document.body.append(made);
    })"""
    service = f"http://127.0.0.1:{scene.port}"
    try:
        page.goto(f"http://{ATTACKER}:{scene.other_port}/")
        for tag, path in (
            ("script", "/static-offline-docs/swagger-ui-bundle.js"),
            ("link", "/static-offline-docs/swagger-ui.css"),
            ("img", "/static-offline-docs/favicon.png"),
            ("script", "/v1/models"),
        ):
            assert page.evaluate(loaded, [tag, service + path]) == "failed", path
    finally:
        page.close()


def test_the_documentation_works_also_behind_a_link_of_another_site(scene: Scene) -> None:
    complaints: list[str] = []
    requests: list[str] = []
    page = scene.chromium.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    try:
        page.goto(f"http://{ATTACKER}:{scene.other_port}/")
        complaints.clear()
        requests.clear()
        page.evaluate(f"location.href = 'http://127.0.0.1:{scene.port}/'")
        page.wait_for_url("**/docs")
        page.get_by_text("/v1/models", exact=True).first.wait_for()
        page.locator("#operations-models-listModels button.opblock-summary-control").click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        page.locator(".live-responses-table").get_by_text(SECRET).first.wait_for()
        profile = page.evaluate(ATTEMPT, ["/v1/comparisons", "POST", "cors", "application/json", "{}"])
        assert json.loads(profile[2])["code"] == "invalid_request"  # the request itself was let in
    finally:
        page.close()
    assert [text for text in complaints if "status of 422" not in text] == []
    hosts = {urlsplit(url).netloc for url in requests if not url.startswith("data:")}
    assert hosts == {f"127.0.0.1:{scene.port}"}


def test_the_report_of_a_job_is_drawn_also_when_it_is_opened_again(scene: Scene) -> None:
    """The second time the browser has the page and gets a 304, whose headers it takes over."""
    context = scene.chromium.new_context()
    complaints: list[str] = []
    statuses: list[int] = []
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: statuses.append(answer.status))
    try:
        for _ in range(2):
            page.goto(f"http://127.0.0.1:{scene.port}{scene.job['links']['report_page']}")
            page.wait_for_selector("html[data-drawn='true']", state="attached")
            assert page.locator("#groups tbody tr").count() > 0
            page.goto("about:blank")
        link = page.context.new_page()
        link.goto(f"http://{ATTACKER}:{scene.other_port}/")
        address = f"http://127.0.0.1:{scene.port}{scene.job['links']['report_page']}"
        link.evaluate(f"location.href = '{address}'")
        link.wait_for_url(address)
        assert "other_site" in link.content()
    finally:
        context.close()
    assert complaints == []
    assert statuses[0] == 200


def test_a_frame_of_another_site_shows_no_report(scene: Scene) -> None:
    page = scene.chromium.new_page()
    try:
        page.goto(f"http://{ATTACKER}:{scene.other_port}/")
        address = f"http://127.0.0.1:{scene.port}{scene.job['links']['report_page']}"
        page.evaluate(
            """url => new Promise(done => {
                document.body.append(Object.assign(document.createElement('iframe'), {src: url, onload: done}));
            })""",
            address,
        )
        shown = page.frames[1].content()
    finally:
        page.close()
    assert SECRET not in shown
