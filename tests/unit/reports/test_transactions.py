"""Transactions on the page: their outcomes, their lanes, and that every one that matters is found there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from squall.checkers.history.tables import INFO
from squall.reports import page as page_module
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.transactions import overview, section
from squall.reports.transactions.moments import moments_of
from squall.reports.transactions.observed import ObservedTxn, TransactionFacts
from squall.reports.transactions.outcomes import looked_at, outcome_of, sentence_of, visible_at
from squall.reports.transactions.reading import transactions_of
from tests.support.histories.txn_run import TxnRun


def _torn() -> TxnRun:
    """A committed transaction whose second partition got an abort marker."""
    run = TxnRun()
    writer = run.producer()
    run.initialised(writer)
    txn = run.begin(writer)
    run.decided("Ongoing", 0, 1)
    one = run.ok(run.send(writer, 0, txn=txn), 0)
    two = run.ok(run.send(writer, 1, txn=txn), 0)
    run.ask_end(txn, "commit")
    run.decided("PrepareCommit", 0, 1, epoch=1)
    run.marker(0, 1, epoch=1)
    run.trace(2, "txn_marker", topic="t", partition=1, producer=4000, epoch=1, coordinator_epoch=0, commit=False,
              offset=1, error=0)  # fmt: skip
    run.decided("CompleteCommit", epoch=1)
    txn.t1, txn.completion = run.tick(), {"st": 0, "how": "commit", "pid": 4000, "pe": 0}
    run.poll(run.reader(isolation=0), [(0, two.val)], part=1)
    run.poll(run.reader(isolation=1), [(0, one.val)], position=2)
    for isolation in (0, 1):
        run.final([(0, one.val)], end=2, position=2, isolation=isolation)
        run.final([(0, two.val)] if not isolation else [], part=1, end=2, position=2, isolation=isolation)
    return run


def _found(run: TxnRun, path: Path, *, foreign: str = "") -> TransactionFacts:
    return transactions_of(read_run(run.write(path, foreign=foreign)))


def _only(found: TransactionFacts) -> ObservedTxn:
    (txn,) = found.txns
    return txn


def test_a_transaction_has_what_client_coordinator_leaders_and_readers_tell_of_it(tmp_path: Path) -> None:
    found = _found(_torn(), tmp_path)
    txn = _only(found)
    assert [state.state for state in txn.states] == ["Ongoing", "PrepareCommit", "CompleteCommit"]
    assert [(mark.partition, mark.offset, txn.contradicts(mark)) for mark in txn.markers] == [
        ("t-0", 1, False), ("t-1", 1, True)
    ]  # fmt: skip
    assert visible_at(txn, found, "t-0") is not None and visible_at(txn, found, "t-1") is None
    assert outcome_of(txn) == "committed"


def test_the_moments_of_a_transaction_are_told_in_order_by_lane(tmp_path: Path) -> None:
    found = _found(_torn(), tmp_path)
    moments = moments_of(_only(found), found)
    assert [moment.t for moment in moments] == sorted(moment.t for moment in moments)
    kinds = [(moment.lane, moment.kind) for moment in moments if moment.kind in ("begun", "sent", "prepared", "marked")]
    assert kinds == [
        ("client", "begun"), ("t-0", "sent"), ("t-1", "sent"), ("coordinator", "prepared"), ("t-0", "marked"),
        ("t-1", "marked"),
    ]  # fmt: skip
    told = [moment.text for moment in moments]
    by = "(producer id 4000, epoch 1; coordinator epoch 0)"
    assert f"Broker 1, the coordinator, writes PrepareCommit of the transaction for t-0 and t-1 {by}." in told
    assert "Reader 1 (read_uncommitted) gets B at offset 0 of t-1 (last stable offset 1, high watermark 1)." in told


def test_every_outcome_has_its_word_and_says_why_where_nobody_asked(tmp_path: Path) -> None:
    run = TxnRun()
    first, second = run.producer(), run.producer()
    run.initialised(first)
    chosen = run.begin(first)
    run.ok(run.send(first, 0, txn=chosen), 0)
    run.end(chosen, "abort")
    left = run.begin(first)
    run.decided("Ongoing", 0, epoch=1)
    asked = run.tick()
    run.decided("PrepareEpochFence", 0, epoch=2)
    run.marker(0, 3, commit=False, epoch=2)
    run.decided("CompleteAbort", epoch=2)
    run.event("txn_init", p=second, x="a", t0=asked, pid=4000, pe=3)
    slow = run.begin(second)
    run.decided("Ongoing", 0, epoch=3)
    run.tick(2_000_000_000)
    run.decided("PrepareAbort", 0, epoch=4)
    run.decided("CompleteAbort", epoch=4)
    unsure = run.begin(second)
    run.ask_end(unsure, "commit")
    unsure.t1, unsure.completion = run.tick(), {"st": INFO, "err": "REQUEST_TIMED_OUT", "how": "commit"}
    found = _found(run, tmp_path)
    said = {txn.began: (outcome_of(txn), sentence_of(txn, found)) for txn in found.txns}
    assert said[chosen.t0 / 1e9] == ("aborted", "aborted by its client")
    assert said[left.t0 / 1e9] == (
        "aborted unasked", "aborted by the coordinator, because process 1 took over the transactional id"
    )  # fmt: skip
    assert said[slow.t0 / 1e9] == (
        "aborted unasked", "aborted by the coordinator, because its time-out of 1 s was over"
    )  # fmt: skip
    told = section.section_of(read_run(tmp_path), found)
    assert told is not None and "2 aborted by their coordinator (1 by time-out, 1 for a successor)" in told.sentence
    assert said[unsure.t0 / 1e9] == ("unknown", "unknown to its client (REQUEST_TIMED_OUT)")


def test_a_transaction_of_a_finding_stands_first_in_red_and_leads_to_its_lanes(tmp_path: Path) -> None:
    run = _torn()
    writer = run.producer()
    run.initialised(writer, "b")
    for _ in range(3):
        txn = run.begin(writer, "b")
        run.tick(900_000_000)
        run.end(txn, "abort")
    files = read_run(run.write(tmp_path))
    found = transactions_of(files)
    first, *rest = looked_at(files, found)
    assert (first.txn.id, first.why, first.grave) == ("a", "torn-txn", True)
    assert rest and not any(each.grave for each in rest)
    page = render(tmp_path).read_text()
    assert 'href="#txn-1"' in page and 'id="txn-1"' in page
    assert "torn-txn</span>: a at" in page and "visible at read_committed: in 1 of 2 partitions" in page
    bars = re.findall(r'<a href="#txn-1"><rect [^>]*fill="([^"]+)"', page)
    assert bars == ["var(--bad)"]


def test_what_a_run_without_traces_cannot_know_is_said(tmp_path: Path) -> None:
    page = render(_torn().write(tmp_path, foreign="Apache Kafka")).read_text()
    assert (
        "what coordinators decided and when markers were written is not known" in page
        and "coordinator: broker" not in page
    )


def test_a_run_without_transactions_has_no_such_section(run_dir: Path) -> None:
    assert 'id="transactions"' not in render(run_dir).read_text()


def test_every_picture_is_sound_xml_and_its_rows_stand_below_each_other(tmp_path: Path) -> None:
    run = _torn()
    run.fault("kill", 2_000_000, 9_000_000, "kill <of> a broker")
    page = render(run.write(tmp_path)).read_text()
    pictures = re.findall(r"<svg.*?</svg>", page[page.index('id="transactions"') : page.index('id="checks"')], re.S)
    assert len(pictures) == 2
    for picture in pictures:
        ElementTree.fromstring(picture)
        assert "kill &lt;of&gt; a broker: 0.00" in picture
    names = re.findall(r'<text x="174" y="(\d+)"', pictures[1])
    assert [int(y) for y in names] == sorted({int(y) for y in names}) and len(names) == 4


def test_of_very_many_transactions_those_of_one_outcome_in_one_place_are_one_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _torn()
    writer = run.producer()
    run.initialised(writer, "b")
    for number in range(300):
        run.end(run.begin(writer, "b"), "abort" if number % 2 else "commit")
    files = read_run(run.write(tmp_path))
    found = transactions_of(files)
    chosen = looked_at(files, found)
    whole = overview.overview_svg(found.txns, chosen, [], (0, 10), "t")
    monkeypatch.setattr(overview, "BARS_AT_MOST", 100)
    fewer = overview.overview_svg(found.txns, chosen, [], (0, 10), "t")
    assert whole.count("<rect") > 300 > 150 > fewer.count("<rect")
    merged = re.findall(r"(\d+) transactions: (committed|aborted by its client)<", fewer)
    assert sum(int(count) for count, _ in merged) >= 250 and len({outcome for _, outcome in merged}) == 2
    assert fewer.count("<a href") == whole.count("<a href") == len(chosen)


def test_ids_without_room_are_counted_and_those_of_findings_keep_their_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _torn()
    for number in range(4):
        run.end(run.begin(run.producer(), f"A{number}"), "commit")
    monkeypatch.setattr(overview, "ROWS_AT_MOST", 3)
    monkeypatch.setattr(section, "ROWS_AT_MOST", 3)
    files = read_run(run.write(tmp_path))
    shown = section.section_of(files, transactions_of(files))
    assert shown is not None and "2 of the ids have no row in the picture." in shown.sentence
    assert len(re.findall(r"</title></text>", shown.svg)) == 3 and "<title>a</title>" in shown.svg


def test_a_failure_of_the_section_is_named_and_the_page_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(page_module, "txn_section_of", fails)
    page = render(_torn().write(tmp_path)).read_text()
    assert "The transactions cannot be shown. Drawing failed: ValueError: a bug." in page and "INVALID" in page


@pytest.mark.parametrize("damage", ["cut", "values"])
def test_a_damaged_history_or_trace_never_takes_the_page_down(tmp_path: Path, damage: str) -> None:
    _torn().write(tmp_path)
    for path in (tmp_path / "history.jsonl", tmp_path / "nodes" / "1" / "trace.jsonl"):
        text = path.read_text()
        path.write_text(text[: len(text) * 2 // 3] if damage == "cut" else re.sub(r":\d+", ':"x"', text))
    assert "INVALID" in render(tmp_path).read_text()
