"""Members of a classic group take any sequence of steps. Each request gets one answer, a partition has one owner in a
generation, and the next coordinator's log has everything that this one has answered.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from squall.broker.coordinators.groups.values import DeleteGroup, GroupState, JoinResult, SyncGroup, SyncResult
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_harness import GroupHarness

NAMES = st.sampled_from(["a", "b", "c"])
"""Names of consumers; those with capitals are static members."""
STATIC = st.sampled_from(["A", "B"])


class Members(RuleBasedStateMachine):
    """One group and its successive coordinators."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = GroupHarness()
        self.said: dict[tuple[int, str], bytes] = {}
        """The assignment that each (generation in the log, member) was answered."""
        self.asked = 0
        self.epoch = 0
        self.ids: dict[str, JoinResult] = {}

    def _look(self) -> None:
        """Read the answers: each member's id, and its assignment."""
        for name, answer in list(self.harness.answers.items()):
            if isinstance(answer, JoinResult) and not answer.error:
                self.ids[name.partition("#")[0]] = answer
            if isinstance(answer, SyncResult) and not answer.error:
                _, generation, member_id, _ = name.split("|")
                known = self.said.setdefault((int(generation), member_id), answer.assignment)
                assert known == answer.assignment, "one assignment for a member and generation"
            del self.harness.answers[name]

    def _join(self, name: str, member_id: str, instance_id: str | None) -> None:
        self.asked += 1
        self.harness.join(f"{name}#{self.asked}", member_id, instance_id)
        self._look()

    @rule(name=NAMES, again=st.booleans())
    def join(self, name: str, again: bool) -> None:
        known = self.ids.get(name)
        self._join(name, known.member_id if known and again else "", None)

    @rule(name=STATIC, again=st.booleans())
    def join_static(self, name: str, again: bool) -> None:
        known = self.ids.get(name)
        self._join(name, known.member_id if known and again else "", name)

    @rule(name=st.one_of(NAMES, STATIC))
    def sync(self, name: str) -> None:
        told = self.ids.get(name)
        if told is None:
            return
        self.asked += 1
        token = f"sync|{told.generation}|{told.member_id}|{self.asked}"
        given = tuple((who, f"{told.generation}:{who}".encode()) for who, _, _ in told.members)
        instance_id = name if name.isupper() else None
        self.harness.do(token, SyncGroup("g", told.generation, told.member_id, instance_id, assignments=given))
        self._look()

    @rule(name=st.one_of(NAMES, STATIC))
    def beat(self, name: str) -> None:
        if name in self.ids:
            self.harness.beat(self.ids[name], name if name.isupper() else None)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        if name in self.ids:
            self.harness.leave(self.ids[name])
            self._look()

    @rule(name=NAMES, offset=st.integers(0, 9))
    def commit(self, name: str, offset: int) -> None:
        told = self.ids.get(name)
        error = self.harness.commit(offset, told)
        group = self.harness.machine.groups.get("g")
        if told is not None and not error and group is not None and group.state != GroupState.EMPTY:
            assert told.generation == group.generation, "nobody of another generation commits"
            assert told.member_id in group.members

    @rule(ms=st.sampled_from([1, 5_000, 10_000, 30_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.harness.wait(ms)
        self._look()

    @rule()
    def delete(self) -> None:
        assert self.harness.do("delete", DeleteGroup("g")).error in (
            ErrorCode.NONE,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.NON_EMPTY_GROUP,
        )

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()
        self.said.clear()  # a generation that never had its assignments is begun anew

    @invariant()
    def the_shard_is_its_log(self) -> None:
        harness = self.harness
        assert harness.machine.ledger.inspect() == harness.replayed().inspect()
        group = harness.machine.groups.get("g")
        if group is not None and group.state == GroupState.STABLE:
            assert harness.machine.ledger.groups["g"] == group.record()

    @invariant()
    def a_group_holds_together(self) -> None:
        group = self.harness.machine.groups.get("g")
        if group is None:
            return
        assert not group.effects
        assert bool(group.members) == (group.state != GroupState.EMPTY) or group.state == GroupState.PREPARING
        assert {m.member_id: m for m in group.members.values()} == group.members
        assert {m.instance_id: m.member_id for m in group.members.values() if m.instance_id} == group.static
        if group.members:
            assert group.leader in group.members
        for member in group.members.values():
            owed = member.joining is not None or member.syncing is not None
            assert (member.deadline_ms is not None) or owed, "who is owed nothing has to be heard of"
            assert member.joining is None or group.state == GroupState.PREPARING
            assert member.syncing is None or group.state == GroupState.COMPLETING


TestMembers = Members.TestCase
