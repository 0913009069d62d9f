"""Another client of a broker, that asks small questions while somebody else asks for much."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.support.brokers.broker_process import BrokerProcess


class Bystander:
    """Asks from one connection, one question after the other, as long as the block runs.

    `slowest_s` is the longest that an answer took, `answers` their number. Trouble is raised at the block's end.
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
