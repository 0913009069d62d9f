"""Says what an error of a library means for a call, and what can follow it.

A call failed for sure only if the library refused it before it sent anything. Once something was sent, no library says
whether an earlier attempt has arrived: the call is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import FAIL, INFO, Answer, DriverConfig, Place, RecordSender

INIT, BEGIN, COMMIT, ABORT = "init", "begin", "commit", "abort"
OFFSETS = "txn_offsets"
"""Commit offsets in the transaction that is under way: `TransactionalAdapter.offsets`."""
CALLS = (INIT, BEGIN, COMMIT, ABORT, OFFSETS)
HAND = "hand"
"""A record is handed over: the library raises an error at once."""
SEND = "send"
"""A record was handed over: its future or its delivery report has an error."""
TIMED_OUT = "TIMED_OUT"
"""The library did not return within the time that it had."""


class ErrorFollowUp(Enum):
    """Says what can follow an error."""

    AGAIN = "the same call may be made again"
    ABORT = "of a record: its transaction can be aborted, and the producer goes on"
    END = "the producer can do nothing more"


class ErrorMeaning(NamedTuple):
    """Holds what an error means: its status, its name, and what can follow."""

    status: int
    """FAIL or INFO."""
    name: str
    then: ErrorFollowUp


REFUSED = (FAIL, ErrorFollowUp.END)
IN_DOUBT = (INFO, ErrorFollowUp.END)
RESUMED = (INFO, ErrorFollowUp.AGAIN)
"""In doubt until the same call, made again, has an answer."""
LOST = (INFO, ErrorFollowUp.ABORT)
UNSENT = (FAIL, ErrorFollowUp.ABORT)
"""Of records."""


class TransactionalAdapter(RecordSender, Protocol):
    """Drives a library's producer with a transactional id. Calls are made one at a time, in a thread of their own,
    while `pump` is called beside them; records are handed over between `begin` and `commit` or `abort`.
    """

    offsets: tuple[Mapping[Place, int], Any]
    """Of the call OFFSETS: what is to be committed, and what the library takes for the member that does it."""

    spent: str
    """The error of a record after which no transaction can succeed; empty while there was none."""

    def call(self, which: str, within_s: float) -> None:
        """Make one of CALLS. Raises what the library raises; TimeoutError after `within_s` seconds."""

    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        """Return what an error of a call, of HAND or of SEND means."""

    def identity(self) -> tuple[int, int]:
        """Return producer id and epoch as the library reports them; -1 if it does not."""


class TransactionLibrary(Protocol):
    """A module that drives a library's transactions."""

    version: str

    def transactor(self, order: DriverConfig, answer: Answer) -> TransactionalAdapter:
        """Return a producer that is not connected yet."""


def load(client: str) -> TransactionLibrary:
    """The module that drives this library's transactions."""
    from importlib import import_module

    name = f"squall.chaos.drivers.transactors.with_{client.replace('-', '_')}"
    found: TransactionLibrary = import_module(name)
    return found
