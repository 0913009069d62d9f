"""The controller's I/O: terms, commits, registration, heartbeats, forwarding, controlled shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from squall.broker.control.forwarder import open_envelope
from squall.broker.control.port import NoController, RegistrationFailed
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.broker_heartbeat import BrokerHeartbeatRequest
from squall.broker.protocol.schema.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.envelope import EnvelopeRequest
from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.support.brokers.control_plane_harness import ControlPlaneHarness, error_of, handled, start_three


@pytest.fixture
async def harness() -> AsyncIterator[ControlPlaneHarness]:
    async with trio.open_nursery() as nursery:
        yield await start_three(nursery)
        nursery.cancel_scope.cancel()


def a_topic(name: str, *brokers: int) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))] if brokers else []
    count = -1 if brokers else 1
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=count, assignments=assignments)
    return CreateTopicsRequest(topics=[topic])


async def create(harness: ControlPlaneHarness, node_id: int, name: str, *brokers: int) -> ErrorCode:
    response = await harness.nodes[node_id].forwarder.forward(ApiKey.CREATE_TOPICS, 7, a_topic(name, *brokers))
    return error_of(response)


def leader(harness: ControlPlaneHarness, name: str, node_id: int = 2) -> int:
    topic = harness.nodes[node_id].feed.image.topic(name)
    assert topic is not None
    return topic.partitions[0].leader


# --------------------------------------------------------------------------------------------------------- start


async def test_a_fresh_cluster_is_up_in_a_moment(harness: ControlPlaneHarness, autojump_clock: MockClock) -> None:
    assert trio.current_time() < 0.5
    for node in harness.nodes.values():
        image = node.feed.image
        assert sorted(image.brokers) == [1, 2, 3]
        assert all(broker.active for broker in image.brokers.values())
        assert image == harness.nodes[1].feed.image
        assert image.brokers[node.id].epoch == node.lifecycle.broker_epoch
        assert image.features == {
            "metadata.version": 29,
            "eligible.leader.replicas.version": 1,
            "transaction.version": 2,
            "group.version": 1,
        }


async def test_every_step_is_traced(harness: ControlPlaneHarness, autojump_clock: MockClock) -> None:
    env = harness.nodes[1].env
    assert [fields["epoch"] for fields in env.events("controller_active")] == [1]
    assert {fields["broker"] for fields in env.events("broker_unfenced")} == {1, 2, 3}
    await create(harness, 1, "t", 2, 3)
    assert [fields["topic"] for fields in env.events("topic_created")] == ["t"]
    assert not harness.nodes[2].env.events("topic_created")


async def test_a_broker_stays_fenced_until_it_is_ready(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        harness = await start_three(nursery)
        node = harness.nodes[3]
        harness.kill(3)
        await trio.sleep(10)
        node = harness.start(3)
        node.scope.cancel()
        async with trio.open_nursery() as inner:
            await inner.start(node.lifecycle.run)
            await node.lifecycle.caught_up.wait()
            await trio.sleep(5)
            assert not node.lifecycle.unfenced.is_set()
            node.lifecycle.ready()
            await node.lifecycle.unfenced.wait()
            inner.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_a_broker_of_another_cluster_gives_up(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(RegistrationFailed, match="INCONSISTENT_CLUSTER_ID"), flatten_subgroups=True
    ):
        async with trio.open_nursery() as nursery:
            harness = await start_three(nursery)
            harness.kill(3)
            await trio.sleep(10)
            node = harness.start(3)
            node.lifecycle._cluster_id = "another"
            await trio.sleep(5)


# ------------------------------------------------------------------------------------------------------ forwarding


@pytest.mark.parametrize("node_id", [1, 2, 3])
async def test_any_broker_takes_what_the_controller_decides(
    harness: ControlPlaneHarness, node_id: int, autojump_clock: MockClock
) -> None:
    assert await create(harness, node_id, "t", 2, 3) == ErrorCode.NONE
    assert leader(harness, "t", 1) == leader(harness, "t", 3) == 2


async def test_a_request_waits_for_a_controller_and_finds_the_new_one(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.kill(1)
    outcome: list[ErrorCode] = []

    async def ask() -> None:
        outcome.append(await create(harness, 3, "t", 2, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert not outcome
        harness.elect(2)
    assert outcome == [ErrorCode.NONE]


async def test_an_attempt_is_given_up_when_another_controller_appears(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    """The old controller takes the request and never answers: the new one is asked long before the time is up."""
    harness.commits = False
    outcome: list[ErrorCode] = []

    async def ask() -> None:
        outcome.append(await create(harness, 3, "t", 2, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.5)
        began = trio.current_time()
        harness.cut_off.add(1)
        harness.commits = True
        harness.elect(2)
    assert outcome == [ErrorCode.NONE]
    assert trio.current_time() - began < 1


async def test_without_a_controller_time_runs_out_and_the_outcome_is_open(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.kill(1)
    response = await harness.nodes[2].forwarder.forward(ApiKey.CREATE_TOPICS, 7, a_topic("t"), timeout_ms=500)
    assert error_of(response) == ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(NoController):
        await harness.nodes[2].forwarder.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, an_allocation(harness, 2), 500)


def an_allocation(harness: ControlPlaneHarness, node_id: int) -> Any:
    from squall.broker.protocol.schema.allocate_producer_ids import AllocateProducerIdsRequest

    return AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=harness.nodes[node_id].lifecycle.broker_epoch)


async def test_a_brokers_own_requests_reach_the_controller(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    starts = []
    for node_id in (1, 2, 3):
        reply = await harness.nodes[node_id].forwarder.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS, 0, an_allocation(harness, node_id), 500
        )
        starts.append(reply.producer_id_start)
    assert starts == [0, 1000, 2000]


def enveloped(api_key: int, version: int, body: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=encode_request(api_key, version, 7, "me", body)[4:], client_host_address=b"")


async def test_an_envelope_holds_only_what_brokers_forward(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    service = harness.nodes[1].service
    metadata = enveloped(ApiKey.METADATA, 12, MetadataRequest(topics=None).encode(12))
    assert (await open_envelope(harness.nodes[1].env, service, metadata)).error_code == ErrorCode.INVALID_REQUEST
    unknown = enveloped(ApiKey.CREATE_TOPICS, 99, b"")
    assert (await open_envelope(harness.nodes[1].env, service, unknown)).error_code == ErrorCode.UNSUPPORTED_VERSION
    torn = enveloped(ApiKey.CREATE_TOPICS, 7, a_topic("t").encode(7)[:-3])
    assert (await open_envelope(harness.nodes[1].env, service, torn)).error_code == ErrorCode.INVALID_REQUEST
    stray = enveloped(ApiKey.CREATE_TOPICS, 7, a_topic("t").encode(7))
    assert (
        await open_envelope(harness.nodes[2].env, harness.nodes[2].service, stray)
    ).error_code == ErrorCode.NOT_CONTROLLER


# ----------------------------------------------------------------------------------------------------------- commits


async def test_nothing_is_answered_before_it_is_committed(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.commits = False
    outcome: list[ErrorCode] = []

    async def ask() -> None:
        outcome.append(await create(harness, 1, "t", 2, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert not outcome
        harness.commit()
        await trio.sleep(0.1)
        assert outcome == [ErrorCode.NONE]


async def test_an_answer_that_rests_on_uncommitted_records_waits_for_them(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.commits = False
    outcome: list[ErrorCode] = []

    async def ask() -> None:
        outcome.append(await create(harness, 1, "t", 2, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert not outcome
        harness.commit()
    assert sorted(outcome) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def an_active_heartbeat(harness: ControlPlaneHarness, node_id: int) -> BrokerHeartbeatRequest:
    node = harness.nodes[node_id]
    return BrokerHeartbeatRequest(
        broker_id=node_id,
        broker_epoch=node.lifecycle.broker_epoch,
        current_metadata_offset=node.feed.image.offset,
    )


async def test_what_need_not_be_waited_for_is_answered_at_once_and_the_rest_once_it_is_committed(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    service = harness.nodes[1].service
    at_once = service.handle(ApiKey.BROKER_HEARTBEAT, an_active_heartbeat(harness, 2))
    assert (at_once.error_code, at_once.is_fenced) == (ErrorCode.NONE, False)
    refused = harness.nodes[2].service.handle(ApiKey.BROKER_HEARTBEAT, an_active_heartbeat(harness, 2))
    assert refused.error_code == ErrorCode.NOT_CONTROLLER

    harness.commits = False
    outcome: list[int] = []

    async def wait(later: Any) -> None:
        assert isinstance(later, DeferredResponse)
        outcome.append((await later.wait()).error_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, service.handle(ApiKey.ALLOCATE_PRODUCER_IDS, an_allocation(harness, 2)))
        # It rests on nothing that is under way, but the image does: Kafka's controller answers in order, too.
        nursery.start_soon(wait, service.handle(ApiKey.BROKER_HEARTBEAT, an_active_heartbeat(harness, 2)))
        await trio.sleep(0.1)
        assert not outcome
        harness.commit()
        await trio.sleep(0.1)
        assert outcome == [ErrorCode.NONE, ErrorCode.NONE]
        harness.commits = False
        nursery.start_soon(wait, service.handle(ApiKey.ALLOCATE_PRODUCER_IDS, an_allocation(harness, 2)))
        await trio.sleep(0.1)
        harness.commits = True
        harness.elect(2)
    assert outcome[2:] == [ErrorCode.NOT_CONTROLLER]


async def test_what_was_not_committed_is_gone_with_its_controller(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.commits = False
    service = harness.nodes[1].service
    outcome: list[Any] = []

    async def ask() -> None:
        outcome.append(await handled(service, ApiKey.CREATE_TOPICS, a_topic("t", 2, 3)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.1)
        harness.commits = True
        harness.elect(2)
    assert [error_of(response) for response in outcome] == [ErrorCode.NOT_CONTROLLER]
    assert not service.is_active
    assert harness.nodes[1].env.events("controller_resigned") == [{"epoch": 1}]
    assert harness.nodes[2].feed.image.topic("t") is None
    assert await create(harness, 3, "t", 2, 3) == ErrorCode.NONE


async def test_a_node_that_is_not_the_controller_says_so_in_every_form(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    from squall.broker.protocol.schema import (
        alter_configs,
        create_partitions,
        delete_topics,
        elect_leaders,
        incremental_alter_configs,
    )
    from squall.broker.protocol.schema.alter_partition import AlterPartitionRequest

    requests: list[tuple[int, Any]] = [
        (ApiKey.CREATE_TOPICS, a_topic("t")),
        (
            ApiKey.DELETE_TOPICS,
            delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="t")]),
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            create_partitions.CreatePartitionsRequest(topics=[create_partitions.CreatePartitionsTopic(name="t")]),
        ),
        (
            ApiKey.ALTER_CONFIGS,
            alter_configs.AlterConfigsRequest(resources=[alter_configs.AlterConfigsResource(resource_name="t")]),
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[incremental_alter_configs.AlterConfigsResource(resource_name="t")]
            ),
        ),
        (
            ApiKey.ELECT_LEADERS,
            elect_leaders.ElectLeadersRequest(topic_partitions=[elect_leaders.TopicPartitions("t", [0])]),
        ),
        (ApiKey.ALTER_PARTITION, AlterPartitionRequest()),
        (ApiKey.ALLOCATE_PRODUCER_IDS, an_allocation(harness, 2)),
    ]
    for api_key, request in requests:
        response = await handled(harness.nodes[2].service, api_key, request)
        assert error_of(response) == ErrorCode.NOT_CONTROLLER, ApiKey(api_key).name
        assert response.encode(response.MAX_VERSION)


# --------------------------------------------------------------------------------------------------- brokers that die


async def test_a_dead_brokers_leaderships_move_within_the_session_and_a_tenth(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    await create(harness, 1, "t", 3, 2)
    harness.kill(3)
    died = trio.current_time()
    await harness.nodes[2].feed.wait_until(lambda image: image.brokers[3].fenced)
    assert trio.current_time() - died < 9.0 * 1.1 + 0.1
    assert leader(harness, "t") == 2
    env = harness.nodes[1].env
    assert [fields["broker"] for fields in env.events("broker_fenced")] == [3]
    (elected,) = env.events("leader_elected")
    assert (elected["topic"], elected["before"], elected["leader"], elected["isr"]) == ("t", 3, 2, [2])


async def test_a_broker_killed_and_started_again_serves_when_its_old_session_has_ended(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.kill(3)
    old = harness.nodes[3].lifecycle.broker_epoch
    node = harness.start(3)
    await node.lifecycle.unfenced.wait()
    assert node.lifecycle.broker_epoch > old
    assert node.env.events("registration_refused")[0] == {"error": "DUPLICATE_BROKER_REGISTRATION"}


async def test_sessions_survive_a_change_of_controllers(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.kill(1)
    await trio.sleep(5)
    harness.elect(2)
    await trio.sleep(8)
    assert not harness.nodes[2].env.events("broker_fenced")
    await trio.sleep(3)
    assert [fields["broker"] for fields in harness.nodes[2].env.events("broker_fenced")] == [1]


async def test_a_broker_that_was_cut_off_is_fenced_and_comes_back_by_itself(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    await create(harness, 1, "t", 3)
    harness.cut_off.add(3)
    await harness.nodes[2].feed.wait_until(lambda image: image.brokers[3].fenced)
    assert leader(harness, "t") == NO_NODE
    harness.heal(3)
    healed = trio.current_time()
    await harness.nodes[2].feed.wait_until(lambda image: image.brokers[3].active)
    assert trio.current_time() - healed < 3
    assert leader(harness, "t") == 3


async def test_a_broker_whose_registration_was_taken_over_registers_again(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    old = harness.nodes[3]
    harness.cut_off.add(3)
    await harness.nodes[2].feed.wait_until(lambda image: image.brokers[3].fenced)
    new = harness.start(3)
    await new.lifecycle.unfenced.wait()
    new.scope.cancel()
    harness.nodes[3] = old
    harness.heal(3)
    await trio.sleep(15)
    assert old.env.events("registration_lost")
    assert harness.nodes[1].feed.image.brokers[3].incarnation_id == old.lifecycle.incarnation_id
    assert harness.nodes[1].feed.image.brokers[3].active


# ------------------------------------------------------------------------------------------------ controlled shutdown


async def test_a_controlled_shutdown_takes_a_moment_and_moves_leaderships_first(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    await create(harness, 1, "t", 3, 2)
    began = trio.current_time()
    assert await harness.nodes[3].lifecycle.controlled_shutdown(20)
    assert trio.current_time() - began < 1
    assert leader(harness, "t") == 2
    assert harness.nodes[1].feed.image.brokers[3].fenced
    assert [fields["broker"] for fields in harness.nodes[1].env.events("broker_stopping")] == [3]


async def test_a_controlled_shutdown_of_the_controller_itself_works(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    await create(harness, 1, "t", 1, 2)
    assert await harness.nodes[1].lifecycle.controlled_shutdown(20)
    assert leader(harness, "t") == 2


async def test_a_controlled_shutdown_that_nobody_answers_ends(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    harness.cut_off.add(3)
    began = trio.current_time()
    assert not await harness.nodes[3].lifecycle.controlled_shutdown(5)
    assert trio.current_time() - began < 5.1


async def test_after_a_controlled_shutdown_the_next_life_is_taken_at_once(
    harness: ControlPlaneHarness, autojump_clock: MockClock
) -> None:
    assert await harness.nodes[3].lifecycle.controlled_shutdown(20)
    epoch = harness.nodes[3].lifecycle.broker_epoch
    harness.kill(3)
    node = harness.start(3, previous_epoch=epoch)
    began = trio.current_time()
    await node.lifecycle.unfenced.wait()
    assert trio.current_time() - began < 0.5
