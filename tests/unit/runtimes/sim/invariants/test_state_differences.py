"""Checks that a state that differs from its log is reported in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from squall.broker.cluster.image import Broker, PartitionImage
from squall.chaos.runtimes.sim.invariants.contents import ComparableImage
from squall.chaos.runtimes.sim.invariants.decisions import image_is_a_replay
from squall.chaos.runtimes.sim.invariants.log_replay import ProducerReplay, ReplayedBatch
from squall.chaos.runtimes.sim.invariants.state_differences import of_id, of_image, of_open, of_producer
from squall.chaos.runtimes.sim.invariants.transaction_journal import COMPLETE_COMMIT, PREPARE_COMMIT, TransactionRecord
from squall.chaos.runtimes.sim.invariants.transactions import coordinator_state_is_a_replay, producer_state_is_a_replay
from tests.support.clusters.derived_cases import DERIVED
from tests.support.clusters.txn_cases import TXNS

ENTRY = TransactionRecord(9, 4, 4000, PREPARE_COMMIT, (("t", 0), ("t", 1)), 100, 200, (9, -1, 0))
SENDER = ProducerReplay(4, 7, (ReplayedBatch(3, 4, 20, 21), ReplayedBatch(5, 6, 30, 31)), 2, 20)
GIVES = "and a replay of the log gives"
NEWEST = "the newest with sequences"
PARTITION = PartitionImage((1, 2), (1, 2), 1, 3, 4)
BROKER = Broker(1, 8, b"i", {}, fenced=False)
IMAGE = ComparableImage((BROKER,), ((b"\x07", "t", ((0, PARTITION),)),), (((2, "t"), (("retention.ms", "5"),)),))


@pytest.mark.parametrize(
    ("has", "words"),
    [
        (None, "the coordinator does not know it, and its log has records of it"),
        (ENTRY._replace(state=COMPLETE_COMMIT), f"state is CompleteCommit, {GIVES} PrepareCommit"),
        (
            ENTRY._replace(epoch=3, places=(), updated_ms=1),
            f"producer epoch is 3, {GIVES} 4; also differ: list of partitions, time of its last update (ms)",
        ),
        (ENTRY._replace(places=(("t", 1),)), f"list of partitions is t-1, {GIVES} t-0, t-1"),
        (ENTRY._replace(state=77), f"state is 77, which is no state, {GIVES} PrepareCommit"),
    ],
)
def test_of_a_transactional_id(has: TransactionRecord | None, words: str) -> None:
    assert of_id("x", has, ENTRY) == f"transactional id x: {words}"


@pytest.mark.parametrize(
    ("has", "words"),
    [
        (None, "the log does not know it, and has batches of it"),
        (SENDER._replace(first=-1), f"transaction is none, {GIVES} open from offset 20 on"),
        (
            SENDER._replace(window=SENDER.window[:1]),
            (
                f"number of batches that are known again is 1, {NEWEST} 3 to 4 at offsets 20 to 21, {GIVES} "
                f"2, {NEWEST} 5 to 6 at offsets 30 to 31"
            ),
        ),
        (SENDER._replace(expected=5, epoch=3), f"producer epoch is 3, {GIVES} 4; also differs: next sequence"),
    ],
)
def test_of_a_producer(has: ProducerReplay | None, words: str) -> None:
    assert of_producer(9, has, SENDER) == f"producer id 9: {words}"


def test_of_what_is_open() -> None:
    assert of_open([(5, 8)], []) == f"list of what is open is of producer id 8 from offset 5 on, {GIVES} none"


@pytest.mark.parametrize(
    ("has", "words"),
    [
        (IMAGE._replace(brokers=(replace(BROKER, fenced=True),)), f"fenced of broker 1 is True, {GIVES} False"),
        (IMAGE._replace(brokers=()), f"broker 1 is missing, {GIVES} known"),
        (
            IMAGE._replace(topics=((b"\x07", "t", ((0, replace(PARTITION, isr=(1,), leader_epoch=2)),)),)),
            f"isr of partition t-0 is (1,), {GIVES} (1, 2); also differs: leader epoch of partition t-0",
        ),
        (IMAGE._replace(topics=((b"\x08", "t", ((0, PARTITION),)),)), f"id of topic t is 08, {GIVES} 07"),
        (IMAGE._replace(settings=()), f"setting retention.ms of t is missing, {GIVES} 5"),
        (IMAGE._replace(epoch=9), f"epoch is 9, {GIVES} -1"),
    ],
)
def test_of_an_image(has: ComparableImage, words: str) -> None:
    assert of_image(has, IMAGE) == f"in the image, {words}"


@pytest.mark.parametrize(
    ("check", "cases"),
    [
        (coordinator_state_is_a_replay, TXNS["coordinator-state-is-a-replay"]),
        (producer_state_is_a_replay, TXNS["producer-state-is-a-replay"]),
        (image_is_a_replay, DERIVED["image-is-a-replay"]),
    ],
)
def test_nothing_of_pythons_own_is_said(check: Any, cases: Any) -> None:
    for _, broken, _ in cases:
        told = check(*broken)
        assert told
        assert not any(sign in told for sign in ("Entry(", "Sender(", "Sent(", "Contents(", "None", "=")), told
