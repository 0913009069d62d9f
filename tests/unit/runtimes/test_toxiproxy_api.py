"""toxiproxy-python over our transport, against servers that answer with anything, or not at all."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import toxiproxy.api
import toxiproxy.proxy
import toxiproxy.server
from toxiproxy import Proxy
from toxiproxy.toxic import Toxic

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.real import toxiproxy_transport
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from squall.chaos.runtimes.real.toxiproxy_transport import ToxiproxyError

VERSION = (200, b'{"version":"2.12.0"}')
MADE = {"name": "p", "listen": "127.0.0.1:1", "upstream": "127.0.0.1:2", "enabled": True, "toxics": []}
SILENT = (0, b"")
"""The connection ends without an answer."""
HANGING = (-1, b"")
"""The connection stays, without an answer."""


class Server(http.server.ThreadingHTTPServer):
    """Gives the next of `answers` to each request, and notes requests and connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = []
        self.seen: list[tuple[str, str, bytes]] = []
        self.connections = 0
        self.over = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.seen.append((self.command, self.path, self.rfile.read(length)))
        status, body = self.server.answers.pop(0)
        if status == HANGING[0]:
            self.server.over.wait()
        if status <= 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = do_DELETE = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


@pytest.fixture
def another() -> Iterator[Server]:
    yield from serving()


def api_of(server: Server, timeout_s: float = 5) -> ToxiproxyApi:
    return ToxiproxyApi("127.0.0.1", server.server_address[1], timeout_s=timeout_s)


@pytest.fixture
def api(server: Server) -> Iterator[ToxiproxyApi]:
    """With the proxy `p`."""
    api = api_of(server)
    server.answers.append(populated(MADE))
    api.populate([("p", "127.0.0.1:1", "127.0.0.1:2")])
    server.seen.clear()
    yield api
    api.close()


def populated(*made: dict[str, Any]) -> tuple[int, bytes]:
    return 201, json.dumps({"proxies": made}).encode()


def test_the_package_is_what_speaks(api: ToxiproxyApi, server: Server) -> None:
    toxic = {"name": "t", "type": "latency", "stream": "upstream", "toxicity": 1.0, "attributes": {"latency": 5}}
    server.answers += [(200, json.dumps({"p": MADE}).encode()), (200, json.dumps([toxic]).encode())]
    assert isinstance(api.proxies()["p"], Proxy)
    (found,) = api.toxics("p").values()
    assert isinstance(found, Toxic)
    assert (found.name, found.stream, found.attributes) == ("t", "upstream", {"latency": 5})
    assert toxiproxy.api.APIConsumer not in (toxiproxy.proxy.APIConsumer, toxiproxy.server.APIConsumer)


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_every_error_status_is_an_error_with_what_the_server_said(
    api: ToxiproxyApi, server: Server, status: int
) -> None:
    server.answers.append((status, b"it is so"))
    with pytest.raises(ToxiproxyError, match=f"refused POST /proxies/p .*: {status} it is so") as error:
        api.enable("p", False)
    assert error.value.status == status


@pytest.mark.parametrize("call", ["version", "proxies", "reset"])
def test_no_call_passes_over_an_error(api: ToxiproxyApi, server: Server, call: str) -> None:
    server.answers.append((500, b'{"version":"2.12.0"}'))
    with pytest.raises(ToxiproxyError, match="500"):
        getattr(api, call)()


def test_taking_off_a_toxic_that_is_not_there_is_no_error_but_another_failure_is(
    api: ToxiproxyApi, server: Server
) -> None:
    server.answers += [(404, b"toxic not found"), (500, b"oh")]
    api.remove_toxic("p", "t")
    with pytest.raises(ToxiproxyError):
        api.remove_toxic("p", "t")


@pytest.mark.parametrize("name", ["a b", "c/d", "../reset", "e?f", "", "g%2f", "ü"])
def test_a_name_that_means_something_in_a_path_is_refused_before_it_is_sent(
    api: ToxiproxyApi, server: Server, name: str
) -> None:
    with pytest.raises(HarnessError, match="cannot be a name"):
        api.add_toxic("p", name, "latency", "upstream", {"latency": 1})
    with pytest.raises(HarnessError, match="cannot be a name"):
        api.remove_toxic("p", name)
    with pytest.raises(HarnessError, match="cannot be a name"):
        api.populate([(name, "127.0.0.1:1", "127.0.0.1:2")])
    assert server.seen == []


def test_a_populate_that_makes_fewer_proxies_is_an_error(server: Server) -> None:
    server.answers.append(populated())
    api = api_of(server)
    with pytest.raises(ToxiproxyError, match="made 0 of 1 proxies, without p"):
        api.populate([("p", "127.0.0.1:1", "127.0.0.1:2")])
    api.close()


def test_proxies_are_made_by_the_server_in_one_call(api: ToxiproxyApi, server: Server) -> None:
    server.answers.append(populated(MADE, {**MADE, "name": "q"}))
    api.populate([("p", "127.0.0.1:1", "127.0.0.1:2"), ("q", "127.0.0.1:3", "127.0.0.1:2")])
    assert [(method, path) for method, path, _ in server.seen] == [("POST", "/populate")]


def test_a_proxy_that_somebody_else_made_is_found_and_one_that_nobody_made_is_an_error(server: Server) -> None:
    api = api_of(server)
    server.answers += [(200, json.dumps({"p": MADE}).encode()), (200, b"{}"), (200, b"{}")]
    api.enable("p", True)
    with pytest.raises(ToxiproxyError, match="has no proxy q"):
        api.enable("q", True)
    api.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"7"])
def test_an_answer_that_is_nonsense_is_an_error(api: ToxiproxyApi, server: Server, body: bytes) -> None:
    server.answers += [(200, body)]
    with pytest.raises(ToxiproxyError, match="not what it should be"):
        api.version()


def test_no_answer_is_an_error_and_the_next_call_opens_a_new_connection(api: ToxiproxyApi, server: Server) -> None:
    server.answers += [SILENT, VERSION]
    with pytest.raises(ToxiproxyError, match="did not answer GET /version"):
        api.version()
    assert api.version() == "2.12.0"
    assert server.connections == 2


def test_a_server_that_hangs_is_an_error_after_the_time_limit(server: Server) -> None:
    server.answers += [HANGING]
    api = api_of(server, timeout_s=0.05)
    with pytest.raises(ToxiproxyError, match=r"did not answer GET /version: .*timed out"):
        api.version()
    api.close()


def test_every_call_goes_over_one_connection(api: ToxiproxyApi, server: Server) -> None:
    body = json.dumps(MADE).encode()
    server.answers += [VERSION, (200, body), (200, b"{}"), (204, b""), (200, b"[]"), (200, b"{}"), (204, b"")]
    api.version()
    api.enable("p", False)
    api.add_toxic("p", "t", "latency", "upstream", {"latency": 1})
    api.remove_toxic("p", "t")
    api.toxics("p")
    api.proxies()
    api.reset()
    assert server.answers == []
    assert server.connections == 1


def test_two_servers_at_once_are_each_spoken_to_alone(server: Server, another: Server) -> None:
    """The package's host and port belong to a class: it knows one server for the whole process."""
    apis = [api_of(each) for each in (server, another)]
    count = 50
    for number, each in enumerate((server, another)):
        each.answers += [(200, b'{"version":"%d"}' % number)] * count
    said: list[set[str]] = [set(), set()]

    def ask(number: int) -> None:
        for _ in range(count):
            said[number].add(apis[number].version())

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [{"0"}, {"1"}]
    for each in apis:
        each.close()


def test_a_connection_that_was_idle_for_long_is_opened_anew(
    api: ToxiproxyApi, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Toxiproxy ends a connection that was idle for a minute: the first fault after that would have no answer."""
    now = [time.monotonic()]
    monkeypatch.setattr("squall.chaos.runtimes.real.toxiproxy_transport.time.monotonic", lambda: now[0])
    server.answers += [VERSION] * 3
    api.version()
    api.version()
    assert server.connections == 1
    now[0] += toxiproxy_transport.IDLE_S + 1
    api.version()
    assert server.connections == 2
