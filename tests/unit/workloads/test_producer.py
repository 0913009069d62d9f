"""The producer against a scripted cluster: what is retried, what it is answered, and what its records are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import decode_records, read_header
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.protocol.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from squall.workloads.client.accumulator import BufferFull, ProducerRetired
from squall.workloads.client.client import Client
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ClientSettings, ProducerSettings
from tests.support.clusters.fake_cluster import Break, Delay, FakeCluster, Raw, Seen, Withhold

CLIENT = ClientSettings(request_timeout_ms=5000, control_timeout_ms=1000, connect_timeout_ms=1000)
PRODUCER = ProducerSettings(linger_ms=5, delivery_timeout_ms=20_000)


class Rig:
    """A producer on a cluster with topic t of three partitions, led by nodes 1, 2 and 3."""

    def __init__(self, producer: Producer, client: Client, log: list[str]) -> None:
        self.producer = producer
        self.client = client
        self.log = log
        self.outcomes: dict[int, Outcome] = {}
        self.sent = 0

    def send(self, index: int = 0, size: int = 100) -> int:
        number = self.sent
        value = number.to_bytes(4, "big").ljust(size, b".")
        self.producer.send("t", index, None, value, [], 7, lambda outcome: self.outcomes.setdefault(number, outcome))
        self.sent += 1
        return number

    async def settled(self, limit_s: float = 120) -> dict[int, Outcome]:
        with trio.fail_after(limit_s):
            while len(self.outcomes) < self.sent:
                await trio.sleep(0.01)
        return self.outcomes


@asynccontextmanager
async def producing(
    cluster: FakeCluster, settings: ProducerSettings = PRODUCER, client_settings: ClientSettings = CLIENT
) -> AsyncIterator[Rig]:
    if not cluster.topic_ids:
        cluster.topic("t", [1, 2, 3])
    log: list[str] = []
    async with cluster.client(client_settings) as client, trio.open_nursery() as nursery:
        client.track(["t"])
        producer = Producer(
            client,
            settings,
            before_send=lambda: log.append("before send"),
            after_outcomes=lambda: log.append("after outcomes"),
        )
        await nursery.start(producer.run)
        yield Rig(producer, client, log)
        producer.close()
        nursery.cancel_scope.cancel()


def only_once(seen_key: ApiKey, result: object) -> object:
    """A script that gives `result` to the first request of this kind."""
    left = [result]
    return lambda seen: left.pop() if left and seen.api_key == seen_key else None


def produced_batches(cluster: FakeCluster) -> list[tuple[int, int, bytes]]:
    """(node, base sequence, batch bytes) of each batch in each Produce request seen."""
    found = []
    for seen in cluster.requests(ApiKey.PRODUCE):
        request: ProduceRequest = seen.message
        for topic in request.topic_data:
            for part in topic.partition_data:
                data = bytes(part.records or b"")
                found.append((seen.node, read_header(memoryview(data), 0).base_sequence, data))
    return found


def log_values(cluster: FakeCluster, index: int = 0) -> list[int]:
    data = cluster.partitions["t", index].read(0)
    return [int.from_bytes((record.value or b"")[:4], "big") for record in decode_records(memoryview(data))]


async def test_records_go_to_their_leaders_and_come_back_with_offsets(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        for index in (0, 1, 2, 0):
            rig.send(index)
        outcomes = await rig.settled()
        assert [outcomes[n] for n in range(4)] == [(OperationStatus.OK, offset, 7, "", 1) for offset in (0, 0, 0, 1)]
        assert {seen.node for seen in cluster.requests(ApiKey.PRODUCE)} == {1, 2, 3}
        assert all(seen.version == 13 for seen in cluster.requests(ApiKey.PRODUCE))


async def test_the_history_hook_runs_before_bytes_leave_and_after_outcomes(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        cluster.script.append(lambda seen: rig.log.append("at broker") if seen.api_key == ApiKey.PRODUCE else None)
        rig.send()
        await rig.settled()
        assert rig.log == ["before send", "at broker", "after outcomes"]


async def test_a_lost_connection_means_the_same_batch_again_and_the_original_offset(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(only_once(ApiKey.PRODUCE, Break(apply=True)))  # type: ignore[arg-type]
    async with producing(cluster) as rig:
        rig.send()
        assert (await rig.settled())[0] == (OperationStatus.OK, 0, 7, "", 2)
        first, second = produced_batches(cluster)
        assert first == second and first[1] == 0
        assert log_values(cluster) == [0]


async def test_batches_behind_a_lost_one_are_sent_again_in_order_with_their_sequences(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(linger_ms=0, batch_size=200)) as rig:
        rig.send(size=200)
        await rig.settled()
        cluster.script.append(only_once(ApiKey.PRODUCE, Break()))  # type: ignore[arg-type]
        for _ in range(8):
            rig.send(size=200)
        outcomes = await rig.settled()
        assert {outcome.status for outcome in outcomes.values()} == {OperationStatus.OK}
        assert log_values(cluster) == list(range(9))
        assert [outcomes[n].offset for n in range(9)] == list(range(9))


async def test_not_leader_with_a_hint_goes_to_the_new_leader_without_asking_for_metadata(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        rig.send()
        await rig.settled()
        asked = len(cluster.requests(ApiKey.METADATA))
        cluster.move("t", 0, 2)
        rig.send()
        before = trio.current_time()
        assert (await rig.settled())[1] == (OperationStatus.OK, 1, 7, "", 2)
        assert trio.current_time() - before < 0.05
        assert len(cluster.requests(ApiKey.METADATA)) == asked
        assert [node for node, _, _ in produced_batches(cluster)] == [1, 1, 2]


async def test_not_leader_without_a_hint_asks_for_metadata_and_tries_again(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.max_versions[ApiKey.PRODUCE] = 9
    async with producing(cluster) as rig:
        rig.send()
        await rig.settled()
        asked = len(cluster.requests(ApiKey.METADATA))
        cluster.move("t", 0, 2)
        rig.send()
        assert (await rig.settled())[1].status is OperationStatus.OK
        assert len(cluster.requests(ApiKey.METADATA)) > asked
        nodes = [node for node, _, _ in produced_batches(cluster)]
        assert nodes[:2] == [1, 1] and nodes[-1] == 2


async def test_a_dead_leader_is_replaced_and_nothing_is_lost_or_doubled(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        for _ in range(20):
            rig.send()
            await trio.sleep(0.01)
        cluster.stop(1)
        for _ in range(20):
            rig.send()
            await trio.sleep(0.01)
        cluster.move("t", 0, 3)
        outcomes = await rig.settled()
        assert {outcome.status for outcome in outcomes.values()} == {OperationStatus.OK}
        assert log_values(cluster) == list(range(40))


async def test_a_node_that_comes_back_is_connected_to_again(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        rig.send()
        await rig.settled()
        cluster.stop(1)
        rig.send()
        await trio.sleep(5)
        cluster.start(1)
        assert (await rig.settled())[1].status is OperationStatus.OK


async def test_no_answer_is_info_after_the_delivery_time_out(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.PRODUCE else None)
    async with producing(cluster) as rig:
        rig.send()
        assert (await rig.settled())[0] == Outcome(OperationStatus.INFO, -1, -1, "TIMED_OUT")
        # At most the delivery time-out and one request's more.
        assert trio.current_time() < 20 + 5 + 1
        with pytest.raises(ProducerRetired):
            rig.send()


async def test_what_never_left_fails(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster) as rig:
        for node in (1, 2, 3):
            cluster.stop(node)
        rig.send()
        assert (await rig.settled())[0] == Outcome(OperationStatus.FAIL, -1, -1, "DELIVERY_TIMED_OUT")


async def test_an_answer_cut_short_leaves_a_record_in_doubt_until_the_retry_is_answered(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(only_once(ApiKey.PRODUCE, Break(b"\0\0\0\x40\0\0", apply=True)))  # type: ignore[arg-type]
    async with producing(cluster) as rig:
        rig.send()
        assert (await rig.settled())[0] == (OperationStatus.OK, 0, 7, "", 2)


async def test_garbage_for_an_answer_is_doubt_not_success(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(lambda seen: Raw(b"\0\0\0\x05\0\0\0\x01\xff") if seen.api_key == ApiKey.PRODUCE else None)
    async with producing(cluster, ProducerSettings(delivery_timeout_ms=3000)) as rig:
        rig.send()
        assert (await rig.settled())[0] == Outcome(OperationStatus.INFO, -1, -1, "BAD_ANSWER")


def answer_of(seen: Seen, code: int) -> ProduceResponse:
    topics = [
        TopicProduceResponse(
            topic.name,
            topic.topic_id,
            [PartitionProduceResponse(part.index, code, -1) for part in topic.partition_data],
        )
        for topic in seen.message.topic_data
    ]
    return ProduceResponse(topics)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, OperationStatus.INFO),
        (ErrorCode.REQUEST_TIMED_OUT, OperationStatus.INFO),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, OperationStatus.INFO),
        (ErrorCode.NOT_ENOUGH_REPLICAS, OperationStatus.FAIL),
        (ErrorCode.MESSAGE_TOO_LARGE, OperationStatus.FAIL),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OperationStatus.FAIL),
    ],
)
async def test_an_error_that_stays_ends_with_its_name_and_what_it_proves(
    code: ErrorCode, status: OperationStatus, clock: MockClock
) -> None:
    cluster = FakeCluster()
    cluster.script.append(lambda seen: answer_of(seen, code) if seen.api_key == ApiKey.PRODUCE else None)
    async with producing(cluster, ProducerSettings(delivery_timeout_ms=3000)) as rig:
        rig.send()
        assert (await rig.settled())[0] == Outcome(status, -1, -1, code.name)


@pytest.mark.parametrize(
    ("code", "refusals"), [(ErrorCode.REQUEST_TIMED_OUT, 1), (ErrorCode.NOT_ENOUGH_REPLICAS, 2)], ids=lambda it: str(it)
)
async def test_a_leader_that_may_have_been_deposed_makes_its_producer_ask_others_who_leads(
    code: ErrorCode, refusals: int, clock: MockClock
) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(linger_ms=0)) as rig:
        rig.send()
        await rig.settled()
        # Node 1 is cut off: the others have elected node 2, and node 1 still refuses.
        cluster.partitions["t", 0].leader, cluster.partitions["t", 0].epoch = 2, 9

        def alone(seen: Seen) -> ProduceResponse | None:
            return answer_of(seen, code) if seen.api_key == ApiKey.PRODUCE and seen.node == 1 else None

        cluster.script.append(alone)
        cluster.seen.clear()
        number = rig.send()
        assert (await rig.settled())[number].status is OperationStatus.OK
        asked = [seen.node for seen in cluster.seen if seen.api_key == ApiKey.PRODUCE]
        # Another attempt may be under way before the answer of who leads has come.
        assert asked in ([1] * refusals + [2], [1] * (refusals + 1) + [2])


async def test_one_refusal_for_want_of_replicas_is_no_reason_to_ask(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(linger_ms=0)) as rig:
        rig.send()
        await rig.settled()
        refusals = iter([ErrorCode.NOT_ENOUGH_REPLICAS])
        cluster.seen.clear()

        def once(seen: Seen) -> ProduceResponse | None:
            code = next(refusals, None) if seen.api_key == ApiKey.PRODUCE else None
            return None if code is None else answer_of(seen, code)

        cluster.script.append(once)
        number = rig.send()
        assert (await rig.settled())[number].status is OperationStatus.OK
        assert not [seen for seen in cluster.seen if isinstance(seen.message, MetadataRequest)]


async def test_a_partition_left_out_of_the_answer_is_in_doubt(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(lambda seen: ProduceResponse() if seen.api_key == ApiKey.PRODUCE else None)
    async with producing(cluster, ProducerSettings(delivery_timeout_ms=3000)) as rig:
        rig.send()
        assert (await rig.settled())[0].status is OperationStatus.INFO


async def test_five_requests_are_in_flight_on_a_connection_and_no_more(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    cluster.topic("t", [1] * 8)
    async with producing(cluster, ProducerSettings(linger_ms=0)) as rig:
        rig.send()
        await rig.settled()
        cluster.seen.clear()
        cluster.script.append(lambda seen: Delay(1) if seen.api_key == ApiKey.PRODUCE else None)
        most = 0
        for index in range(8):
            rig.send(index)
            await trio.sleep(0.001)
            most = max(most, *rig.producer._in_flight.values())
        assert most == 5
        await rig.settled()


async def test_without_idempotence_there_is_no_producer_id(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(idempotence=False, acks=1)) as rig:
        rig.send()
        await rig.settled()
        assert cluster.requests(ApiKey.INIT_PRODUCER_ID) == []
        assert produced_batches(cluster)[0][1] == -1
        assert cluster.requests(ApiKey.PRODUCE)[0].message.acks == 1


async def test_acks_0_is_ok_without_an_offset_once_the_link_has_it(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(idempotence=False, acks=0)) as rig:
        rig.send()
        assert (await rig.settled())[0] == (OperationStatus.OK, -1, 7, "", 1)
        rig.send(1)
        await rig.settled()
        await trio.sleep(0.1)
        assert log_values(cluster) == [0]


async def test_acks_0_learns_of_another_leader_from_the_connection_that_the_broker_closed(clock: MockClock) -> None:
    """Brokers have no other way to refuse it; until metadata is too old everything sent would be lost."""
    cluster = FakeCluster()
    cluster.script.append(
        lambda seen: (
            Break() if seen.api_key == ApiKey.PRODUCE and cluster.partitions["t", 0].leader != seen.node else None
        )
    )
    async with producing(cluster, ProducerSettings(idempotence=False, acks=0)) as rig:
        rig.send()
        await rig.settled()
        cluster.move("t", 0, 2)
        for _ in range(10):
            rig.send()
            await trio.sleep(0.1)
        arrived = log_values(cluster)
        assert arrived[0] == 0 and arrived[-1] == 10
        assert len(arrived) >= 8, "what was sent before the connection was seen to be closed is lost"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives_as_it_was_sent(codec: str, clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(codec=codec)) as rig:
        for _ in range(10):
            rig.send()
        await rig.settled()
        assert log_values(cluster) == list(range(10))


async def test_topics_without_ids_are_produced_to_by_name(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.max_versions[ApiKey.METADATA] = 9
    async with producing(cluster) as rig:
        rig.send()
        await rig.settled()
        assert cluster.requests(ApiKey.PRODUCE)[0].version == 12


async def test_a_full_buffer_says_so_and_room_comes_with_outcomes(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(buffer_bytes=1000)) as rig:
        with pytest.raises(BufferFull):
            for _ in range(100):
                rig.send()
        await rig.producer.room()
        rig.send()
        await rig.settled()


async def test_finish_sends_what_lingers(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(linger_ms=60_000, delivery_timeout_ms=120_000)) as rig:
        rig.send()
        await trio.sleep(1)
        assert rig.outcomes == {}
        await rig.producer.finish()
        assert rig.outcomes[0].status is OperationStatus.OK
        assert trio.current_time() < 10


async def test_closing_settles_everything_at_once(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with producing(cluster, ProducerSettings(linger_ms=0)) as rig:
        rig.send()
        await rig.settled()
        cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.PRODUCE else None)
        rig.send()
        await trio.sleep(1)
        cluster.stop(2)
        rig.send(1)
        await trio.sleep(1)
        rig.producer.close()
        assert rig.outcomes[1].status is OperationStatus.INFO
        assert rig.outcomes[2].status is OperationStatus.FAIL


async def test_metadata_of_a_broker_that_lags_behind_does_not_undo_what_a_newer_one_said(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.topic("t", [1, 2, 3])
    stale = cluster.metadata(MetadataRequest(None))

    def lagging(seen: Seen) -> object:
        return stale if seen.api_key == ApiKey.METADATA and seen.node == 3 else None

    async with producing(cluster) as rig:
        rig.send()
        await rig.settled()
        cluster.move("t", 0, 2)
        rig.send()
        await rig.settled()
        cluster.script.append(lagging)
        for _ in range(6):
            await rig.client.refreshed()
            assert rig.client.view.leader("t", 0) == (2, 1)
