"""Sends the leaders' ISR proposals to the control plane and passes its decisions to the partitions (mechanisms R2 and
R3 in docs/mechanisms.md).

Proposals of many partitions are sent together, one batch at a time. A proposal is sent again until the controller
answers it or newer metadata supersedes it. The state machine decides what a response means.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import trio

from squall.broker.control.port import IsrProposal, IsrRejected, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.control.port import IsrAnswer, IsrAuthority
    from squall.broker.env import Env
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager
    from squall.broker.replication.values import IsrChanged, ProposeIsr

_RETRY_S = 0.1
MOST_IN_A_REQUEST = 400
"""Limits the partitions of one AlterPartition request; the remaining ones follow once the request is answered. The
controller refuses a request that lists too many elements (squall.request.max.elements), and would refuse every retry:
no partition of this broker could then remove a failed replica from its ISR.
"""
Place = tuple[bytes, int]


class IsrProposals:
    """Holds the ISR proposals that wait for the controller, and sends them."""

    def __init__(self, env: Env, authority: IsrAuthority) -> None:
        self._env, self._authority = env, authority
        self._open: dict[Place, tuple[HostedPartition, ProposeIsr]] = {}
        self._retries = False
        """Is True if the newest response left a proposal undecided. That proposal is sent again after a pause."""
        self.shrinks = self.expands = 0
        """Counts the ISRs of partitions led here that became smaller or larger within a leader epoch."""
        self._wanted = trio.Event()
        self.replicas: ReplicaManager | None = None

    def propose(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Propose an ISR to the controller; this replaces an earlier proposal of the same partition."""
        self._open[h.state.topic_id, h.state.index] = h, proposal
        self._wanted.set()

    def changed(self, h: HostedPartition, effect: IsrChanged) -> None:
        """Count a shrink or an expansion of the committed ISR since the previous call in this leader epoch. The first
        call in an epoch only notes the ISR's size: at that time the leader has only proposed a change, and the
        committed ISR is still unchanged.
        """
        size = len(effect.isr)
        epoch, before = h.isr_size
        if epoch == effect.leader_epoch:
            self.shrinks += size < before
            self.expands += size > before
        h.isr_size = effect.leader_epoch, size

    def retry(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Propose the same ISR again after a pause, because the controller has not decided. Do nothing if the partition
        has a newer proposal already.
        """
        place = (h.state.topic_id, h.state.index)
        # A newer proposal may be there already (`propose`), and rests on newer state.
        if place not in self._open:
            self._open[place] = h, proposal
            self._retries = True

    async def run(self) -> None:
        """Send proposals until cancelled."""
        while True:
            await self._wanted.wait()
            # Before the work, so that a proposal made during it is not missed.
            self._wanted = trio.Event()
            self._drop_overtaken()
            if not self._open:
                continue
            sent = dict(islice(self._open.items(), MOST_IN_A_REQUEST))
            try:
                done = self._take(await self._authority.alter_isr([_asked(*found) for found in sent.values()]), sent)
            except RequestRefused as refused:
                self._env.trace("isr_proposal_refused", error=refused.error.name)
                done = False
            except OSError as error:  # no reachable controller: nothing was decided, retry
                self._env.trace("isr_proposal_failed", why=str(error))
                done = False
            if self._open:
                # What did not fit into the request follows at once, and what was not decided follows after a pause.
                if not done:
                    await self._env.sleep(_RETRY_S)
                self._wanted.set()

    def _drop_overtaken(self) -> None:
        for place, (h, proposal) in list(self._open.items()):
            if h.state.pending is not proposal:
                del self._open[place]

    def _take(self, answers: Sequence[IsrAnswer], sent: dict[Place, tuple[HostedPartition, ProposeIsr]]) -> bool:
        """Pass the controller's decision on each proposal to the partition's state machine. Return True if every
        proposal was decided.
        """
        assert self.replicas is not None
        self._retries = False
        now_ms = int(self._env.mono() * 1000)
        answered = 0
        for answer in answers:
            place = (answer.topic_id, answer.index)
            found = sent.get(place)
            # A newer proposal of the partition was made while this one was on its way.
            if found is None or self._open.get(place) != found:
                continue
            answered += 1
            del self._open[place]
            h, proposal = found
            if isinstance(answer, IsrRejected):
                error = answer.error
                self._env.trace("isr_rejected", topic=h.log.topic, partition=h.log.partition, error=error.name)
                effects = h.state.isr_rejected(proposal, error, now_ms)
            else:
                effects = h.state.isr_accepted(
                    proposal, answer.leader_epoch, answer.partition_epoch, answer.isr, now_ms
                )
            self.replicas.apply_effects(h, effects)
        self.replicas.settle()
        return answered == len(sent) and not self._retries


def _asked(h: HostedPartition, proposal: ProposeIsr) -> IsrProposal:
    state = h.state
    return IsrProposal(state.topic_id, state.index, proposal.leader_epoch, proposal.partition_epoch, proposal.isr)
