"""Defines the invariants of a leader's decisions and responses: ISR shrinks, offsets in ListOffsets, settings in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from squall.broker.cluster.image import TOPIC_RESOURCE
from squall.broker.cluster.settings import altered_settings, with_altered
from squall.broker.config.topic import topic_config
from squall.broker.log.config import LogConfig, of_broker
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.replication.partition import Partition

RESEND_MS: Final = 2_000
"""Limits, in ms, the pause between two requests with an ISR proposal. Brokers wait 100 ms; the rest is tolerance."""
NEVER_MS: Final = -(1 << 62)
"""Is a moment before all others."""


class IsrRemoval(NamedTuple):
    """Describes a follower that a leader proposes to remove from the ISR. Times in ms."""

    broker_id: int
    behind_ms: int
    """Is the time since the follower was last caught up, by its fetches."""
    lag_ms: int
    """Is replica.lag.time.max.ms."""
    is_at_end: bool
    """Is True if the follower's last fetch was at the leader's log end offset, and nothing was appended since."""


class UnsentProposals(NamedTuple):
    """Describes a broker's ISR proposals that the controller has not decided, while no AlterPartition request is in
    flight.
    """

    proposals: int
    idle_ms: int
    """Is the time since a periodic check first found proposals waiting and no request in flight. A check that finds
    otherwise resets it.
    """


class LatestOffsetResponse(NamedTuple):
    """Describes a consumer's ListOffsets response for the latest offset."""

    offset: int
    limit: int
    """Is the high watermark; for read_committed, the last stable offset."""


class SettingsInForce(NamedTuple):
    """Holds the settings that a replica uses, and beside each the one that follows from its node's configuration and
    image.
    """

    log: LogConfig
    image: LogConfig
    min_isr: int
    image_min_isr: int
    lag_ms: int
    """Is replica.lag.time.max.ms, as the replica's state machine has it."""
    node_lag_ms: int


@invariant("removed-after-the-lag-time", CheckTrigger.ISR_REMOVAL, "KIP-16: replica.lag.time.max.ms; KAFKA-1546")
def removed_after_the_lag_time(found: IsrRemoval) -> str | None:
    """A leader proposes to remove a follower from the ISR only if the follower was not caught up at any moment of the
    last replica.lag.time.max.ms. (Not checked with replica.lag.max.messages, the old rule.)
    """
    if found.behind_ms > found.lag_ms and not found.is_at_end:
        return None
    at_end = ", and is at the log end offset" if found.is_at_end else ""
    behind = f"follower {found.broker_id} was caught up {found.behind_ms} ms ago{at_end}"
    return f"{behind}; the lag time is {found.lag_ms} ms"


@invariant("proposal-is-sent-again", CheckTrigger.UNSENT, "KIP-497: AlterPartition is repeated until it is decided")
def proposal_is_sent_again(found: UnsentProposals) -> str | None:
    """An ISR proposal that the controller has not decided is sent again after a short pause, whatever became of the
    last AlterPartition request.
    """
    if found.idle_ms <= RESEND_MS:
        return None
    return f"{found.proposals} ISR proposals wait, and nothing has been sent to the controller for {found.idle_ms} ms"


@invariant("listed-offset-is-committed", CheckTrigger.LISTED, "KIP-207: a consumer is told the high watermark at most")
def listed_offset_is_committed(found: LatestOffsetResponse) -> str | None:
    """The latest offset in a consumer's ListOffsets response is not beyond the high watermark; with read_committed, not
    beyond the last stable offset.
    """
    if found.offset <= found.limit:
        return None
    return f"the latest offset in the response is {found.offset}, consumers may read up to {found.limit}"


@invariant("settings-in-force", CheckTrigger.SETTINGS, "KIP-226: a setting that was altered at run time is in force")
def settings_in_force(found: SettingsInForce) -> str | None:
    """A replica's log uses the topic's settings from the metadata image of its node. The replica uses
    min.insync.replicas from that image, and the node's replica.lag.time.max.ms.
    """
    for name in LogConfig.__slots__ if found.log != found.image else ():
        here, wanted = getattr(found.log, name), getattr(found.image, name)
        if here != wanted:
            return f"{name} is {here}, and by the image {wanted}"
    if found.min_isr != found.image_min_isr:
        return f"min.insync.replicas is {found.min_isr}, and by the image {found.image_min_isr}"
    if found.lag_ms != found.node_lag_ms:
        return f"replica.lag.time.max.ms is {found.lag_ms}, and on its node {found.node_lag_ms}"
    return None


@dataclass(slots=True)
class FollowerFetches:
    """Records the fetches of one follower in one leader epoch. Times in ms of the leader's monotonic clock."""

    caught_up_ms: int
    fetched_ms: int = -1
    leader_end: int = -1
    """Is the leader's log end offset at the last fetch; -1 before the first fetch."""
    offset: int = -1


class FetchHistory:
    """Derives from followers' fetches when each follower of one leader was last caught up, as KIP-16 defines it."""

    __slots__ = ("_followers", "_proposal")

    def __init__(self, isr: tuple[int, ...], began_ms: int) -> None:
        """Start at the beginning of a leader epoch: members of the ISR count as caught up at that moment, other
        followers as never caught up.
        """
        self._followers = {broker_id: FollowerFetches(began_ms) for broker_id in isr}
        self._proposal: object = None

    def is_new(self, proposal: object) -> bool:
        """Return whether this ISR proposal is another one than at the last call."""
        before, self._proposal = self._proposal, proposal
        return before is not proposal

    def of(self, broker_id: int) -> FollowerFetches:
        """Return a follower's last fetch, and the time at which it was last caught up. A follower that is not recorded
        yet counts as never caught up.
        """
        return self._followers.setdefault(broker_id, FollowerFetches(NEVER_MS))

    def fetched(self, broker_id: int, offset: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch of a follower."""
        follower = self.of(broker_id)
        if offset >= leader_end:
            follower.caught_up_ms = now_ms
        # It has now all that the leader had at the fetch before, so it was caught up then.
        elif follower.leader_end >= 0 and offset >= follower.leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.fetched_ms, follower.leader_end, follower.offset = now_ms, leader_end, offset

    def removal(self, state: Partition, broker_id: int, now_ms: int) -> IsrRemoval:
        """Describe the removal of a follower from the ISR that a leader proposes now."""
        follower = self.of(broker_id)
        lag_ms = state.settings.replica_lag_time_max_ms
        return IsrRemoval(broker_id, now_ms - follower.caught_up_ms, lag_ms, follower.offset == state.log_end_offset)


class SettingsOfImage:
    """Derives topics' settings from a node's configuration and image."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[BrokerConfig, LogConfig, int]] = {}

    def compare(self, config: BrokerConfig, image: ClusterImage, state: Partition, log: LogConfig) -> SettingsInForce:
        """Compare the settings of a replica's log and state machine with those of the image."""
        altered = altered_settings(image, config.node_id)
        own = image.configs.get((TOPIC_RESOURCE, state.topic), {})
        key = id(config), tuple(altered.items()), tuple(own.items())
        found = self._found.get(key)
        if found is None:
            broker = with_altered(config, altered)
            topic = topic_config(broker, own)
            wanted = LogConfig.of(topic, **of_broker(broker))
            found = self._found[key] = config, wanted, topic.min_insync_replicas  # keeps the id from being used again
        used = state.settings
        lag_ms, node_lag_ms = used.replica_lag_time_max_ms, config.replica_lag_time_max_ms
        return SettingsInForce(log, found[1], used.min_insync_replicas, found[2], lag_ms, node_lag_ms)
