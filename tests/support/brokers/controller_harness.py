"""Runs a controller without broker or tasks. The test simulates the log, the clock and the brokers.

Nothing is asynchronous: the controller decides, and the harness applies the decision.
"""

from __future__ import annotations

import random
from typing import Any

from squall.broker.cluster.image import ELR_FEATURE, ClusterImage, PartitionImage
from squall.broker.cluster.replay import replay
from squall.broker.cluster.settings import ControllerSettings
from squall.broker.controller.controller import Controller
from squall.broker.controller.decision import Decision
from squall.broker.controller.features import FEATURES
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import alter_partition, create_topics
from squall.broker.protocol.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from squall.broker.protocol.schema.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.support.brokers.in_memory import broker_config

CLUSTER_ID = "test-cluster"
SESSION_MS = 9000
EPOCH = 7


WITHOUT_ELR = {"squall_bootstrap_features": f"{ELR_FEATURE}=0"}


class ControllerHarness:
    """A controller that has just become active, with brokers 1 to `brokers` registered and unfenced. Eligible leader
    replicas (KIP-966) are off unless `properties` enable them.
    """

    def __init__(
        self, brokers: int = 3, *, racks: dict[int, str] | None = None, seed: int = 1, **properties: str
    ) -> None:
        self.config = broker_config(**{**WITHOUT_ELR, **properties})
        self.settings = ControllerSettings(self.config, CLUSTER_ID)
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.log: list[tuple[int, Any]] = []
        self.racks = racks or {}
        self.controller = Controller(ClusterImage(), self.settings, self.rng, 0, self.now_ms)
        self.commit(self.controller.bootstrap(self.now_ms))
        for broker_id in range(1, brokers + 1):
            self.join(broker_id)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    # ------------------------------------------------------------------------------------------------ the machine

    def commit(self, decision: Decision[Any]) -> Any:
        """Append and apply a decision, and return its reply."""
        at = self.controller.next_offset
        self.log += [(offset, write.record) for offset, write in enumerate(decision.records, at)]
        self.controller.apply(decision, EPOCH, self.now_ms)
        return decision.reply

    def decide(self, api_key: int, request: Any) -> Decision[Any]:
        """Return the controller's decision on a request, without applying it."""
        before = self.image.clone()
        decision = self.controller.decide(api_key, request, self.now_ms)
        assert self.image == before, "a decision changed the image"
        return decision

    def do(self, api_key: int, request: Any) -> Any:
        """Decide on a request, apply the decision, and return the reply."""
        return self.commit(self.decide(api_key, request))

    def tick(self, after_ms: int = 0) -> int:
        """Let time pass, with a tick of the controller whenever one is due. Return how many records it wrote."""
        written = 0
        end_ms = self.now_ms + after_ms
        while True:
            decision = self.controller.tick(self.now_ms)
            while decision.records:
                self.commit(decision)
                written += len(decision.records)
                decision = self.controller.tick(self.now_ms)
            if self.now_ms >= end_ms:
                return written
            self.now_ms = min(self.now_ms + SESSION_MS // 10, end_ms)

    def fail_over(self, predecessor: tuple[int, int] | None = None) -> None:
        """Make another controller active on the same log. `predecessor` is passed to `Controller`."""
        image = self.rebuilt()
        # The new leader's first record is the quorum's own.
        first = self.controller.next_offset + 1
        self.controller = Controller(image, self.settings, self.rng, first, self.now_ms, predecessor)

    def fenced_after(self, beating: tuple[int, ...], at_most_ms: int) -> dict[int, int]:
        """Return, for each broker that was fenced within `at_most_ms`, after how many ms. Only the brokers in `beating`
        send heartbeats. The controller ticks at exactly the times that it asks for.
        """
        begun, beat_ms, found = self.now_ms, self.now_ms, dict[int, int]()
        while self.now_ms < begun + at_most_ms:
            while (decision := self.controller.tick(self.now_ms)).records:
                found[decision.reply.id] = self.now_ms - begun
                self.commit(decision)
            if self.now_ms >= beat_ms:
                beat_ms += SESSION_MS // 4
                for broker_id in beating:
                    self.beat(broker_id)
            self.now_ms = min(self.controller.next_tick_ms(self.now_ms), beat_ms)
        return found

    def rebuilt(self) -> ClusterImage:
        """Return the image that a replay of the whole log makes."""
        image = ClusterImage()
        for offset, record in self.log:
            replay(image, record, offset, EPOCH)
        return image

    # ------------------------------------------------------------------------------------------------ the brokers

    def register(
        self,
        broker_id: int,
        incarnation: int = 1,
        *,
        previous_epoch: int = -1,
        cluster_id: str = CLUSTER_ID,
        features: dict[str, tuple[int, int]] | None = None,
    ) -> tuple[ErrorCode, int]:
        """Register a broker. Returns (error, broker epoch)."""
        supported = {f.name: (f.low, f.high) for f in FEATURES} if features is None else features
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=bytes([broker_id, incarnation]) * 8,
            listeners=[Listener(name="CLIENT", host=f"host{broker_id}", port=9000 + broker_id)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported.items()
            ],
            rack=self.racks.get(broker_id),
            previous_broker_epoch=previous_epoch,
        )
        reply = self.do(ApiKey.BROKER_REGISTRATION, request)
        return ErrorCode(reply.error_code), reply.broker_epoch

    def beat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        epoch: int | None = None,
        want_fence: bool = False,
        stop: bool = False,
    ) -> BrokerHeartbeatResponse:
        """Send one heartbeat of a broker, which by default has replayed the whole metadata log."""
        registered = self.image.brokers.get(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch if epoch is not None else registered.epoch if registered else -1,
            current_metadata_offset=self.image.offset if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=stop,
        )
        reply = self.do(ApiKey.BROKER_HEARTBEAT, request)
        assert isinstance(reply, BrokerHeartbeatResponse)
        return reply

    def join(self, broker_id: int, incarnation: int = 1, *, previous_epoch: int = -1) -> None:
        """Register a broker, and unfence it."""
        error, _ = self.register(broker_id, incarnation, previous_epoch=previous_epoch)
        assert error == ErrorCode.NONE, error
        assert not self.beat(broker_id).is_fenced

    def lose(self, *broker_ids: int) -> None:
        """Let the sessions of these brokers expire. The other brokers keep sending heartbeats."""
        end_ms = self.now_ms + SESSION_MS + SESSION_MS // 10
        while self.now_ms < end_ms:
            self.tick(SESSION_MS // 10)
            for broker in list(self.image.brokers.values()):
                if broker.id not in broker_ids and not broker.fenced:
                    self.beat(broker.id)
        self.tick()

    # ------------------------------------------------------------------------------------------------- the topics

    def topic(self, name: str, *replicas: list[int], **configs: str) -> bytes:
        """Create a topic; each list has the replicas of one partition. Returns the topic's id."""
        assignments = [
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(replicas)
        ]
        result = self.create(name, assignments=assignments, configs=configs)
        assert result.error_code == ErrorCode.NONE, result
        return self.image.topic_ids[name]

    def create(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: list[create_topics.CreatableReplicaAssignment] | None = None,
        configs: dict[str, str | None] | dict[str, str] | None = None,
        validate_only: bool = False,
    ) -> create_topics.CreatableTopicResult:
        """Send CreateTopics for one topic."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=assignments or [],
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in (configs or {}).items()
            ],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        (result,) = self.do(ApiKey.CREATE_TOPICS, request).topics
        assert isinstance(result, create_topics.CreatableTopicResult)
        return result

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        """Return the present state of one partition."""
        topic = self.image.topic(name)
        assert topic is not None
        return topic.partitions[index]

    def alter(
        self,
        name: str,
        isr: list[int],
        *,
        index: int = 0,
        sender: int | None = None,
        broker_epochs: dict[int, int] | None = None,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        recovering: bool = False,
    ) -> alter_partition.AlterPartitionResponsePartitionData:
        """Send AlterPartition with this ISR, by default as the leader. `leader_epoch` and `partition_epoch` are added
        to the present ones.
        """
        topic = self.image.topic(name)
        assert topic is not None
        now = topic.partitions[index]
        broker_id = now.leader if sender is None else sender
        epochs = {broker.id: broker.epoch for broker in self.image.brokers.values()} | (broker_epochs or {})
        asked = alter_partition.AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=now.leader_epoch + leader_epoch,
            partition_epoch=now.partition_epoch + partition_epoch,
            new_isr_with_epochs=[broker_state(member, epochs.get(member, -1)) for member in isr],
            leader_recovery_state=1 if recovering else 0,
        )
        reply = self.do(
            ApiKey.ALTER_PARTITION,
            alter_partition.AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=self.image.brokers[broker_id].epoch,
                topics=[alter_partition.AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[asked])],
            ),
        )
        assert reply.error_code == ErrorCode.NONE
        ((answer,),) = [answered.partitions for answered in reply.topics]
        assert isinstance(answer, alter_partition.AlterPartitionResponsePartitionData)
        return answer


def broker_state(broker_id: int, broker_epoch: int) -> Any:
    """Return one member of an ISR, as AlterPartition names it."""
    return alter_partition.BrokerState(broker_id=broker_id, broker_epoch=broker_epoch)
