"""The cluster that a controller describes stays consistent under any sequence of requests by brokers and clients."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.broker.cluster.image import ELR_FEATURE, TOPIC_RESOURCE, ClusterImage, PartitionImage
from squall.broker.cluster.snapshot import difference, records_of, restored
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.metadata_frame import decode_metadata_record, encode_metadata_record
from squall.broker.protocol.schema import alter_partition_reassignments as reassignments
from squall.broker.protocol.schema import create_partitions, delete_topics, elect_leaders
from squall.broker.protocol.schema import incremental_alter_configs as configs_wire
from squall.broker.protocol.schema.allocate_producer_ids import AllocateProducerIdsRequest
from squall.broker.protocol.schema.metadata_records import FeatureLevelRecord
from tests.support.brokers.controller_harness import SESSION_MS, ControllerHarness
from tests.support.effort import examples

BROKERS = st.integers(1, 5)
TOPICS = st.sampled_from(["a", "b", "c"])


class CheckedHarness(ControllerHarness):
    """Also asserts that written records can be read again, and keeps the partitions as they were before each decision.
    """

    def commit(self, decision: Any) -> Any:
        for record, version in decision.records:
            assert decode_metadata_record(encode_metadata_record(record, version)) == record
        before = self.controller.image.clone()
        self.controller.image.take_delta()
        reply = super().commit(decision)
        check_step(before, self.controller.image)
        check_difference(before, self.controller.image)
        return reply


def check_step(before: ClusterImage, after: ClusterImage) -> None:
    for broker_id, broker in after.brokers.items():
        was = before.brokers.get(broker_id)
        assert was is None or broker.epoch >= was.epoch, "broker epochs never go back"
    for topic, index, partition in after.partitions():
        was_partition = before.partition(topic.id, index)
        if was_partition is not None:
            check_change(was_partition, partition)


def check_difference(before: ClusterImage, after: ClusterImage) -> None:
    """Assert that two images differ exactly where the records between them had an effect."""
    found, told = difference(before, after), after.delta
    for kind in ("brokers", "partitions", "created_topics", "deleted_topics", "configs"):
        for key, was in getattr(found, kind).items():
            assert getattr(told, kind)[key] == was, kind
    assert told.features or not found.features


def check_change(before: PartitionImage, after: PartitionImage) -> None:
    if before == after:
        return
    assert after.partition_epoch > before.partition_epoch, "every change bumps the partition epoch"
    assert after.leader_epoch >= before.leader_epoch, "leader epochs never go back"
    assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, "a new leader has a new epoch"
    assert after.leader_epoch - before.leader_epoch <= after.partition_epoch - before.partition_epoch


class Commands(RuleBasedStateMachine):
    """Random commands without eligible leader replicas and without unclean elections, which is Kafka's safe default."""

    elr = False

    def __init__(self) -> None:
        super().__init__()
        self.harness = CheckedHarness(brokers=0)
        self.incarnations: dict[int, int] = {}

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.harness = CheckedHarness(brokers=0, seed=seed, min_insync_replicas="2")
        if self.elr:
            self.turn_on_elr()
        for broker_id in (1, 2, 3):
            self.restart(broker_id, clean=True)
            self.beat(broker_id)

    def turn_on_elr(self) -> None:
        from squall.broker.cluster.replay import MetadataRecord
        from squall.broker.controller.decision import Decision

        self.harness.commit(Decision(None, (MetadataRecord(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1), 0),)))

    # ---------------------------------------------------------------------------------------------------- brokers

    @rule(broker_id=BROKERS, clean=st.booleans())
    def restart(self, broker_id: int, clean: bool) -> None:
        incarnation = self.incarnations.get(broker_id, 0) + 1
        known = self.harness.image.brokers.get(broker_id)
        features = {"metadata.version": (7, 29), ELR_FEATURE: (0, 1), "transaction.version": (0, 2)}
        previous = known.epoch if clean and known is not None else -1
        error, _ = self.harness.register(broker_id, incarnation, previous_epoch=previous, features=features)
        if not error:
            self.incarnations[broker_id] = incarnation

    @rule(broker_id=BROKERS)
    def beat(self, broker_id: int) -> None:
        self.harness.beat(broker_id)

    @rule(broker_id=BROKERS, lag=st.integers(0, 20))
    def beat_from_behind(self, broker_id: int, lag: int) -> None:
        self.harness.beat(broker_id, offset=self.harness.image.offset - lag)

    @rule(broker_id=BROKERS)
    def ask_to_be_fenced(self, broker_id: int) -> None:
        self.harness.beat(broker_id, want_fence=True)

    @rule(broker_id=BROKERS)
    def stop(self, broker_id: int) -> None:
        self.harness.beat(broker_id, stop=True)

    @rule(ms=st.integers(1, 2 * SESSION_MS))
    def wait(self, ms: int) -> None:
        self.harness.tick(ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

    # ----------------------------------------------------------------------------------------------------- topics

    @rule(name=TOPICS, partitions=st.integers(1, 4), factor=st.integers(1, 4))
    def create(self, name: str, partitions: int, factor: int) -> None:
        self.harness.create(name, partitions, factor)

    @rule(name=TOPICS)
    def delete(self, name: str) -> None:
        request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name)])
        self.harness.do(ApiKey.DELETE_TOPICS, request)

    @rule(name=TOPICS, count=st.integers(1, 6))
    def grow(self, name: str, count: int) -> None:
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.harness.do(ApiKey.CREATE_PARTITIONS, create_partitions.CreatePartitionsRequest(topics=[topic]))

    @rule(name=TOPICS, value=st.sampled_from(["1", "2", "3"]))
    def set_min_isr(self, name: str, value: str) -> None:
        self.set_config(name, "min.insync.replicas", value)

    def set_config(self, name: str, key: str, value: str) -> None:
        change = configs_wire.AlterableConfig(name=key, config_operation=0, value=value)
        asked = configs_wire.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[change])
        self.harness.do(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, configs_wire.IncrementalAlterConfigsRequest(resources=[asked])
        )

    # ------------------------------------------------------------------------------------------------- partitions

    @rule(name=TOPICS, isr=st.lists(BROKERS, max_size=4), old_epochs=st.booleans())
    def propose_any_isr(self, name: str, isr: list[int], old_epochs: bool) -> None:
        if name in self.harness.image.topic_ids and self.harness.partition(name).leader != NO_NODE:
            epochs = dict.fromkeys(isr, 0) if old_epochs else {}
            self.harness.alter(name, isr, broker_epochs=epochs)

    @rule(name=TOPICS, drop=st.integers(0, 3), dead_too=st.booleans())
    def propose_a_likely_isr(self, name: str, drop: int, dead_too: bool) -> None:
        """Propose the live replicas, or all replicas, without one of them."""
        if name not in self.harness.image.topic_ids or self.harness.partition(name).leader == NO_NODE:
            return
        partition = self.harness.partition(name)
        members = [replica for replica in partition.replicas if dead_too or self.harness.image.is_active(replica)]
        dropped = members[drop] if drop < len(members) and members[drop] != partition.leader else None
        self.harness.alter(name, [replica for replica in members if replica != dropped])

    @rule(name=TOPICS, replicas=st.none() | st.lists(BROKERS, min_size=1, max_size=4, unique=True))
    def reassign(self, name: str, replicas: list[int] | None) -> None:
        target = reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = reassignments.ReassignableTopic(name=name, partitions=[target])
        request = reassignments.AlterPartitionReassignmentsRequest(topics=[topic])
        self.harness.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)

    @rule(unclean=st.just(False))
    def elect_everywhere(self, unclean: bool) -> None:
        request = elect_leaders.ElectLeadersRequest(election_type=int(unclean), topic_partitions=None)
        self.harness.do(ApiKey.ELECT_LEADERS, request)

    @rule(broker_id=BROKERS)
    def allocate(self, broker_id: int) -> None:
        broker = self.harness.image.brokers.get(broker_id)
        epoch = broker.epoch if broker is not None else -1
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        self.harness.do(ApiKey.ALLOCATE_PRODUCER_IDS, request)

    # ------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def a_leader_is_alive_and_in_its_isr(self) -> None:
        for _, _, partition in self.harness.image.partitions():
            if partition.leader != NO_NODE:
                assert partition.leader in partition.isr
                assert self.harness.image.is_active(partition.leader)

    @invariant()
    def an_isr_is_made_of_replicas_each_once(self) -> None:
        for _, _, partition in self.harness.image.partitions():
            assert set(partition.isr) <= set(partition.replicas)
            assert len(set(partition.isr)) == len(partition.isr)

    @invariant()
    def only_the_last_of_an_isr_may_be_fenced_or_stopping(self) -> None:
        for _, _, partition in self.harness.image.partitions():
            gone = [member for member in partition.isr if not self.harness.image.is_active(member)]
            assert not gone or (len(partition.isr) == 1 and not self.elr)

    @invariant()
    def nobody_waits_for_a_leader_who_could_have_one(self) -> None:
        for _, _, partition in self.harness.image.partitions():
            candidates = partition.isr or partition.elr
            if any(self.harness.image.is_active(member) for member in candidates):
                assert partition.leader != NO_NODE

    @invariant()
    def without_eligible_replicas_an_isr_is_never_empty(self) -> None:
        if not self.elr:
            assert all(partition.isr and not partition.elr for _, _, partition in self.harness.image.partitions())

    @invariant()
    def eligible_replicas_are_outside_the_isr(self) -> None:
        for _, _, partition in self.harness.image.partitions():
            assert not set(partition.isr) & set(partition.elr)
            assert set(partition.elr) <= set(partition.replicas)

    @invariant()
    def the_log_describes_the_image(self) -> None:
        assert self.harness.rebuilt() == self.harness.image

    @invariant()
    def a_snapshot_describes_the_image(self) -> None:
        image = self.harness.image
        records = [decode_metadata_record(encode_metadata_record(*write)) for write in records_of(image)]
        assert restored(records, image.offset, image.epoch) == image


class CommandsWithEligibleReplicas(Commands):
    """Random commands with eligible leader replicas (KIP-966)."""

    elr = True


class CommandsWithUncleanElections(Commands):
    """Random commands in which topics may enable unclean elections, and clients may ask for them."""

    @rule(name=TOPICS, value=st.sampled_from(["true", "false"]))
    def set_unclean(self, name: str, value: str) -> None:
        self.set_config(name, "unclean.leader.election.enable", value)

    @precondition(lambda self: bool(self.harness.image.topic_ids))
    @rule()
    def elect_uncleanly(self) -> None:
        self.elect_everywhere(unclean=True)


STEPS = settings(max_examples=examples(60), stateful_step_count=40)

for machine in (Commands, CommandsWithEligibleReplicas, CommandsWithUncleanElections):
    machine.TestCase.settings = STEPS

TestCommands = Commands.TestCase
TestCommandsWithEligibleReplicas = CommandsWithEligibleReplicas.TestCase
TestCommandsWithUncleanElections = CommandsWithUncleanElections.TestCase
