"""Two owners of one partition, and the nearest histories in which one of them only does not know yet."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL, OK
from tests.support.histories.builder import MS, GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.two_owners import two_owners, two_that_commit

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("dual-ownership", "")


@CASES.case("a coordinator takes requests of two owners of a partition", FOUND)
def _() -> GroupHistory:
    return two_owners()


@CASES.case("one generation assigns a partition to two members", FOUND)
def _() -> GroupHistory:
    return two_owners(gens=(1, 1))


def _same_generation(**about: str) -> GroupHistory:
    """One generation assigns the partition to two members. Their last heartbeats were sent before the second one read.
    """
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


CASES.case("the commits of both prove that they were members", FOUND)(two_that_commit)


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
    return two_owners(before=True, after=False)


@CASES.case("of two that both believe to be owners only one is proven to be a member")
def _() -> GroupHistory:
    return two_owners(second=False)


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


def _answered_after_the_end(again: bool) -> GroupHistory:
    """A member sends a commit while another one owns its partition, and then loses the partition. The acknowledgement
    of the commit arrives before or (`again`) after the partition is assigned to it again.
    """
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    commit = h.commit(one, {0: 1}, st=-1)
    h.commit(two, {0: 1}, gen=2)
    h.lost(one, [0])
    h.revoked(two, [0], gen=2)
    if again:
        h.assigned(one, {0: 1}, 3)
    commit.t1, commit.completion = h.tick(), {"st": OK, "unanswered": 0}
    return h


@CASES.case("a commit that was sent by an owner counts although it had lost the partition by the answer", FOUND)
def _() -> GroupHistory:
    return _answered_after_the_end(again=False)


@CASES.case("also where it owns the partition again by then", FOUND)
def _() -> GroupHistory:
    return _answered_after_the_end(again=True)


@CASES.case("a commit that was done for some of its partitions proves membership", FOUND)
def _() -> GroupHistory:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    refused = {"1": "OFFSET_METADATA_TOO_LARGE"}
    h.commit(one, {0: 1, 1: 1}, st=FAIL, errs=refused, err=refused["1"])
    h.commit(two, {0: 1}, gen=2)
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
    """A member hangs, and its partition is assigned to another one. Then it joins a generation that assigns it `parts`,
    and commits in that. The other member commits as well.
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
    """A member had a partition in a generation. Long after its last accepted request it learns that a generation of the
    same number assigns it nothing. Then it commits, and releases the partition. Without `beats` it never sent a
    heartbeat.
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


@CASES.case("what comes after a generation that is counted anew is counted anew, too")
def _() -> GroupHistory:
    """After a silence it learns of generation 1, and commits in generation 2, which has the number of an old one."""
    h = GroupHistory()
    one, two = (h.member(session_timeout_ms=1500) for _ in range(2))
    h.joined(one, [0], 2)
    h.assigned(one, {0: 0}, 2)
    beat = h.now
    h.now += 2000 * MS
    h.assigned(two, {0: 0}, 1)
    h.joined(one, [], 1, beat)
    h.joined(one, [], 2, h.now)
    h.commit(one, {0: 1}, gen=2)
    h.commit(two, {0: 1}, gen=1)
    return h


@CASES.case("a generation with the number of an old one assigns a partition to two members", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = (h.member(session_timeout_ms=1500) for _ in range(2))
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0}, 1)
    beat = h.now
    h.now += 2000 * MS
    h.joined(two, [0], 1)
    h.assigned(two, {0: 0}, 1)
    h.joined(one, [0], 1, beat)
    return h


def _owned_between(*, again: bool, by_beats: bool = False) -> GroupHistory:
    """Another member owns a partition for a while, and the first member is not informed of its loss. The first one is
    assigned the partition again: before the end of that while, or after it (`again`).
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
    history.take_in(two_that_commit())
