"""Fetch: how far consumers and followers may read, which fetches wait, which are fenced, and which acknowledge records.
"""

from __future__ import annotations

import pytest

from squall.broker.net.connection import Connection
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchOut
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.support.brokers.in_memory import EPOCHS, IDS, MemoryBroker, answers, fetched, fetched_all

FOREVER_MS = 2**31 - 1


def broker_with(records: int = 0, **properties: str) -> MemoryBroker:
    """Return a broker that leads topic t with followers 2 and 3, and so many batches of one record that no follower
    has.
    """
    broker = MemoryBroker(**properties)
    broker.give()
    for _ in range(records):
        broker.produce(broker.client(), acks=1)
    return broker


def asked(broker: MemoryBroker, offset: int = 0, **how: int) -> Connection:
    conn = broker.client()
    broker.fetch(conn, ("t", offset), **how)  # type: ignore[arg-type]
    return conn


def test_a_follower_reads_to_the_logs_end_and_a_consumer_to_the_high_watermark() -> None:
    broker = broker_with(3)
    for replica in (2, 3):
        broker.follower_has(replica, 1)
    consumer = fetched(asked(broker, max_wait_ms=0))
    follower = fetched(asked(broker, replica=2, epoch=5, max_wait_ms=0))
    assert consumer.high_watermark == follower.high_watermark == 1
    assert len(follower.records) == 3 * len(consumer.records)


def test_a_followers_long_poll_is_answered_by_an_append() -> None:
    broker = broker_with()
    conn = asked(broker, replica=2, epoch=5)
    assert answers(conn) == []
    broker.produce(broker.client())
    assert fetched(conn).records


def test_a_consumers_long_poll_is_answered_by_the_high_watermark_and_not_by_the_append() -> None:
    broker = broker_with()
    conn = asked(broker)
    broker.produce(broker.client())
    broker.follower_has(2, 1)
    assert answers(conn) == []
    broker.follower_has(3, 1)
    assert fetched(conn).records


def test_a_long_poll_ends_empty_when_its_time_is_over() -> None:
    broker = broker_with()
    conn = asked(broker, max_wait_ms=300)
    broker.pass_ms(200)
    assert answers(conn) == []
    broker.pass_ms(200)
    part = fetched(conn)
    assert (part.error, len(part.records)) == (0, 0)
    [h] = broker.replicas.hosted()
    assert not h.consumers
    assert not len(broker.timers)


def test_a_parked_fetch_is_forgotten_when_its_connection_ends() -> None:
    broker = broker_with()
    [h] = broker.replicas.hosted()
    consumer = asked(broker, max_wait_ms=FOREVER_MS)
    follower = asked(broker, replica=2, epoch=5, max_wait_ms=FOREVER_MS)
    assert len(broker.timers) == 2
    consumer.close()
    follower.close()
    assert not len(broker.timers)
    assert not h.consumers
    assert not h.followers


def test_a_connection_that_has_read_is_remembered_only_until_it_ends() -> None:
    broker = broker_with(1)
    [h] = broker.replicas.hosted()
    conn = asked(broker, replica=2, epoch=5)
    broker.fetch(conn, ("t", 0), replica=2, epoch=5)
    assert list(h.readers) == [conn]
    assert len(conn.on_close) == 1
    conn.close()
    assert not h.readers


def test_a_truncation_cuts_those_who_may_still_be_sent_the_old_bytes() -> None:
    broker = broker_with(2)
    [h] = broker.replicas.hosted()
    reader = asked(broker, replica=2, epoch=5)
    idle = asked(broker, offset=2, replica=3, epoch=5)
    h.cut_readers()
    assert reader.closed
    assert reader.link.outgoing.reset, "what the kernel still holds of the old bytes goes with it"  # type: ignore[attr-defined]
    assert not idle.closed
    assert not h.readers


@pytest.mark.parametrize("replica", [-1, 2])
@pytest.mark.parametrize(
    ("epoch", "error"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, ErrorCode.NONE)]
)
def test_epochs_are_fenced_both_ways_for_consumers_and_followers(replica: int, epoch: int, error: ErrorCode) -> None:
    broker = broker_with()
    part = fetched(asked(broker, replica=replica, epoch=epoch, max_wait_ms=500 if error else 0))
    assert part.error == error


def test_a_fenced_followers_fetch_acknowledges_nothing() -> None:
    broker = broker_with(1)
    [h] = broker.replicas.hosted()
    for replica in (2, 3):
        asked(broker, 1, replica=replica, epoch=4)
    assert h.state.high_watermark == 0


def test_a_diverging_fetch_is_told_where_and_acknowledges_nothing() -> None:
    broker = broker_with(1)
    broker.give(epoch=8, partition_epoch=11)
    broker.produce(broker.client(), acks=1)
    [h] = broker.replicas.hosted()
    part = fetched(asked(broker, 2, replica=2, epoch=8, last_epoch=7))
    assert part.error == 0
    assert tuple(part.diverging or ()) == (5, 1)
    assert not part.records
    assert h.state.followers[2].log_end_offset == -1


def test_a_fetch_that_diverges_at_the_very_end_of_the_log_does_not_wait() -> None:
    broker = broker_with(2)
    broker.give(epoch=8, partition_epoch=11)
    conn = asked(broker, 2, replica=2, epoch=8, last_epoch=7)
    assert tuple(fetched(conn).diverging or ()) == (5, 2)


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    broker = broker_with(1)
    assert fetched(asked(broker, 1, replica=2, epoch=5, last_epoch=6)).error == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("replica", [-1, 2])
def test_an_offset_beyond_the_log_is_out_of_range_at_once_and_acknowledges_nothing(replica: int) -> None:
    broker = broker_with(1)
    [h] = broker.replicas.hosted()
    part = fetched(asked(broker, 9, replica=replica, epoch=5))
    assert part.error == ErrorCode.OFFSET_OUT_OF_RANGE
    offsets = part.high_watermark, part.last_stable_offset, part.log_start_offset
    assert (offsets, part.aborted) == ((-1, -1, -1), None), "as with Kafka: nothing is known of it"
    assert h.state.followers[2].log_end_offset == -1


def test_an_offset_before_the_log_is_out_of_range() -> None:
    broker = broker_with(2)
    for replica in (2, 3):
        broker.follower_has(replica, 2)
    [h] = broker.replicas.hosted()
    h.log.increment_log_start(1)
    assert fetched(asked(broker, 0)).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_stranger_is_refused_and_counts_for_nothing() -> None:
    broker = broker_with(1)
    assert fetched(asked(broker, 1, replica=4, epoch=5)).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetched(asked(broker, 1, replica=4)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_earlier_incarnation_is_refused() -> None:
    broker = broker_with(1)
    broker.follower_has(2, 0)
    part = fetched(asked(broker, 1, replica=2, epoch=5, broker_epoch=50))
    assert part.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    [h] = broker.replicas.hosted()
    assert h.state.followers[2].log_end_offset == 0


def test_the_first_batch_is_sent_whatever_the_limits_and_the_rest_is_not() -> None:
    broker = broker_with(3)
    broker.give("u")
    broker.produce(broker.client(), ("u", 0, broker.batch()), acks=1)
    conn = broker.client()
    broker.fetch(conn, ("t", 0), ("u", 0), replica=2, epoch=5, max_bytes=1)
    [(_, [first]), (_, [second])] = fetched_all(conn).topics
    one = len(broker.batch())
    assert len(first.records) == one
    assert len(second.records) == 0


def test_a_partitions_own_limit_holds_behind_the_first_batch() -> None:
    broker = broker_with(3)
    one = len(broker.batch())
    part = fetched(asked(broker, replica=2, epoch=5, part_max_bytes=2 * one + 5))
    assert len(part.records) == 2 * one


def test_a_fetch_waits_until_min_bytes_are_there() -> None:
    broker = broker_with(1)
    one = len(broker.batch())
    conn = asked(broker, replica=2, epoch=5, min_bytes=2 * one)
    assert answers(conn) == []
    broker.produce(broker.client(), acks=1)
    assert len(fetched(conn).records) == 2 * one


def test_nobody_waits_for_more_bytes_than_may_be_sent() -> None:
    broker = broker_with(2)
    one = len(broker.batch())
    conn = asked(broker, replica=2, epoch=5, min_bytes=100 * one, max_bytes=one)
    assert len(fetched(conn).records) == one


def test_the_end_of_an_older_segment_is_sent_though_it_is_less_than_min_bytes() -> None:
    broker = broker_with(1)
    [h] = broker.replicas.hosted()
    h.log.roll()
    broker.produce(broker.client(), acks=1)
    one = len(broker.batch())
    assert len(fetched(asked(broker, replica=2, epoch=5, min_bytes=2 * one)).records) == one


def test_a_new_leader_is_named_to_who_waits_here() -> None:
    broker = broker_with()
    conn = asked(broker, epoch=5)
    broker.give(leader=2, epoch=6, partition_epoch=11)
    answer = fetched_all(conn)
    [(_, [part])] = answer.topics
    assert part.error == ErrorCode.FENCED_LEADER_EPOCH
    assert tuple(part.current_leader or ()) == (2, 6)
    assert [tuple(e) for e in answer.node_endpoints] == [(2, "host2", 9092, None)]


def test_a_partition_that_is_only_elsewhere_is_not_unknown() -> None:
    broker = MemoryBroker()
    broker.give(leader=2, isr=(2,), replicas=(2,))
    part = fetched(asked(broker))
    assert part.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert tuple(part.current_leader or ()) == (2, 5)


@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_is_named_so_in_the_versions_own_way(version: int, error: ErrorCode) -> None:
    broker = MemoryBroker()
    conn = broker.client()
    broker.fetch(conn, ("nobody", 0), version=version)
    assert fetched(conn, version).error == error


def test_a_deleted_topic_ends_its_long_polls() -> None:
    broker = broker_with()
    conn = asked(broker)
    broker.remove("t")
    assert fetched(conn).error


def test_a_session_tells_only_what_changed() -> None:
    broker = broker_with(1)
    broker.give("u")
    conn = broker.client()
    broker.fetch(conn, ("t", 1), ("u", 0), replica=2, epoch=5, session=(0, 0), max_wait_ms=0)
    first = fetched_all(conn)
    assert first.session_id > 0
    assert len(first.topics) == 2
    broker.produce(broker.client(), acks=1)
    broker.fetch(conn, replica=2, epoch=5, session=(first.session_id, 1), max_wait_ms=0)
    second = fetched_all(conn)
    [(_, [part])] = second.topics
    assert part.records
    broker.fetch(conn, ("t", 2), replica=2, epoch=5, session=(first.session_id, 2), max_wait_ms=0)
    assert fetched_all(conn).topics == []


def test_a_fetch_of_an_unknown_session_is_told_so() -> None:
    broker = broker_with()
    conn = broker.client()
    broker.fetch(conn, session=(77, 3))
    assert fetched_all(conn).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_began_with_ids_is_refused_as_a_whole_once_topics_are_named() -> None:
    broker = broker_with(1)
    conn = broker.client()
    broker.fetch(conn, ("t", 0), max_wait_ms=0, session=(0, 0))
    session = fetched_all(conn).session_id
    broker.fetch(conn, ("t", 0), session=(session, 1), version=12)
    refused = fetched_all(conn, 12)
    assert (refused.error, refused.topics) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])


def in_session(broker: MemoryBroker, session: tuple[int, int], *parts: tuple[str, int]) -> FetchOut:
    """Fetch as follower 2 in its session, and return the answer, which must come at once."""
    conn = broker.client()
    broker.fetch(conn, *parts, replica=2, epoch=5, last_epoch=5, session=session, max_wait_ms=0)
    return fetched_all(conn)


def test_in_a_session_a_follower_names_only_what_moved_and_is_told_only_what_moved() -> None:
    broker = broker_with(1)
    broker.give("u")
    first = in_session(broker, (0, 0), ("t", 0), ("u", 0))
    assert len(first.topics) == 2
    assert in_session(broker, (first.session_id, 1), ("t", 1)) == first._replace(topics=[])
    conn = broker.client()
    broker.fetch(conn, replica=2, session=(first.session_id, 2))
    assert answers(conn) == []
    broker.produce(broker.client(), ("u", 0, broker.batch()))
    [(key, [part])] = fetched_all(conn).topics
    assert (key, part.error) == (IDS["u"], 0)
    assert part.records


def test_in_a_session_the_high_watermark_is_told_of_a_partition_that_is_not_named() -> None:
    broker = broker_with(1)
    first = in_session(broker, (0, 0), ("t", 0))
    in_session(broker, (first.session_id, 1), ("t", 1))
    broker.follower_has(3, 1)
    told = in_session(broker, (first.session_id, 2))
    [(_, [part])] = told.topics
    assert part.high_watermark == 1
    again = in_session(broker, (first.session_id, 3))
    assert again.topics == []


def test_fetches_that_name_nothing_keep_a_follower_in_the_isr() -> None:
    broker = broker_with()
    first = in_session(broker, (0, 0), ("t", 0))
    h = broker.replicas.by_name[b"t"][0]
    for n in range(1, 8):
        broker.pass_ms(300)
        in_session(broker, (first.session_id, n))
    begun_ms = h.state.followers[3].last_caught_up_ms
    assert h.state.followers[2].last_caught_up_ms >= begun_ms + 7 * 300


def test_of_an_empty_partition_that_is_not_named_only_its_news_are_told() -> None:
    """A follower with an empty log names no last epoch, so the leader cannot find a divergence."""
    broker = broker_with()
    broker.give("u")
    conn = broker.client()
    broker.fetch(conn, ("t", 0), ("u", 0), replica=2, epoch=5, session=(0, 0), max_wait_ms=0)
    first = fetched_all(conn)
    followers = [broker.replicas.by_name[name][0].state.followers[2] for name in (b"t", b"u")]
    counted_ms = [replica.last_fetch_ms for replica in followers]
    broker.pass_ms(20)
    conn = broker.client()
    broker.fetch(conn, replica=2, session=(first.session_id, 1))
    assert answers(conn) == []
    assert [replica.last_fetch_ms for replica in followers] == counted_ms, "neither was looked at"
    broker.produce(broker.client(), ("u", 0, broker.batch()))
    [(key, [part])] = fetched_all(conn).topics
    assert key == IDS["u"]
    assert part.records


def test_where_followers_are_called_their_next_fetch_counts_for_all_partitions() -> None:
    """Requests for stable committed offsets wait for that. Otherwise unchanged partitions are counted every 100 ms."""
    broker = broker_with(1)
    conn = broker.client()
    broker.fetch(conn, ("t", 0), replica=2, epoch=5, session=(0, 0), max_wait_ms=0)
    session_id = fetched_all(conn).session_id
    broker.fetch(conn, ("t", 1), replica=2, epoch=5, last_epoch=5, session=(session_id, 1), max_wait_ms=0)
    follower = broker.replicas.by_name[b"t"][0].state.followers[2]
    seen = []
    for n in range(2, 8):
        broker.pass_ms(1)
        broker.replicas.wake_round += n in (4, 6)
        broker.fetch(conn, replica=2, session=(session_id, n), max_wait_ms=0)
        seen.append((follower.last_fetch_ms, follower.followed_s))
    assert len(set(seen[:2])) == len(set(seen[2:4])) == len(set(seen[4:])) == 1
    assert [now - then for (then, _), (now, _) in zip(seen[1::2], seen[2::2], strict=False)] == [3, 2]
    assert seen[1][1] < seen[2][1] < seen[4][1], "each was answered in between"


def test_a_leader_that_is_none_any_more_tells_so_of_a_partition_that_is_not_named() -> None:
    broker = broker_with(1)
    first = in_session(broker, (0, 0), ("t", 0))
    in_session(broker, (first.session_id, 1), ("t", 1))
    broker.give(leader=3, epoch=6, partition_epoch=20)
    told = in_session(broker, (first.session_id, 2))
    [(_, [part])] = told.topics
    assert part.error == ErrorCode.FENCED_LEADER_EPOCH


def test_in_a_session_a_follower_that_waits_for_more_bytes_hears_of_what_stood_still() -> None:
    broker = broker_with(1)
    broker.give("u")
    conn = broker.client()
    places = ("t", 1), ("u", 0)
    broker.fetch(conn, *places, replica=2, epoch=5, last_epoch=5, session=(0, 0), max_wait_ms=0)
    session = fetched_all(conn).session_id
    for epoch in (1, 2):
        broker.fetch(conn, replica=2, epoch=5, session=(session, epoch), min_bytes=2, max_wait_ms=0)
        answers(conn)
    broker.fetch(conn, replica=2, epoch=5, session=(session, 3), min_bytes=2)
    assert answers(conn) == []
    broker.produce(broker.client(), acks=1)
    assert fetched(conn).records


@pytest.mark.parametrize("version", [4, 11, 14, 17])
def test_who_names_a_replica_on_a_listener_for_clients_is_answered_as_a_consumer(version: int) -> None:
    """If it were treated as a follower, it would acknowledge records that no follower has, and read uncommitted ones.
    """
    broker = MemoryBroker()
    h = broker.give()
    broker.produce(broker.client())
    conn = broker.client()
    for replica_id, offset in ((0, 0), (2, 0), (2, 1), (3, 1)):
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100)
        topics = [FetchTopic(topic="t", topic_id=IDS["t"] if version >= 13 else bytes(16), partitions=[part])]
        request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
        if version < 15:
            request.replica_id = replica_id
        else:
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=EPOCHS.get(replica_id, -1))
        broker.ask(conn, broker.fetch_api.handle, ApiKey.FETCH, request, version)
        found = fetched(conn, version)
        assert (found.error, found.high_watermark, bytes(found.records or b"")) == (ErrorCode.NONE, 0, b"")
    assert h.state.high_watermark == 0
    broker.fetch(broker.client(), ("t", 1), replica=2)
    broker.fetch(broker.client(), ("t", 1), replica=3)
    assert h.state.high_watermark == 1
