"""Builds record batches for tests of logs."""

from __future__ import annotations

from squall.broker.protocol.records import Record, encode_batch

NEWEST = 2**31 - 1
"""The largest leader epoch there can be."""


def batch(
    count: int = 1,
    *,
    timestamp: int = 1_000,
    size: int = 20,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    base: int = 0,
    leader_epoch: int = -1,
    transactional: bool = False,
    codec: int = 0,
    key: bytes | None = b"k",
) -> memoryview:
    """Return a batch as a producer sends it: `count` records, values of `size` bytes, timestamps 1 ms apart."""
    records = [Record(n, timestamp + n, key, bytes([65 + n % 26]) * size) for n in range(count)]
    data = encode_batch(
        records,
        base_offset=base,
        leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch if pid < 0 or epoch >= 0 else 0,
        base_sequence=seq,
        transactional=transactional,
        codec=codec,
    )
    return memoryview(bytearray(data))


def marker(
    pid: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    base: int = 0,
    leader_epoch: int = -1,
    timestamp: int = 1_000,
) -> memoryview:
    """Return a control batch that ends a transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    data = encode_batch(
        [Record(0, timestamp, key, value)],
        base_offset=base,
        leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )
    return memoryview(bytearray(data))
