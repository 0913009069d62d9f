"""A driver's process that is a transactional producer: each call is made, again where the library says that it can be,
and answered once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from squall.chaos.drivers.library import FAIL, INFO, OK
from squall.chaos.drivers.reading import MessageSink
from squall.chaos.drivers.transactors.outcomes import (
    OFFSETS,
    TIMED_OUT,
    ErrorFollowUp,
    ErrorMeaning,
    TransactionalAdapter,
)

SLICE_S = 5.0
"""A call that a library can resume gets its time in slices of this."""
AGAIN_S = 0.1
"""Between two attempts of a call."""
GRACE_S = 5.0
"""A library that does not keep the time that it was given gets so much more."""
TICK_S = 0.005


class OutcomeSink(MessageSink, Protocol):
    """Sends outcomes of records to the harness, too."""

    def tell(self) -> None:
        """Send the outcomes of records that have come."""


class TransactionCalls:
    """Makes the calls of one producer. `limit_s`: how long one call is tried for."""

    def __init__(self, producer: TransactionalAdapter, out: OutcomeSink, limit_s: float) -> None:
        self._producer, self._out, self._limit_s = producer, out, limit_s

    def make(self, which: str) -> None:
        """One call, until it has its answer: ["t", call, status, error, producer id, epoch, why it ends]."""
        weighed = self._outcome(which)
        self.pump()
        status, error = (OK, "") if weighed is None else (weighed.status, weighed.name)
        # Of offsets that were not committed a transaction can be aborted, if the library can still do that.
        ends = self._producer.spent if which == OFFSETS else error or self._producer.spent
        self._out.say("t", which, status, error, *self._producer.identity(), ends)

    def refuse(self, which: str, why: str) -> None:
        """Answer a call that is not made."""
        self._out.say("t", which, FAIL, why, *self._producer.identity(), self._producer.spent)

    def pump(self) -> None:
        """Let the outcomes of records through."""
        self._producer.pump()
        self._out.tell()

    def _outcome(self, which: str) -> ErrorMeaning | None:
        """Return None if the call succeeded, else its error. A call that was in doubt once stays in doubt, whatever a
        later attempt returns.
        """
        deadline, doubt = time.monotonic() + self._limit_s, False
        while True:
            error = self._attempt(which, min(SLICE_S, max(0.0, deadline - time.monotonic())), deadline)
            if error is None:
                return None
            weighed = self._producer.weigh(which, error)
            doubt |= weighed.status == INFO
            found = ErrorMeaning(INFO if doubt else FAIL, weighed.name, weighed.then)
            if found.then is not ErrorFollowUp.AGAIN:
                return found
            if time.monotonic() + AGAIN_S >= deadline:
                return found._replace(then=ErrorFollowUp.END)
            self._wait(AGAIN_S, lambda: False)

    def _attempt(self, which: str, slice_s: float, deadline: float) -> BaseException | None:
        """The error that it raised; TimeoutError where it does not return."""
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                self._producer.call(which, slice_s)
            except BaseException as error:  # a library's errors are of many roots; each one is weighed
                ended.put(error)
            else:
                ended.put(None)

        threading.Thread(target=attempt, daemon=True).start()
        self._wait(deadline - time.monotonic() + GRACE_S, lambda: not ended.empty())
        return TimeoutError(TIMED_OUT) if ended.empty() else ended.get()

    def _wait(self, within_s: float, over: Callable[[], bool]) -> None:
        end = time.monotonic() + within_s
        while not over() and time.monotonic() < end:
            self.pump()
            time.sleep(TICK_S)
