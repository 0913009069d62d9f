"""A replica that may become leader cleanly has every committed record, whichever brokers restart with lost records
(KIP-966).

A model beside the controller counts the records in each broker's log. A broker that restarts after an unclean stop has
lost all of them; at worst only it, and another broker like it, had them.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from squall.broker.cluster.image import (
    ELR_FEATURE,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
)
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import alter_partition_reassignments as reassignments
from squall.broker.protocol.schema import incremental_alter_configs as configs_wire
from tests.property.controller.test_any_sequence_of_commands import CheckedHarness
from tests.support.brokers.controller_harness import SESSION_MS
from tests.support.effort import examples

BROKERS = st.integers(1, 3)
Place = tuple[bytes, int]


class Logs:
    """The model: how many committed records each replica of each partition has."""

    def __init__(self) -> None:
        self.held: dict[tuple[Place, int], int] = {}
        self.committed: dict[Place, int] = {}

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Update the model after a decision of the controller."""
        for topic, index, now in after.partitions():
            was = before.partition(topic.id, index)
            place = (topic.id, index)
            if was is None:
                self.committed[place] = 0
                self.held.update(dict.fromkeys(((place, replica) for replica in now.replicas), 0))
            elif was != now:
                self._changed(place, was, now)

    def _changed(self, place: Place, was: PartitionImage, now: PartitionImage) -> None:
        # Who joins has caught up, or its leader would not ask for it; that may end a reassignment, and make it lead.
        joined = tuple(member for member in now.isr if member not in was.isr) if was.leader != NO_NODE else ()
        for member in joined:
            self.held[place, member] = self.held[place, was.leader]
        if now.leader in (was.leader, NO_NODE):
            return
        holds = self.held.get((place, now.leader), 0)
        if now.leader in was.isr + was.elr + joined:
            assert holds >= self.committed[place], f"a clean election lost commits: {was} -> {now}"
        else:
            assert now.leader in was.last_known_elr, "nobody else may lead without being asked to"
            self.committed[place] = holds
        for replica in now.replicas:
            self.held[place, replica] = min(self.held.get((place, replica), 0), holds)

    def commit(self, place: Place, partition: PartitionImage) -> None:
        """Add one record to every member of the ISR."""
        self.committed[place] = max(self.committed[place] + 1, self.held[place, partition.leader] + 1)
        for member in partition.isr:
            self.held[place, member] = self.committed[place]

    def lose(self, broker_id: int) -> None:
        """Empty a broker's logs."""
        for place, replica in self.held:
            if replica == broker_id:
                self.held[place, replica] = 0


class ModelledHarness(CheckedHarness):
    """Updates the model after every decision."""

    logs: Logs

    def commit(self, decision: Any) -> Any:
        before = self.controller.image.clone()
        reply = super().commit(decision)
        if hasattr(self, "logs"):
            self.logs.follow(before, self.controller.image)
        return reply

    def join_fenced(self, broker_id: int, incarnation: int, previous_epoch: int) -> None:
        """Register a broker, and leave it fenced."""
        error, _ = self.register(broker_id, incarnation, previous_epoch=previous_epoch)
        assert error == ErrorCode.NONE


class CommitsAndLosses(RuleBasedStateMachine):
    """Random steps of three brokers with one partition: they commit, leave, lose records and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = ModelledHarness(brokers=4, min_insync_replicas="2", squall_bootstrap_features=f"{ELR_FEATURE}=1")
        self.logs = self.harness.logs = Logs()
        self.topic_id = self.harness.topic("t", [1, 2, 3], min_insync_replicas="2")
        self.incarnations = dict.fromkeys((1, 2, 3, 4), 1)

    @property
    def partition(self) -> PartitionImage:
        return self.harness.partition("t")

    @rule(broker_id=BROKERS)
    def fence(self, broker_id: int) -> None:
        self.harness.beat(broker_id, want_fence=True)

    @rule(broker_id=BROKERS)
    def beat(self, broker_id: int) -> None:
        self.harness.beat(broker_id)

    @rule(broker_id=BROKERS, clean=st.booleans())
    def restart(self, broker_id: int, clean: bool) -> None:
        """Restart a broker after its session has expired. Its loss of records takes effect when it registers again;
        until then its former incarnation counts.
        """
        self.harness.beat(broker_id, want_fence=True)
        self.incarnations[broker_id] += 1
        previous = self.harness.image.brokers[broker_id].epoch if clean else -1
        self.harness.join_fenced(broker_id, self.incarnations[broker_id], previous)
        if not clean:
            self.logs.lose(broker_id)

    @rule(leaver=BROKERS)
    def shrink(self, leaver: int) -> None:
        now = self.partition
        if now.leader not in (NO_NODE, leaver):
            self.harness.alter("t", [member for member in now.isr if member != leaver])

    @rule()
    def expand(self) -> None:
        now = self.partition
        if now.leader != NO_NODE:
            self.harness.alter("t", [replica for replica in now.replicas if self.harness.image.is_active(replica)])

    @rule(value=st.sampled_from("123"))
    def set_min_isr(self, value: str) -> None:
        change = configs_wire.AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
        asked = configs_wire.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[change])
        self.harness.do(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, configs_wire.IncrementalAlterConfigsRequest(resources=[asked])
        )

    @rule()
    def commit(self) -> None:
        """Produce a record, if the partition accepts one."""
        now = self.partition
        wanted = min(self.harness.settings.min_insync_replicas(self.harness.image, "t"), len(now.replicas))
        alive = all(self.harness.image.is_active(member) for member in now.isr)
        if now.leader != NO_NODE and alive and len(now.isr) >= wanted:
            self.logs.commit((self.topic_id, 0), now)


class CommitsAndLossesAndMore(CommitsAndLosses):
    """Adds further steps: reassignments to a fourth broker, controlled shutdowns, new controllers."""

    @rule(broker_id=BROKERS)
    def stop(self, broker_id: int) -> None:
        self.harness.beat(broker_id, stop=True)

    @rule(ms=st.integers(1, 2 * SESSION_MS))
    def wait(self, ms: int) -> None:
        self.harness.tick(ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

    @rule(replicas=st.permutations((1, 2, 3, 4)))
    def move(self, replicas: list[int]) -> None:
        target = reassignments.ReassignablePartition(partition_index=0, replicas=replicas[:3])
        topic = reassignments.ReassignableTopic(name="t", partitions=[target])
        request = reassignments.AlterPartitionReassignmentsRequest(topics=[topic])
        self.harness.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)


CommitsAndLosses.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=25)
CommitsAndLossesAndMore.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestCommitsAndLosses = CommitsAndLosses.TestCase
TestCommitsAndLossesAndMore = CommitsAndLossesAndMore.TestCase
