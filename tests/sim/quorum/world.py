"""A simulation of several Raft cores: a network that loses, delays, repeats and reorders messages, and disks that lose
unsynced data.

Everything is drawn from one seed, without trio, in virtual milliseconds. The world sees all nodes at once and checks
Raft's properties after every event; `Violation` names the broken one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from squall.broker.quorum.effects import QuorumTraceEvent
from squall.broker.quorum.election import Role
from squall.broker.quorum.messages import BeginEpoch, EndEpoch, Fetch, FetchSnapshot, QuorumMessage, Vote
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import QuorumState
from tests.sim.quorum.nodes import Entry, Node

REQUESTS = (Vote, BeginEpoch, EndEpoch, Fetch, FetchSnapshot)


class Violation(AssertionError):
    """A safety or liveness property of Raft is broken."""


@dataclass
class Weather:
    """The kinds and rates of trouble: probabilities for each message, delays in ms."""

    delay_ms: tuple[int, int] = (1, 4)
    slow: float = 0.0
    loss: float = 0.0
    repeat: float = 0.0
    sync_ms: tuple[int, int] = (1, 8)
    fault_every_ms: int = 0
    """Mean time between faults; 0 for none."""
    faults: tuple[str, ...] = ("kill", "power_loss", "cut", "isolate", "pause")
    crash_at: tuple[str, ...] = ()
    """Trace events of a node at which it may lose power, to be restarted soon."""
    jitter_ms: int = 150
    hurry: bool = False
    """Whether time-outs are a quarter of Kafka's, for more elections in the same time."""
    most_records: int = 20
    """The most records in a fetch response."""
    snapshot: float = 0.0
    """Probability that a node takes a snapshot when records become committed."""
    trim: float = 0.7
    """Probability that it then deletes its log up to one of its snapshots."""


class World:
    """All nodes, the network between them, and the committed records, which must never change."""

    def __init__(self, seed: int, voters: int, observers: int = 0, weather: Weather | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(repr((seed, "world")))
        self.weather = weather or Weather()
        self.settings = QuorumSettings(1, tuple(range(1, voters + 1)), jitter_ms=self.weather.jitter_ms)
        if self.weather.hurry:
            self.settings = replace(self.settings, election_timeout_ms=250, fetch_timeout_ms=500, fetch_max_wait_ms=125)
        self.now = 0
        self.cuts: dict[tuple[int, int], int] = {}
        """Directed pairs of nodes that cannot talk, with the time at which the cut ends."""
        self.leaders: dict[int, tuple[int, int]] = {}
        self.committed: list[Entry] = []
        self._committed_in: list[int] = []
        """The epoch of the leader that committed each record."""
        self.story: list[str] = []
        self.installed = 0
        """How many snapshots were fetched and installed."""
        self.proposed = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._counter = 0
        self._asked: dict[int, tuple[int, int]] = {}
        """For each request sent, the sender's incarnation and the id that its core gave the request."""
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, voters + observers + 1)}

    # -------------------------------------------------------------------------------------------------------- time

    def at(self, delay_ms: int, fn: Callable[..., None], *args: Any) -> None:
        self._counter += 1
        heapq.heappush(self._events, (self.now + delay_ms, self._counter, fn, args))

    def run(self, for_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let virtual time pass, and return True as soon as `until` holds."""
        end = self.now + for_ms
        while self._events and self._events[0][0] <= end:
            self.now, _, fn, args = heapq.heappop(self._events)
            fn(*args)
            if until():
                return True
        self.now = end
        return until()

    def note(self, node_id: int, event: str, **fields: Any) -> None:
        what = " ".join(f"{name}={value}" for name, value in fields.items())
        self.story.append(f"{self.now:>6} ms  node {node_id}  {event} {what}")

    # ------------------------------------------------------------------------------------------------------- network

    def send(self, sender: Node, message: QuorumMessage) -> None:
        """Send a message. The sender of a request gets exactly one reply or failure, if it is still the same
        incarnation.
        """
        weather, rng = self.weather, self.rng
        incarnation = sender.incarnation
        if isinstance(message.body, REQUESTS):
            sender.later(self.settings.fetch_timeout_ms * 3 // 4, sender.fail, message.receiver, message.ticket)
            self._asked[len(self._asked) + 1] = (incarnation, message.ticket)
            # Tickets are made distinct over all nodes and incarnations, as connections are.
            message = QuorumMessage(message.sender, message.receiver, len(self._asked), message.body)
        else:
            incarnation, ticket = self._asked[message.ticket]
            message = QuorumMessage(message.sender, message.receiver, ticket, message.body)
        for _ in range(2 if rng.random() < weather.repeat else 1):
            delay = rng.randint(*weather.delay_ms)
            if rng.random() < weather.slow:
                delay += rng.randrange(2500)
            if rng.random() >= weather.loss:
                self.at(delay, self._arrive, message, incarnation)

    def _arrive(self, message: QuorumMessage, incarnation: int) -> None:
        """Deliver a message. `incarnation` is the requester's: a request arrives even if its sender has died, a reply
        only at the same incarnation.
        """
        if self.cuts.get((message.sender, message.receiver), 0) > self.now:
            return
        receiver, sender = self.nodes[message.receiver], self.nodes[message.sender]
        if isinstance(message.body, REQUESTS):
            if receiver.raft is not None:
                self.arrives(message)
                receiver.later(0, receiver.deliver, message)
            elif sender.incarnation == incarnation and self.rng.random() < 0.7:  # refused; else it just vanishes
                sender.later(1, sender.fail, message.receiver, self._asked[message.ticket][1])
        elif receiver.raft is not None and receiver.incarnation == incarnation:
            self.arrives(message)
            receiver.later(0, receiver.deliver, message)

    def arrives(self, message: QuorumMessage) -> None:
        """Is called for each delivered message; the golden scripts override it."""

    # -------------------------------------------------------------------------------------------------------- faults

    def start(self) -> None:
        for node in self.nodes.values():
            self.at(self.rng.randrange(300), node.start)

    def cause_faults(self, until_ms: int) -> None:
        """Cause random faults until this time."""
        if self.weather.fault_every_ms:
            self.at(1 + int(self.rng.expovariate(1 / self.weather.fault_every_ms)), self._fault, until_ms)

    def _fault(self, until_ms: int) -> None:
        if self.now >= until_ms:
            return
        self.cause_faults(until_ms)
        rng = self.rng
        node = self._victim()
        lasts = rng.choice((50, 300, 1500, 4000))
        match rng.choice(self.weather.faults):
            case "kill" | "power_loss" as what:
                self._crash(node, lose_power=what == "power_loss", lasts=lasts)
            case "all_power_loss":
                for victim in self.nodes.values():
                    self._crash(victim, lose_power=True, lasts=rng.choice((50, 100, 300)))
            case "cut":
                other = rng.choice(list(self.nodes))
                self.note(node.node_id, f"cannot reach {other} for {lasts} ms")
                self.cuts[(node.node_id, other)] = self.now + lasts
            case "isolate":
                self.note(node.node_id, f"isolated for {lasts} ms")
                for other in self.nodes:
                    self.cuts[(node.node_id, other)] = self.cuts[(other, node.node_id)] = self.now + lasts
            case "pause":
                self.note(node.node_id, f"paused for {lasts} ms")
                node.pause(lasts)
            case other:
                raise AssertionError(other)

    def _victim(self) -> Node:
        leaders = [node for node in self.nodes.values() if node.raft is not None and node.raft.role is Role.LEADER]
        if leaders and self.rng.random() < 0.5:
            return self.rng.choice(leaders)
        return self.nodes[self.rng.choice(list(self.nodes))]

    def _crash(self, node: Node, *, lose_power: bool, lasts: int) -> None:
        if node.raft is not None:
            node.stop(lose_power=lose_power)
            self.at(lasts, node.start)

    def maybe_crash(self, node: Node, note: QuorumTraceEvent) -> None:
        """Crash the node at a dangerous moment, with some probability: just after a vote, an election, a truncation."""
        what = note.fields["role"] if note.event == "election" else note.event
        real = not note.fields.get("pre_vote") and note.fields.get("granted", True)
        if what in self.weather.crash_at and real and self.rng.random() < 0.3:
            delay_ms, lasts_ms = self.rng.choice((0, 0, 5, 50)), self.rng.choice((1, 1, 20, 200, 2000))
            node.later(delay_ms, partial(self._crash, node, lose_power=self.rng.random() < 0.5, lasts=lasts_ms))

    def heal(self) -> None:
        """End all faults for good."""
        self.cuts.clear()
        self.weather = Weather()
        for node in self.nodes.values():
            node.paused_until = self.now
            node.resume()
        self.note(0, "healed")

    # ---------------------------------------------------------------------------------------------------------- work

    def propose(self, until_ms: int, every_ms: int) -> None:
        """Let every node that believes to be leader append records until this time, also after it was replaced."""
        if self.now >= until_ms:
            return
        self.at(1 + self.rng.randrange(2 * every_ms), self.propose, until_ms, every_ms)
        for node in self.nodes.values():
            raft = node.raft
            if raft is not None and raft.role is Role.LEADER and self.now >= node.paused_until:
                self.append(node, self.rng.randint(1, 3))

    def append(self, node: Node, count: int) -> int:
        """Append `count` new values at a leader. Returns the offset after them."""
        assert node.raft is not None
        values = tuple(range(self.proposed + 1, self.proposed + count + 1))
        self.proposed += count
        base = node.raft.propose(count, values, node.now)
        node.drive()
        return base + count

    def converged(self) -> bool:
        """Return whether all nodes run, one leads, and all have its log, committed, with at least one record of its own
        epoch.
        """
        leader, rafts = self.leader(), [node.raft for node in self.nodes.values()]
        if leader is None or leader.raft is None or leader.raft.leadership is None:
            return False
        end = leader.raft.log.end_offset
        own = leader.raft.leadership.epoch_start_offset
        return all(raft is not None and raft.high_watermark == end > own for raft in rafts)

    def leader(self) -> Node | None:
        """The node that leads the highest epoch, if one leads."""
        leaders = [node for node in self.nodes.values() if node.raft is not None and node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.epoch if node.raft else 0, default=None)

    def persist(self, node: Node, state: QuorumState) -> None:
        """Write the quorum-state file (epoch and vote) durably."""
        node.disk.state = state

    # -------------------------------------------------------------------------------------------------- what must hold

    def check(self, node: Node) -> None:
        """Check all properties; called after every event at a node."""
        raft = node.raft
        assert raft is not None
        if raft.high_watermark > node.told_hw:
            self._check_committed(node, raft)
            node.told_hw = raft.high_watermark
            if self.weather.snapshot:
                node.maybe_snapshot()
        if raft.role is Role.LEADER and self.now > node.paused_until + 1:
            self._check_not_abandoned(node, raft)

    def _check_committed(self, node: Node, raft: Raft) -> None:
        """Check NoLogDivergence below the high watermark, and that committed records are synced on a majority of disks.
        """
        end = raft.high_watermark
        mine = node.disk.log[node.told_hw : end]
        known = self.committed[node.told_hw : end]
        if mine[: len(known)] != known:
            raise Violation(f"NoLogDivergence: node {node.node_id} holds {mine} where {known} is committed")
        if end > len(self.committed):
            self.committed += mine[len(known) :]
            self._committed_in += [raft.epoch] * (end - len(self._committed_in))
            holders = [v for v in self.settings.voters if self.nodes[v].disk.durable[:end] == self.committed]
            if len(holders) < self.settings.majority:
                raise Violation(
                    f"DurableMajority: only {holders} hold durably what {node.node_id} committed up to {end}"
                )

    def check_leader(self, node: Node, epoch: int) -> None:
        """Check NeverTwoLeadersInSameEpoch and LeaderCompleteness."""
        me = (node.node_id, node.incarnation)
        if self.leaders.setdefault(epoch, me) != me:
            raise Violation(f"NeverTwoLeadersInSameEpoch: {self.leaders[epoch]} and {me} lead epoch {epoch}")
        due = sum(committed_in < epoch for committed_in in self._committed_in)
        if node.disk.log[:due] != self.committed[:due]:
            raise Violation(f"LeaderCompleteness: leader {node.node_id} of epoch {epoch} lacks committed records")

    def _check_not_abandoned(self, node: Node, raft: Raft) -> None:
        """Check StaleLeaderResigns: a majority has fetched from each leader recently."""
        if node.leads[0] != raft.epoch:
            node.leads, node.heard = (raft.epoch, self.now), {}
        since = node.leads[1]
        heard = [self.now, *(node.heard.get(voter, since) for voter in self.settings.voters if voter != node.node_id)]
        last = sorted(heard, reverse=True)[self.settings.majority - 1]
        if self.now - last > self.settings.fetch_timeout_ms * 3 // 2 + 1:
            raise Violation(f"StaleLeaderResigns: {node.node_id} leads epoch {raft.epoch}, unheard since {last} ms")

    def check_logs(self) -> None:
        """Check LogMatching: if two logs have the same epoch at an offset, they are equal up to there."""
        logs = [node.disk.log for node in self.nodes.values()]
        for i, one in enumerate(logs):
            for other in logs[:i]:
                same = [at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a[0] == b[0]]
                upto = same[-1] + 1 if same else 0
                if one[:upto] != other[:upto]:
                    raise Violation(f"LogMatching: {one[:upto]} and {other[:upto]}")
