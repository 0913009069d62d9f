"""Committed positions that went back, and the nearest histories in which they may be what was reported."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL, INFO, OK
from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("lost-position", "")


def _committed(off: int = 5) -> tuple[GroupHistory, int]:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: off})
    return h, member


@CASES.case("a committed position is reported lower", FOUND)
def _() -> GroupHistory:
    h, member = _committed(5)
    h.fetched(member, {0: 4})
    return h


@CASES.case("a committed position is reported as never committed", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.fetched(member, {0: -1})
    return h


@CASES.case("a position that was reported is later reported lower", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 3})
    h.commit(member, {0: 5}, st=INFO)
    h.fetched(member, {0: 5})
    h.fetched(member, {0: 3})
    return h


@CASES.case("a commit that failed explains nothing", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.commit(member, {0: 4}, st=FAIL)
    h.fetched(member, {0: 4})
    return h


@CASES.case("an earlier commit of the lower position, long done, explains nothing", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4})
    h.commit(member, {0: 5})
    h.fetched(member, {0: 4})
    return h


@CASES.case("offsets of a committed transaction are gone for one who asks for stable ones", FOUND)
def _() -> GroupHistory:
    h, pipe = _in_transaction("commit")
    h.fetched(pipe, {0: 4})
    return h


@CASES.case("somebody committed a lower position between")
def _() -> GroupHistory:
    h, member = _committed()
    h.commit(h.member(), {0: 4})
    h.fetched(member, {0: 4})
    return h


@CASES.case("a commit without an answer may take effect at any time")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4}, st=INFO)
    h.commit(member, {0: 5})
    h.fetched(member, {0: 4})
    return h


@CASES.case("a commit that is never answered may take effect at any time")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4}, st=-1)
    h.commit(member, {0: 5})
    h.fetched(member, {0: 4})
    return h


@CASES.case("a request for a commit that was not answered may arrive after the next commit")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4}, unanswered=1)
    h.commit(member, {0: 5})
    h.fetched(member, {0: 4})
    return h


@CASES.case("a library does not tell how many requests for a commit were not answered")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    del h.commit(member, {0: 4}).completion["unanswered"]
    h.commit(member, {0: 5})
    h.fetched(member, {0: 4})
    return h


@CASES.case("of two commits side by side either may be the last")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    first = h.commit(member, {0: 4})
    second = h.commit(member, {0: 5})
    first.t1 = second.t1
    h.fetched(member, {0: 4})
    return h


@CASES.case("a commit that was not acknowledged need not be there")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4})
    h.commit(member, {0: 5}, st=INFO)
    h.fetched(member, {0: 4})
    return h


@CASES.case("a partition that was refused was not committed")
def _() -> GroupHistory:
    h = GroupHistory(2)
    member = h.member()
    h.commit(member, {0: 5, 1: 5}, st=FAIL, errs={"0": "UNKNOWN_TOPIC_OR_PARTITION"})
    h.fetched(member, {0: -1})
    return h


@CASES.case("the partition beside one that was refused was committed", FOUND)
def _() -> GroupHistory:
    h = GroupHistory(2)
    member = h.member()
    h.commit(member, {0: 5, 1: 5}, st=FAIL, errs={"0": "UNKNOWN_TOPIC_OR_PARTITION"})
    h.fetched(member, {1: -1})
    return h


@CASES.case("who asks before the commit is answered may get the old position")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 4})
    last = h.commit(member, {0: 5})
    asked = h.fetched(member, {0: 4})
    asked.t0 = last.t1 - 1
    return h


@CASES.case("an administrator set another position")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member)
    h.fetched(member, {0: -1})
    return h


@CASES.case("a position is reported again after its group was deleted", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group")
    h.fetched(member, {0: 5})
    return h


@CASES.case("an earlier position is reported after the group was deleted", FOUND)
def _() -> GroupHistory:
    h, member = _committed(4)
    h.commit(member, {0: 5})
    h.reset(member, "delete_group")
    h.fetched(member, {0: 4})
    return h


@CASES.case("a group that was deleted has no position")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group")
    h.fetched(member, {0: -1})
    return h


@CASES.case("somebody committed the position again after its group was deleted")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group")
    h.commit(member, {0: 5})
    h.fetched(member, {0: 5})
    return h


@CASES.case("a deletion that was refused deletes nothing")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group").completion["st"] = FAIL
    h.fetched(member, {0: 5})
    return h


@CASES.case("a deletion without an answer may come later")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group").completion["st"] = INFO
    h.fetched(member, {0: 5})
    h.fetched(member, {0: -1})
    return h


@CASES.case("a commit without an answer may come after the deletion of its group")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 5}, st=INFO)
    h.reset(member, "delete_group")
    h.fetched(member, {0: 5})
    return h


@CASES.case("offsets expire, at the earliest a minute after they were committed")
def _() -> GroupHistory:
    h, member = _committed()
    h.tick(60_000_000_000)
    h.fetched(member, {0: -1})
    return h


@CASES.case("a position is reported that nobody ever committed", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.fetched(member, {0: 7})
    return h


@CASES.case("a position is reported although nothing was ever committed", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    h.fetched(h.member(), {0: 0})
    return h


@CASES.case("a position is reported that was committed in another partition only", FOUND)
def _() -> GroupHistory:
    h = GroupHistory(2)
    member = h.member()
    h.commit(member, {1: 5})
    h.fetched(member, {0: 5})
    return h


@CASES.case("a position is reported before somebody asks for its commit", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.fetched(member, {0: 5})
    h.commit(member, {0: 5})
    return h


@CASES.case("a commit that was refused is no reason to report its position", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 5}, st=FAIL)
    h.fetched(member, {0: 5})
    return h


@CASES.case("a reset that was refused is no reason to report another position", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member).completion["st"] = FAIL
    h.fetched(member, {0: 7})
    return h


@CASES.case("a position after the deletion of its group that nobody ever committed", FOUND)
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member, "delete_group").completion["st"] = INFO
    h.fetched(member, {0: 7})
    return h


@CASES.case("nothing is committed, and nothing is reported")
def _() -> GroupHistory:
    h = GroupHistory()
    h.fetched(h.member(), {0: -1})
    return h


@CASES.case("a commit whose answer nobody knows may be what is reported")
def _() -> GroupHistory:
    h, member = _committed()
    h.commit(member, {0: 7}, st=INFO)
    h.fetched(member, {0: 7})
    return h


@CASES.case("a commit that is under way may be what is reported")
def _() -> GroupHistory:
    h = GroupHistory()
    member = h.member()
    commit = h.commit(member, {0: 5})
    asked = h.fetched(member, {0: 5})
    assert asked.t0 > commit.t0
    asked.t0, asked.t1 = commit.t0, commit.t0
    return h


@CASES.case("a reset may have set a position that nobody committed")
def _() -> GroupHistory:
    h, member = _committed()
    h.reset(member).completion["st"] = INFO
    h.fetched(member, {0: 7})
    return h


@CASES.case("what an aborted transaction wanted is uncommitted, and not invented", ("uncommitted-offset", ""))
def _() -> GroupHistory:
    h = GroupHistory()
    pipe = h.pipe()
    h.initialised(pipe)
    txn = h.begin(pipe)
    h.commit(pipe, {0: 5}, st=FAIL, txn=txn)
    h.end(txn, "abort")
    h.fetched(pipe, {0: 5})
    return h


def _in_transaction(how: str) -> tuple[GroupHistory, int]:
    h = GroupHistory()
    pipe = h.pipe()
    h.initialised(pipe)
    before = h.begin(pipe)
    h.commit(pipe, {0: 4}, txn=before)
    h.end(before, "commit")
    txn = h.begin(pipe)
    h.commit(pipe, {0: 5}, txn=txn)
    h.end(txn, how)
    return h, pipe


@CASES.case("offsets of an aborted transaction are no position")
def _() -> GroupHistory:
    h, pipe = _in_transaction("abort")
    h.fetched(pipe, {0: 4})
    return h


@CASES.case("offsets of a committed transaction may come late for one who does not ask for stable ones")
def _() -> GroupHistory:
    h, pipe = _in_transaction("commit")
    h.fetched(pipe, {0: 4}, stable=False)
    return h


@CASES.case("a late abort of an earlier transaction may have taken the offsets", ("lost-position", "late end"))
def _() -> GroupHistory:
    h = GroupHistory()
    pipe = h.pipe(request_timeout_ms=0)
    h.initialised(pipe)
    before = h.begin(pipe)
    h.commit(pipe, {0: 3}, txn=before)
    h.end(before, "abort")
    before.completion["unanswered"] = 1
    txn = h.begin(pipe)
    h.commit(pipe, {0: 5}, txn=txn)
    h.end(txn, "commit")
    h.fetched(pipe, {0: -1})
    return h


@CASES.plant("lost-position")
def _(history: GeneratedHistory) -> None:
    h, member = _committed()
    h.fetched(member, {0: 2})
    history.take_in(h)


def _made_again(st: int = OK) -> tuple[GroupHistory, int, int]:
    """Return a history with a committed offset of a topic that is then deleted and created again, and both partitions.
    """
    h = GroupHistory()
    member = h.member()
    h.commit(member, {0: 5}, st=st)
    return h, member, h.remakes(h.process("admin"))


@CASES.case("a position of a topic that was deleted is reported of the next topic of its name", FOUND)
def _() -> GroupHistory:
    h, member, part = _made_again()
    h.fetched(member, {part: 5})
    return h


@CASES.case("of the next topic of its name no position is committed")
def _() -> GroupHistory:
    h, member, part = _made_again()
    h.fetched(member, {part: -1})
    h.commit(member, {part: 2})
    h.fetched(member, {part: 2})
    return h


@CASES.case("a commit without an answer names a topic by its name, and may take effect in the next one")
def _() -> GroupHistory:
    h, member, part = _made_again(st=INFO)
    h.fetched(member, {part: 5})
    return h


@CASES.case("a commit for the topic before, without an answer, sets the position of the next one back")
def _() -> GroupHistory:
    h, member, part = _made_again(st=INFO)
    h.commit(member, {part: 7})
    h.fetched(member, {part: 5})
    return h


# --------------------------------------------------------------------------------------------------------- metadata

STRIPPED = ("lost-position", "metadata")


def _of_metadata(reported: str, *committed: tuple[int, str]) -> tuple[GroupHistory, int]:
    """Offsets are committed with these metadata strings, and the last one is fetched with the string `reported`."""
    h = GroupHistory()
    member = h.member()
    for off, text in committed:
        h.with_metadata(h.commit(member, {0: off}), text)
    h.with_metadata(h.fetched(member, {0: committed[-1][0]}), reported)
    return h, member


@CASES.case("a position is reported without the metadata that it was committed with", STRIPPED)
def _() -> GroupHistory:
    return _of_metadata("", (5, "squall 5"))[0]


@CASES.case("a position is reported with the metadata of another one", STRIPPED)
def _() -> GroupHistory:
    return _of_metadata("squall 4", (4, "squall 4"), (5, "squall 5"))[0]


@CASES.case("a position that was committed in a transaction is reported without its metadata", STRIPPED)
def _() -> GroupHistory:
    h, pipe = _in_transaction("commit")
    h.with_metadata([each for each in h.others if each.f == "commit"][-1], "squall 5")
    h.with_metadata(h.fetched(pipe, {0: 5}), "")
    return h


@CASES.case("a position is reported with its metadata, by a library without any, and one of which nothing is committed")
def _() -> GroupHistory:
    h, member = _of_metadata("squall 5", (5, "squall 5"))
    h.fetched(h.member(client="aiokafka"), {0: 5})
    h.with_metadata(h.fetched(member, {0: 5}), "squall 5")
    return h


@CASES.case("of two commits of one position either may have set the metadata")
def _() -> GroupHistory:
    return _of_metadata("mine", (5, "mine"), (5, "theirs"))[0]


@CASES.case("nobody knows the metadata of a library's commit, or of a position that was reset")
def _() -> GroupHistory:
    h, member = _of_metadata("squall 5", (5, "squall 5"))
    h.commit(h.member(client="aiokafka"), {0: 5})
    h.with_metadata(h.fetched(member, {0: 5}), "")
    h.with_metadata(h.commit(member, {0: 6}), "squall 6")
    h.reset(member)
    h.with_metadata(h.fetched(member, {0: 6}), "")
    return h
