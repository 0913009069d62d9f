"""Delays the shutdown of a voter that has completed its controlled shutdown, while other stopping brokers need it.

Kafka advises to stop brokers first and controllers last, because a broker can stop only while the quorum commits its
shutdown. If each node is both, an operator who stops all nodes at once cannot keep that order. So the nodes keep it: a
node that has stopped as a broker stays as a voter while other brokers are stopping.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.control.kraft.metadata_quorum import MetadataQuorum
    from squall.broker.env import Env

OTHERS_SHUTDOWN_WAIT_S = 0.5
"""Gives the time, in s, for which a stopping voter waits if its stop would leave other brokers without a majority of
voters: they may be about to stop, too.
"""

LOOK_S = 0.01
"""Gives the interval at which a leader checks whether the other voters have learned the high watermark."""


def another_broker_stops(image: ClusterImage, node_id: int) -> bool:
    """Return whether another broker is in controlled shutdown and has not completed it."""
    others = (broker for broker in image.brokers.values() if broker.id != node_id)
    return any(broker.in_controlled_shutdown and not broker.fenced for broker in others)


def leaves_no_majority(image: ClusterImage, node_id: int, voters: Sequence[int]) -> bool:
    """Return whether the stop of this node would leave unfenced brokers without a majority of voters."""
    serving = {broker.id for broker in image.brokers.values() if not broker.fenced and broker.id != node_id}
    staying = [voter for voter in voters if voter in serving]
    return bool(serving) and node_id in voters and len(staying) < len(voters) // 2 + 1


class VoterShutdown:
    """Delays one node's shutdown until the quorum can do without the node's vote."""

    def __init__(self, env: Env, node_id: int, quorum: MetadataQuorum, feed: ImageFeed) -> None:
        self._env, self._node_id, self._quorum, self._feed = env, node_id, quorum, feed
        self._changed = env.signal()
        feed.follow(lambda delta: self._changed.set() if delta.brokers else None)

    async def wait_until_safe(self) -> None:
        """Wait until no stopping broker needs this voter. There is no time limit: if a stopping broker never completes
        its shutdown, this waits for ever.
        """
        voters = self._quorum.voters
        if self._node_id not in voters:
            return
        begun = self._env.mono()
        while True:
            image, left_s = self._feed.image, begun + OTHERS_SHUTDOWN_WAIT_S - self._env.mono()
            awaited = left_s > 0 and leaves_no_majority(image, self._node_id, voters)
            if not awaited and not another_broker_stops(image, self._node_id):
                break
            await self._changed.wait(left_s if left_s > 0 else inf)
        with self._env.timeout(OTHERS_SHUTDOWN_WAIT_S):
            await self._wait_until_others_know()

    async def _wait_until_others_know(self) -> None:
        """Wait, if this node leads, until each voter that still fetches knows the high watermark: then no voter needs
        another answer from this node.
        """
        while (leadership := self._quorum.leadership) is not None:
            if leadership.is_known(self._quorum.high_watermark, int(self._env.mono() * 1000)):
                return
            await self._env.sleep(LOOK_S)
