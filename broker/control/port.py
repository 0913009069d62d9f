"""Defines the port between a broker and its control plane: the frozen values that are exchanged, and a protocol for
each side.

The control plane decides which broker leads, which replicas are in sync and what exists; the data plane carries
records. KRaft's plane (`kraft/`) is the default. A plane over ZooKeeper, or a scripted plane in a test, implements the
same port, so neither `replicas/` nor `apis/` nor `node` knows which plane it uses.

The control plane gives `Order`s, in the order in which they must be obeyed, answers to ISR proposals, and cluster
images. It receives registration, heartbeats and controlled shutdown (`ClusterMembership`), ISR proposals, requests for
producer ids, and clients' requests (`forward`).
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
"""Is used as broker epoch until this incarnation is registered."""


# ------------------------------------------------------------------------------------- orders, from the control plane


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Lists the registered brokers with their broker epochs, and says which are fenced or shutting down. The control
    plane sends it before a BecomeLeader that depends on it.
    """

    brokers: BrokerStatuses


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Orders this broker to lead the partition with the epochs, ISR and replicas of `state`. The broker may lead it
    already. Ignored if the data plane has obeyed a later order.
    """

    topic: str
    topic_id: bytes
    index: int
    state: LeaderAndIsr
    recovering: bool = False
    """Is True if the leader was elected from outside the ISR and may lack committed records (KIP-704)."""


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """Orders this broker to follow: it has a replica of the partition, and another broker or none leads it. Ignored if
    the data plane has obeyed a later order.
    """

    topic: str
    topic_id: bytes
    index: int
    state: LeaderAndIsr
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Orders this broker to delete its log of the partition, because it has no replica any more. Ignored if there is no
    replica, or if the data plane has obeyed an order of a later leader epoch.
    """

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Reports that settings of a topic or of brokers changed in the image. `kind`: Kafka's config resource type."""

    kind: int
    name: str


Order = BrokersChanged | StopReplica | BecomeLeader | BecomeFollower | SettingsChanged


class DataPlane(Protocol):
    """Holds this broker's replicas, and leads, follows or deletes them as the control plane orders."""

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out orders, one after another. If there are many, some are carried out after this call has returned.
        Must not wait. Raises AssertionError for an inconsistent order, such as a BecomeLeader whose `state` has another
        leader.
        """


# ----------------------------------------------------------------------------------- proposals, and what comes of them


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """Proposes a new ISR. The leader of `leader_epoch` proposes it; `partition_epoch` is the newest partition epoch
    that this leader knows, so that the controller can refuse an outdated proposal.
    """

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Lists (broker id, broker epoch) of each member; the epoch is -1 if the leader does not know it."""


@dataclass(frozen=True, slots=True)
class IsrConfirmed:
    """Says that the controller accepted the proposal. The partition now has `isr`, `leader_epoch` and
    `partition_epoch`.
    """

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrRejected:
    """Says that the controller answered the proposal with an error. The proposal was not applied if `error` is in
    `replication.rules.NOT_APPLIED`; after any other error it may have been applied.
    """

    topic_id: bytes
    index: int
    error: ErrorCode


IsrAnswer = IsrConfirmed | IsrRejected


class NotController(Exception):
    """Is raised if this node is not the active controller, or resigned before the outcome was certain."""


class NoController(OSError):
    """Is raised if no active controller answered in time. The request may have been carried out."""


class RequestRefused(Exception):
    """Is raised if the active controller refused a whole request. Nothing of the request was carried out."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class RegistrationFailed(Exception):
    """Is raised if the cluster rejects this broker: other cluster id, unsupported features, or a broker id in use."""


class IsrAuthority(Protocol):
    """Accepts or rejects the ISRs that partition leaders propose."""

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrAnswer]:
        """Return one answer for each partition that the controller decided on. Raises RequestRefused, and OSError if no
        controller answered: each proposal may then have been applied or not.
        """


class ProducerIdSource(Protocol):
    """Allocates producer ids, each only once in the cluster."""

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker alone. Raises RequestRefused, OSError."""


class ClientRequestForwarder(Protocol):
    """Forwards clients' requests that only the controller may decide."""

    async def forward(
        self, api_key: int, version: int, request: Any, *, client_id: str | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Return the response to a client's request. Never raises: REQUEST_TIMED_OUT, in the form of the API, if no
        controller answered in time. The request may have been carried out in that case.
        """


# ----------------------------------------------------------------------------------------------------- the two planes


class ClusterMembership(Protocol):
    """Registers this broker in the cluster, gets it unfenced, and carries out its controlled shutdown."""

    @property
    def broker_epoch(self) -> int:
        """Returns the broker epoch of this incarnation; NOT_REGISTERED before its registration."""

    @property
    def caught_up(self) -> trio.Event:
        """Is set once this node's image holds the registration of this incarnation. Until then, the image may show the
        broker as it was in an earlier incarnation, for example as a leader.
        """

    @property
    def unfenced(self) -> trio.Event:
        """Is set when this broker is unfenced for the first time."""

    async def run(self, task_status: trio.TaskStatus[None] = ...) -> None:
        """Register (then `task_status.started()`) and send heartbeats until the controller lets this broker stop.

        Raises RegistrationFailed.
        """

    def ready(self) -> None:
        """Ask the controller, from now on, to unfence this broker. The caller has recovered the logs and applied the
        image.
        """

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Request a controlled shutdown: leaderships move away, and this broker leaves every ISR. Returns whether the
        controller completed it within `timeout_s`.
        """


Answer = Callable[[list[Any]], None]
FetchHandler = Callable[["FetchIn", int, Answer], None]
"""Handles a Fetch. The arguments are the request, its version, and `answer`. The handler calls `answer` once, now or
later, with the response body in chunks.
"""
NodeHandler = Callable[[Any], Any]
"""Handles another node's request: returns the answer, or a `squall.broker.net.deferred_response.DeferredResponse`."""


class ControlPlane(IsrAuthority, ProducerIdSource, ClientRequestForwarder, Protocol):
    """Connects a node to the cluster's controller. It provides the cluster image, gives orders to the data plane,
    registers this broker, and sends requests to the controller.
    """

    @property
    def feed(self) -> ImageFeed:
        """Returns the feed of this node's cluster image and its changes."""

    @property
    def controller_id(self) -> int:
        """Returns the active controller as this node knows it, or NO_NODE."""

    @property
    def broker_epoch(self) -> int:
        """Returns the broker epoch of this incarnation; NOT_REGISTERED before its registration."""

    @property
    def answered_at(self) -> float:
        """Return the time of a controller's last answer to this node, by `env.mono()`. Before the first answer, this is
        the time when the plane was created.
        """

    def handlers(self) -> Mapping[int, NodeHandler]:
        """Return the handlers of requests from other nodes, by API key, for the listener between brokers only."""

    def fetched_logs(self) -> Mapping[bytes, FetchHandler]:
        """Return the Fetch handlers of the plane's own logs, by topic id, for the listener between brokers only."""

    def start(self, start_soon: Callable[..., None]) -> None:
        """Start the plane's tasks. A task raises OSError if the disk fails."""

    def join(self, endpoints: Mapping[str, tuple[str, int]]) -> ClusterMembership:
        """Return the object that registers this broker and keeps its session. The caller must call its `run`.
        `endpoints` maps the name of each listener to its advertised (host, port); all listeners already accept
        connections.
        """

    def command(self, data_plane: DataPlane) -> None:
        """Give orders to `data_plane` from now on. The first orders bring about everything that was decided before."""

    async def wait_until_not_needed(self) -> None:
        """Wait, after this broker's controlled shutdown, until no other stopping broker needs this node in the control
        plane (for KRaft: as a voter). May be cancelled.
        """

    async def leave(self) -> None:
        """Leave the control plane. When this returns, the plane's files are not accessed any more."""
