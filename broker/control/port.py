"""The port between a broker and its control plane: frozen values that pass it, and protocols for either side.

The control plane decides who leads, who is in sync and what exists; the data plane carries records. KRaft's plane
(`kraft/`) is the default; one over ZooKeeper, or a list of states in a test, stands behind the same port, and neither
`replicas/` nor `apis/` nor `node` knows which one it is.

From the control plane come `Order`s, in the order in which they must be obeyed, answers to ISR proposals, and cluster
images. To the control plane go registration, heartbeats and controlled shutdown (`ClusterMembership`), ISR proposals,
requests for producer ids, and what clients want decided (`forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication.values import BrokerStatuses, LeaderAndIsr

if TYPE_CHECKING:
    import trio

    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.protocol.hot import FetchIn

NOT_REGISTERED = -1
"""In place of a broker epoch: this incarnation is not registered yet."""


# ------------------------------------------------------------------------------------- orders, from the control plane


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Holds which brokers are registered, with which broker epoch, which are fenced and which are shutting down. Comes
    before the orders that rest on it.
    """

    brokers: BrokerStatuses


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """This broker leads the partition, or goes on leading it with another ISR or other replicas, in the epochs of
    `state`. Ignored if the data plane has obeyed a later order.
    """

    topic: str
    topic_id: bytes
    index: int
    state: LeaderAndIsr
    recovering: bool = False
    """The leader was elected from outside the ISR and may lack committed records (KIP-704)."""


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """This broker has a replica of the partition, and another broker leads it or nobody does. Ignored as
    `BecomeLeader` is.
    """

    topic: str
    topic_id: bytes
    index: int
    state: LeaderAndIsr
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class StopReplica:
    """This broker has no replica of the partition any more: its log is deleted. Ignored if there is no replica, or if
    the data plane has obeyed an order of a later leader epoch.
    """

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The settings of a topic or of brokers were altered; the image has them. `kind`: Kafka's config resource type."""

    kind: int
    name: str


Order = BrokersChanged | StopReplica | BecomeLeader | BecomeFollower | SettingsChanged


class DataPlane(Protocol):
    """The side that obeys the control plane's orders."""

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out orders, one after the other; many at once are carried out later. Must not wait. AssertionError for
        one that contradicts itself.
        """


# ----------------------------------------------------------------------------------- proposals, and what comes of them


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The leader of `leader_epoch` wants this ISR, and has seen `partition_epoch`."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch) of each member; -1 for an epoch that the leader has not learnt."""


@dataclass(frozen=True, slots=True)
class IsrConfirmed:
    """The proposal is decided, in `partition_epoch`; `isr` is in force."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrRejected:
    """The proposal is not decided. `error` tells whether it may have been (`replication.rules.NOT_APPLIED`)."""

    topic_id: bytes
    index: int
    error: ErrorCode


IsrAnswer = IsrConfirmed | IsrRejected


class NotController(Exception):
    """This node is not the active controller, or stopped being it before the outcome was certain."""


class NoController(OSError):
    """No active controller answered in time. What the request asked for may have been done."""


class RequestRefused(Exception):
    """The active controller refused a request as a whole: nothing of it was decided."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class RegistrationFailed(Exception):
    """The cluster does not take this broker: another cluster's, unsupported features, or its id stays in use."""


class IsrAuthority(Protocol):
    """Decides on ISRs."""

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrAnswer]:
        """One answer for each partition that the controller decided on. Raises RequestRefused, and OSError if nobody
        answered: each proposal may then have been decided or not.
        """


class ProducerIdSource(Protocol):
    """Hands out producer ids, each once in the cluster's life."""

    async def allocate_producer_ids(self) -> range:
        """A block of them for this broker alone. Raises RequestRefused, OSError."""


class ClientRequestForwarder(Protocol):
    """Gets decisions on clients' requests that no broker may decide by itself."""

    async def forward(
        self, api_key: int, version: int, request: Any, *, client_id: str | None = None, timeout_ms: int | None = None
    ) -> Any:
        """The response to a client's request. Never raises: REQUEST_TIMED_OUT, in the form of the API, if nobody
        answered in time. The request may have been carried out all the same.
        """


# ----------------------------------------------------------------------------------------------------- the two planes


class ClusterMembership(Protocol):
    """This broker's standing in the cluster: registered, caught up, unfenced, stopping."""

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of this incarnation; NOT_REGISTERED before its registration."""

    @property
    def caught_up(self) -> trio.Event:
        """Set once the image holds this registration. What it said of this broker before is from an earlier life."""

    @property
    def unfenced(self) -> trio.Event:
        """Set when this broker serves for the first time."""

    async def run(self, task_status: trio.TaskStatus[None] = ...) -> None:
        """Register (then `task_status.started()`) and send heartbeats until the controller lets this broker go.

        Raises RegistrationFailed.
        """

    def ready(self) -> None:
        """Logs are recovered and the image is applied: ask to be unfenced from now on."""

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Have leaderships moved away, and leave every ISR. True if the controller agreed within `timeout_s`."""


Answer = Callable[[list[Any]], None]
FetchHandler = Callable[["FetchIn", int, Answer], None]
"""`(request, version, answer)`: answers a Fetch now or later, by giving `answer` the response body in chunks, once."""
NodeHandler = Callable[[Any], Any]
"""The answer to a request of another node, or a `squall.broker.net.deferred_response.DeferredResponse`."""


class ControlPlane(IsrAuthority, ProducerIdSource, ClientRequestForwarder, Protocol):
    """Provides what a node needs of its control plane."""

    @property
    def feed(self) -> ImageFeed:
        """This node's image of the cluster, and its changes."""

    @property
    def controller_id(self) -> int:
        """The active controller as this node knows it, or NO_NODE."""

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of this incarnation; NOT_REGISTERED before its registration."""

    @property
    def answered_at(self) -> float:
        """Return when a controller last answered this node, by `env.mono()`; before the first answer, when the plane
        began.
        """

    def handlers(self) -> Mapping[int, NodeHandler]:
        """Return the handlers of requests from other nodes, by API key, for the listener between brokers only."""

    def fetched_logs(self) -> Mapping[bytes, FetchHandler]:
        """Logs of the plane's own that other nodes fetch, by topic id, on the listener between brokers only."""

    def start(self, start_soon: Callable[..., None]) -> None:
        """Begin to take part. Raises OSError, in a task, if the disk fails."""

    def join(self, endpoints: Mapping[str, tuple[str, int]]) -> ClusterMembership:
        """This broker's membership, to be run. `endpoints`: listener name to advertised (host, port), all bound."""

    def command(self, data_plane: DataPlane) -> None:
        """Give orders from now on. The first ones bring about everything decided so far."""

    async def wait_until_not_needed(self) -> None:
        """This broker was let go: wait while others that stop need what this node does for the control plane. May be
        cancelled.
        """

    async def leave(self) -> None:
        """Take part no more: when this returns the plane's files are not touched again."""
