"""Each module of anomalies is whole: definitions, finder, Spark query, histories where it fires and must not fire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import squall.checkers.anomalies
from squall.checkers.anomalies.anomaly import HistoryNeed
from squall.checkers.anomalies.check import AnomalyCheck
from squall.checkers.anomalies.registry import (
    CATALOG,
    CHECKS,
    FOUND,
    IN_HISTORY,
    EvidenceCounts,
    find_all,
    looked_for,
    not_run,
    ran_on_little,
)
from squall.checkers.history.conversion import convert, read_conversion
from squall.checkers.history.group_activity import GroupActivity, MemberActivity, from_json
from squall.checkers.history.group_tables import FROM_RESET, GroupCommit, PartitionOwnership
from squall.checkers.history.tables import (
    EMPTY_POLL,
    FAIL,
    OK,
    POLL,
    SEND,
    ClientProcess,
    History,
    IntegerTable,
    ObservedPartition,
    RecordRow,
    ReportedBounds,
    TxnOperation,
)
from squall.checkers.history.values import AFTER_HEALING
from tests.support.histories.anomaly_cases import CASES, cases_of
from tests.support.histories.builder import HistoryBuilder

FROM_HISTORIES = [anomaly.name for check in IN_HISTORY for anomaly in check.anomalies]
BY_NAME = {check.name: check for check in IN_HISTORY}
each_check = pytest.mark.parametrize("check", IN_HISTORY, ids=list(BY_NAME))


def test_the_registry_lists_every_module_that_has_a_check() -> None:
    (folder,) = squall.checkers.anomalies.__path__
    modules = {path.stem for path in Path(folder).glob("*.py") if "\nCHECK = " in path.read_text()}
    assert modules == {check.name for check in CHECKS}
    assert len(CATALOG) == sum(len(check.anomalies) for check in CHECKS), "no name twice"


@pytest.mark.parametrize("anomaly", CATALOG.values(), ids=list(CATALOG))
def test_every_anomaly_says_what_it_is_and_where_that_is_written(anomaly: object) -> None:
    name = next(name for name, each in CATALOG.items() if each is anomaly)
    assert CATALOG[name].definition
    assert CATALOG[name].source
    assert not CATALOG[name].jepsen or "jepsen" in CATALOG[name].source


@each_check
def test_every_finder_has_histories_where_it_fires_and_where_it_must_not(check: AnomalyCheck) -> None:
    names = {anomaly.name for anomaly in check.anomalies}
    cases = cases_of(check.name)
    fires = {name for case in cases.short.values() for name, _ in case.found if name in names}
    assert fires == names
    assert any(not names & {name for name, _ in case.found} for case in cases.short.values())
    assert cases.plants.keys() == names


def test_witnesses_say_where_and_who() -> None:
    case = CASES["poll_skip: a poll that leaves out a record is a skip"]
    history = case.build()
    (witness,) = find_all(history.history())
    reader = history.polls[-1].proc
    assert (witness.part, witness.off, witness.other, witness.proc) == (0, 2, 0, reader)


# ------------------------------------------------------------------------------------------------------------ needs


def _keep(history: History, wanted: Callable[[RecordRow], bool]) -> None:
    kept = IntegerTable(RecordRow)
    for record in history.records.rows():
        if wanted(record):
            kept.append(record)
    history.records = kept


TAKEN_OUT: dict[HistoryNeed, Callable[[History], None]] = {
    HistoryNeed.SENDS: lambda history: _keep(history, lambda record: record.kind != SEND),
    HistoryNeed.ACKS: lambda history: _keep(history, lambda record: record.kind != SEND or record.st != OK),
    HistoryNeed.FAILURES: lambda history: _keep(history, lambda record: record.kind != SEND or record.st != FAIL),
    HistoryNeed.OWN_READERS: lambda history: history.thrown.truncate(0),
    HistoryNeed.PLACES: lambda history: _keep(history, lambda record: False),
    HistoryNeed.READS: lambda history: _without_reads(history),
    HistoryNeed.MARKS: lambda history: history.told.truncate(0),
    HistoryNeed.LOOKUPS: lambda history: history.lookups.truncate(0),
    HistoryNeed.TRANSACTIONS: lambda history: _without_transactions(history),
    HistoryNeed.COMMITTED_READS: lambda history: _keep(history, lambda record: record.kind != POLL or record.iso == 0),
    HistoryNeed.READS_INSIDE: lambda history: _without_reads_inside(history),
    HistoryNeed.COMMITTED_FINAL_READS: lambda history: _without_committed_final_reads(history),
}


def _without_positions(history: History) -> None:
    history.fetches.truncate(0)


TAKEN_OUT[HistoryNeed.MEMBERS] = lambda history: history.holds.truncate(0)
TAKEN_OUT[HistoryNeed.RESUMED] = lambda history: _as_holds(history, begun=FROM_RESET)
TAKEN_OUT[HistoryNeed.RIVALS] = lambda history: _as_holds(history, proc=0)
TAKEN_OUT[HistoryNeed.WRITES_AFTER_HEALING] = lambda history: _without_writes_after_healing(history)
TAKEN_OUT[HistoryNeed.PROOFS] = lambda history: _without_proofs(history)
TAKEN_OUT[HistoryNeed.COMMITS] = lambda history: history.commits.truncate(0)
TAKEN_OUT[HistoryNeed.POSITIONS] = _without_positions
TAKEN_OUT[HistoryNeed.OUTPUTS] = lambda history: history.outputs.truncate(0)


def _without_proofs(history: History) -> None:
    """Remove everything that proves ownership, also generations: one that assigns a partition twice needs no other
    proof.
    """
    _as_holds(history, proved=-1, last_gen=-1)


def _as_holds(history: History, **changed: int) -> None:
    holds, history.holds = history.holds, IntegerTable(PartitionOwnership)
    for each in holds.rows():
        history.holds.append(each._replace(**changed))


def _without_writes_after_healing(history: History) -> None:
    harness = {each.proc for each in history.processes if AFTER_HEALING in each.settings}
    _keep(history, lambda record: record.proc not in harness)


def _without_transactions(history: History) -> None:
    history.txns.truncate(0)
    history.members.truncate(0)
    commits, history.commits = history.commits, IntegerTable(GroupCommit)
    for each in commits.rows():
        if each.txn < 0:
            history.commits.append(each)


def _without_reads_inside(history: History) -> None:
    members, history.members = history.members, IntegerTable(TxnOperation)
    for each in members.rows():
        if each.kind == SEND:
            history.members.append(each)


def _without_committed_final_reads(history: History) -> None:
    _keep(history, lambda record: not record.final or record.iso == 0)
    history.finals = [final for final in history.finals if final.iso == 0]


def _without_reads(history: History) -> None:
    _keep(history, lambda record: record.kind not in (POLL, EMPTY_POLL))
    history.thrown.truncate(0)


def _without_final_reads(history: History) -> None:
    _keep(history, lambda record: not record.final)
    told, history.told = history.told, IntegerTable(ReportedBounds)
    for each in told.rows():
        if not each.final:
            history.told.append(each)
    for partition in history.partitions:
        partition.cover_from = partition.cover_to = partition.cover_t0 = -1


TAKEN_OUT[HistoryNeed.FINAL_READS] = _without_final_reads


@pytest.mark.parametrize("need", HistoryNeed)
@pytest.mark.parametrize("name", [name for name in FROM_HISTORIES if CATALOG[name].needs])
def test_without_what_it_needs_an_anomaly_does_not_show(name: str, need: HistoryNeed) -> None:
    shown = [case for case in CASES.values() if name in {found for found, _ in case.found}]
    histories = [case.build().history() for case in shown]
    for history in histories:
        TAKEN_OUT[need](history)
    still = [history for history in histories if name in {witness.anomaly for witness in find_all(history)}]
    if need in CATALOG[name].needs:
        assert not still


SENT_AND_READ = dict.fromkeys(("poll", "final_read", "list_offsets", "txn", "commit", "fetch_offsets"), {"ok": 1})
SENT_AND_READ |= {"send": {"ok": 3, "fail": 1}}
PRODUCER = ClientProcess(0, "producer", "squall", "1", "", {"acks": -1, "group": "g"}, 0)
READER = ClientProcess(1, "reader", "squall", "1", "", {"isolation": 0}, 0)
FINAL = ClientProcess(2, "final", "squall", "1", "", {"isolation": 1, "round": 1}, 0)
HARNESS = ClientProcess(3, "producer", "squall", "1", "", {"acks": -1, AFTER_HEALING: True}, 0)
MEMBER = ClientProcess(4, "reader", "program", "./mine", "", {"group": "g"}, 0)
READ = ObservedPartition(0, "t", 0, "delete", -1, False, seen=2)
ENOUGH = EvidenceCounts(read_inside=1, holds=2, outputs=1, owned={0}, owners=2, resumed=1)


def listed(
    outcomes: dict[str, dict[str, int]],
    passed_over: tuple[str, ...] = (),
    processes: tuple[ClientProcess, ...] = (PRODUCER, READER, FINAL, HARNESS),
    partition: ObservedPartition = READ,
    counted: EvidenceCounts = ENOUGH,
) -> set[str]:
    unlooked = not_run(outcomes, processes, [partition], dict.fromkeys(passed_over, "nobody looked"), counted)
    assert all(unlooked.values()), "each says why"
    return set(looked_for(unlooked).removeprefix("looked for: ").split(", "))


def test_all_that_a_finder_exists_for_is_looked_for_where_the_history_has_everything() -> None:
    assert listed(SENT_AND_READ) == set(FOUND)
    assert listed(SENT_AND_READ, ("not-converged",)) == {*FOUND} - {"not-converged"}


def test_what_the_history_cannot_show_was_not_looked_for() -> None:
    without = {**SENT_AND_READ, "final_read": {"info": 1}}
    of_final_reads = {"lost-write", "unseen", "torn-txn", "lost-txn", "hanging-txn", "commit-ahead", "eos-loss"}
    assert {*FOUND} - listed(without) == of_final_reads
    unacknowledged = {**SENT_AND_READ, "send": {"info": 5, "fail": 1}}
    of_acks = {"stale-ack", "wrong-offset", "eos-duplicate", "eos-loss", "stuck-group"}
    assert {*FOUND} - listed(unacknowledged) == of_acks
    assert listed({}, counted=EvidenceCounts()) == {"replica-divergence", "not-converged"}


def test_where_no_send_failed_none_was_looked_for_that_failed_and_was_read() -> None:
    assert {*FOUND} - listed({**SENT_AND_READ, "send": {"ok": 3}}) == {"failed-yet-read"}


def test_without_acks_no_acknowledged_offset_was_looked_at_but_those_of_the_harness() -> None:
    harness = replace(PRODUCER, settings={"acks": -1, AFTER_HEALING: True})
    blind = (replace(PRODUCER, settings={"acks": 0}), READER, FINAL, harness)
    of_groups = {"dual-ownership", "revoked-read", "commit-ahead", "eos-duplicate", "eos-loss", "stuck-group"}
    unlooked = {*FOUND} - listed(SENT_AND_READ, processes=blind, counted=EvidenceCounts(read_inside=1))
    assert unlooked == {"stale-ack", "wrong-offset"} | of_groups


def test_without_a_look_up_of_a_record_that_its_reader_had_got_none_was_looked_for() -> None:
    assert {*FOUND} - listed(SENT_AND_READ, counted=ENOUGH._replace(lookups=0)) == {"wrong-lookup"}


def test_libraries_alone_do_not_say_that_they_were_thrown_back() -> None:
    others = (PRODUCER, replace(READER, client="confluent"), FINAL, HARNESS)
    assert {*FOUND} - listed(SENT_AND_READ, processes=others) == {"thrown-back"}


def test_members_of_libraries_that_committed_nothing_prove_no_two_owners() -> None:
    """Their heartbeats are not in the history. An own client that only reads committed offsets is no member."""
    library = replace(PRODUCER, client="aiokafka")
    asks = replace(FINAL, settings={**FINAL.settings, "group": "g"})
    silent = {**SENT_AND_READ, "commit": {"info": 3}}
    of_commits = {"eos-loss", "uncommitted-offset"}
    assert {*FOUND} - listed(silent, processes=(library, READER, asks, HARNESS)) == {"dual-ownership", *of_commits}
    assert {*FOUND} - listed(silent) == of_commits
    told_nothing = ENOUGH._replace(grants=0)
    assert {*FOUND} - listed(SENT_AND_READ, processes=(library, READER, asks, HARNESS), counted=told_nothing) == {
        "dual-ownership"
    }
    assert {*FOUND} - listed(SENT_AND_READ, processes=(library, READER, asks, HARNESS)) == set()


def test_where_every_read_came_back_empty_nothing_that_was_read_was_looked_at() -> None:
    blind = {*FOUND} - listed(SENT_AND_READ, partition=replace(READ, seen=-1))
    assert blind == {
        name for name in FOUND if {HistoryNeed.READS, HistoryNeed.COMMITTED_READS} & set(CATALOG[name].needs)
    }
    assert {"duplicate", "phantom", "corrupt", "poll-skip"} <= blind


def test_without_transactions_or_without_readers_of_committed_records_nothing_of_transactions_was_looked_for() -> None:
    without = {name: counts for name, counts in SENT_AND_READ.items() if name != "txn"}
    of_transactions = {"G1a", "dirty-read", "torn-txn", "lost-txn", "G1c", "zombie-write", "hanging-txn"}
    assert {*FOUND} - listed(without) == of_transactions | {"uncommitted-offset"}
    blind = {*FOUND} - listed(SENT_AND_READ, processes=(PRODUCER, READER, HARNESS))
    assert blind == of_transactions - {"hanging-txn"} | {"eos-duplicate", "eos-loss"}


def test_without_groups_nothing_of_them_was_looked_for() -> None:
    of_groups = {"dual-ownership", "revoked-read", "commit-ahead", "eos-duplicate", "eos-loss", "stuck-group"}
    alone = (replace(PRODUCER, settings={"acks": -1}), READER, FINAL)
    assert {*FOUND} - listed(SENT_AND_READ, processes=alone, counted=EvidenceCounts(read_inside=1)) == of_groups
    untold = {name: counts for name, counts in SENT_AND_READ.items() if name not in ("commit", "fetch_offsets")}
    assert {*FOUND} - listed(untold) == {"lost-position", "uncommitted-offset", "eos-loss"}


def test_members_that_never_owned_a_partition_and_outputs_of_nothing_show_no_more_than_none() -> None:
    """A process that says which group it is of shows neither: what it was given, and what it made, does."""
    idle = listed(SENT_AND_READ, counted=ENOUGH._replace(holds=0))
    assert {*FOUND} - idle == {"dual-ownership", "revoked-read", "commit-ahead", "stuck-group", "eos-loss"}
    untold = listed(SENT_AND_READ, counted=ENOUGH._replace(outputs=0))
    assert {*FOUND} - untold == {"eos-duplicate", "eos-loss"}


def test_one_member_that_began_nowhere_it_had_been_shows_neither_two_owners_nor_a_position_too_far() -> None:
    assert {*FOUND} - listed(SENT_AND_READ, counted=ENOUGH._replace(owners=1)) == {"dual-ownership"}
    assert {*FOUND} - listed(SENT_AND_READ, counted=ENOUGH._replace(resumed=0)) == {"commit-ahead"}
    assert {*FOUND} - listed(SENT_AND_READ, processes=(PRODUCER, READER, FINAL)) == {"stuck-group"}
    early = EvidenceCounts(read_inside=1, holds=2, outputs=1)
    assert listed(SENT_AND_READ, counted=early) == {*FOUND}, "an early version counted none of this"


def test_what_saw_a_part_only_of_the_run_says_so() -> None:
    read = replace(READ, cover_t0=5)
    other = replace(read, part=1, index=1)

    def little(*partitions: ObservedPartition, acked: int = 0, processes: Any = (), **counted: Any) -> dict[str, str]:
        return ran_on_little(partitions, processes, (), ENOUGH._replace(**counted), {"t-0": acked})

    assert little(read) == {}
    unread = little(replace(read, cover_t0=-1))
    assert set(unread.values()) == {"no final read of t-0 reached its end"}
    assert {name for name in FOUND if HistoryNeed.FINAL_READS in CATALOG[name].needs} == unread.keys()
    of_members = {name for name in FOUND if HistoryNeed.MEMBERS in CATALOG[name].needs}
    unowned = little(read, other)
    assert unowned == dict.fromkeys(
        [name for name in FOUND if name in of_members], "no member of a group ever owned t-1"
    )
    (of_program,) = set(little(read, other, processes=[MEMBER]).values())
    assert of_program.startswith("no member reported a record of t-1 as processed: docs/workloads/command.md")
    assert little(read, replace(other, added=True)) == {}, "nobody need have heard of it"
    assert little(read, replace(other, topic="outputs")) == {}, "no group reads that topic"
    assert little(read, acked=2, outputs=1) == {}
    few = little(read, acked=3, outputs=1)
    assert few == dict.fromkeys(
        ["eos-duplicate", "eos-loss"], "1 outputs name their input, and 3 inputs were acknowledged"
    )
    unrun = ran_on_little([replace(read, cover_t0=-1)], (), ["lost-write"], ENOUGH, {})
    assert "lost-write" not in unrun, "it did not run"


ALL_DONE = GroupActivity((0,), changes=1, resumed=1, got=2)


@pytest.mark.parametrize(
    ("did", "names", "why"),
    [
        (ALL_DONE, set(), ""),
        (ALL_DONE._replace(owned=(0, 1), changes=1, resumed=1), set(), ""),
        (
            ALL_DONE._replace(owned=(0, 1), changes=0),
            {"dual-ownership"},
            "members of the group h took a partition over from each other 0 times, and it reads 2 partitions",
        ),
        (
            ALL_DONE._replace(owned=(0, 1, 2), changes=2, resumed=1),
            {"commit-ahead"},
            "members of the group h went on at a committed position 1 time, and it reads 3 partitions",
        ),
        (
            ALL_DONE._replace(got=1),
            {"dual-ownership", "revoked-read", "commit-ahead", "stuck-group", "eos-loss"},
            "members of the group h got 1 record, and 3 were acknowledged where they read",
        ),
    ],
)
def test_a_group_that_did_hardly_anything_is_no_whole_run(did: GroupActivity, names: set[str], why: str) -> None:
    read = replace(READ, cover_t0=5)
    counted = ENOUGH._replace(outputs=3, groups={"g": ALL_DONE, "h": did})
    assert ran_on_little([read], (), (), counted, {"t-0": 3}) == dict.fromkeys([n for n in FOUND if n in names], why)


def group_of(*steps: tuple[int, str, tuple[int, ...]]) -> HistoryBuilder:
    """Return a history of group g. Each step is a member, how it begins ("committed", "reset"), and the partitions that
    it gets.
    """
    h = HistoryBuilder(2)
    members = [h.process("reader", isolation=0, group="g") for _ in range(2)]
    producer = h.producer()
    values = [h.sent(producer, off) for off in range(3)]
    for who, begins, parts in steps:
        at = {str(part): 0 for part in parts}
        h.event("assigned", p=members[who], g="g", gen=1, at=at, **{"from": dict.fromkeys(at, begins)})
        h.poll(members[who], list(enumerate(values)))
    h.poll(h.reader(), list(enumerate(values)))
    h.final(list(enumerate(values)))
    return h


@pytest.mark.parametrize(
    ("steps", "did"),
    [
        (
            [(0, "reset", (0, 1))],
            GroupActivity((0, 1), changes=0, resumed=0, got=3, members=(MemberActivity(0, 1, 3, 0),)),
        ),
        (
            [(0, "reset", (0,)), (0, "committed", (0,)), (1, "committed", (0,)), (0, "reset", (0,))],
            GroupActivity((0,), 2, 2, 12, (MemberActivity(0, 3, 9, 0), MemberActivity(1, 1, 3, 0))),
        ),
    ],
)
def test_what_a_group_did_is_counted_in_memory_and_in_a_run_directory(
    steps: list[tuple[int, str, tuple[int, ...]]], did: GroupActivity, tmp_path: Path
) -> None:
    h = group_of(*steps)
    assert EvidenceCounts.of(h.history()).groups == {"g": did}
    (tmp_path / "history.jsonl").write_bytes(b"".join(h.lines()))
    convert(tmp_path)
    assert from_json(read_conversion(tmp_path).groups) == {"g": did}


def test_what_was_not_looked_for_says_why() -> None:
    def why(**changed: Any) -> dict[str, str]:
        processes = (PRODUCER, READER, FINAL, HARNESS)
        given = {"processes": processes, "outcomes": SENT_AND_READ, "passed_over": {}, "counted": ENOUGH}
        return not_run(partitions=[READ], **{**given, **changed})

    assert why(outcomes={**SENT_AND_READ, "send": {"ok": 3}}) == {
        "failed-yet-read": "the history has no sends that definitely failed"
    }
    without = why(outcomes={name: counts for name, counts in SENT_AND_READ.items() if name != "txn"})
    assert set(without.values()) == {"the history has no transactions"}
    assert why(passed_over={"not-converged": "nobody looked"}) == {"not-converged": "nobody looked"}
    others = why(processes=(PRODUCER, replace(READER, client="confluent"), FINAL, HARNESS))
    assert others == {"thrown-back": "the history has no readers of our own client"}
    resumed = why(counted=ENOUGH._replace(resumed=0))
    assert resumed == {"commit-ahead": "no member ever took over a partition at a committed position"}


def test_of_a_program_it_says_which_report_is_missing() -> None:
    def why(**counted: Any) -> dict[str, str]:
        processes = (replace(PRODUCER, settings={"acks": -1}), READER, FINAL, HARNESS, MEMBER)
        return not_run(SENT_AND_READ, processes, [READ], {}, ENOUGH._replace(**counted))

    for name in ("commit-ahead", "revoked-read", "stuck-group"):
        assert why(holds=0)[name].startswith("the program reported no `processed`, and no `assigned` with an `offset`")
    assert why(grants=0).keys() == {"dual-ownership"}
    assert why(grants=0)["dual-ownership"].startswith("the program reported no commit in a `generation`: docs/")


def test_where_no_transaction_read_anything_no_cycle_was_looked_for() -> None:
    assert {*FOUND} - listed(SENT_AND_READ, counted=ENOUGH._replace(read_inside=0)) == {"G1c"}
