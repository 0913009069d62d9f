"""A small world for the replication state machine: partitions over list logs, an ideal controller, a lossy network.

Everything is synchronous. Messages wait in `World.network` until they are delivered, metadata waits in the controller's
history until a node applies it, and the test moves the time. Golden scripts and the property test use the same world;
`replication_invariants` has the invariants that hold in it after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import (
    AdvanceLogStart,
    Effects,
    FetchRefused,
    HighWatermarkMoved,
    IsrChanged,
    LeadershipLost,
    Partition,
    ProposeIsr,
    ReplicationSettings,
    RetryIsrProposal,
    StartFetching,
    StopFetching,
    TruncateFullyAndStartAt,
    TruncateTo,
    WriteLeaderEpoch,
)
from tests.support.disks.list_log import ListLog
from tests.support.replication.oracle_controller import AlterAnswer, AlterRequest, Controller, ids

TOPIC_ID = bytes(15) + b"\x07"


@dataclass
class FetchRequest:
    follower: int
    incarnation: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int
    broker_epoch: int


@dataclass
class FetchAnswer:
    request: FetchRequest
    error: ErrorCode = ErrorCode.NONE
    records: list[tuple[int, str]] = field(default_factory=list)
    high_watermark: int = 0
    diverging: tuple[int, int] | None = None
    leader_end: int = 0


Message = FetchRequest | FetchAnswer | AlterRequest | AlterAnswer


class Node:
    """One broker: its disk, and its partition while it runs."""

    def __init__(self, broker: int, broker_epoch: int) -> None:
        self.id = broker
        self.broker_epoch = broker_epoch
        self.incarnation = 1
        self.log = ListLog()
        self.durable = 0
        """How many records of its log survive a power loss."""
        self.checkpoint = 0
        """The high watermark on disk."""
        self.partition: Partition | None = None
        self.applied = 0
        """How many of the controller's decisions this node has applied."""
        self.fetching: tuple[int, int] | None = None
        self.waiting: list[tuple[int, str]] = []
        """Appends with acks=all that have no response yet: (end offset, value)."""

    @property
    def running(self) -> Partition:
        assert self.partition is not None
        return self.partition


class World:
    """Brokers that each have one replica of the only partition."""

    def __init__(
        self,
        brokers: tuple[int, ...] = (1, 2, 3),
        settings: ReplicationSettings | None = None,
        machine: type[Partition] = Partition,
        *,
        keeps_eligible: bool = False,
    ) -> None:
        self.settings = settings or ReplicationSettings(min_insync_replicas=2)
        self.machine = machine
        self.fetch_max = 1000
        """The most records in the answer to a fetch."""
        self.controller = Controller(brokers, self.settings.min_insync_replicas, keeps_eligible)
        self.nodes = {b: Node(b, self.controller.epochs[b]) for b in brokers}
        self.network: list[Message] = []
        self.now_ms = 0
        self.forgiving = False
        """Whether more was lost at once than replication can survive: then losses are permitted until all is healed."""
        self.acked: dict[str, int] = {}
        """The offset of every acknowledged value."""
        self.answers: dict[str, ErrorCode] = {}
        self.say: Callable[[str], None] = lambda line: None
        self.led: dict[tuple[int, int, int], int] = {}
        """The highest high watermark that each (node, incarnation, leader epoch) has answered."""
        for node in self.nodes.values():
            self._open(node)
            self.apply_metadata(node.id)

    # ------------------------------------------------------------------------------------------------------- effects

    def _run(self, node: Node, effects: Effects) -> ErrorCode:
        """Carry out effects in order. Returns the error of a fetch that is refused, else NONE."""
        refused = ErrorCode.NONE
        for effect in effects:
            match effect:
                case FetchRefused(error):
                    self.say(f"{node.id}: refuses the fetch")
                    refused = error
                case _:
                    self._carry_out(node, effect)
        return refused

    def _carry_out(self, node: Node, effect: object) -> None:
        match effect:
            case HighWatermarkMoved(high_watermark):
                self.say(f"{node.id}: high watermark {high_watermark}")
                self._answer_producers(node)
            case WriteLeaderEpoch(epoch, start):
                self.say(f"{node.id}: leads epoch {epoch} from offset {start}")
                node.log.assign(epoch, start)
            case ProposeIsr():
                self.say(f"{node.id}: proposes ISR {ids(effect.members)}")
                self._send_proposal(node, effect)
            case RetryIsrProposal(proposal):
                self.say(f"{node.id}: will propose ISR {ids(proposal.members)} again")
                self._send_proposal(node, proposal)
            case IsrChanged(_, _, isr, maximal):
                self.say(f"{node.id}: ISR {ids(isr)}, maximal {ids(maximal)}")
            case StartFetching(leader, epoch):
                self.say(f"{node.id}: fetches from {leader} in epoch {epoch}")
                node.fetching = leader, epoch
                self._run(node, node.running.prepare_to_fetch(node.log.latest_epoch()))
            case StopFetching():
                self.say(f"{node.id}: stops fetching")
                node.fetching = None
            case LeadershipLost(epoch):
                self.say(f"{node.id}: no longer leads epoch {epoch}")
                self._answer_producers(node)
            case TruncateTo(offset, reason) if offset == len(node.log):
                self.say(f"{node.id}: drops epochs from {offset} on ({reason})")
                node.log.truncate(offset)
                node.running.truncated(offset)
            case TruncateTo(offset, reason):
                self.say(f"{node.id}: truncates to {offset} ({reason})")
                node.log.truncate(offset)
                node.durable = min(node.durable, offset)
                node.running.truncated(offset)
            case TruncateFullyAndStartAt() | AdvanceLogStart():
                raise AssertionError("no log of this world has a start of its own")

    def _send_proposal(self, node: Node, proposal: ProposeIsr) -> None:
        self.network.append(AlterRequest(node.id, node.incarnation, node.broker_epoch, proposal))

    def _answer_producers(self, node: Node) -> None:
        left = []
        for end, value in node.waiting:
            answer = _answer(node.running, end)
            if answer is None:
                left.append((end, value))
                continue
            self.answers[value] = answer
            if answer is ErrorCode.NONE:
                self.acked[value] = end - 1
                # Some of them may have lost it since, unknown to the leader.
                holders = [b for b, n in self.nodes.items() if value in n.log.ever]
                assert len(holders) >= self.controller.min_isr, f"{value} was acknowledged with {holders} holding it"
            self.say(f"{node.id}: {value} {'acknowledged' if answer is ErrorCode.NONE else answer.name}")
        node.waiting = left

    # ----------------------------------------------------------------------------------------------------- what can be

    def write(self, broker: int, value: str) -> None:
        """Append a value at a broker with acks=all."""
        node = self.nodes[broker]
        partition = node.running
        if not partition.is_leader:
            self.answers[value] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.under_min_isr_before_append():
            self.answers[value] = ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            node.log.append(partition.leader_epoch, value)
            self.say(f"{broker}: {value} at {len(node.log) - 1}")
            node.waiting.append((len(node.log), value))
            self._run(node, partition.appended(len(node.log), self.now_ms))
            return
        self.say(f"{broker}: {value} {self.answers[value].name}")

    def send_fetch(self, broker: int) -> None:
        """Let a follower send a fetch from the end of its log to its leader."""
        node = self.nodes[broker]
        if node.partition is None or node.fetching is None:
            return
        leader, epoch = node.fetching
        self.network.append(
            FetchRequest(
                broker,
                node.incarnation,
                leader,
                epoch,
                len(node.log),
                node.running.epoch_to_send(node.log.latest_epoch()),
                node.broker_epoch,
            )
        )

    def deliver(self, message: Message) -> None:
        """Deliver a message, which may be late or a second copy."""
        match message:
            case FetchRequest():
                answer = self._serve_fetch(message)
                if answer is not None:
                    self.network.append(answer)
            case FetchAnswer():
                self._take_fetched(message)
            case AlterRequest():
                self.network.append(self.controller.alter_partition(message))
            case AlterAnswer():
                self._take_answer(message)

    def _serve_fetch(self, request: FetchRequest) -> FetchAnswer | None:
        node = self.nodes[request.leader]
        partition = node.partition
        if partition is None:
            return None
        error = partition.check_leader_epoch(request.leader_epoch)
        if error:
            return FetchAnswer(request, error)
        assert request.leader_epoch == partition.leader_epoch, "a fetch of another epoch was served"
        parted = partition.divergence(node.log, request.last_epoch, request.offset)
        if parted is not None:
            if parted.is_undefined:
                return FetchAnswer(request, ErrorCode.OFFSET_OUT_OF_RANGE, leader_end=len(node.log))
            return FetchAnswer(request, diverging=(parted.epoch, parted.end_offset))
        if request.offset > len(node.log):
            return FetchAnswer(request, ErrorCode.OFFSET_OUT_OF_RANGE, leader_end=len(node.log))
        # The answer tells the high watermark from before this very fetch moved it, as Kafka's does.
        told = partition.high_watermark
        effects = partition.follower_fetched(request.follower, request.offset, request.broker_epoch, self.now_ms)
        refused = self._run(node, effects)
        if refused:
            return FetchAnswer(request, refused)
        records = node.log.entries[request.offset : request.offset + self.fetch_max]
        return FetchAnswer(request, records=records, high_watermark=told)

    def _take_fetched(self, answer: FetchAnswer) -> None:
        request = answer.request
        node = self.nodes[request.follower]
        partition = node.partition
        if partition is None or node.incarnation != request.incarnation:
            return
        if not partition.accepts_fetched(request.leader_epoch, request.offset):
            return
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._run(node, partition.out_of_range(0, answer.leader_end))
        elif answer.error:
            self.say(f"{node.id}: fetch answered {answer.error.name}")
        elif answer.diverging is not None:
            self._run(node, partition.diverged(node.log, *answer.diverging))
        else:
            for epoch, value in answer.records:
                node.log.append(epoch, value)
            known = partition.high_watermark
            self._run(node, partition.apply_leader_offsets(answer.high_watermark, 0, len(node.log)))
            if answer.records:
                self.say(f"{node.id}: copies {' '.join(value for _, value in answer.records)}")
            if partition.high_watermark != known:
                self.say(f"{node.id}: hears of high watermark {partition.high_watermark}")

    def _take_answer(self, answer: AlterAnswer, error: ErrorCode | None = None) -> None:
        request = answer.request
        node = self.nodes[request.leader]
        if node.partition is None or node.incarnation != request.incarnation:
            return
        error = answer.error if error is None else error
        if error:
            self._run(node, node.partition.isr_rejected(request.proposal, error, self.now_ms))
            return
        assert answer.state is not None
        said = answer.state
        self._run(
            node,
            node.partition.isr_accepted(
                request.proposal, said.leader_epoch, said.partition_epoch, said.isr, self.now_ms
            ),
        )

    def lose(self, message: Message) -> None:
        """Lose a message. If it is a request to the controller, its sender sees a time-out."""
        if isinstance(message, AlterRequest):
            self._take_answer(AlterAnswer(message, ErrorCode.REQUEST_TIMED_OUT))
        elif isinstance(message, AlterAnswer):
            self._take_answer(message, ErrorCode.REQUEST_TIMED_OUT)

    def apply_metadata(self, broker: int, upto: int | None = None) -> None:
        """Let a node apply all decisions of the controller, or the first `upto` ones."""
        node = self.nodes[broker]
        partition = node.partition
        goal = len(self.controller.history) if upto is None else upto
        if partition is None or goal <= node.applied:
            return
        state, view = self.controller.history[goal - 1]
        node.applied = goal
        self._run(node, partition.brokers_changed(view, self.now_ms))
        become = partition.become_leader if state.leader == broker else partition.become_follower
        self._run(node, become(state, len(node.log), self.now_ms))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    def tick(self, broker: int) -> None:
        node = self.nodes[broker]
        if node.partition is not None:
            self._run(node, node.partition.tick(self.now_ms))

    # ------------------------------------------------------------------------------------------------------- accidents

    def kill(self, broker: int) -> None:
        """Kill a node's OS process; what it wrote stays in the page cache."""
        node = self.nodes[broker]
        node.partition, node.fetching, node.waiting = None, None, []

    def lose_power(self, broker: int) -> None:
        """Kill a node's OS process, and discard its unsynced records."""
        self.kill(broker)
        node = self.nodes[broker]
        node.log.truncate(node.durable)

    def restart(self, broker: int) -> None:
        """Start a node again and register it: a new incarnation, fenced until it has read the metadata."""
        node = self.nodes[broker]
        assert node.partition is None
        node.broker_epoch = self.controller.register(broker)
        node.incarnation += 1
        node.applied = 0
        self._open(node)
        self.apply_metadata(broker)
        self.controller.unfence(broker)

    def bounce(self, broker: int) -> None:
        """Restart a node so quickly that the control plane does not notice."""
        node = self.nodes[broker]
        self.kill(broker)
        node.incarnation += 1
        node.applied = 0
        self._open(node)
        self.apply_metadata(broker)

    def _open(self, node: Node) -> None:
        node.partition = self.machine("t", 0, TOPIC_ID, node.id, self.settings)
        node.partition.opened(0, len(node.log), node.checkpoint)

    # ------------------------------------------------------------------------------------------------------ invariants

    def settle(self, rounds: int = 12) -> None:
        """Heal: run all nodes and deliver everything in order, until nothing is left to do."""
        self.fetch_max = 1000
        for broker, node in self.nodes.items():
            if node.partition is None:
                self.restart(broker)
            elif not self.controller.in_service(broker):
                self.controller.shutting_down.discard(broker)
                self.controller.unfence(broker)
        for _ in range(rounds):
            for broker in self.nodes:
                self.apply_metadata(broker)
                self.tick(broker)
                self.send_fetch(broker)
            while self.network:
                self.deliver(self.network.pop(0))
            self.pass_time(500)


def _answer(partition: Partition, end: int) -> ErrorCode | None:
    """Return the response that an acks=all append ending at `end` (exclusive) gets now; None while it must wait."""
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.high_watermark < end:
        return None
    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if partition.under_min_isr_after() else ErrorCode.NONE
