"""Members of a consumer group take any sequence of steps, and any answer may be lost. No partition has two owners, the
coordinator's state equals a replay of its log, and once the steps end every partition is read.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from squall.broker.coordinators.groups.consumer.members import LEAVES, LEAVES_FOR_NOW
from squall.broker.coordinators.groups.values import GroupState
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_harness import A, Consumer, ConsumerHarness

NAMES = st.sampled_from(["m1", "m2", "m3", "S1", "S2"])
"""Names of consumers; those with capitals are static members."""
TOPICS = st.sampled_from([("a",), ("b",), ("a", "b")])


class Consumers(RuleBasedStateMachine):
    """One group and its successive coordinators."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = ConsumerHarness()
        self.members: dict[str, Consumer] = {}
        self.made = 0

    def _known(self, name: str) -> Consumer | None:
        one = self.members.get(name)
        return one if one is not None and one.epoch > 0 else None

    def _told(self, one: Consumer, error: ErrorCode) -> None:
        """Give up all partitions if the request was refused, as a client does."""
        if error:
            one.epoch, one.owned = 0, ()

    @rule(name=NAMES, topics=TOPICS, lost=st.booleans())
    def join(self, name: str, topics: tuple[str, ...], lost: bool) -> None:
        static = name if name[0] == "S" else None
        one = self.members.get(name)
        if one is None or static:
            self.made += 1
            one = Consumer(f"{name}-{self.made}" if static else name, static, topics)
        one.topics = topics
        answer = self.harness.enter(one)
        if answer.error == ErrorCode.UNRELEASED_INSTANCE_ID:
            return  # the member that has it continues
        self.members[name] = one
        self._told(one, answer.error)
        if lost:
            one.epoch, one.owned = 0, ()

    @rule(name=NAMES, silent=st.booleans(), lost=st.booleans())
    def beat(self, name: str, silent: bool, lost: bool) -> None:
        one = self._known(name)
        if one is None or "g" not in self.harness.machine.ledger.consumers:
            return
        before = one.epoch, one.owned
        answer = self.harness.alive(one, owned=None if silent else one.owned)
        if lost:
            one.epoch, one.owned = before
            one.unsure = True
        else:
            self._told(one, answer.error)

    @rule(name=NAMES, back=st.integers(0, 2))
    def commit(self, name: str, back: int) -> None:
        one = self._known(name)
        if one is None:
            return
        where = ("a", 0)
        done = self.harness.commit_as(one, where, one.epoch - back)
        owner = self.harness.consumers.owners.get((A, 0)) if not done else None
        assert back == 0 or done or owner == one.name, "an older epoch commits for whoever owns it still"

    @rule(name=NAMES, for_now=st.booleans())
    def leave(self, name: str, for_now: bool) -> None:
        one = self._known(name)
        if one is not None:
            epoch = LEAVES_FOR_NOW if for_now and one.instance_id else LEAVES
            self.harness.ask(one.name, epoch, instance_id=one.instance_id)
            one.epoch, one.owned = 0, ()

    @rule(ms=st.sampled_from([1000, 20_000, 40_000]))
    def wait(self, ms: int) -> None:
        self.harness.wait(ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

    @rule()
    def more_partitions(self) -> None:
        topic_id, count = self.harness.topics.table["a"]
        self.harness.topics.table["a"] = topic_id, min(count + 1, 8)
        self.harness.topics.changes += 1

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        group = self.harness.machine.ledger.consumers.get("g")
        owned: dict[object, str] = {}
        for one in self.members.values():
            for place in one.owned if group is not None and one.name in group.members else ():
                assert place not in owned, f"{place} is owned by {owned[place]} and {one.name}"
                owned[place] = one.name

    @invariant()
    def the_coordinator_is_its_log(self) -> None:
        assert self.harness.machine.ledger.inspect_consumers() == self.harness.replayed().inspect_consumers()

    def teardown(self) -> None:
        """Assert that the remaining members, without further requests of others, come to own every partition."""
        group = self.harness.machine.ledger.consumers.get("g")
        if group is None:
            return
        there = [one for one in self.members.values() if one.epoch > 0]
        for _ in range(4):
            for one in there:
                if self.harness.turn(one).error:
                    self._told(one, ErrorCode.UNKNOWN_MEMBER_ID)
                    self.harness.enter(one)
            self.harness.wait(20_000)
        there = [one for one in there if one.epoch > 0]
        if there:
            self.harness.settle_down(*there)
            owned = [place for one in there for place in one.owned]
            wanted = {name for one in there for name in one.topics}
            table = self.harness.topics.table
            assert sorted(owned) == sorted((table[n][0], index) for n in wanted for index in range(table[n][1]))
            assert self.harness.described().state == GroupState.STABLE


TestConsumers = Consumers.TestCase
