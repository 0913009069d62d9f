"""For topics whose records are validated, compressed batches are unpacked off the event loop before they are appended.
"""

from __future__ import annotations

from struct import pack_into
from typing import Any

from crc32c import crc32c

from squall.broker.log.config import LogConfig
from squall.broker.net.connection import Connection
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from tests.support.brokers.in_memory import MemoryBroker, answers, produced

CHECKED = LogConfig(squall_record_validation_enable=True)


def broker_that_checks(config: LogConfig = CHECKED) -> tuple[MemoryBroker, Any]:
    broker = MemoryBroker()
    h = broker.give()
    h.log.configure(config)
    return broker, h.log


def send(broker: MemoryBroker, batch: bytes, version: int = 9) -> Connection:
    conn = broker.client()
    broker.produce(conn, ("t", 0, batch), acks=1, version=version)
    return conn


def packed(broker: MemoryBroker, key: bytes | None = b"k", codec: int = 1, count: int = 3) -> bytes:
    return encode_batch([Record(n, broker.env.wall_ms(), key, b"v") for n in range(count)], codec=codec)


def test_a_packed_batch_is_appended_once_it_has_been_read_and_nothing_behind_it_before() -> None:
    broker, log = broker_that_checks()
    conn = send(broker, packed(broker))
    assert (log.log_end_offset, answers(conn)) == (0, [])
    assert conn.held is not None
    broker.run_started()
    assert conn.held is None
    assert produced(conn)[0].error_code == ErrorCode.NONE
    assert log.log_end_offset == 3


def test_a_small_batch_that_is_not_packed_is_read_as_it_is_appended() -> None:
    broker, log = broker_that_checks()
    assert produced(send(broker, packed(broker, codec=0)))[0].error_code == ErrorCode.NONE
    assert log.log_end_offset == 3
    assert not broker.started


def test_a_large_batch_that_is_not_packed_is_read_elsewhere() -> None:
    broker, log = broker_that_checks()
    conn = send(broker, packed(broker, codec=0, count=5_000))
    assert log.log_end_offset == 0
    broker.run_started()
    assert produced(conn)[0].error_code == ErrorCode.NONE


def test_topics_that_do_not_ask_for_it_are_not_read() -> None:
    broker, log = broker_that_checks(LogConfig())
    send(broker, packed(broker))
    assert log.log_end_offset == 3
    assert not broker.started


def test_garbage_is_refused_and_not_appended() -> None:
    broker, log = broker_that_checks()
    batch = bytearray(packed(broker))
    batch[-5] ^= 0xFF
    pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    conn = send(broker, bytes(batch))
    broker.run_started()
    assert produced(conn)[0].error_code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_which_records_lack_a_key_is_told() -> None:
    broker, log = broker_that_checks(LogConfig(cleanup_policy=("compact",)))
    for version in (8, 9):
        conn = send(broker, packed(broker, key=None, count=2), version)
        broker.run_started()
        [part] = produced(conn, version)
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert "2 record errors" in part.error_message
        assert [error.batch_index for error in part.record_errors] == [0, 1]
        assert {error.batch_index_error_message for error in part.record_errors} == {
            "Compacted topic cannot accept message without key"
        }
    assert log.log_end_offset == 0


def test_what_the_header_betrays_is_refused_without_reading() -> None:
    broker, log = broker_that_checks()
    batch = bytearray(packed(broker))
    batch[17] ^= 1
    assert produced(send(broker, bytes(batch)))[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert not broker.started
    assert log.log_end_offset == 0


def test_who_leaves_meanwhile_has_sent_nothing() -> None:
    broker, log = broker_that_checks()
    conn = send(broker, packed(broker))
    conn.close()
    broker.run_started()
    assert log.log_end_offset == 0
