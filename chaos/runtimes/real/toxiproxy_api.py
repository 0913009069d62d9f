"""Toxiproxy's HTTP interface, spoken straight.

Not through toxiproxy-python: its host and port are class-wide, it has no time-outs and no updates, opens a connection
for each call, passes over every status but 400, 404 and 409, and populates from the client's side. What would be left
of it after mending is the names of its dataclasses.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from chaos.errors import HarnessError

IDLE_S = 20.0
"""A connection that was not used for so long is not trusted: Toxiproxy closes it after a minute."""


class ToxiproxyError(HarnessError):
    """Toxiproxy did not answer, or answered with an error. `status` is 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ToxiproxyApi:
    """One server's interface over one kept connection. Calls block for 2 ms or so: from trio, call them in a thread.

    Any number of threads may call at once; they take turns.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = 20.0) -> None:
        # Removing a toxic waits up to 5 s for a receiver that does not take the bytes that were held.
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self._turn = threading.Lock()
        self._used_at = time.monotonic()

    def version(self) -> str:
        """Of the server."""
        return str(self._call("GET", "/version")["version"])

    def populate(self, proxies: Sequence[tuple[str, str, str]]) -> None:
        """Make or replace proxies of (name, listening address, address they lead to), all or none."""
        wanted = [{"name": name, "listen": listen, "upstream": to} for name, listen, to in proxies]
        made = self._call("POST", "/populate", wanted)["proxies"]
        if len(made) != len(wanted):
            raise ToxiproxyError(f"Toxiproxy made {len(made)} of {len(wanted)} proxies")

    def proxies(self) -> dict[str, Any]:
        """Every proxy by name, as Toxiproxy describes it: listen, upstream, enabled, toxics."""
        return dict(self._call("GET", "/proxies"))

    def enable(self, proxy: str, enabled: bool) -> None:
        """Switch a proxy on or off. Off ends its connections and refuses new ones."""
        self._call("PATCH", f"/proxies/{_path(proxy)}", {"enabled": enabled})

    def add_toxic(self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        """Put a toxic on every connection of a proxy, present and future. stream: "upstream" or "downstream"."""
        toxic = {"name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        self._call("POST", f"/proxies/{_path(proxy)}/toxics", toxic)

    def remove_toxic(self, proxy: str, name: str) -> None:
        """Take a toxic off; one that is not there is no error."""
        try:
            self._call("DELETE", f"/proxies/{_path(proxy)}/toxics/{_path(name)}")
        except ToxiproxyError as error:
            if error.status != 404:
                raise

    def reset(self) -> None:
        """Switch every proxy on and take every toxic off."""
        self._call("POST", "/reset")

    def close(self) -> None:
        """End the connection."""
        with self._turn:
            self._connection.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body)
        with self._turn:
            if time.monotonic() - self._used_at > IDLE_S:
                self._connection.close()
            try:
                answer, text = self._exchange(method, path, data)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise ToxiproxyError(f"Toxiproxy did not answer {method} {path}: {error!r}") from error
            finally:
                self._used_at = time.monotonic()
        if answer.status >= 400:
            said = text.decode(errors="replace").strip()
            raise ToxiproxyError(
                f"Toxiproxy refused {method} {path} {data or ''}: {answer.status} {said}", answer.status
            )
        return json.loads(text) if text else None

    def _exchange(self, method: str, path: str, data: str | None) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer, answer.read()


def _path(name: str) -> str:
    return quote(name, safe="")
