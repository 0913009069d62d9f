"""AlterPartition: leaders propose ISR changes to the controller and hear its word (R2, R3).

Proposals of many partitions travel in one request, one request at a time. A proposal is asked again until the
controller answers for it or newer metadata has overtaken it; the state machine decides what an answer means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from broker.control.forwarder import Forwarder
    from broker.env import Env
    from broker.replicas.hosted import Hosted
    from broker.replicas.replica_manager import ReplicaManager
    from broker.replication.values import ProposeIsr

_VERSION = 3
_RETRY_S = 0.1
_TIMEOUT_MS = 5_000
Place = tuple[bytes, int]


class IsrProposals:
    """Proposals that wait for the controller."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        forwarder: Forwarder,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env, self._node_id, self._forwarder, self._broker_epoch = env, node_id, forwarder, broker_epoch
        self._open: dict[Place, tuple[Hosted, ProposeIsr]] = {}
        self._retries = False
        """Something of the last answer is to be asked again."""
        self._wanted = trio.Event()
        self.replicas: ReplicaManager | None = None

    def propose(self, h: Hosted, proposal: ProposeIsr) -> None:
        """Ask for an ISR; replaces an earlier proposal of that partition."""
        self._open[h.state.topic_id, h.state.index] = h, proposal
        self._wanted.set()

    def retry(self, h: Hosted, proposal: ProposeIsr) -> None:
        """Ask again for what was not decided: after a pause, unless something newer is asked for by then."""
        place = (h.state.topic_id, h.state.index)
        if place not in self._open:
            self._open[place] = h, proposal
            self._retries = True

    async def run(self) -> None:
        """Send proposals until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            self._drop_overtaken()
            if not self._open:
                continue
            sent = dict(self._open)
            try:
                response = await self._forwarder.ask(ApiKey.ALTER_PARTITION, _VERSION, self._request(sent), _TIMEOUT_MS)
                done = not response.error_code and self._take(response, sent)
                if response.error_code:
                    self._env.trace("isr_proposal_refused", error=ErrorCode(response.error_code).name)
            except OSError as error:  # no controller known or reachable: nothing was decided, ask again
                self._env.trace("isr_proposal_failed", why=str(error))
                done = False
            if self._open:
                if not done:
                    await self._env.sleep(_RETRY_S)
                self._wanted.set()

    def _drop_overtaken(self) -> None:
        for place, (h, proposal) in list(self._open.items()):
            if h.state.pending is not proposal:
                del self._open[place]

    def _request(self, sent: dict[Place, tuple[Hosted, ProposeIsr]]) -> AlterPartitionRequest:
        topics: dict[bytes, list[AlterPartitionRequestPartitionData]] = {}
        for (topic_id, index), (_, proposal) in sent.items():
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=e) for b, e in proposal.isr],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[AlterPartitionRequestTopicData(topic_id=t, partitions=p) for t, p in topics.items()],
        )

    def _take(self, response: Any, sent: dict[Place, tuple[Hosted, ProposeIsr]]) -> bool:
        """Hand each partition's answer to its state machine; True when all of them were answered for good."""
        assert self.replicas is not None
        self._retries = False
        now_ms = int(self._env.mono() * 1000)
        answered = 0
        for topic in response.topics:
            for p in topic.partitions:
                place = (topic.topic_id, p.partition_index)
                found = sent.get(place)
                if found is None or self._open.get(place) != found:
                    continue
                answered += 1
                del self._open[place]
                h, proposal = found
                if p.error_code:
                    error = ErrorCode(p.error_code)
                    self._env.trace("isr_rejected", topic=h.log.topic, partition=h.log.partition, error=error.name)
                    effects = h.state.isr_rejected(proposal, error, now_ms)
                else:
                    effects = h.state.isr_accepted(proposal, p.leader_epoch, p.partition_epoch, tuple(p.isr), now_ms)
                self.replicas.apply_effects(h, effects)
        self.replicas.settle()
        return answered == len(sent) and not self._retries
