"""A leader lets a transaction begin in a partition only after its coordinator has verified it. A marker invalidates a
verification that is under way (KIP-890).
"""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.txn_offsets import error_for_client
from squall.broker.apis.txn_verification import error_for_producer
from squall.broker.net.connection import Connection
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators.add_partitions_client import ProduceTransaction
from tests.support.brokers.in_memory import MemoryBroker, answers, produced

PID = 7
V1, V2 = 11, 12


class LedBroker(MemoryBroker):
    """A broker that leads topic t; the test simulates the coordinators."""

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        self.h = self.give()

    def send(
        self, seq: int = 0, *, epoch: int = 3, count: int = 1, version: int = V1, conn: Connection | None = None
    ) -> Connection:
        conn = conn or self.client()
        sent = self.batch(count, pid=PID, epoch=epoch, seq=seq, transactional=True)
        self.produce(conn, ("t", 0, sent), acks=1, version=version, transactional_id="x")
        return conn

    def told(self, conn: Connection, version: int = V1) -> Any:
        """Return the partition's error, once the coordinator has answered."""
        self.run_started()
        return produced(conn, version)[0].error_code

    def finish(self) -> None:
        """Append an abort marker."""
        self.end(self.client(), PID, 3, commit=False)

    @property
    def log_end(self) -> int:
        return self.h.log.log_end_offset


def test_the_first_batch_of_a_transaction_waits_for_its_coordinator_and_the_next_ones_do_not() -> None:
    broker = LedBroker()
    conn = broker.send()
    assert (broker.log_end, answers(conn)) == (0, [])
    assert broker.told(conn) == ErrorCode.NONE
    again = broker.send(1)
    assert produced(again)[0].error_code == ErrorCode.NONE
    [(transaction, places, add)] = broker.coordinators.asked
    assert (transaction.transactional_id, transaction.producer_id, transaction.epoch) == ("x", PID, 3)
    assert (places, add) == ((("t", 0),), False)


def test_while_a_coordinator_is_asked_nothing_more_is_taken_from_the_connection() -> None:
    broker = LedBroker()
    conn = broker.send()
    assert conn.held is not None
    broker.run_started()
    assert conn.held is None


def test_a_client_that_leaves_meanwhile_holds_nobody() -> None:
    broker = LedBroker()
    conn = broker.send()
    conn.close()
    assert conn.held is None
    broker.run_started()
    assert broker.log_end == 0


def test_a_transactional_batch_without_a_transactional_id_is_refused_with_its_whole_request() -> None:
    broker = LedBroker(transaction_partition_verification_enable="false")
    plain, conn = broker.batch(), broker.client()
    broker.produce(
        conn,
        ("t", 0, plain),
        ("t", 1, broker.batch(pid=PID, epoch=3, seq=0, transactional=True)),
        acks=1,
        transactional_id=None,
    )
    assert [part.error_code for part in produced(conn)][0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert broker.log_end == 0
    assert PID not in broker.h.log.producers.entries
    assert not broker.coordinators.asked


def test_a_plain_producer_is_not_held() -> None:
    broker = LedBroker()
    broker.produce(broker.client(), ("t", 0, broker.batch(pid=1, epoch=0, seq=0)), acks=1)
    broker.produce(broker.client(), acks=1)
    assert broker.log_end == 2
    assert not broker.coordinators.asked


def test_a_batch_of_no_transaction_that_a_coordinator_knows_is_not_appended() -> None:
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.TRANSACTION_ABORTABLE]
    assert broker.told(broker.send()) == ErrorCode.TRANSACTION_ABORTABLE
    assert broker.log_end == 0


def test_without_a_transactional_id_no_transaction_begins() -> None:
    broker = LedBroker()
    conn, batch = broker.client(), broker.batch(pid=PID, epoch=3, seq=0, transactional=True)
    broker.produce(conn, ("t", 0, batch), acks=1, transactional_id=None)
    assert produced(conn)[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert broker.h.log.append_as_leader(batch, 5, broker.env.wall_ms()).error == ErrorCode.INVALID_TXN_STATE


def test_a_late_batch_behind_its_marker_must_be_agreed_to_again() -> None:
    """KAFKA-14402: without a new verification it would open a transaction that nothing ends."""
    broker = LedBroker()
    broker.told(broker.send())
    broker.finish()
    broker.coordinators.answers = [ErrorCode.TRANSACTION_ABORTABLE]
    assert broker.told(broker.send(1)) == ErrorCode.TRANSACTION_ABORTABLE
    assert broker.h.first_unstable_offset() == 0  # The marker is not committed, and nothing else is open.
    assert not broker.h.log.producers.ongoing


def test_an_answer_that_comes_after_the_marker_is_of_no_use() -> None:
    broker = LedBroker()
    broker.coordinators.before_answer = lambda: broker.finish()
    assert broker.told(broker.send()) == ErrorCode.INVALID_TXN_STATE
    assert not broker.h.log.producers.ongoing


def test_what_is_agreed_for_one_epoch_says_nothing_of_another_that_was_asked_about_before() -> None:
    """A batch with an invented epoch was accepted because of its victim's verification, and fenced the victim: nothing
    ended the transaction.
    """
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.PRODUCER_FENCED, ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]
    assert broker.told(broker.send(epoch=32_767)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.told(broker.send(epoch=3)) == ErrorCode.NONE
    assert broker.told(broker.send(epoch=32_767)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [asked.epoch for asked, _, _ in broker.coordinators.asked] == [32_767, 3, 32_767]
    assert broker.log_end == 1


def test_questions_about_two_epochs_wait_side_by_side() -> None:
    broker = LedBroker()

    async def ask(transaction: ProduceTransaction, places: Any, *, add: bool) -> Any:
        return dict.fromkeys(places, ErrorCode.NONE if transaction.epoch == 3 else ErrorCode.PRODUCER_FENCED)

    broker.coordinators.ask = ask  # type: ignore[method-assign]
    forged, honest = broker.send(epoch=32_767), broker.send(epoch=3)
    assert broker.told(honest) == ErrorCode.NONE
    assert produced(forged, V1)[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.log_end == 1


def test_a_marker_takes_all_questions_away_that_came_before_it() -> None:
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.TRANSACTION_ABORTABLE] * 2
    for epoch in (2, 3):
        broker.told(broker.send(epoch=epoch))
    assert list(broker.h.log.producers.verifications[PID]) == [2, 3]
    broker.finish()
    assert not broker.h.log.producers.verifications


def test_an_answer_that_comes_after_a_repeated_marker_is_of_no_use() -> None:
    """The marker is not written twice, but the transaction that the coordinator verified has ended all the same."""
    broker = LedBroker()
    broker.finish()
    end = broker.log_end
    broker.coordinators.before_answer = lambda: broker.finish()
    assert broker.told(broker.send()) == ErrorCode.INVALID_TXN_STATE
    assert broker.log_end == end


def test_an_answer_that_comes_after_a_change_of_leaders_is_of_no_use() -> None:
    broker = LedBroker()

    def away_and_back() -> None:
        broker.give(leader=2, epoch=6, partition_epoch=11)
        broker.give(leader=1, epoch=7, partition_epoch=12)

    broker.coordinators.before_answer = away_and_back
    assert broker.told(broker.send()) == ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_is_in_the_log_is_acknowledged_without_asking() -> None:
    broker = LedBroker()
    broker.told(broker.send())
    broker.finish()
    again = broker.send()
    assert produced(again)[0].base_offset == 0
    assert len(broker.coordinators.asked) == 1


def test_what_was_agreed_to_is_not_asked_again_if_the_append_failed() -> None:
    broker = LedBroker()
    broker.told(broker.send(5))
    broker.finish()
    assert broker.told(broker.send(9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(broker.send(6))[0].error_code == ErrorCode.NONE
    assert len(broker.coordinators.asked) == 2


def test_with_verification_off_a_late_batch_opens_a_transaction_that_nobody_ends() -> None:
    broker = LedBroker(transaction_partition_verification_enable="false")
    broker.send()
    broker.finish()
    broker.send(1)
    assert not broker.coordinators.asked
    assert list(broker.h.log.producers.ongoing) == [2]


def test_a_producer_of_v2_has_its_partitions_added_whether_verification_is_on_or_not() -> None:
    broker = LedBroker(transaction_partition_verification_enable="false")
    assert broker.told(broker.send(version=V2), V2) == ErrorCode.NONE
    assert [add for _, _, add in broker.coordinators.asked] == [True]


def test_v2_is_told_that_the_transaction_before_is_still_completing() -> None:
    """The coordinator has already waited for it."""
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert broker.told(broker.send(version=V2), V2) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_v1_is_told_at_once_to_come_again_while_the_transaction_before_completes() -> None:
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert broker.told(broker.send()) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_first_batch_that_overtook_another_waits_for_it() -> None:
    """KAFKA-14904: the earlier batch got a retriable error. If the later one were appended first, the earlier one would
    be out of order for ever.
    """
    broker = LedBroker()
    broker.coordinators.answers = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert broker.told(broker.send(4)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.told(broker.send(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(broker.send(4))[0].error_code == ErrorCode.NONE
    assert produced(broker.send(5))[0].error_code == ErrorCode.NONE


def test_a_producer_of_v2_begins_with_sequence_0() -> None:
    broker = LedBroker()
    assert broker.told(broker.send(4, version=V2), V2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_partitions_of_one_request_are_asked_for_together_and_fail_alone() -> None:
    broker = LedBroker()
    broker.give("u")
    conn = broker.client()
    sent = [(name, 0, broker.batch(pid=PID, epoch=3, seq=0, transactional=True)) for name in ("t", "u")]
    other = ("w", 0, broker.batch(pid=PID + 1, epoch=3, seq=0, transactional=True))
    broker.give("w")
    broker.produce(conn, *sent, other, acks=1, transactional_id="x")
    broker.run_started()
    errors = [part.error_code for part in produced(conn)]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert [places for _, places, _ in broker.coordinators.asked] == [(("t", 0), ("u", 0))]


@pytest.mark.parametrize(
    ("error", "v10", "v11", "v12"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.PRODUCER_FENCED, "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.NETWORK_EXCEPTION, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.NOT_COORDINATOR, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) + ("INVALID_PRODUCER_ID_MAPPING",) * 3,
    ],
)
def test_producers_are_told_what_their_version_knows(error: ErrorCode, v10: str, v11: str, v12: str) -> None:
    assert [error_for_producer(error, version).name for version in (10, 11, 12)] == [v10, v11, v12]


def test_a_marker_of_the_transaction_before_does_not_void_the_answer_for_the_next_one_of_v2() -> None:
    """In protocol V2 the end of a transaction increases the epoch, so its marker has the epoch of the next transaction.
    """
    broker = LedBroker()
    broker.told(broker.send(version=V2), V2)
    broker.coordinators.before_answer = lambda: broker.end(broker.client(), PID, 4, transaction_version=2)
    assert broker.told(broker.send(epoch=4, version=V2), V2) == ErrorCode.NONE
    assert list(broker.h.log.producers.ongoing) == [2]


def test_a_marker_of_v1_voids_the_answer_to_a_question_of_v2_too() -> None:
    """A client produced by V2 and ended by an EndTxn of V1: a later batch then opened a transaction for ever."""
    broker = LedBroker()
    broker.coordinators.before_answer = broker.finish
    assert broker.told(broker.send(version=V2), V2) == ErrorCode.INVALID_TXN_STATE
    assert not broker.h.log.producers.ongoing


def test_what_was_agreed_to_in_v2_and_could_not_be_appended_is_asked_again_behind_a_marker_of_v1() -> None:
    broker = LedBroker()
    assert broker.told(broker.send(5, version=V2), V2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker.finish()
    broker.coordinators.answers = [ErrorCode.TRANSACTION_ABORTABLE]
    assert broker.told(broker.send()) == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("error", "v3", "v5"),
    [
        (ErrorCode.NOT_COORDINATOR, "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.PRODUCER_FENCED, "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.TRANSACTION_ABORTABLE, "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"),
    ],
)
def test_a_coordinators_error_in_the_words_of_each_txn_offset_commit(error: ErrorCode, v3: str, v5: str) -> None:
    """Kafka 4.3.1 passes CONCURRENT_TRANSACTIONS on to the client: `python -m tests.differential --rows 'pipelined*'`.
    """
    assert [error_for_client(error, version).name for version in (3, 5)] == [v3, v5]
