"""Defines what a library's error means for a transactional call, and what can be done after it.

A call has definitely failed only if the library refused it before it sent a request. If it may have sent one, no
library says whether that request has arrived, so the result of the call is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import FAIL, INFO, DriverConfig, OutcomeCallback, Place, RecordSender

INIT, BEGIN, COMMIT, ABORT = "init", "begin", "commit", "abort"
OFFSETS = "txn_offsets"
"""Names the call that commits offsets in the current transaction. The offsets are in `TransactionalAdapter.offsets`."""
CALLS = (INIT, BEGIN, COMMIT, ABORT, OFFSETS)
HAND = "hand"
"""Names the step in which the library takes a record, and may raise an error at once."""
SEND = "send"
"""Names the step after HAND: the library has taken the record, and its future or delivery report has an error."""
TIMED_OUT = "TIMED_OUT"
"""Is the error of a call that did not return within its time."""


class ErrorFollowUp(Enum):
    """Says how a transactional producer can continue after an error."""

    AGAIN = "the same call may be made again"
    ABORT = "of a record: its transaction can be aborted, and the producer goes on"
    END = "the producer can do nothing more"


class ErrorMeaning(NamedTuple):
    """Holds what an error means: its status, its name, and what can be done after it."""

    status: int
    """Is FAIL (the call definitely had no effect) or INFO (the call may have had its effect)."""
    name: str
    then: ErrorFollowUp


REFUSED = (FAIL, ErrorFollowUp.END)
IN_DOUBT = (INFO, ErrorFollowUp.END)
RESUMED = (INFO, ErrorFollowUp.AGAIN)
"""Is the meaning of an error if the result of a call is unknown, but the library resumes the call when it is made
again.
"""
LOST = (INFO, ErrorFollowUp.ABORT)
UNSENT = (FAIL, ErrorFollowUp.ABORT)
"""Is the meaning of an error if the library refused or dropped a record without sending it. The record was not written,
and its transaction can be aborted.
"""


class TransactionalAdapter(RecordSender, Protocol):
    """Adapts a library's transactional producer to the driver program. Calls are made one at a time, in a thread of
    their own, while another thread calls `pump`. Records are sent between `begin` and `commit` or `abort`.
    """

    offsets: tuple[Mapping[Place, int], Any]
    """Holds the arguments of the call that commits offsets in the transaction (OFFSETS): the offsets, and the library's
    group metadata of the member.
    """

    spent: str
    """Holds the error of a record after which no transaction can succeed; empty if there was none."""

    def call(self, which: str, within_s: float) -> None:
        """Make the transactional call `which`, such as `commit` (one of CALLS). Raise the library's error, or
        TimeoutError after `within_s` seconds.
        """

    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        """Return what an error means. which: where it was raised: in a call, or in a record's step HAND or SEND."""

    def identity(self) -> tuple[int, int]:
        """Return producer id and epoch as the library reports them; -1 for each that it does not report."""


class TransactionLibrary(Protocol):
    """Is the interface of the module that adapts one library's transactional producer."""

    version: str

    def transactor(self, config: DriverConfig, answer: OutcomeCallback) -> TransactionalAdapter:
        """Return a transactional producer that is not connected yet."""


def load(client: str) -> TransactionLibrary:
    """Return the module that adapts a library's transactional producer."""
    from importlib import import_module

    name = f"squall.chaos.drivers.transactors.with_{client.replace('-', '_')}"
    found: TransactionLibrary = import_module(name)
    return found
