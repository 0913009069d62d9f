"""One producer, one transactional id or one member that gets nothing, while all partitions take writes and are read."""

from __future__ import annotations

from typing import Any

import pytest

from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import INVALID, UNKNOWN, VALID, Verdict
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import fault_line

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
    "faults": [],
}
KILL = {"action": "kill", "at_s": 0.0, "duration_s": 1.0}


def judged(h: HistoryBuilder, *faults: dict[str, Any], **workload: Any) -> Verdict:
    lines = b"".join(fault_line(**each) for each in faults)
    plan = {**PLAN, "workload": {**PLAN["workload"], **workload}, "faults": [KILL for _ in faults]}
    return judge_bytes("r", b"".join(h.lines()), lines, plan).verdict


def one_refused(
    refused: int = 5, *, took_s: float = 0.0, acked: int = 0, client: str = "squall", number: int = 1, **more: Any
) -> HistoryBuilder:
    """The sends of one producer are refused, alternately by its two processes, over `took_s`; the last `acked` succeed.
    Another producer's sends all succeed. `number` is that of the second process.
    """
    h = HistoryBuilder()
    good = h.producer(producer=0)
    bad = [h.process("producer", client, acks=-1, idempotence=True, producer=each, **more) for each in (1, number)]
    pairs = [(0, h.sent(good, 0))]
    for each in range(refused):
        h.fail(h.send(bad[each % 2]))
        pairs.append((len(pairs), h.sent(good, len(pairs))))
        h.tick(int(took_s * 1000 / refused) * MS)
    for _ in range(acked):
        pairs.append((len(pairs), h.sent(bad[1], len(pairs))))
    h.final(pairs)
    return h


def of_ids(
    tries: int = 5,
    *,
    init: bool = False,
    committed: int = 0,
    how: str = "commit",
    took_s: float = 0.0,
    open_ms: int = 0,
) -> HistoryBuilder:
    """Transactional id a commits. Id b fails `tries` times over `took_s`, and then commits. `how`: what b asks for, or
    "aborted" if its transactions are aborted at its request. `init`: b gets no producer id. `open_ms`: how long b
    leaves each transaction open.
    """
    h = HistoryBuilder()
    good, bad = h.producer(transactional_id="a"), h.producer(transactional_id="b")
    h.initialised(good, "a")
    if not init:
        h.initialised(bad, "b")
    pairs: list[tuple[int, int]] = []
    for each in range(tries + committed):
        txn = h.begin(good, "a")
        pairs.append((len(pairs) * 2, h.ok(h.send(good, txn=txn), len(pairs) * 2).val))
        h.end(txn, "commit")
        if init:
            h.event("txn_init", p=bad, x="b", t0=h.now, pid=-1, pe=-1, err="COORDINATOR_LOAD_IN_PROGRESS")
        elif how == "aborted":
            h.end(h.begin(bad, "b"), "abort")
        else:
            txn = h.begin(bad, "b")
            h.tick(open_ms * MS)
            h.end(txn, how, 1 if each < tries else 0)
        h.tick(int(took_s * 1000 / tries) * MS)
    for isolation in (0, 1):
        h.final(pairs, isolation=isolation, position=len(pairs) * 2)
    return h


REFUSED = "none of 5 sends of producer 1 outside of faults was acknowledged, and 6 of others were"


@pytest.mark.parametrize(
    ("h", "why"),
    [
        (one_refused(), (REFUSED,)),
        (one_refused(4), ()),
        (one_refused(acked=1), ()),
        (one_refused(number=2), ()),
        (one_refused(transactional_id="a"), ()),
    ],
    ids=["refused", "few", "one is acknowledged", "two producers, each with few", "of transactions"],
)
def test_a_producer_of_which_all_is_refused_makes_a_run_unknown(h: HistoryBuilder, why: tuple[str, ...]) -> None:
    assert judged(h).reasons == why


def test_a_producer_that_is_refused_while_a_fault_is_on_is_not_counted() -> None:
    h = one_refused()
    assert judged(h, {"asked": 0, "began": 2 * MS, "ended": h.now}).verdict == VALID


@pytest.mark.parametrize(
    ("tries", "said"), [({}, True), ({"init": True}, True), ({"tries": 4}, False), ({"committed": 1}, False),
                        ({"how": "aborted"}, False)]
)  # fmt: skip
def test_a_transactional_id_that_commits_nothing_makes_a_run_unknown(tries: dict[str, Any], said: bool) -> None:
    why = "the transactional id b committed nothing: 5 tries outside of faults failed"
    assert judged(of_ids(**tries), generation=2).reasons == ((why,) if said else ())


LONG: list[tuple[HistoryBuilder, str, int]] = [
    (one_refused(took_s=20), "producer", 1),
    (one_refused(took_s=17), "", 1),
    (one_refused(took_s=20, client="confluent"), "", 1),
    (of_ids(took_s=20), "transactional id", 1),
    (of_ids(took_s=20, init=True), "transactional id", 1),
    (of_ids(took_s=17), "", 1),
    (of_ids(took_s=20, open_ms=997), "transactional id", 1),
    (of_ids(took_s=20, open_ms=1000), "", 1),
]
"""Histories, the evidence of the finding in them (empty: none), and its process. Of five tries over 17 s, the last one
begins 13.6 s after the first one, of those over 20 s after 16 s. A transaction may be open for 1 s."""


@pytest.mark.parametrize(("h", "evidence", "process"), LONG)
def test_one_of_our_own_producers_or_ids_that_tries_for_too_long_is_a_finding(
    h: HistoryBuilder, evidence: str, process: int
) -> None:
    verdict = judged(h, generation=2)
    found = [(each.name, each.evidence, each.processes) for each in verdict.anomalies]
    assert found == ([("stuck-producer", evidence, (process,))] if evidence else [])
    assert verdict.verdict == (INVALID if evidence else UNKNOWN if verdict.reasons else VALID)


def test_a_producer_that_waits_because_its_partition_does_is_no_finding_of_its_own() -> None:
    h = HistoryBuilder()
    p = h.producer()
    send = h.send(p)
    h.tick(16_000 * MS)
    h.ok(send, 0)
    h.final([(0, send.val)])
    assert [(each.evidence, each.processes) for each in judged(h).anomalies] == [("load", (-1,))]


def group(
    *, got: bool = False, owns: bool = True, members: int = 2, number: int = 1, client: str = "squall", s: int = 20
) -> GroupHistory:
    """A group reads two partitions with five acknowledged records each. Member 0 gets those of partition 0, and with
    `got` member 1 those of partition 1, if it owns it. `number` is that of the member that owns it.
    """
    h = GroupHistory(2)
    procs = [h.process("reader", client, isolation=0, group="g", member=each) for each in range(members)]
    p = h.producer()
    own = (procs[0], procs[number]) if owns else (procs[0], procs[0])
    for part, proc in enumerate(own):
        h.assigned(proc, {part: 0})
    if not owns:
        h.event("rejoining", p=procs[1], g="g", why="begin")
    h.tick(s * 1000 * MS)
    for part, proc in enumerate(own):
        values = [h.sent(p, off, part) for off in range(5)]
        for off, value in enumerate(values):
            read = got or proc == procs[0]
            h.poll(proc, [(off, value)] if read else [], part=part, at=off if read else 0, hw=off + 1)
        h.final(list(enumerate(values)), part=part)
    return h


STARVED = "member 1 of the group g got no record, and 5 were acknowledged in its partitions while it owned them"
NEVER = "member 1 of the group g never owned a partition in 20 s outside of faults"


@pytest.mark.parametrize(
    ("h", "why"),
    [
        (group(), STARVED),
        (group(got=True), ""),
        (group(owns=False), NEVER),
        (group(owns=False, s=14), ""),
        (group(owns=False, client="program"), ""),
        (group(got=True, members=3), ""),
    ],
    ids=["starved", "served", "never assigned", "late", "a program's", "more members than partitions"],
)
def test_a_member_that_gets_nothing_makes_a_run_unknown(h: GroupHistory, why: str) -> None:
    said = [each for each in judged(h).reasons if "member 1" in each or "member 2" in each]
    assert said == ([why] if why else [])
