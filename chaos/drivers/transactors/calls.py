"""Makes the calls of a transactional producer in the driver program. A call is retried as long as the library allows
that, and the harness gets one reply to it.
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
"""Limits one attempt of a call, in seconds. If the library can resume a call after a time-out, another attempt follows.
"""
AGAIN_S = 0.1
"""Gives the pause between two attempts of a call, in seconds."""
GRACE_S = 5.0
"""Gives the seconds that a library may exceed its own time-out by."""
TICK_S = 0.005


class OutcomeSink(MessageSink, Protocol):
    """Sends messages and the outcomes of records to the harness."""

    def send_outcomes(self) -> None:
        """Send the outcomes that the library has reported since the last call."""


class TransactionCalls:
    """Makes the calls of one transactional producer. `limit_s`: how long one call is retried, in seconds."""

    def __init__(self, producer: TransactionalAdapter, out: OutcomeSink, limit_s: float) -> None:
        self._producer, self._out, self._limit_s = producer, out, limit_s

    def make(self, which: str) -> None:
        """Make one call, and send its result: ["t", call, status, error, producer id, epoch, why the producer ends]."""
        weighed = self._outcome(which)
        # Outcomes of records first: the reply ends the transaction, whose records must have theirs in the history by
        # then.
        self.pump()
        status, error = (OK, "") if weighed is None else (weighed.status, weighed.name)
        # After a failed offset commit the transaction can still be aborted, unless the producer can do nothing more.
        ends = self._producer.spent if which == OFFSETS else error or self._producer.spent
        self._out.send("t", which, status, error, *self._producer.identity(), ends)

    def refuse(self, which: str, why: str) -> None:
        """Reply with FAIL to a call that is not made."""
        self._out.send("t", which, FAIL, why, *self._producer.identity(), self._producer.spent)

    def pump(self) -> None:
        """Let the library call back, and send the outcomes of records."""
        self._producer.pump()
        self._out.send_outcomes()

    def _outcome(self, which: str) -> ErrorMeaning | None:
        """Make the call, and repeat it as long as the library allows that and `limit_s` is not over. Return None if the
        call succeeded, else what its last error means. If the result of any attempt was unknown, the status is INFO,
        even if a later attempt definitely failed.
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
        """Make the call once, with `slice_s` seconds as its time-out. Return the error that it raised, or None if it
        succeeded. If it is still running GRACE_S after the deadline (by time.monotonic()), return TimeoutError.
        """
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                self._producer.call(which, slice_s)
            except BaseException as error:  # libraries have no common base class of errors
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
