"""A load says of a transaction that holds it back only what brokers have answered."""

from __future__ import annotations

import pytest

from squall.spark_analysis.load.held_back import HoldingTransaction


@pytest.mark.parametrize(
    ("transactional_id", "words"),
    [
        ("a", "the transaction of a (producer 5, epoch 1), open for 60 s"),
        (None, "an open transaction (producer 5, epoch 1), which last wrote 60 s ago"),
        ("", "a transaction that no coordinator knows (producer 5, epoch 1), which last wrote 60 s ago"),
    ],
)
def test_a_transaction_is_called_unknown_only_if_all_coordinators_say_so(
    transactional_id: str | None, words: str
) -> None:
    found = HoldingTransaction(("t", 0), 7, 2, 5, 1, transactional_id, 1_000).words(61_000)
    assert found == f"t-0: 2 offsets from 7 on behind {words}"
