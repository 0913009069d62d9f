"""What each link fault is in Toxiproxy, and how overlapping ones share a link."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.errors import HarnessError
from chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    Latency,
    LimitData,
    Link,
    Manner,
    ResetPeer,
    Slicer,
    SlowClose,
    Stream,
)
from chaos.runtimes.real import toxiproxy_api
from chaos.runtimes.real.proxied_links import ProxiedLinks, toxic
from chaos.runtimes.real.toxiproxy_api import ToxiproxyApi, ToxiproxyError

LINK = Link(1, 2)


class FakeApi:
    """Remembers what is on, as Toxiproxy would."""

    def __init__(self) -> None:
        self.enabled = True
        self.toxics: dict[str, tuple[str, str, dict[str, int]]] = {}
        self.fail = False

    def enable(self, proxy: str, enabled: bool) -> None:
        self.enabled = enabled

    def add_toxic(self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        if self.fail and stream == "downstream":
            raise ToxiproxyError("no")
        self.toxics[name] = (kind, stream, attributes)

    def remove_toxic(self, proxy: str, name: str) -> None:
        self.toxics.pop(name, None)

    def reset(self) -> None:
        self.enabled = True
        self.toxics.clear()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def links(api: FakeApi) -> ProxiedLinks:
    return ProxiedLinks(api, {LINK: "1-to-2"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "kind", "attributes"),
    [
        (Cut(Manner.DROP), "timeout", {"timeout": 0}),
        (Cut(Manner.HOLD), "bandwidth", {"rate": 0}),
        (Latency(50, 10), "latency", {"latency": 50, "jitter": 10}),
        (Bandwidth(7), "bandwidth", {"rate": 7}),
        (Slicer(3, 2, 1), "slicer", {"average_size": 3, "size_variation": 2, "delay": 1}),
        (LimitData(9), "limit_data", {"bytes": 9}),
        (ResetPeer(5), "reset_peer", {"timeout": 5}),
        (SlowClose(4), "slow_close", {"delay": 4}),
    ],
)
def test_each_fault_is_one_kind_of_toxic(fault: Any, kind: str, attributes: dict[str, int]) -> None:
    assert toxic(fault) == (kind, attributes)


@pytest.mark.parametrize(
    ("stream", "toxics"),
    [(Stream.THERE, {"upstream"}), (Stream.BACK, {"downstream"}), (Stream.BOTH, {"upstream", "downstream"})],
)
def test_a_fault_is_put_on_the_streams_it_names(
    links: ProxiedLinks, api: FakeApi, stream: Stream, toxics: set[str]
) -> None:
    links.add("f", LINK, Latency(5, stream=stream))
    assert {each for _, each, _ in api.toxics.values()} == toxics
    links.remove("f", LINK)
    assert api.toxics == {}


def test_a_link_stays_off_while_one_of_its_faults_refuses(links: ProxiedLinks, api: FakeApi) -> None:
    links.add("a", LINK, Cut(Manner.REFUSE))
    links.add("b", LINK, Cut(Manner.REFUSE))
    links.add("c", LINK, Latency(5))
    links.remove("a", LINK)
    assert not api.enabled
    links.remove("c", LINK)
    assert not api.enabled
    links.remove("b", LINK)
    assert api.enabled


def test_a_fault_that_was_put_on_by_half_can_be_taken_off(links: ProxiedLinks, api: FakeApi) -> None:
    api.fail = True
    with pytest.raises(ToxiproxyError):
        links.add("f", LINK, Latency(5))
    assert len(api.toxics) == 1
    links.remove("f", LINK)
    assert api.toxics == {}


def test_reset_forgets_every_name(links: ProxiedLinks, api: FakeApi) -> None:
    links.add("f", LINK, Cut(Manner.REFUSE))
    links.reset()
    assert api.enabled
    links.add("f", LINK, Cut(Manner.REFUSE))
    with pytest.raises(HarnessError, match="already has"):
        links.add("f", LINK, Latency(1))


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers with what the path says: /STATUS/..., and remembers the requests."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.seen.append((self.command, self.path, self.rfile.read(length)))  # type: ignore[attr-defined]
        status, body = self.server.answers.pop(0)  # type: ignore[attr-defined]
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = do_DELETE = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.seen, server.answers = [], []  # type: ignore[attr-defined]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def real(server: Any) -> Iterator[ToxiproxyApi]:
    api = ToxiproxyApi("127.0.0.1", server.server_address[1], timeout_s=5)
    yield api
    api.close()


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_every_error_status_is_an_error_with_what_the_server_said(server: Any, real: ToxiproxyApi, status: int) -> None:
    server.answers.append((status, b"it is so"))
    with pytest.raises(ToxiproxyError, match=f"refused PATCH /proxies/p .*: {status} it is so") as error:
        real.enable("p", False)
    assert error.value.status == status


def test_taking_off_a_toxic_that_is_not_there_is_no_error_but_another_failure_is(
    server: Any, real: ToxiproxyApi
) -> None:
    server.answers += [(404, b"toxic not found"), (500, b"oh")]
    real.remove_toxic("p", "t")
    with pytest.raises(ToxiproxyError):
        real.remove_toxic("p", "t")


def test_names_are_quoted(server: Any, real: ToxiproxyApi) -> None:
    server.answers.append((204, b""))
    real.remove_toxic("a b", "c/d")
    assert server.seen == [("DELETE", "/proxies/a%20b/toxics/c%2Fd", b"")]


def test_a_populate_that_makes_fewer_proxies_is_an_error(server: Any, real: ToxiproxyApi) -> None:
    server.answers.append((201, json.dumps({"proxies": []}).encode()))
    with pytest.raises(ToxiproxyError, match="made 0 of 1"):
        real.populate([("p", "127.0.0.1:1", "127.0.0.1:2")])


def test_no_answer_is_an_error_and_the_next_call_opens_a_new_connection(server: Any, real: ToxiproxyApi) -> None:
    server.answers += [(0, b""), (200, b'{"version":"2.12.0"}')]
    with pytest.raises(ToxiproxyError, match="did not answer GET /version"):
        real.version()
    assert real.version() == "2.12.0"


def test_a_connection_that_was_idle_for_long_is_not_trusted(
    server: Any, real: ToxiproxyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Toxiproxy ends a connection that was idle for a minute: the first fault after that would have no answer."""
    now = [1000.0]
    monkeypatch.setattr("chaos.runtimes.real.toxiproxy_api.time.monotonic", lambda: now[0])
    server.answers += [(200, b'{"version":"2.12.0"}')] * 3
    real.version()
    kept = real._connection.sock
    real.version()
    assert real._connection.sock is kept
    now[0] += toxiproxy_api.IDLE_S + 1
    real.version()
    assert real._connection.sock is not kept
