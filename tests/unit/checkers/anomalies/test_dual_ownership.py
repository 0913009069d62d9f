"""Two owners of one partition, and the nearest histories in which one of them only does not know yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkers import nemesis_log
from checkers.anomalies.registry import find_all
from checkers.history import conversion
from checkers.history.parser import parse
from checkers.in_memory import judge_bytes
from tests.support.histories.builder import MS, GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import fault_line

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("dual-ownership", "")


def _two(
    *, before: bool = False, after: bool = True, second: bool = True, gens: tuple[int, int] = (1, 2)
) -> GroupHistory:
    """A member owns a partition, another one is assigned it. before, after: the coordinator accepts a request of the
    first one before, after that; second: one of the second one.
    """
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, gens[0])
    beat = h.tick() if before else -1
    h.assigned(two, {0: 0}, gens[1])
    if after:
        beat = h.tick()
    other = h.tick() if second else -1
    h.revoked(one, [0], beat)
    h.revoked(two, [0], other)
    return h


@CASES.case("a coordinator takes requests of two owners of a partition", FOUND)
def _() -> GroupHistory:
    return _two()


@CASES.case("one generation assigns a partition to two members", FOUND)
def _() -> GroupHistory:
    return _two(gens=(1, 1))


def _same_generation(**about: str) -> GroupHistory:
    """One generation assigns the partition to two members; their last heartbeats are of before the second one read."""
    h = GroupHistory()
    one, two = (h.member(session_timeout_ms=3000, **about) for _ in range(2))
    h.joined(one, [0], 3)
    h.joined(two, [0], 3)
    beat = h.now
    h.assigned(one, {0: 0}, 3)
    h.assigned(two, {0: 0}, 3)
    h.revoked(one, [0], beat, 3)
    h.revoked(two, [0], beat, 3)
    return h


@CASES.case("one generation assigns a partition to two members, of whom nobody hears any more", FOUND)
def _() -> GroupHistory:
    return _same_generation()


def _kept(second_gen: int) -> GroupHistory:
    """A member keeps a partition from generation 1 to 3; another one is assigned it."""
    h = GroupHistory()
    one, two = (h.member(session_timeout_ms=3000) for _ in range(2))
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    h.joined(one, [0], 3)
    h.assigned(two, {0: 0}, second_gen)
    return h


@CASES.case("a generation assigns a partition to a member although another one keeps it", FOUND)
def _() -> GroupHistory:
    return _kept(3)


@CASES.case("a generation after the last one that a member was told of may assign its partition")
def _() -> GroupHistory:
    return _kept(4)


@CASES.case("two processes with one instance id are one member, of whom the first may not know that it is fenced")
def _() -> GroupHistory:
    return _same_generation(instance="i-1")


@CASES.case("two instance ids are two members", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = (h.member(instance=f"i-{n}", session_timeout_ms=3000) for n in (1, 2))
    h.assigned(one, {0: 0}, 3)
    h.assigned(two, {0: 0}, 3)
    return h


@CASES.case("who gave a partition up in its generation owns it no more")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, 3)
    h.revoked(one, [0], gen=3)
    h.assigned(two, {0: 0}, 3)
    return h


@CASES.case("generations that are counted anew, because all had gone, have numbers that were there before")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(session_timeout_ms=3000), h.member(session_timeout_ms=3000)
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    h.now += 3_000 * MS
    h.joined(two, [0], 1)
    h.assigned(two, {0: 0}, 1)
    h.lost(one, [0])
    return h


@CASES.case("a number that comes again after a member has lost its partition is another generation")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(session_timeout_ms=3000), h.member(session_timeout_ms=3000)
    h.joined(one, [0], 3)
    h.assigned(one, {0: 0}, 3)
    h.now += 2_000 * MS
    h.joined(two, [0], 1)
    h.assigned(two, {0: 0}, 1)
    h.now += 500 * MS
    h.lost(one, [0])
    h.now += 2_000 * MS
    h.joined(two, [0], 3)
    return h


@CASES.case("who does not know its generation is told of none")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, -1)
    h.assigned(two, {0: 0}, -1)
    return h


def _by_commits() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1})
    h.commit(two, {0: 1}, gen=2)
    return h


CASES.case("the commits of both prove that they were members", FOUND)(_by_commits)


@CASES.case("a commit of nothing proves nothing: it is appended nowhere")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {})
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member that was removed may not know it yet")
def _() -> GroupHistory:
    return _two(before=True, after=False)


@CASES.case("of two that both believe to be owners only one is proven to be a member")
def _() -> GroupHistory:
    return _two(second=False)


@CASES.case("a request that was sent before the other one was told proves nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    commit = h.commit(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    commit.t1 = h.tick()
    h.commit(two, {0: 1}, gen=2)
    h.lost(one, [0])
    return h


@CASES.case("a commit without membership proves nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1}, gen=-1)
    h.commit(two, {0: 1}, gen=2)
    return h


def _joins_again(*parts: int) -> GroupHistory:
    """A member stands still, another one is assigned its partition; then it joins a generation that assigns it
    `parts`, and commits in that one. The other one commits as well.
    """
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    h.joined(two, [0], 2)
    h.assigned(two, {0: 0}, 2)
    h.joined(one, list(parts), 3)
    h.commit(one, {0: 1}, gen=3)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(one, [0], gen=3)
    return h


@CASES.case("a commit in a generation that did not assign the partition to its sender proves nothing")
def _() -> GroupHistory:
    return _joins_again()


@CASES.case("nor does one in a generation that assigned another one")
def _() -> GroupHistory:
    return _joins_again(1)


@CASES.case("a commit in a generation that assigned the partition does", FOUND)
def _() -> GroupHistory:
    return _joins_again(0, 1)


@CASES.case("a generation has assigned what it takes away later: until it is given up, it is owned", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    h.joined(one, [], 1)
    h.joined(two, [0], 2)
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1}, gen=1)
    h.commit(two, {0: 1}, gen=2)
    return h


def _number_comes_again(session_timeout_ms: int, *, beats: bool = True) -> GroupHistory:
    """A member is told, under the number of a generation that assigned it a partition, that it has none, long after the
    last request that its coordinator accepted. Then it commits, and gives the partition up. Without `beats`, it fell
    silent before its first heartbeat.
    """
    h = GroupHistory()
    one, two = (h.member(session_timeout_ms=session_timeout_ms) for _ in range(2))
    h.joined(one, [0], 2)
    h.assigned(one, {0: 0}, 2)
    beat = h.now if beats else -1
    h.now += 2_000_000_000
    h.joined(two, [0], 1)
    h.assigned(two, {0: 0}, 1)
    h.joined(one, [], 2, beat)
    h.commit(one, {0: 1}, gen=2)
    h.commit(two, {0: 1}, gen=1)
    h.revoked(one, [0], beat, 2)
    return h


@CASES.case("a generation has the number of an old one where its member had been silent for its session")
def _() -> GroupHistory:
    return _number_comes_again(1500)


@CASES.case("also where it fell silent before its first heartbeat")
def _() -> GroupHistory:
    return _number_comes_again(1500, beats=False)


@CASES.case("it is the same generation where its member could not have been given up", FOUND)
def _() -> GroupHistory:
    return _number_comes_again(3000)


@CASES.case("also before its first heartbeat: it was heard of when it was told of its generation", FOUND)
def _() -> GroupHistory:
    return _number_comes_again(3000, beats=False)


def _owned_between(*, again: bool, by_beats: bool = False) -> GroupHistory:
    """Another member owned a partition for a while. The first one knows of no loss. Before the end of that, or only
    after it, it is told of a generation that assigns it the partition.
    """
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    h.assigned(two, {0: 0}, 2)
    if not again:
        h.joined(one, [0], 3)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(two, [0], gen=2)
    if again:
        h.joined(one, [0], 3)
    if by_beats:
        h.revoked(one, [0], h.tick(), 3)
    else:
        h.commit(one, {0: 2}, gen=3)
    return h


@CASES.case("who is a member again after another one owned its partition was no owner meanwhile")
def _() -> GroupHistory:
    return _owned_between(again=True)


@CASES.case("also by its heartbeats")
def _() -> GroupHistory:
    return _owned_between(again=True, by_beats=True)


@CASES.case("who is told that a partition is its own while another one has it is a second owner", FOUND)
def _() -> GroupHistory:
    return _owned_between(again=False)


@CASES.case("a second owner who is told of another generation once the first one has lost the partition", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, 2)
    h.joined(two, [0], 3)
    h.assigned(two, {0: 0}, 3)
    beat = h.tick()
    h.lost(one, [0], beat=beat)
    h.joined(two, [0], 4)
    h.commit(two, {0: 2}, gen=4)
    return h


@CASES.case("who has revoked a partition may go on as a member without it")
def _() -> GroupHistory:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0, 1: 0})
    h.revoked(one, [0], h.tick())
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {1: 1}, gen=2)
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member that crashed owns nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.operation(one, "crash_client")
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member of another partition of the same generation is no second owner")
def _() -> GroupHistory:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {1: 0})
    h.commit(one, {0: 1})
    h.commit(two, {1: 1})
    return h


@CASES.plant("dual-ownership")
def _(history: GeneratedHistory) -> None:
    # Commits, because faults that keep brokers apart may be added to what is planted.
    history.take_in(_by_commits())


# ------------------------------------------------------------------------------------- faults that keep brokers apart

SPLIT = "partition"
HEARS_AFTER_MS = nemesis_log.HEARS_AFTER_NS // MS
Build = Callable[[], GroupHistory]


def found(h: GroupHistory, *faults: bytes) -> bool:
    """Whether two owners are found in this history under these faults."""
    lines = h.lines()
    told, trouble = nemesis_log.parse_faults(faults)
    assert trouble is None
    witnesses = find_all(parse(lines, nemesis_log.apart(told)))
    assert {each.anomaly for each in witnesses} <= {"dual-ownership"}
    return bool(witnesses)


def one_commits() -> GroupHistory:
    """The first owner commits at 3 ms, the heartbeat of the second one is of 5 ms."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1})
    h.revoked(two, [0], h.tick(), 2)
    return h


def other_commits() -> GroupHistory:
    """The second owner commits at 3 ms, the heartbeat of the first one is of 5 ms."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(one, [0], h.tick())
    return h


def beats_after(ms: int) -> GroupHistory:
    """Heartbeats of both, so long after 2 ms, when both had been told. Commits of none."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    beat = h.tick(ms * MS)
    h.revoked(one, [0], beat)
    h.revoked(two, [0], beat, 2)
    return h


@pytest.mark.parametrize("build", [_two, one_commits, other_commits])
def test_a_heartbeat_while_brokers_are_apart_proves_nothing(build: Build) -> None:
    """Of either member: nobody knows whose coordinator it is that was cut off."""
    assert found(build())
    assert not found(build(), fault_line(action=SPLIT, began_ms=1, ended_ms=100))
    assert not found(build(), fault_line(action=SPLIT, began_ms=1, ended_ms=None)), "it never ended"


def test_a_commit_while_brokers_are_apart_proves_membership() -> None:
    assert found(_by_commits(), fault_line(action=SPLIT, began_ms=1, ended_ms=100))


def test_a_heartbeat_after_a_commit_takes_nothing_from_it() -> None:
    h = _by_commits()
    for proc, gen in ((0, 1), (1, 2)):
        h.revoked(proc, [0], h.tick(), gen)
    assert found(h, fault_line(action=SPLIT, began_ms=6, ended_ms=100))


def test_a_heartbeat_before_brokers_are_apart_counts() -> None:
    """Both are of 6 ms."""
    assert not found(beats_after(4), fault_line(action=SPLIT, began_ms=6, ended_ms=20))
    assert found(beats_after(4), fault_line(action=SPLIT, began_ms=7, ended_ms=20))


def test_a_heartbeat_counts_again_when_a_broker_must_have_heard_of_the_others() -> None:
    fault = fault_line(action=SPLIT, began_ms=1, ended_ms=2)
    assert not found(beats_after(1), fault)
    assert not found(beats_after(HEARS_AFTER_MS), fault)
    assert found(beats_after(HEARS_AFTER_MS + 1), fault)


def test_a_second_fault_keeps_brokers_apart_after_the_first() -> None:
    faults = [fault_line(number, SPLIT, began_ms, began_ms + 1) for number, began_ms in enumerate((1, HEARS_AFTER_MS))]
    assert not found(beats_after(HEARS_AFTER_MS + 1), *faults)


def test_a_fault_that_never_began_keeps_nobody_apart() -> None:
    assert found(_two(), fault_line(action=SPLIT, began=None, ended=None, evidence=None))


@pytest.mark.parametrize("action", ["kill", "stop", "power_loss", "damage", "clock", "client", "leadership"])
def test_heartbeats_count_under_faults_that_leave_no_broker_alone(action: str) -> None:
    assert found(_two(), fault_line(action=action, began_ms=1, ended_ms=100))


@pytest.mark.parametrize("action", ["pause", "slow", "disk", "latency", "reset", "flapping", "packet_loss"])
def test_heartbeats_do_not_count_under_others(action: str) -> None:
    assert not found(_two(), fault_line(action=action, began_ms=1, ended_ms=100))


def test_a_run_is_judged_by_its_faults(tmp_path: Path) -> None:
    """In memory, and by its tables."""
    lines = b"".join(_two().lines())
    plan = {"workload": {"acks": -1, "min_isr": 2, "replication_factor": 3}, "faults": [{"action": SPLIT}]}
    for action, expected in ((SPLIT, set[str]()), ("kill", {"dual-ownership"})):
        nemesis = fault_line(action=action, began_ms=1, ended_ms=100)
        judged = judge_bytes("r", lines, nemesis, plan)
        assert {each.anomaly for each in judged.findings if each.anomaly == "dual-ownership"} == expected
        (tmp_path / "history.jsonl").write_bytes(lines)
        (tmp_path / "nemesis.jsonl").write_bytes(nemesis)
        conversion.convert(tmp_path)
        assert {each.anomaly for each in find_all(conversion.load(tmp_path)[0])} == expected
