"""Random histories of one partition: writes, fetches, lost and late messages, crashes, elections, power losses.

Several `Partition`s run over list logs with an ideal controller. After every step all invariants are checked, after
every history convergence. The same steps are played in two ways: by Hypothesis's state machine, which shrinks a failure
to a short story, and by random walks, which are ten times as fast and draw their own rates of failures.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.broker.replication import TRUNCATION_RULES, Partition, ReplicationSettings
from tests.support.effort import examples
from tests.support.replication.broken_rules import BROKEN
from tests.support.replication.replication_invariants import check_converged, check_invariants
from tests.support.replication.replication_steps import BROKERS, LAG_MS, Steps, walk

brokers = st.sampled_from(BROKERS)


class PartitionLife(RuleBasedStateMachine):
    """Random steps on a partition. `machine` is the class of the partitions: a test replaces it by one with a broken
    rule.
    """

    machine: type[Partition] = Partition
    life: Steps | None = None

    @initialize(min_isr=st.integers(1, 3), keeps_eligible=st.booleans(), fetch_max=st.sampled_from((1, 2, 100)))
    def begin(self, min_isr: int, keeps_eligible: bool, fetch_max: int) -> None:
        self.life = Steps(min_isr, keeps_eligible, fetch_max, self.machine)

    @property
    def now(self) -> Steps:
        assert self.life is not None
        return self.life

    @rule(count=st.integers(1, 3))
    def write(self, count: int) -> None:
        self.now.write(count)

    @rule(broker=brokers)
    def fetch(self, broker: int) -> None:
        self.now.fetch(broker)

    @rule(rounds=st.integers(1, 2))
    def replicate(self, rounds: int) -> None:
        self.now.replicate(rounds)

    @rule(broker=brokers, all_of_it=st.booleans())
    def learn(self, broker: int, all_of_it: bool) -> None:
        self.now.learn(broker, all_of_it)

    @rule()
    def everybody_learns(self) -> None:
        self.now.everybody_learns()

    @rule(heard=st.booleans())
    def controller_answers(self, heard: bool) -> None:
        self.now.controller_answers(heard)

    @rule(ms=st.sampled_from((1, LAG_MS // 2, LAG_MS + 1)))
    def wait(self, ms: int) -> None:
        self.now.wait(ms)

    @rule(broker=brokers, flush=st.booleans())
    def save(self, broker: int, flush: bool) -> None:
        self.now.save(broker, flush)

    @rule(broker=brokers)
    def send_fetch(self, broker: int) -> None:
        self.now.send_fetch(broker)

    @precondition(lambda self: self.life and self.life.world.network)
    @rule(data=st.data(), how=st.sampled_from(("deliver", "deliver a copy", "lose")))
    def network(self, data: Any, how: str) -> None:
        lying = self.now.world.network
        message = lying[data.draw(st.integers(0, len(lying) - 1), label="message")]
        if how == "lose":
            self.now.lose(message)
        else:
            self.now.deliver(message, again=how == "deliver a copy")

    @rule(broker=brokers, how=st.sampled_from(("kill", "lose_power", "fence", "shut_down")))
    def accident(self, broker: int, how: str) -> None:
        getattr(self.now, how)(broker)

    @rule(broker=brokers, how=st.sampled_from(("restart", "unfence")))
    def recovery(self, broker: int, how: str) -> None:
        getattr(self.now, how)(broker)

    @rule(broker=brokers)
    def prefer(self, broker: int) -> None:
        self.now.prefer(broker)

    @invariant()
    def holds(self) -> None:
        if self.life is not None:
            check_invariants(self.life.world)

    def teardown(self) -> None:
        if self.life is not None:
            self.life.world.settle()
            check_converged(self.life.world)


TestPartitionLife = PartitionLife.TestCase


def test_no_random_walk_breaks_an_invariant() -> None:
    for seed in range(examples(400)):
        walk(seed)


@pytest.mark.parametrize("machine", BROKEN, ids=lambda machine: machine.__name__)
def test_random_walks_find_a_broken_rule(machine: type[Partition]) -> None:
    with pytest.raises(AssertionError):
        for seed in range(2000):
            walk(seed, machine)


def test_no_random_walk_with_an_isr_by_message_count_breaks_an_invariant() -> None:
    """R12 (lag counted in messages) costs availability and copies, but no safety."""
    thrown_out, walks = 0, examples(150)
    for seed in range(walks):
        life = walk(seed, settings=ReplicationSettings(replica_lag_max_messages=2))
        thrown_out += sum("proposes ISR" in line for line in life.said)
    assert thrown_out > walks


def test_random_walks_find_what_truncating_to_the_high_watermark_loses() -> None:
    """E4 (truncation by leader epochs)."""
    unsafe = ReplicationSettings(truncation=TRUNCATION_RULES["high-watermark"])
    with pytest.raises(AssertionError):
        for seed in range(2000):
            walk(seed, settings=unsafe)


def test_no_long_random_walk_breaks_an_invariant() -> None:
    for seed in range(10_000, 10_000 + examples(2000)):
        walk(seed, steps=300)


def test_random_walks_go_where_it_is_dangerous() -> None:
    """A walk in which nothing is acknowledged, truncated, refused or elected proves nothing."""
    seen: Counter[str] = Counter()
    for seed in range(100):
        life = walk(seed)
        seen["acknowledged"] += bool(life.world.acked)
        seen["elected"] += life.world.controller.state.leader_epoch > 1
        for what in ("truncates to", "proposes ISR", "propose ISR", "NOT_LEADER", "NOT_ENOUGH", "no longer leads"):
            seen[what] += any(what in line for line in life.said)
    assert len(seen) == 8
    assert min(seen.values()) >= 10, seen
