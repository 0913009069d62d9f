"""Checks what is answered about a refused part of a request."""

from __future__ import annotations

from squall.broker.controller.decision import Refusal
from squall.broker.protocol.errors import LONGEST_MESSAGE, ErrorCode


def test_a_message_quotes_no_more_of_a_name_than_a_topic_may_have() -> None:
    """170 KB of ElectLeaders, a long name with 40,000 partitions, took 590 MB: each message had the whole name."""
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    longest = "No such topic as " + "n" * 249
    assert Refusal(error, longest).message == longest
    cut = Refusal(error, "No such topic as " + "n" * 32_000).message
    assert cut is not None
    assert cut.endswith("n...")
    assert len(cut) == LONGEST_MESSAGE + 3
