"""What an error of a library says about what it was asked for, and what can follow it.

A call failed for sure only where the library refused it before it sent anything. Of whatever it sent, no library says
whether an earlier attempt has arrived: the call is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import FAIL, INFO, Answer, Order, Place

INIT, BEGIN, COMMIT, ABORT = "init", "begin", "commit", "abort"
OFFSETS = "txn_offsets"
"""Commit offsets in the transaction that is under way: `Transacting.offsets`."""
CALLS = (INIT, BEGIN, COMMIT, ABORT, OFFSETS)
HAND = "hand"
"""A record is handed over: the library raises an error at once."""
SEND = "send"
"""A record was handed over: its future or its delivery report has an error."""
TIMED_OUT = "TIMED_OUT"
"""The library did not return within the time that it had."""


class Then(Enum):
    """What can follow an error."""

    AGAIN = "the same call may be made again"
    ABORT = "of a record: its transaction can be aborted, and the producer goes on"
    END = "the producer can do nothing more"


class Weighed(NamedTuple):
    """What an error means."""

    status: int
    """FAIL or INFO."""
    name: str
    then: Then


REFUSED = (FAIL, Then.END)
IN_DOUBT = (INFO, Then.END)
RESUMED = (INFO, Then.AGAIN)
"""In doubt until the same call, made again, has an answer."""
LOST = (INFO, Then.ABORT)
UNSENT = (FAIL, Then.ABORT)
"""Of records."""


class Transacting(Protocol):
    """A library's producer with a transactional id. Calls are made one at a time, in a thread of their own, while
    `pump` is called beside them; records are handed over between `begin` and `commit` or `abort`. Each record is
    answered once.
    """

    offsets: tuple[Mapping[Place, int], Any]
    """Of the call OFFSETS: what is to be committed, and what the library takes for the member that does it."""

    @property
    def spent(self) -> str:
        """The error of a record after which no transaction can succeed; empty while there was none."""

    def call(self, which: str, within_s: float) -> None:
        """One of CALLS. Raises what the library raises; TimeoutError where the time is over."""

    def weigh(self, which: str, error: BaseException) -> Weighed:
        """What an error of a call, of HAND or of SEND means."""

    def identity(self) -> tuple[int, int]:
        """Producer id and epoch as the library tells them; -1 where it does not."""

    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        """Hand a record over, waiting for room where there is none."""

    def pump(self) -> None:
        """Let answers through that have come."""


class Library(Protocol):
    """A module that drives a library's transactions."""

    version: str

    def transactor(self, order: Order, answer: Answer) -> Transacting:
        """One, not connected yet."""


def load(client: str) -> Library:
    """The module that drives this library's transactions."""
    from importlib import import_module

    name = f"squall.chaos.drivers.transactors.with_{client.replace('-', '_')}"
    found: Library = import_module(name)
    return found
