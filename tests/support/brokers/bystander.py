"""A second client of a broker: it measures how long small requests wait while another client sends costly ones."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.support.brokers.broker_process import BrokerProcess


class Bystander:
    """A context manager that sends small requests over one connection, one after the other, until its block ends.

    `slowest_s` is the longest wait for an answer, `answers` their number. An error of its connection is raised at the
    end of the block.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.slowest_s, self.answers = 0.0, 0
        self._client = broker.connect()
        self._over = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                self._client.ask(MetadataRequest(topics=[]), 12)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.answers += 1
                self._over.wait(0.005)
        except (AssertionError, OSError) as trouble:
            self._trouble = trouble

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()
        if self._trouble is not None and error is None:
            raise self._trouble
