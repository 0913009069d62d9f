"""Serves a run's metrics over HTTP, on loopback only, for as long as the run goes on.

In threads: judging waits for Spark, and whoever scrapes gets an answer all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.runs.metrics import CONTENT_TYPE, exposition
from squall.chaos.runs.progress import Progress

HOST = "127.0.0.1"
PATH = "/metrics"
VIEW_EVERY_S = 2.0
"""How often the brokers are asked for leaders and ISRs, where metrics are served."""
LAST_SCRAPE_S = 15.0
"""How long whoever has scraped before may take to come for the verdict. compose/metrics asks every 2 s."""
SILENT_S = 5.0
"""A connection that says nothing for so long is closed."""


class MetricsExporter:
    """The server. `text`: what it serves at this moment, and whether that is all there will ever be."""

    def __init__(self, port: int, text: Callable[[], tuple[str, bool]]) -> None:
        """Refused where the port is taken. Port 0: a free one."""
        self._asked = threading.Event()
        self._told_all = threading.Event()
        exporter = self

        class MetricsHandler(BaseHTTPRequestHandler):
            timeout = SILENT_S

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != PATH:
                    self.send_error(404, f"metrics are at {PATH}")
                    return
                written, last = text()
                body = written.encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                # Before the body: whoever has read it may look at once whether somebody has asked.
                exporter._asked.set()
                self.wfile.write(body)
                if last:
                    exporter._told_all.set()

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody needs a line for each scrape."""

        try:
            self._server = ThreadingHTTPServer((HOST, port), MetricsHandler)
        except OSError as error:
            raise PreconditionError(
                f"--metrics {port}: {error.strerror}; --metrics 0 takes a free port and prints it"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        return f"http://{HOST}:{self._server.server_port}{PATH}"

    def wait_for_last(self, limit_s: float = LAST_SCRAPE_S) -> bool:
        """Wait until a scraper that came before has scraped the final values. Returns whether it did; False at once if
        no scraper ever came.
        """
        return self._asked.is_set() and self._told_all.wait(limit_s)

    @property
    def awaited(self) -> bool:
        """True if a scraper has come before, but has not got the final values yet."""
        return self._asked.is_set() and not self._told_all.is_set()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(progress: Progress, port: int | None) -> Iterator[None]:
    """Serve the metrics of what `progress` shows until the block ends. None: nothing is served.

    After the block, whoever has scraped gets some seconds to come for the verdict.
    """
    if port is None:
        yield
        return
    progress.view_every_s = VIEW_EVERY_S
    status = progress.status
    exporter = MetricsExporter(port, lambda: (exposition(status, time.monotonic()), status.verdict is not None))
    try:
        progress.say(f"metrics: {exporter.url}")
        yield
        if status.verdict is not None and exporter.awaited:
            progress.say(f"waiting up to {LAST_SCRAPE_S:g} s for the last scrape (Ctrl-C ends that)")
            try:
                exporter.wait_for_last()
            except KeyboardInterrupt:
                pass  # the run is over, and its verdict stands
    finally:
        exporter.close()
