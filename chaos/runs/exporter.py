"""Serves a run's metrics over HTTP, on loopback only, as long as the run lasts.

The server uses threads: judging waits for Spark, and a scraper must get an answer meanwhile.
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
"""Gives how often the brokers are asked for leaders and ISRs while metrics are served, in s."""
LAST_SCRAPE_S = 15.0
"""Limits how long the run waits at its end for a scraper to get the verdict, in s. compose/metrics scrapes every 2 s.
"""
SILENT_S = 5.0
"""Gives the seconds without a request after which a connection is closed."""


class MetricsExporter:
    """Serves a run's metrics over HTTP, from a thread."""

    def __init__(self, port: int, text: Callable[[], tuple[str, bool]]) -> None:
        """Start the server. Raise PreconditionError if the port is in use. Port 0 chooses a free port. text: returns
        the metrics at this moment, and True if they are final.
        """
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
                # Set before the body is sent: a scraper's reader may check `awaited` as soon as it has read the body.
                exporter._asked.set()
                self.wfile.write(body)
                if last:
                    exporter._told_all.set()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: a line for each scrape would only disturb."""

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
        """Returns the URL of the metrics."""
        return f"http://{HOST}:{self._server.server_port}{PATH}"

    def wait_for_last(self, limit_s: float = LAST_SCRAPE_S) -> bool:
        """Wait until a scraper that has scraped before has got the final values. Return whether it did; False at once
        if no scraper ever came.
        """
        return self._asked.is_set() and self._told_all.wait(limit_s)

    @property
    def awaited(self) -> bool:
        """Is True if a scraper has scraped before, but has not got the final values yet."""
        return self._asked.is_set() and not self._told_all.is_set()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(progress: Progress, port: int | None) -> Iterator[None]:
    """Serve the metrics of the run that `progress` displays until the block ends. port: None means that nothing is
    served.

    After the block, a scraper that has scraped before gets some seconds to get the verdict.
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
                pass  # the run is over, and its verdict is kept
    finally:
        exporter.close()
