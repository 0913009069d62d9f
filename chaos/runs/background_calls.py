"""Work for the time in which Spark judges and the harness only waits."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundCalls:
    """Calls that are made once, one after the other: beside something else if there is an occasion, else where their
    results are wanted. What one of them raises is raised by `finish`, and no further one is made.
    """

    def __init__(self, *calls: Callable[[], None]) -> None:
        self._calls = calls
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self) -> None:
        """Start them, unless they were started."""
        if self._thread is None:
            # A daemon: Ctrl-C does not wait for it.
            self._thread = threading.Thread(target=self._go, name="background", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait until nothing of it goes on; nothing is started."""
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Wait until all is done; starts it where nobody did."""
        self.begin()
        self.settle()
        if self._failure is not None:
            raise self._failure

    def _go(self) -> None:
        try:
            for call in self._calls:
                call()
        except BaseException as failure:  # raised where the results are wanted
            self._failure = failure
