"""Runs calls in a thread while Spark judges and the harness only waits."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundCalls:
    """Makes each call once, one after the other. If `begin` is called early, a thread makes them while the caller does
    other work; otherwise `finish` starts them. `finish` raises the error of a call that failed; later calls are then
    not made.
    """

    def __init__(self, *calls: Callable[[], None]) -> None:
        self._calls = calls
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self) -> None:
        """Start the calls in a thread, unless they were started before."""
        if self._thread is None:
            # A daemon: Ctrl-C does not wait for it.
            self._thread = threading.Thread(target=self._go, name="background", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait until no call is running, without starting any."""
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Wait until all calls are made, and start them if they were not started. Raise what a call raised."""
        self.begin()
        self.settle()
        if self._failure is not None:
            raise self._failure

    def _go(self) -> None:
        try:
            for call in self._calls:
                call()
        except BaseException as failure:  # `finish` raises it
            self._failure = failure
