"""Elections on request and by the clock, and producer ids."""

from __future__ import annotations

from squall.broker.cluster.image import RECOVERING, TOPIC_RESOURCE
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import elect_leaders as wire
from squall.broker.protocol.schema.allocate_producer_ids import AllocateProducerIdsRequest
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.brokers.controller_harness import ControllerHarness

PREFERRED, UNCLEAN = 0, 1


def elect(
    harness: ControllerHarness, kind: int, *partitions: tuple[str, int], everything: bool = False
) -> dict[str, ErrorCode]:
    asked = None if everything else [wire.TopicPartitions(topic=name, partitions=[i]) for name, i in partitions]
    reply = harness.do(ApiKey.ELECT_LEADERS, wire.ElectLeadersRequest(election_type=kind, topic_partitions=asked))
    assert reply.error_code == 0
    return {
        f"{topic.topic}-{partition.partition_id}": ErrorCode(partition.error_code)
        for topic in reply.replica_election_results
        for partition in topic.partition_result
    }


def moved_away() -> ControllerHarness:
    """Topic "t" prefers 1, is led by 2; 1 is back in the ISR."""
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.beat(1, want_fence=True)
    harness.beat(1)
    harness.alter("t", [2, 3, 1])
    assert harness.partition("t").leader == 2
    return harness


def test_a_preferred_leader_takes_over_when_asked() -> None:
    harness = moved_away()
    assert elect(harness, PREFERRED, ("t", 0)) == {"t-0": ErrorCode.NONE}
    assert (harness.partition("t").leader, harness.partition("t").leader_epoch) == (1, 2)
    assert elect(harness, PREFERRED, ("t", 0)) == {"t-0": ErrorCode.ELECTION_NOT_NEEDED}


def test_a_preferred_leader_outside_the_isr_is_not_available() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.lose(1)
    assert elect(harness, PREFERRED, ("t", 0)) == {"t-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert harness.partition("t").leader == 2


def leaderless() -> ControllerHarness:
    """Topic "t" on 1 and 2 lost 2, then 1; 2 is back."""
    harness = ControllerHarness()
    harness.topic("t", [1, 2])
    harness.lose(2)
    harness.lose(1, 2)
    harness.beat(2)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (NO_NODE, (1,))
    return harness


def test_an_unclean_election_on_request_needs_no_setting() -> None:
    harness = leaderless()
    assert elect(harness, UNCLEAN, ("t", 0)) == {"t-0": ErrorCode.NONE}
    partition = harness.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    assert elect(harness, UNCLEAN, ("t", 0)) == {"t-0": ErrorCode.ELECTION_NOT_NEEDED}


def test_without_a_live_replica_even_an_unclean_election_fails() -> None:
    harness = leaderless()
    harness.lose(1, 2)
    assert elect(harness, UNCLEAN, ("t", 0)) == {"t-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_unknown_partitions_are_told_apart_from_elections_that_fail() -> None:
    harness = moved_away()
    expected = {"u-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-7": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert elect(harness, PREFERRED, ("u", 0), ("t", 7)) == expected


def test_asking_for_every_partition_answers_only_for_those_that_needed_it() -> None:
    harness = moved_away()
    harness.topic("u", [3])
    assert elect(harness, PREFERRED, everything=True) == {"t-0": ErrorCode.NONE}


def test_an_unknown_kind_of_election_is_refused() -> None:
    reply = ControllerHarness().do(
        ApiKey.ELECT_LEADERS, wire.ElectLeadersRequest(election_type=5, topic_partitions=None)
    )
    assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_the_clock_gives_preferred_leaders_their_partitions_back() -> None:
    harness = moved_away()
    harness.controller.tick(harness.now_ms + 299_999)
    assert harness.partition("t").leader == 2
    decision = harness.controller.tick(harness.now_ms + 300_000)
    harness.commit(decision)
    assert harness.partition("t").leader == 1


def test_balancing_may_be_switched_off() -> None:
    harness = ControllerHarness(auto_leader_rebalance_enable="false")
    harness.topic("t", [1, 2])
    harness.beat(1, want_fence=True)
    harness.beat(1)
    harness.alter("t", [2, 1])
    assert not harness.controller.tick(harness.now_ms + 301_000).records


def test_a_topic_that_comes_to_allow_unclean_elections_gets_a_leader_by_the_clock() -> None:
    harness = leaderless()
    setting = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    asked = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[setting])
    harness.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[asked]))
    harness.tick(1000)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2,))


def test_unclean_elections_by_the_brokers_setting_happen_at_once() -> None:
    harness = ControllerHarness(unclean_leader_election_enable="true")
    harness.topic("t", [1, 2])
    harness.topic("u", [1, 2], unclean_leader_election_enable="false")
    harness.lose(2)
    harness.beat(2)
    harness.lose(1)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2,))
    assert (harness.partition("u").leader, harness.partition("u").isr) == (NO_NODE, (1,))


def allocate(harness: ControllerHarness, broker_id: int, epoch: int | None = None) -> tuple[ErrorCode, int, int]:
    given = harness.image.brokers[broker_id].epoch if epoch is None else epoch
    reply = harness.do(
        ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=given)
    )
    return ErrorCode(reply.error_code), reply.producer_id_start, reply.producer_id_len


def test_blocks_of_producer_ids_never_overlap_also_over_a_change_of_controllers() -> None:
    harness = ControllerHarness()
    assert allocate(harness, 1) == (ErrorCode.NONE, 0, 1000)
    assert allocate(harness, 2) == (ErrorCode.NONE, 1000, 1000)
    harness.fail_over()
    assert allocate(harness, 1) == (ErrorCode.NONE, 2000, 1000)


def test_a_replaced_incarnation_gets_no_producer_ids() -> None:
    harness = ControllerHarness()
    assert allocate(harness, 1, epoch=0)[0] == ErrorCode.STALE_BROKER_EPOCH


def test_a_fresh_cluster_is_bootstrapped_once() -> None:
    harness = ControllerHarness(brokers=0)
    assert harness.image.features == {"metadata.version": 29, "transaction.version": 2, "group.version": 1}
    harness.fail_over()
    assert not harness.controller.bootstrap(harness.now_ms).records
