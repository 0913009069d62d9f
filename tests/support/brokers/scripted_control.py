"""A second control plane behind `squall.broker.control.port`, without elections: the test scripts its decisions.

`ScriptedControl` is shared by the whole cluster. The test says what is decided, in which order each broker learns it,
and how ISR proposals are answered. Nothing of it is KRaft's: no log, no quorum, no request between nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from squall.broker.cluster.feed import ImageFeed
from squall.broker.cluster.image import Broker, ClusterImage, PartitionImage, Topic
from squall.broker.config import BrokerConfig
from squall.broker.control.orders import become, broker_view
from squall.broker.control.port import (
    NOT_REGISTERED,
    BrokersChanged,
    DataPlane,
    FetchHandler,
    IsrAnswer,
    IsrConfirmed,
    IsrProposal,
    IsrRejected,
    NodeHandler,
    Order,
    StopReplica,
)
from squall.broker.control.refusals import refusal
from squall.broker.env import Env
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE

TOPIC, TOPIC_ID = "t", bytes(15) + b"\x07"
CONFIRM = ErrorCode.NONE


class ScriptedControl:
    """Makes the decisions of the script, about one topic with one partition."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.planes: dict[int, ScriptedPlane] = {}
        self.deaf: dict[int, list[Callable[[], None]]] = {}
        """Brokers that receive nothing for now, each with the calls that it has missed, oldest first."""
        self.proposed: list[IsrProposal] = []
        """ISR proposals of all brokers, in the order in which they came."""
        self.verdict: ErrorCode | None = CONFIRM
        """The answer to ISR proposals: CONFIRM, an error, or None for no answer."""
        self._next_broker_epoch = 100
        self._next_producer_id = 0

    def make(
        self, env: Env, config: BrokerConfig, cluster_id: str, feed: ImageFeed, logs: object, peers: object
    ) -> ScriptedPlane:
        """Return the scripted plane of a node. Tests put it in the place of
        `squall.broker.control.planes.control_plane`.
        """
        plane = self.planes[config.node_id] = ScriptedPlane(self, env, config.node_id, feed)
        return plane

    # ------------------------------------------------------------------------------------------------------ decisions

    @property
    def state(self) -> PartitionImage:
        """Return the partition's newest state."""
        return self.image.topics_by_id[TOPIC_ID].partitions[0]

    def create(self, *replicas: int) -> None:
        """Create the topic with these replicas: the first one leads, and all are in sync."""
        self._decide(PartitionImage(replicas, replicas, replicas[0], 0, 0))

    def hand_out(self, *states: Mapping[str, Any]) -> None:
        """Decide new states of the partition, one after another. Each mapping has the fields that change; a `leader`
        among them begins a new leader epoch.
        """
        for changes in states:
            before = self.state
            epoch = before.leader_epoch + ("leader" in changes)
            self._decide(
                replace(before, **changes, leader_epoch=epoch, partition_epoch=before.partition_epoch + 1)  # type: ignore[arg-type]
            )

    def _decide(self, state: PartitionImage) -> None:
        before = self.image.topics_by_id[TOPIC_ID].partitions[0] if TOPIC_ID in self.image.topics_by_id else None
        self.image.topics_by_id[TOPIC_ID] = Topic(TOPIC, TOPIC_ID, {0: state})
        self.image.topic_ids[TOPIC] = TOPIC_ID
        for node_id in self.planes:
            if node_id in state.replicas:
                self.tell(node_id, become(TOPIC, TOPIC_ID, 0, state, node_id))
            elif before is not None and node_id in before.replicas:
                self.tell(node_id, StopReplica(TOPIC, TOPIC_ID, 0, state.leader_epoch))
            else:
                self.tell(node_id)

    def fence(self, broker_id: int, fenced: bool = True) -> None:
        """Send all brokers that a broker is fenced, or with `fenced=False` that it serves again."""
        self._change_broker(replace(self.image.brokers[broker_id], fenced=fenced))

    def _change_broker(self, broker: Broker) -> None:
        self.image.brokers[broker.id] = broker
        for node_id in self.planes:
            self.tell(node_id, BrokersChanged(broker_view(self.image)))

    # -------------------------------------------------------------------------------------------------- who hears what

    def tell(self, node_id: int, *orders: Order) -> None:
        """Send orders and the present image to one broker. A deaf broker gets them when it hears again."""
        plane, image = self.planes[node_id], self.image.clone()

        def arrive() -> None:
            plane.feed.adopt(image)
            if plane.data_plane is not None:
                plane.data_plane.obey(orders)

        if node_id in self.deaf:
            self.deaf[node_id].append(arrive)
        else:
            arrive()

    def deafen(self, node_id: int) -> None:
        """Send this broker nothing from now on."""
        self.deaf[node_id] = []

    def hear(self, node_id: int) -> None:
        """Send this broker what it has missed, and then all that follows."""
        for arrive in self.deaf.pop(node_id):
            arrive()

    # --------------------------------------------------------------------------------------------- what brokers ask for

    def register(self, broker_id: int, endpoints: Mapping[str, tuple[str, int]]) -> int:
        """Register a new incarnation of a broker, fenced. Returns its broker epoch."""
        self._next_broker_epoch += 1
        epoch = self._next_broker_epoch
        self._change_broker(Broker(broker_id, epoch, bytes(16), dict(endpoints), fenced=True))
        return epoch

    async def judge(self, proposal: IsrProposal) -> IsrAnswer:
        """Return the script's answer to a proposal. OSError if it does not answer."""
        self.proposed.append(proposal)
        await trio.lowlevel.checkpoint()
        if self.verdict is None:
            raise OSError("the script is silent")
        if self.verdict:
            return IsrRejected(proposal.topic_id, proposal.index, self.verdict)
        state = self.state
        if (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return IsrRejected(proposal.topic_id, proposal.index, ErrorCode.INVALID_UPDATE_VERSION)
        isr = tuple(broker_id for broker_id, _ in proposal.isr)
        self.hand_out({"isr": isr})
        return IsrConfirmed(TOPIC_ID, 0, self.state.leader_epoch, self.state.partition_epoch, isr)

    def producer_ids(self) -> range:
        """Return ten producer ids that were not given out before."""
        self._next_producer_id += 10
        return range(self._next_producer_id - 10, self._next_producer_id)


class ScriptedMembership:
    """A broker's registration, which always succeeds at once. A controlled shutdown is permitted at once, too."""

    def __init__(self, control: ScriptedControl, node_id: int, endpoints: Mapping[str, tuple[str, int]]) -> None:
        self._control, self._node_id, self._endpoints = control, node_id, endpoints
        self.broker_epoch = NOT_REGISTERED
        self.caught_up, self.unfenced = trio.Event(), trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.broker_epoch = self._control.register(self._node_id, self._endpoints)
        self.caught_up.set()
        task_status.started()
        await trio.sleep_forever()

    def ready(self) -> None:
        self._control.fence(self._node_id, False)
        self.unfenced.set()

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        await trio.lowlevel.checkpoint()
        return True


class ScriptedPlane:
    """One broker's `squall.broker.control.port.ControlPlane`, connected to the ScriptedControl."""

    def __init__(self, control: ScriptedControl, env: Env, node_id: int, feed: ImageFeed) -> None:
        self._control, self._node_id, self.feed = control, node_id, feed
        self.controller_id = NO_NODE
        self.answered_at = env.mono()
        self.data_plane: DataPlane | None = None
        self._membership: ScriptedMembership | None = None

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch if self._membership is not None else NOT_REGISTERED

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        return [await self._control.judge(proposal) for proposal in proposals]

    async def allocate_producer_ids(self) -> range:
        await trio.lowlevel.checkpoint()
        return self._control.producer_ids()

    async def forward(
        self, api_key: int, version: int, request: Any, *, client_id: str | None = None, timeout_ms: int | None = None
    ) -> Any:
        await trio.lowlevel.checkpoint()
        return refusal(api_key, request, ErrorCode.REQUEST_TIMED_OUT)

    def handlers(self) -> Mapping[int, NodeHandler]:
        return {}

    def fetched_logs(self) -> Mapping[bytes, FetchHandler]:
        return {}

    def start(self, start_soon: Callable[..., None]) -> None:
        pass

    def join(self, endpoints: Mapping[str, tuple[str, int]]) -> ScriptedMembership:
        self._membership = ScriptedMembership(self._control, self._node_id, endpoints)
        return self._membership

    def command(self, data_plane: DataPlane) -> None:
        self.data_plane = data_plane
        image = self._control.image
        orders: list[Order] = [BrokersChanged(broker_view(image))]
        orders += [
            become(topic.name, topic.id, index, partition, self._node_id)
            for topic, index, partition in image.partitions()
            if self._node_id in partition.replicas
        ]
        self._control.tell(self._node_id, *orders)

    async def wait_until_not_needed(self) -> None:
        await trio.lowlevel.checkpoint()

    async def leave(self) -> None:
        await trio.lowlevel.checkpoint()
