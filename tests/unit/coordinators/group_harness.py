"""One shard of the group coordinator. The test simulates its log and its clock."""

from __future__ import annotations

from typing import Any

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer.topics import TopicTable
from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import (
    AppendRecords,
    ClassicHeartbeat,
    ClockReading,
    CommitOffsets,
    Effect,
    FetchOffsets,
    GroupCoordinatorSettings,
    GroupLogRecord,
    GroupResponse,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    OffsetAndMetadata,
    Request,
    SendResponse,
    SyncGroup,
    SyncResult,
)
from squall.broker.protocol.coordinator_frame import encode_versioned
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from squall.broker.protocol.wire import ZERO_UUID

WALL_MS = 1_700_000_000_000
QUICK = GroupCoordinatorSettings(initial_delay_ms=0)
SESSION_MS, REBALANCE_MS = 10_000, 30_000
T0, T1 = ("t", 0), ("t", 1)


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


class GroupHarness:
    """Sends requests to a shard. `answers` has the answer to each, by the name that the test gave it."""

    def __init__(self, settings: GroupCoordinatorSettings = QUICK) -> None:
        self.topics = TopicTable({"t": (b"t" * 16, 4), "u": (b"u" * 16, 1)})
        """The topics of the cluster."""
        self.machine = GroupCoordinatorShard(settings, self.topics)
        self.now = ClockReading(1000, WALL_MS)
        self.answers: dict[str, Any] = {}
        self.log: list[tuple[GroupLogRecord, int]] = []
        """The log: each record, with the producer id of its transaction or -1."""
        self.markers: dict[int, tuple[int, bool]] = {}
        """The markers in the log: offset to (producer id, whether it commits)."""
        self.commits = True
        """Whether appends are committed at once; if not, they wait for `settle`."""
        self.refuses = ErrorCode.NONE
        """The error that every append gets; NONE: they succeed."""
        self.uncommitted: list[AppendRecords] = []
        self._made = 0

    # ------------------------------------------------------------------------------------------------------- requests

    def do(self, name: str, request: Request) -> Any:
        """Send a request, and return its answer; None if there is none yet."""
        self.answers.pop(name, None)
        self._carry_out(self.machine.submit(request, name, self.now))
        return self.answers.get(name)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendResponse):
                assert effect.token not in self.answers, f"{effect.token} is answered twice"
                self.answers[effect.token] = effect.answer
            elif self.refuses:
                self._carry_out(self.machine.settle(effect.completion, self.refuses, self.now))
            else:
                self._append(effect)

    def _append(self, effect: AppendRecords) -> None:
        producer_id = effect.producer[0] if effect.producer else -1
        for written in effect.records:
            self.machine.replay(written, len(self.log), producer_id)
            self.log.append((written, producer_id))
        if self.commits:
            self._carry_out(self.machine.settle(effect.completion, ErrorCode.NONE, self.now))
        else:
            self.uncommitted.append(effect)

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let all waiting appends be committed, or fail with this error."""
        waiting, self.uncommitted = self.uncommitted, []
        for effect in waiting:
            self._carry_out(self.machine.settle(effect.completion, error, self.now))

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Write the marker that ends a producer's transaction."""
        at = len(self.log)
        self.markers[at] = producer_id, commit
        self.log.append((None, -1))  # type: ignore[arg-type]
        self.machine.ledger.end_transaction(producer_id, commit, at)

    def wait(self, ms: int) -> None:
        """Advance the clock, from one deadline of the shard to the next."""
        end = self.now.mono_ms + ms
        while True:
            due = self.machine.next_deadline_ms()
            if due is None or due > end:
                break
            self._at(max(due, self.now.mono_ms))
            self._carry_out(self.machine.tick(self.now))
        self._at(end)

    def _at(self, mono_ms: int) -> None:
        passed = mono_ms - self.now.mono_ms
        self.now = ClockReading(mono_ms, self.now.wall_ms + passed)

    def replayed(self) -> ReplayedGroupState:
        """Return the state that a replay of the log makes."""
        made = ReplayedGroupState()
        for at, (written, producer_id) in enumerate(self.log):
            if at in self.markers:
                made.end_transaction(*self.markers[at], at)
            else:
                made.replay(written, at, producer_id)
        return made

    def fail_over(self) -> None:
        """Replace the shard by a new one that replays the log."""
        self.machine.fail_waiting_requests(ErrorCode.NOT_COORDINATOR)
        self.machine = GroupCoordinatorShard(self.machine.settings, self.topics, self.replayed())
        self.machine.begin(self.now)

    # --------------------------------------------------------------------------------------------------------- members

    def join(self, name: str, member_id: str = "", instance_id: str | None = None, **also: Any) -> JoinResult | None:
        """Send JoinGroup. A consumer without an id that is given one joins again with it."""
        self._made += 1
        given: dict[str, Any] = {
            "group_id": "g",
            "member_id": member_id,
            "instance_id": instance_id,
            "client_id": name,
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "rebalance_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "fresh_id": "" if member_id else f"{instance_id or name}-{self._made}",
        }
        answer: JoinResult | None = self.do(name, JoinGroup(**{**given, **also}))
        if answer is not None and answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(name, answer.member_id, instance_id, **also)
        return answer

    def joined(self, name: str) -> JoinResult:
        """Return the answer to the JoinGroup of that name."""
        found = self.answers[name]
        assert isinstance(found, JoinResult)
        return found

    def sync(self, name: str, as_: JoinResult | None = None, **assignments: bytes) -> SyncResult | None:
        """Send SyncGroup as the member that joined under this name."""
        told = as_ or self.joined(name)
        by_id = tuple((self.joined(other).member_id, given) for other, given in assignments.items())
        answer: SyncResult | None = self.do(
            f"{name}-sync", SyncGroup("g", told.generation, told.member_id, None, assignments=by_id)
        )
        return answer

    def beat(self, told: JoinResult, instance_id: str | None = None) -> ErrorCode:
        answer: GroupResponse = self.do("beat", ClassicHeartbeat("g", told.generation, told.member_id, instance_id))
        return answer.error

    def leave(self, told: JoinResult) -> Any:
        return self.do("leave", LeaveGroup("g", ((told.member_id, None),)))

    def stable(self, *names: str) -> list[JoinResult]:
        """Make a stable group of these members; the assignment of each is its own name."""
        for n, name in enumerate(names):
            self.join(name)
            for earlier in names[:n]:
                self.join(earlier, self.joined(earlier).member_id)
        self.assign(*names)
        return [self.joined(name) for name in names]

    def assign(self, *names: str) -> None:
        """Send the leader's SyncGroup, which assigns each member its own name."""
        leader = next(name for name in names if self.joined(name).member_id == self.joined(name).leader)
        for name in names:
            if name != leader:
                self.sync(name)
        self.sync(leader, **{name: name.encode() for name in names})

    @property
    def group(self) -> ClassicGroup:
        return self.machine.groups["g"]

    # --------------------------------------------------------------------------------------------------------- offsets

    def commit(
        self, offset: int, told: JoinResult | None = None, where: tuple[str, int] = T0, **also: Any
    ) -> ErrorCode:
        """Commit one offset, as a member or without one."""
        generation, member_id = (told.generation, told.member_id) if told else (-1, "")
        committed = OffsetAndMetadata(offset, 0, "", self.now.wall_ms, topic_id=self.topic_id(where[0]))
        answer: GroupResponse | None = self.do(
            "commit", CommitOffsets("g", generation, member_id, None, ((where, committed),), **also)
        )
        assert answer is not None
        return answer.error

    def topic_id(self, name: str) -> bytes:
        """Return the id of the topic that has that name now."""
        return self.topics.table.get(name, (ZERO_UUID, 0))[0]

    def offset(self, where: tuple[str, int] = T0, *, stable: bool = True) -> int | ErrorCode | None:
        """Return what OffsetFetch answers about one partition: its offset, an error, or None."""
        answer = self.do("fetch", FetchOffsets("g", (where,), stable))
        [(_, committed, error)] = answer.offsets
        return error or (committed.offset if committed else None)
