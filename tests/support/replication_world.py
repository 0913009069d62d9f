"""A small world for the replication state machine: partitions over list logs, an oracle controller, a lossy network.

Everything is synchronous and in one's hand: messages lie in `World.network` until they are delivered, metadata lies in
the controller's history until a node applies it, time passes when it is told to. Golden scripts and the property test
drive the same world; `invariants` says what must hold in it after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.protocol.errors import ErrorCode
from broker.replication import (
    UNDEFINED,
    AdvanceLogStart,
    AssignEpoch,
    BrokerView,
    Effects,
    FetchRefused,
    HighWatermarkMoved,
    IsrChanged,
    LeaderAndIsr,
    LeadershipLost,
    Partition,
    ProposeIsr,
    ReplicationSettings,
    RestartAt,
    RetryIsr,
    StartFetching,
    StopFetching,
    TruncateTo,
)

TOPIC_ID = bytes(15) + b"\x07"


class ListLog:
    """A log as a list: (epoch, value) at each offset, and the epoch cache, as simple as they can be."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []
        self.ever: set[str] = set()
        """All values that were ever here."""
        self.epochs: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def assign(self, epoch: int, start: int) -> None:
        self.epochs = [(e, s) for e, s in self.epochs if e < epoch and s < start] + [(epoch, start)]

    def append(self, epoch: int, value: str) -> None:
        if self.latest_epoch() != epoch:
            self.assign(epoch, len(self.entries))
        self.entries.append((epoch, value))
        self.ever.add(value)

    def truncate(self, to: int) -> None:
        del self.entries[to:]
        self.epochs = [(e, s) for e, s in self.epochs if s < to]

    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        if not self.epochs or epoch > self.epochs[-1][0]:
            return UNDEFINED, UNDEFINED
        if epoch < self.epochs[0][0]:
            return epoch, self.epochs[0][1]
        ends = [start for _, start in self.epochs[1:]] + [log_end_offset]
        return max((e, end) for (e, _), end in zip(self.epochs, ends, strict=True) if e <= epoch)


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


Message = FetchRequest | FetchAnswer | AlterRequest | AlterAnswer


class Controller:
    """The oracle: what the control plane decided, in order. It never fails and never forgets."""

    def __init__(self, brokers: tuple[int, ...], min_isr: int, keeps_eligible: bool) -> None:
        self.min_isr = min(min_isr, len(brokers))
        self.keeps_eligible = keeps_eligible
        """Eligible leader replicas (KIP-966): who leaves an ISR that is below min ISR may still be elected."""
        self.eligible: tuple[int, ...] = ()
        self.epochs = {broker: 100 + broker for broker in brokers}
        self.fenced: set[int] = set()
        self.shutting_down: set[int] = set()
        self.next_epoch = 200
        self.state = LeaderAndIsr(brokers[0], 0, 0, brokers, brokers)
        self.history: list[tuple[LeaderAndIsr, BrokerView]] = []
        self.say: Callable[[str], None] = lambda line: None
        self._record()

    def _record(self) -> None:
        view = BrokerView(dict(self.epochs), frozenset(self.fenced), frozenset(self.shutting_down))
        if self.history and self.history[-1][0] != self.state:
            eligible = f", eligible {_ids(self.eligible)}" if self.eligible else ""
            leader = f"leader {self.state.leader}" if self.state.leader >= 0 else "no leader"
            self.say(f"controller: {leader} in epoch {self.state.leader_epoch}, ISR {_ids(self.state.isr)}{eligible}")
        self.history.append((self.state, view))

    def in_service(self, broker: int) -> bool:
        return broker not in self.fenced and broker not in self.shutting_down

    def _change(self, isr: tuple[int, ...], leader: int) -> None:
        """A new state; the leader epoch counts leader changes, the partition epoch counts all."""
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
        """Without eligible replicas to fall back on, the last member of the ISR is never removed."""
        left = tuple(b for b in self.state.isr if b != broker)
        return left if left or self.keeps_eligible else self.state.isr

    def keepers(self) -> tuple[int, ...]:
        """All who may ever be elected: each of them must hold everything that is committed."""
        return self.state.isr + self.eligible

    def forget(self, broker: int) -> None:
        """A broker has lost records: it is neither in sync nor eligible any more."""
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
        """A new incarnation: it gets a higher broker epoch and has left every ISR where others remain."""
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
        """The validation of AlterPartition, in its order."""
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
            self.say(f"controller: refuses ISR {_ids(proposal.members)}: {error.name}")
            return AlterAnswer(request, error)
        self._change(proposal.members, state.leader)
        self._record()
        return AlterAnswer(request, ErrorCode.NONE, self.state)


class Node:
    """One broker: its disk, and its partition while it runs."""

    def __init__(self, broker: int, broker_epoch: int) -> None:
        self.id = broker
        self.broker_epoch = broker_epoch
        self.incarnation = 1
        self.log = ListLog()
        self.durable = 0
        """Records that survive a loss of power."""
        self.checkpoint = 0
        """The high watermark on disk."""
        self.partition: Partition | None = None
        self.applied = 0
        """How much of the controller's history this node knows."""
        self.fetching: tuple[int, int] | None = None
        self.waiting: list[tuple[int, str]] = []
        """acks=all appends that wait: (end offset, value)."""

    @property
    def running(self) -> Partition:
        assert self.partition is not None
        return self.partition


class World:
    """Brokers with one replica each of one partition."""

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
        """Records in the answer to a fetch, at most."""
        self.controller = Controller(brokers, self.settings.min_insync_replicas, keeps_eligible)
        self.nodes = {b: Node(b, self.controller.epochs[b]) for b in brokers}
        self.network: list[Message] = []
        self.now_ms = 0
        self.forgiving = False
        """True after more was lost at once than replication can bear: until all is healed, anything goes."""
        self.acked: dict[str, int] = {}
        """Every acknowledged value, and its offset."""
        self.answers: dict[str, ErrorCode] = {}
        self.say: Callable[[str], None] = lambda line: None
        self.led: dict[tuple[int, int, int], int] = {}
        """(node, incarnation, leader epoch) -> the highest high watermark that it told."""
        for node in self.nodes.values():
            self._open(node)
            self.apply_metadata(node.id)

    # ------------------------------------------------------------------------------------------------------- effects

    def _run(self, node: Node, effects: Effects) -> ErrorCode:
        """Carry out effects in order. Returns the error with which a fetch is refused."""
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
            case AssignEpoch(epoch, start):
                self.say(f"{node.id}: leads epoch {epoch} from offset {start}")
                node.log.assign(epoch, start)
            case ProposeIsr():
                self.say(f"{node.id}: proposes ISR {_ids(effect.members)}")
                self._send_proposal(node, effect)
            case RetryIsr(proposal):
                self.say(f"{node.id}: will propose ISR {_ids(proposal.members)} again")
                self._send_proposal(node, proposal)
            case IsrChanged(_, _, isr, maximal):
                self.say(f"{node.id}: ISR {_ids(isr)}, maximal {_ids(maximal)}")
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
            case RestartAt() | AdvanceLogStart():
                raise AssertionError("no log of this world has a start of its own")

    def _send_proposal(self, node: Node, proposal: ProposeIsr) -> None:
        self.network.append(AlterRequest(node.id, node.incarnation, node.broker_epoch, proposal))

    def _answer_producers(self, node: Node) -> None:
        left = []
        for end, value in node.waiting:
            answer = node.running.acks_all_answer(end)
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
        """An acks=all append."""
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
        """A follower asks its leader, from its log's end."""
        node = self.nodes[broker]
        if node.partition is None or node.fetching is None:
            return
        leader, epoch = node.fetching
        last = node.log.latest_epoch()
        self.network.append(
            FetchRequest(
                broker,
                node.incarnation,
                leader,
                epoch,
                len(node.log),
                UNDEFINED if last is None else last,
                node.broker_epoch,
            )
        )

    def deliver(self, message: Message) -> None:
        """Hand over a message, which may be late, or come a second time."""
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
            self._run(node, partition.leader_said(answer.high_watermark, 0, len(node.log)))
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
        """A message is lost. Who asked the controller hears of a time-out."""
        if isinstance(message, AlterRequest):
            self._take_answer(AlterAnswer(message, ErrorCode.REQUEST_TIMED_OUT))
        elif isinstance(message, AlterAnswer):
            self._take_answer(message, ErrorCode.REQUEST_TIMED_OUT)

    def apply_metadata(self, broker: int, upto: int | None = None) -> None:
        """The node learns of everything that the controller decided (or of the first `upto` decisions)."""
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
        """The process dies; what it wrote stays in the page cache."""
        node = self.nodes[broker]
        node.partition, node.fetching, node.waiting = None, None, []

    def lose_power(self, broker: int) -> None:
        """The process dies and its unsynced records are gone."""
        self.kill(broker)
        node = self.nodes[broker]
        node.log.truncate(node.durable)

    def restart(self, broker: int) -> None:
        """Start again and register: a new incarnation, fenced until it has read the metadata."""
        node = self.nodes[broker]
        assert node.partition is None
        node.broker_epoch = self.controller.register(broker)
        node.incarnation += 1
        node.applied = 0
        self._open(node)
        self.apply_metadata(broker)
        self.controller.unfence(broker)

    def bounce(self, broker: int) -> None:
        """Start again so quickly that the control plane never hears of it."""
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
        """Heal: everybody runs and hears of everything, in order, until nothing is left to do."""
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


def _ids(brokers: tuple[int, ...]) -> str:
    return " ".join(map(str, brokers))


def check_invariants(world: World) -> None:
    """What must hold after every step, whatever was lost, late or dead. Named as in the published specifications."""
    running = {b: node.partition for b, node in world.nodes.items() if node.partition is not None}
    for broker, partition in running.items():
        node = world.nodes[broker]
        assert partition.log_end_offset == len(node.log)
        assert 0 <= partition.high_watermark <= partition.log_end_offset
        assert node.log.epochs == sorted(set(node.log.epochs)), "epoch cache is monotone"
    if world.forgiving:
        return
    _check_acknowledged(world)
    for broker, partition in running.items():
        if partition.is_leader:
            _check_leader(world, world.nodes[broker], partition)
    committed = sorted(running.items(), key=lambda item: item[1].high_watermark)
    for (low, partition), (high, _) in zip(committed, committed[1:], strict=False):
        prefix = partition.high_watermark
        same = world.nodes[low].log.entries[:prefix] == world.nodes[high].log.entries[:prefix]
        assert same, f"committed prefixes of {low} and {high} differ"


def _check_acknowledged(world: World) -> None:
    for value, offset in world.acked.items():
        for member in world.controller.keepers():
            log = world.nodes[member].log
            assert offset < len(log), f"{value} was acknowledged at {offset}; {member} of the ISR ends at {len(log)}"
            assert log.entries[offset][1] == value, f"{member} of the ISR has another record than {value} at {offset}"


def _check_leader(world: World, node: Node, partition: Partition) -> None:
    state = world.controller.state
    assert partition.leader_id == node.id
    assert node.id in partition.isr, "LeaderInIsr"
    assert set(partition.isr) <= set(partition.maximal_isr), "the maximal ISR lacks a committed member"
    place = node.id, node.incarnation, partition.leader_epoch
    assert partition.high_watermark >= world.led.get(place, 0), "high watermark went back"
    world.led[place] = partition.high_watermark
    if partition.leader_epoch == state.leader_epoch:
        assert set(state.isr) <= set(partition.maximal_isr), "ReplicationQuorumSuperset"
    committed = node.log.entries[: partition.high_watermark]
    for member in world.controller.keepers():
        same = world.nodes[member].log.entries[: partition.high_watermark] == committed
        assert same, f"StrongIsr: {member} lacks what {node.id} committed in epoch {partition.leader_epoch}"


def check_converged(world: World) -> None:
    """After `World.settle`: one log, all of it committed, everybody in sync, and every acknowledged record in it."""
    world.forgiving = False
    check_invariants(world)
    leader = world.nodes[world.controller.state.leader]
    for node in world.nodes.values():
        assert node.log.entries == leader.log.entries, f"{node.id} differs from the leader {leader.id}"
        assert node.running.high_watermark == len(leader.log), f"not all is committed on {node.id}"
    assert set(world.controller.state.isr) == set(world.nodes), "somebody is not in the ISR"
    assert leader.running.maximal_isr == leader.running.isr == world.controller.state.isr
