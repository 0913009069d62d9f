"""Implements the HTTP transport for toxiproxy-python: one kept connection for each server, with a time limit.

The package's own transport, `toxiproxy.api.APIConsumer`, opens a connection for each call and waits for ever. It
ignores every error status except 400, 404 and 409. Its host and port are class attributes, so an OS process can use
only one server. `ToxiproxyConsumer` replaces it in the package's modules. The caller chooses the server: a call inside
the block `with transport.chosen():` uses the connection of `transport`.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import toxiproxy.proxy
import toxiproxy.server

from squall.chaos.errors import HarnessError

IDLE_S = 20.0
"""Limits the idle time of a connection, in s. A connection that was idle for longer is replaced by a new one, because
Toxiproxy closes it after a minute.
"""


class ToxiproxyError(HarnessError):
    """Reports that Toxiproxy did not answer, or answered with an error or nonsense. `status` is 0 if there was no
    answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class HttpResponse:
    """Holds an HTTP response with the attributes that toxiproxy-python uses."""

    def __init__(self, status_code: int, content: bytes) -> None:
        self.status_code, self.content = status_code, content

    def json(self) -> Any:
        """Return the body, parsed as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.content)


class HttpTransport:
    """Sends requests to one Toxiproxy server, over one connection. Any number of threads may call at once: they take
    turns. A call blocks for about 2 ms.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self._turn = threading.Lock()
        self._used_at = time.monotonic()

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Direct the calls of toxiproxy-python that this thread makes inside this block to this object's server."""
        token = _CHOSEN.set(self)
        try:
            yield
        finally:
            _CHOSEN.reset(token)

    def send(self, method: str, path: str, body: object = None) -> HttpResponse:
        """Send a request and return the response. Raises ToxiproxyError if none comes in time, and for every status
        from 400 on.
        """
        data = None if body is None else json.dumps(body)
        with self._turn:
            if time.monotonic() - self._used_at > IDLE_S:
                self._connection.close()
            try:
                self._connection.request(method, path, data, {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                # The answer may come later. On this connection it would be taken for that of the next request.
                self._connection.close()
                raise ToxiproxyError(f"Toxiproxy did not answer {method} {path}: {error!r}") from error
            finally:
                self._used_at = time.monotonic()
        if response.status >= 400:
            said = content.decode(errors="replace").strip()
            raise ToxiproxyError(
                f"Toxiproxy refused {method} {path} {data or ''}: {response.status} {said}", response.status
            )
        return HttpResponse(response.status, content)

    def close(self) -> None:
        """End the connection. A later call opens a new one."""
        with self._turn:
            self._connection.close()


_CHOSEN: ContextVar[HttpTransport] = ContextVar("the Toxiproxy that calls go to")


class ToxiproxyConsumer:
    """Replaces `toxiproxy.api.APIConsumer`: the same methods over the chosen transport."""

    @classmethod
    def get(cls, url: str) -> HttpResponse:
        """Send a GET request."""
        return _CHOSEN.get().send("GET", url)

    @classmethod
    def delete(cls, url: str) -> HttpResponse:
        """Send a DELETE request."""
        return _CHOSEN.get().send("DELETE", url)

    @classmethod
    def post(cls, url: str, json: object = None) -> HttpResponse:
        """Send a POST request."""
        return _CHOSEN.get().send("POST", url, json)


toxiproxy.proxy.APIConsumer = ToxiproxyConsumer
toxiproxy.server.APIConsumer = ToxiproxyConsumer
