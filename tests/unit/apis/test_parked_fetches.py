"""Fetches of many partitions that wait for records: their memory, and the cost of a record to one of these partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from squall.broker.apis.fetch import FEW_WANTS, FetchApi
from squall.broker.net.connection import Connection
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.brokers.in_memory import IDS, MemoryBroker, answers, fetched, fetched_all

WIDE = 12
FOREVER_MS = 2**31 - 1


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker that leads topic t alone, so that every append is committed."""
    made = MemoryBroker()
    for index in range(WIDE):
        made.give(index=index, isr=(1,), replicas=(1,))
    return made


def ask(
    broker: MemoryBroker, places: Sequence[tuple[int, int]], conn: Connection | None = None, **how: Any
) -> Connection:
    """A Fetch of t from (partition, offset)."""
    conn = conn or broker.client()
    parts = [FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=1 << 20) for n, offset in places]
    topics = [FetchTopic(topic_id=IDS["t"], partitions=parts)]
    request = FetchRequest(
        **{"max_wait_ms": FOREVER_MS, "min_bytes": 1 << 19, "max_bytes": 1 << 20, **how}, topics=topics
    )
    request.session_epoch = -1
    broker.ask(conn, broker.fetch_api.handle, ApiKey.FETCH, request, 17)
    return conn


def ask_wide(broker: MemoryBroker, conn: Connection | None = None, **how: Any) -> Connection:
    return ask(broker, [(index, 0) for index in range(WIDE)], conn, **how)


def append(broker: MemoryBroker, index: int) -> int:
    """Produce one record to a partition, and return its batch's size."""
    records = broker.batch()
    broker.produce(broker.client(), ("t", index, records))
    return len(records)


def watchers(broker: MemoryBroker) -> int:
    return sum(len(h.consumers) for h in broker.replicas.hosted())


def test_a_partition_that_is_named_twice_is_served_once_as_it_was_named_last(broker: MemoryBroker) -> None:
    append(broker, 0)
    conn = ask(broker, [(0, 99), (1, 0), (0, 0)], max_wait_ms=0)
    [(_, parts)] = fetched_all(conn).topics
    assert [(part.index, part.error, len(part.records) > 0) for part in parts] == [(0, 0, True), (1, 0, False)]


def test_a_partition_that_is_named_often_is_held_once(broker: MemoryBroker) -> None:
    """A megabyte named one partition 31,000 times: each was a watcher, and was checked for each record."""
    ask(broker, [(0, 0)] * 3000)
    assert watchers(broker) == 1


def looks_of(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets, for each later check of a waiting fetch, the number of partitions checked."""
    looks: list[int] = []
    satisfied = FetchApi.satisfied

    def counted(api: FetchApi, fetch: Any) -> bool:
        looks.append(len(fetch.look))
        return satisfied(api, fetch)

    monkeypatch.setattr(FetchApi, "satisfied", counted)
    return looks


@pytest.mark.parametrize("how", [{"min_bytes": 1 << 19}, {"min_bytes": 1, "isolation_level": 1}])
def test_a_record_costs_a_look_at_its_partition_and_at_no_other(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, how: dict[str, int]
) -> None:
    conn = ask_wide(broker, **how)
    looks = looks_of(broker, monkeypatch)
    append(broker, 3)
    assert looks == [1]
    assert len(answers(conn)) == (how["min_bytes"] == 1)


def test_bytes_of_several_partitions_together_are_enough(broker: MemoryBroker) -> None:
    size = append(broker, 0)
    conn = ask_wide(broker, min_bytes=4 * size)
    append(broker, 0)
    append(broker, 7)
    assert answers(conn) == []
    append(broker, 7)
    [(_, parts)] = fetched_all(conn).topics
    assert {part.index: len(part.records) for part in parts if part.records} == {0: 2 * size, 7: 2 * size}
    assert watchers(broker) == 0


def test_a_fetch_of_many_partitions_is_answered_when_one_moves_away(broker: MemoryBroker) -> None:
    conn = ask_wide(broker)
    broker.give(index=4, leader=2, epoch=6, partition_epoch=11, isr=(1, 2), replicas=(1, 2))
    [(_, parts)] = fetched_all(conn).topics
    assert [part.index for part in parts if part.error == ErrorCode.NOT_LEADER_OR_FOLLOWER] == [4]


def test_a_fetch_beyond_what_its_connection_may_park_is_answered_with_what_is_there(broker: MemoryBroker) -> None:
    broker.fetch_api._max_parked = 2 * WIDE
    size = append(broker, 0)
    conn = broker.client()
    for _ in range(2):
        ask_wide(broker, conn)
    assert answers(conn) == []
    other = ask_wide(broker)
    assert answers(other) == []
    # Replies leave in order: the one that is answered at once waits for those before it.
    ask_wide(broker, conn)
    assert watchers(broker) == 3 * WIDE
    broker.pass_ms(FOREVER_MS)
    assert len(answers(conn)) == 3
    assert watchers(broker) == 0
    only = ask(broker, [(index, 0) for index in range(WIDE)], max_wait_ms=100)
    broker.pass_ms(200)
    [(_, parts)] = fetched_all(only).topics
    assert len(parts[0].records) == size


def test_the_only_large_fetch_of_a_connection_is_held_and_small_ones_are_not_counted(broker: MemoryBroker) -> None:
    """Otherwise a consumer of more partitions than the limit would ask again and again without waiting."""
    broker.fetch_api._max_parked = 1
    conn = ask_wide(broker)
    ask(broker, [(index, 0) for index in range(FEW_WANTS)], conn)
    assert watchers(broker) == WIDE + FEW_WANTS
    conn.close()
    assert watchers(broker) == 0
    assert not broker.fetch_api._parked
    assert not len(broker.timers)


def test_a_single_partition_that_has_records_meanwhile_is_counted_anew_at_each_look(broker: MemoryBroker) -> None:
    size = append(broker, 0)
    conn = ask(broker, [(0, 0)], min_bytes=3 * size)
    append(broker, 0)
    assert answers(conn) == []
    append(broker, 0)
    assert len(fetched(conn).records) == 3 * size
