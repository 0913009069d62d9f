"""The steps that can happen in a `World`, for the property tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from squall.broker.replication import Partition, ReplicationSettings
from tests.support.replication.oracle_controller import AlterAnswer, AlterRequest
from tests.support.replication.replication_invariants import check_converged, check_invariants
from tests.support.replication.replication_world import FetchAnswer, FetchRequest, Message, World

BROKERS = (1, 2, 3)
LAG_MS = 1000


class Steps:
    """A world and its steps. Every step may be taken at any time; some have no effect then."""

    def __init__(
        self,
        min_isr: int,
        keeps_eligible: bool,
        fetch_max: int,
        machine: type[Partition] = Partition,
        settings: ReplicationSettings | None = None,
    ) -> None:
        base = settings or ReplicationSettings()
        settings = replace(base, replica_lag_time_max_ms=LAG_MS, min_insync_replicas=min_isr)
        self.world = World(BROKERS, settings, machine, keeps_eligible=keeps_eligible)
        self.world.fetch_max = fetch_max
        self.said: list[str] = []
        """A description of each step taken."""
        self.world.say = self.said.append
        self.written = 0

    def _up(self, broker: int) -> bool:
        return self.world.nodes[broker].partition is not None

    # Progress.

    def write(self, count: int) -> None:
        """Append `count` values at every broker that believes that it is the leader."""
        for broker in BROKERS:
            if self._up(broker) and self.world.nodes[broker].running.is_leader:
                for _ in range(count):
                    self.written += 1
                    self.world.write(broker, f"v{self.written}")

    def fetch(self, broker: int) -> None:
        """Let one follower fetch, and deliver both request and answer."""
        network = self.world.network
        self.world.send_fetch(broker)
        if network and isinstance(network[-1], FetchRequest):
            self.world.deliver(network.pop())
            # Serving may have made the leader propose an ISR first: the answer is what came last.
            if network and isinstance(network[-1], FetchAnswer):
                self.world.deliver(network.pop())

    def replicate(self, rounds: int) -> None:
        for _ in range(rounds):
            for broker in BROKERS:
                self.fetch(broker)

    def learn(self, broker: int, all_of_it: bool) -> None:
        """Let a node apply metadata that it does not have yet: all of it, or one decision."""
        known, all_known = self.world.nodes[broker].applied, len(self.world.controller.history)
        self.world.apply_metadata(broker, all_known if all_of_it else min(known + 1, all_known))

    def everybody_learns(self) -> None:
        for broker in BROKERS:
            self.world.apply_metadata(broker)

    def controller_answers(self, heard: bool) -> None:
        """Deliver the ISR proposals under way to the controller. If `heard`, deliver its answers to the leader, too."""
        for message in [m for m in self.world.network if isinstance(m, AlterRequest)]:
            self.world.network.remove(message)
            self.world.deliver(message)
        if heard:
            for answer in [m for m in self.world.network if isinstance(m, AlterAnswer)]:
                self.world.network.remove(answer)
                self.world.deliver(answer)

    def wait(self, ms: int) -> None:
        self.world.pass_time(ms)
        for broker in BROKERS:
            self.world.tick(broker)

    def save(self, broker: int, flush: bool) -> None:
        """Flush the log, or checkpoint the high watermark."""
        node = self.world.nodes[broker]
        if flush:
            node.durable = len(node.log)
        elif node.partition is not None:
            node.checkpoint = node.running.high_watermark

    # The network at its worst.

    def send_fetch(self, broker: int) -> None:
        self.world.send_fetch(broker)

    def deliver(self, message: Message, again: bool) -> None:
        """Deliver one message, in any order. If `again`, it will be delivered a second time.

        Requests to the controller are not repeated. "Refused means not applied" excludes that an earlier copy of a
        proposal is applied after a later copy was refused, here as in Kafka.
        """
        if not again or isinstance(message, AlterRequest):
            self.world.network.remove(message)
        self.world.deliver(message)

    def lose(self, message: Message) -> None:
        self.world.network.remove(message)
        self.world.lose(message)

    # Accidents, and what operators do.

    def kill(self, broker: int) -> None:
        self.world.kill(broker)

    def lose_power(self, broker: int) -> None:
        """Cut a broker's power, except at the last in-sync or eligible replica: records that only it has could not
        survive.
        """
        if self._up(broker) and any(member != broker for member in self.world.controller.keepers()):
            self.world.controller.forget(broker)
            self.world.lose_power(broker)

    def restart(self, broker: int) -> None:
        if not self._up(broker):
            self.world.restart(broker)

    def fence(self, broker: int) -> None:
        """Let the controller fence a broker, which may still run without knowing it."""
        self.world.controller.fence(broker)

    def unfence(self, broker: int) -> None:
        if self._up(broker):
            self.world.controller.unfence(broker)

    def shut_down(self, broker: int) -> None:
        """Let the controller move leadership away from a broker that wants to stop. It keeps serving until it learns
        that.
        """
        if self._up(broker):
            self.world.controller.shut_down(broker)

    def prefer(self, broker: int) -> None:
        controller = self.world.controller
        if broker in controller.state.isr and controller.in_service(broker):
            controller.prefer(broker)


def walk(
    seed: int, machine: type[Partition] = Partition, steps: int = 150, settings: ReplicationSettings | None = None
) -> Steps:
    """Take random steps, with random weights for kinds of steps and for brokers. The invariants are checked after every
    step and at the end. Returns the steps taken, for counting. A failed assertion names the seed.
    """
    rng = random.Random(repr(("replication walk", seed)))
    life = Steps(rng.choice((1, 2, 2, 3)), rng.random() < 0.5, rng.choice((1, 2, 100)), machine, settings)
    progress, trouble = _progress(life, rng), _trouble(life, rng)
    mixture = rng.choice(((0.5,), (0, 0.3, 1), (0, 0, 0.5, 2)))
    weights = [rng.choice((0.2, 1, 4)) for _ in progress] + [rng.choice(mixture) for _ in trouble]
    weights[0] = max(weights[0], 1)
    try:
        for action in rng.choices(progress + trouble, weights, k=steps):
            action()
            check_invariants(life.world)
        life.world.settle()
        check_converged(life.world)
    except AssertionError as fault:
        fault.add_note(f"walk({seed})")
        raise
    return life


def _someone(rng: random.Random) -> Callable[[], int]:
    """Return a function that draws brokers with random weights: some brokers are always late."""
    bias = [rng.choice((0.1, 1, 3)) for _ in BROKERS]
    return lambda: rng.choices(BROKERS, bias)[0]


def _progress(life: Steps, rng: random.Random) -> list[Callable[[], None]]:
    reader, learner, other = _someone(rng), _someone(rng), _someone(rng)
    return [
        lambda: life.write(rng.randint(1, 3)),
        lambda: life.fetch(reader()),
        lambda: life.replicate(rng.randint(1, 2)),
        lambda: life.learn(learner(), rng.random() < 0.7),
        life.everybody_learns,
        lambda: life.controller_answers(rng.random() < 0.8),
        lambda: life.restart(other()),
        lambda: life.unfence(other()),
        lambda: life.save(other(), rng.random() < 0.5),
    ]


def _trouble(life: Steps, rng: random.Random) -> list[Callable[[], None]]:
    victim, chosen = _someone(rng), _someone(rng)

    def with_message(act: Callable[[Message], None]) -> None:
        if life.world.network:
            act(rng.choice(life.world.network))

    return [
        lambda: life.send_fetch(victim()),
        lambda: with_message(lambda message: life.deliver(message, again=rng.random() < 0.3)),
        lambda: with_message(life.lose),
        lambda: life.wait(rng.choice((1, LAG_MS // 2, LAG_MS + 1))),
        lambda: life.kill(victim()),
        lambda: life.lose_power(victim()),
        lambda: life.fence(victim()),
        lambda: life.shut_down(victim()),
        lambda: life.prefer(chosen()),
    ]
