"""Members that resume beyond records that their group never got, and the nearest that may."""

from __future__ import annotations

from typing import Any

from squall.checkers.history.tables import FAIL, INFO
from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND, OWN, SKIPPED = (("commit-ahead", evidence) for evidence in ("", "own commit", "skipped record"))


def _resumed(
    got: int, pos: int, *, began: int = 0, begun: str = "reset", again: str = "committed", **settings: Any
) -> GroupHistory:
    """A member gets the records before offset `got`, from `began` on, of six. The next member begins at `pos`."""
    h = GroupHistory()
    p = h.producer()
    values = [h.sent(p, off) for off in range(6)]
    one, two = h.member(**settings), h.member()
    h.assigned(one, {0: began}, begun=begun)
    pairs = list(enumerate(values))
    if got > began:
        h.poll(one, pairs[began:got])
    h.lost(one, [0], "crash")
    h.assigned(two, {0: pos}, 2, begun=again)
    h.poll(two, pairs[pos:], at=pos)
    h.final(pairs)
    return h


@CASES.case("the next member resumes beyond a record that nobody got", FOUND)
def _() -> GroupHistory:
    return _resumed(2, 3)


@CASES.case("what is got only later was passed over", FOUND)
def _() -> GroupHistory:
    h = _resumed(2, 3)
    late = h.member()
    h.assigned(late, {0: 0}, 3)
    value = next(send.val for send in h.sends if send.off == 2)
    h.poll(late, [(2, value)], at=2)
    return h


@CASES.case("the next member resumes where the last one stopped")
def _() -> GroupHistory:
    return _resumed(3, 3)


@CASES.case("the next member gets records again")
def _() -> GroupHistory:
    return _resumed(4, 2)


@CASES.case("what stood before the group began is not its own")
def _() -> GroupHistory:
    return _resumed(4, 4, began=2)


@CASES.case("a group that begins at the latest offset leaves out what is before it")
def _() -> GroupHistory:
    return _resumed(2, 4, again="reset")


@CASES.case("a member that began at a reset position left out what is before it")
def _() -> GroupHistory:
    h = _resumed(2, 4, again="reset")
    h.assigned(h.member(), {0: 6}, 3)
    return h


@CASES.case("an administrator moved the group's position")
def _() -> GroupHistory:
    h = _resumed(2, 3)
    h.reset(h.others[0].fields["p"])
    return h


def _of_client(client: str) -> GroupHistory:
    h = _resumed(2, 3)
    for line in h._processes:
        if line["settings"].get("group"):
            line["client"] = client
    return h


@CASES.case("a library that was killed takes with it what it got and did not report")
def _() -> GroupHistory:
    return _of_client("confluent")


@CASES.case("a program reports what it has processed before it commits that", FOUND)
def _() -> GroupHistory:
    return _of_client("program")


def _committed(got: int, *, at: int = 3, client: str = "program", then: int = 0, **more: Any) -> GroupHistory:
    """A member that has processed the first `got` of six records commits offset `at`, processes up to `then`, and
    releases the partition. The next member begins at offset 3.
    """
    h = GroupHistory()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(6)]
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, begun="reset")
    if got:
        h.poll(one, pairs[:got])
    h.commit(one, {0: at}, **more)
    if then:
        h.poll(one, pairs[got:then], at=got)
    h.revoked(one, [0])
    h.assigned(two, {0: 3}, 2)
    h.poll(two, pairs[3:], at=3)
    h.final(pairs)
    for line in h._processes:
        if line["settings"].get("group"):
            line["client"] = client
    return h


@CASES.case("a program commits a position beyond all that it has reported", OWN)
def _() -> GroupHistory:
    return _committed(2)


@CASES.case("a program commits, and has reported nothing", OWN)
def _() -> GroupHistory:
    return _committed(0)


@CASES.case("a program whose commit was not answered asked for that position, too", OWN)
def _() -> GroupHistory:
    return _committed(2, st=INFO)


@CASES.case("a commit that was refused made no position", FOUND)
def _() -> GroupHistory:
    return _committed(2, st=FAIL)


@CASES.case("a program that committed another position did not commit this one", FOUND)
def _() -> GroupHistory:
    return _committed(2, at=2)


@CASES.case("what a library commits for its application is no program's own", FOUND)
def _() -> GroupHistory:
    return _committed(2, client="confluent")


@CASES.case("a program reports late what it had committed")
def _() -> GroupHistory:
    return _committed(2, then=3)


@CASES.case("a program that reported beyond a record may have been given the records so", SKIPPED, ("poll-skip", ""))
def _() -> GroupHistory:
    h = GroupHistory()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(6)]
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, begun="reset")
    h.poll(one, pairs[:1])
    h.poll(one, pairs[2:3], at=1, position=3)
    h.commit(one, {0: 3})
    h.revoked(one, [0])
    h.assigned(two, {0: 3}, 2)
    h.poll(two, pairs[3:], at=3)
    h.final(pairs)
    for line in h._processes:
        if line["settings"].get("group"):
            line["client"] = "program"
    return h


@CASES.case("a record of an aborted transaction is nothing that a read_committed member could get")
def _() -> GroupHistory:
    h = GroupHistory()
    p, member, other = h.producer(), h.member(isolation=1), h.member(isolation=1)
    h.initialised(p)
    txn = h.begin(p)
    aborted = h.ok(h.send(p, txn=txn), 0).val
    h.end(txn, "abort")
    h.assigned(member, {0: 0}, begun="reset")
    h.poll(member, [], at=0, position=2)
    h.revoked(member, [0])
    h.assigned(other, {0: 2}, 2)
    h.final([(0, aborted)], end=2, position=2)
    h.final([], end=2, position=2, isolation=1)
    return h


@CASES.plant("commit-ahead")
def _(history: GeneratedHistory) -> None:
    history.take_in(_resumed(2, 3))
