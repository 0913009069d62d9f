"""Wraps the server, proxies and toxics of toxiproxy-python in the few calls that links need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from toxiproxy import Proxy, Toxiproxy
from toxiproxy.toxic import Toxic

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.real.toxiproxy_transport import HttpTransport, ToxiproxyConsumer, ToxiproxyError

SAFE_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""Matches names that are safe in URL paths: toxiproxy-python writes names into paths unescaped."""


class ToxiproxyServer(Toxiproxy):  # type: ignore[misc]  # the package has no types
    """Is toxiproxy-python's server, but opens no extra connection and replaces no existing proxy needlessly."""

    def running(self) -> bool:
        """Return True, without a test. The package would open an extra connection to test it, before it asks for the
        server's version. If the server does not run, that call itself fails.
        """
        return True

    def populate(self, proxies: Sequence[Mapping[str, str]]) -> list[Proxy]:
        """Make or replace proxies, all or none, in one call. The package makes them one by one."""
        return [Proxy(**made) for made in ToxiproxyConsumer.post("/populate", json=list(proxies)).json()["proxies"]]


class ToxiproxyApi:
    """Calls one Toxiproxy server. Calls block for 2 ms or so: from trio, call them in a thread. They raise
    ToxiproxyError.

    Any number of threads may call at once; they take turns.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = 20.0) -> None:
        # Removing a toxic waits up to 5 s if a receiver does not take the bytes that were held.
        self._transport = HttpTransport(host, port, timeout_s)
        self._server = ToxiproxyServer()
        self._proxies: dict[str, Proxy] = {}

    def version(self) -> str:
        """Return the server's version."""
        with self._asking():
            return str(json.loads(self._server.version())["version"])

    def populate(self, proxies: Sequence[tuple[str, str, str]]) -> None:
        """Make or replace proxies of (name, listening address, address they lead to), all or none."""
        wanted = [{"name": _safe(name), "listen": listen, "upstream": to} for name, listen, to in proxies]
        with self._asking():
            made = {proxy.name: proxy for proxy in self._server.populate(wanted)}
        if missing := [each["name"] for each in wanted if each["name"] not in made]:
            raise ToxiproxyError(f"Toxiproxy made {len(made)} of {len(wanted)} proxies, without {', '.join(missing)}")
        self._proxies.update(made)

    def proxies(self) -> dict[str, Proxy]:
        """Return every proxy that the server has now, by name."""
        with self._asking():
            return dict(self._server.proxies())

    def toxics(self, proxy: str) -> dict[str, Toxic]:
        """Return every toxic that is on a proxy now, by name."""
        with self._asking():
            return dict(self._proxy(proxy).toxics())

    def enable(self, proxy: str, enabled: bool) -> None:
        """Switch a proxy on or off. Off ends its connections and refuses new ones."""
        with self._asking():
            switched = self._proxy(proxy)
            if enabled:
                switched.enable()
            else:
                switched.disable()

    def add_toxic(self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        """Put a toxic on every connection of a proxy, present and future. stream: "upstream" or "downstream"."""
        with self._asking():
            self._proxy(proxy).add_toxic(name=_safe(name), type=kind, stream=stream, attributes=attributes)

    def remove_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic; an unknown name is no error."""
        try:
            with self._asking():
                self._proxy(proxy).destroy_toxic(_safe(name))
        except ToxiproxyError as error:
            if error.status != 404:
                raise

    def reset(self) -> None:
        """Switch every proxy on and remove every toxic."""
        with self._asking():
            self._server.reset()

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def _proxy(self, name: str) -> Any:
        """Return the proxy of this name: from this object's cache, or else from the server."""
        if name not in self._proxies:
            self._proxies.update(self._server.proxies())
        if name not in self._proxies:
            raise ToxiproxyError(f"Toxiproxy has no proxy {name}")
        return self._proxies[name]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Direct the calls of toxiproxy-python inside this block to this object's server. Raises ToxiproxyError if an
        answer is not in the expected format.
        """
        try:
            with self._transport.chosen():
                yield
        except (KeyError, TypeError, ValueError, AttributeError) as nonsense:
            raise ToxiproxyError(f"Toxiproxy's answer is not what it should be: {nonsense!r}") from nonsense


def _safe(name: str) -> str:
    """Return the name. Raises HarnessError if the name is not safe in a URL path."""
    if not SAFE_NAME.fullmatch(name):
        raise HarnessError(f"{name!r} cannot be a name in Toxiproxy: only letters, digits, dot, dash and underscore")
    return name
