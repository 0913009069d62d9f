"""An ideal control plane for one partition: it never fails, and keeps every decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import BrokerStatuses, LeaderAndIsr, ProposeIsr


@dataclass
class AlterRequest:
    leader: int
    incarnation: int
    broker_epoch: int
    proposal: ProposeIsr


@dataclass
class AlterAnswer:
    request: AlterRequest
    error: ErrorCode
    state: LeaderAndIsr | None = None


def ids(brokers: tuple[int, ...]) -> str:
    """Return the broker ids as text for messages."""
    return " ".join(map(str, brokers))


class Controller:
    """The ideal controller of one partition, with the list of its decisions."""

    def __init__(self, brokers: tuple[int, ...], min_isr: int, keeps_eligible: bool) -> None:
        self.min_isr = min(min_isr, len(brokers))
        self.keeps_eligible = keeps_eligible
        """Whether there are eligible leader replicas (KIP-966): a broker removed from an ISR below min ISR may still be
        elected.
        """
        self.eligible: tuple[int, ...] = ()
        self.epochs = {broker: 100 + broker for broker in brokers}
        self.fenced: set[int] = set()
        self.shutting_down: set[int] = set()
        self.next_epoch = 200
        self.state = LeaderAndIsr(brokers[0], 0, 0, brokers, brokers)
        self.history: list[tuple[LeaderAndIsr, BrokerStatuses]] = []
        self.say: Callable[[str], None] = lambda line: None
        self._record()

    def _record(self) -> None:
        view = BrokerStatuses(dict(self.epochs), frozenset(self.fenced), frozenset(self.shutting_down))
        if self.history and self.history[-1][0] != self.state:
            eligible = f", eligible {ids(self.eligible)}" if self.eligible else ""
            leader = f"leader {self.state.leader}" if self.state.leader >= 0 else "no leader"
            self.say(f"controller: {leader} in epoch {self.state.leader_epoch}, ISR {ids(self.state.isr)}{eligible}")
        self.history.append((self.state, view))

    def in_service(self, broker: int) -> bool:
        return broker not in self.fenced and broker not in self.shutting_down

    def _change(self, isr: tuple[int, ...], leader: int) -> None:
        """Decide a new state. A change of the leader increases the leader epoch, every change the partition epoch."""
        now = self.state
        if self.keeps_eligible:
            left = tuple(b for b in (*now.isr, *self.eligible) if b not in isr)
            self.eligible = () if len(isr) >= self.min_isr else tuple(dict.fromkeys(left))
        epoch = now.leader_epoch + (leader != now.leader)
        if (isr, leader) != (now.isr, now.leader):
            self.state = LeaderAndIsr(leader, epoch, now.partition_epoch + 1, isr, now.replicas)

    def _elect(self, isr: tuple[int, ...]) -> None:
        leader = self.state.leader
        if leader not in isr or not self.in_service(leader):
            leader = next((b for b in self.state.replicas if b in isr and self.in_service(b)), -1)
        self._change(isr, leader)
        if not isr:
            heir = next((b for b in self.state.replicas if b in self.eligible and self.in_service(b)), -1)
            if heir >= 0:
                self._change((heir,), heir)

    def _without(self, broker: int) -> tuple[int, ...]:
        """Return the ISR without this broker. Without eligible leader replicas the last member is never removed."""
        left = tuple(b for b in self.state.isr if b != broker)
        return left if left or self.keeps_eligible else self.state.isr

    def keepers(self) -> tuple[int, ...]:
        """Return all brokers that may be elected cleanly: each of them must have every committed record."""
        return self.state.isr + self.eligible

    def forget(self, broker: int) -> None:
        """Remove a broker that has lost records from the ISR and from the eligible replicas."""
        self.fence(broker)
        self.eligible = tuple(b for b in self.eligible if b != broker)

    def fence(self, broker: int) -> None:
        self.fenced.add(broker)
        self._elect(self._without(broker))
        self._record()

    def unfence(self, broker: int) -> None:
        self.fenced.discard(broker)
        self._elect(self.state.isr)
        self._record()

    def shut_down(self, broker: int) -> None:
        self.shutting_down.add(broker)
        self._elect(self._without(broker))
        self._record()

    def register(self, broker: int) -> int:
        """Register a new incarnation: it gets a higher broker epoch, and leaves the ISR unless it is the last member.
        """
        self.next_epoch += 1
        self.epochs[broker] = self.next_epoch
        self.shutting_down.discard(broker)
        self.fence(broker)
        return self.next_epoch

    def prefer(self, broker: int) -> None:
        """Make a member of the ISR the leader."""
        assert broker in self.state.isr
        assert self.in_service(broker)
        self._change(self.state.isr, broker)
        self._record()

    def elect_unclean(self, broker: int) -> None:
        self._change((broker,), broker)
        self._record()

    def alter_partition(self, request: AlterRequest) -> AlterAnswer:
        """Validate an AlterPartition request in Kafka's order, and apply it if it is valid."""
        proposal, state = request.proposal, self.state
        error = ErrorCode.NONE
        if self.epochs[request.leader] != request.broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
            error = ErrorCode.NOT_CONTROLLER
        elif proposal.leader_epoch < state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.leader != state.leader:
            error = ErrorCode.INVALID_REQUEST
        elif proposal.partition_epoch < state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif request.leader not in proposal.members:
            error = ErrorCode.INVALID_REQUEST
        elif any(not self.in_service(b) or epoch not in (-1, self.epochs[b]) for b, epoch in proposal.isr):
            error = ErrorCode.INELIGIBLE_REPLICA
        if error:
            self.say(f"controller: refuses ISR {ids(proposal.members)}: {error.name}")
            return AlterAnswer(request, error)
        self._change(proposal.members, state.leader)
        self._record()
        return AlterAnswer(request, ErrorCode.NONE, self.state)
