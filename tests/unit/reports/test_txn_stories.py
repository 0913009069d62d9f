"""The story of each anomaly of transactions, from its witness: what it says, what its picture shows."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.checkers.history.tables import OK
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.story_index import RenderedStory, rendered_stories
from squall.reports.transactions.logs import PartitionLog
from squall.reports.transactions.reading import transactions_of
from tests.support.histories.builder import Other
from tests.support.histories.txn_run import TxnRun


def _committed(run: TxnRun, writer: int, *, markers: tuple[int, ...] = (0, 1), ask: str = "commit") -> list[int]:
    """A transaction of one record in each of two partitions; its commit is acknowledged. Gives the values."""
    txn = run.begin(writer)
    run.decided("Ongoing", 0, 1)
    values = [run.ok(run.send(writer, part, txn=txn), 0).val for part in (0, 1)]
    _ended(run, txn, ask, markers)
    return values


def _ended(run: TxnRun, txn: Other, ask: str, markers: tuple[int, ...]) -> None:
    run.ask_end(txn, ask)
    run.decided(f"Prepare{ask.title()}", 0, 1, epoch=1)
    for part in markers:
        run.marker(part, 1, commit=ask == "commit", epoch=1)
    run.decided(f"Complete{ask.title()}", epoch=1)
    txn.t1, txn.completion = run.tick(), {"st": OK, "how": ask, "pid": 4000, "pe": 0}


def _writer(run: TxnRun) -> int:
    writer = run.producer()
    run.initialised(writer)
    return writer


def _finals(run: TxnRun, committed: list[list[tuple[int, int]]], everything: list[list[tuple[int, int]]]) -> None:
    for isolation, read in ((0, everything), (1, committed)):
        for part, pairs in enumerate(read):
            run.final(pairs, part=part, end=2, position=2, isolation=isolation)


def torn() -> TxnRun:
    run = TxnRun()
    one, two = _committed(run, _writer(run), markers=(0,))
    run.marker(1, 1, commit=False, epoch=1)
    run.fault("kill", 1_000_000, 30_000_000, "kill", "broker 2 was killed")
    _finals(run, [[(0, one)], []], [[(0, one)], [(0, two)]])
    return run


def lost() -> TxnRun:
    run = TxnRun()
    one, two = _committed(run, _writer(run), markers=())
    _finals(run, [[], []], [[(0, one)], [(0, two)]])
    return run


def aborted_read() -> TxnRun:
    run = TxnRun()
    reader = run.reader(isolation=1)
    one, two = _committed(run, _writer(run), ask="abort")
    run.poll(reader, [(0, one)])
    _finals(run, [[], []], [[(0, one)], [(0, two)]])
    return run


def dirty() -> TxnRun:
    run = TxnRun()
    writer, reader = _writer(run), run.reader(isolation=1)
    txn = run.begin(writer)
    run.decided("Ongoing", 0)
    one = run.ok(run.send(writer, 0, txn=txn), 0).val
    two = run.ok(run.send(writer, 1, txn=txn), 0).val
    run.poll(reader, [(0, one)])
    _ended(run, txn, "commit", (0, 1))
    _finals(run, [[(0, one)], [(0, two)]], [[(0, one)], [(0, two)]])
    return run


def zombie() -> TxnRun:
    run = TxnRun()
    first = _writer(run)
    txn = run.begin(first)
    second = _writer(run)
    one = run.ok(run.send(first, 0, txn=txn), 0).val
    two = run.ok(run.send(first, 1, txn=txn), 0).val
    _ended(run, txn, "commit", (0, 1))
    _finals(run, [[(0, one)], [(0, two)]], [[(0, one)], [(0, two)]])
    assert second != first
    return run


def hanging() -> TxnRun:
    run = TxnRun()
    one, two = _committed(run, _writer(run), markers=(0,))
    for _ in range(2):
        run.final([(0, one)], end=2, position=2, isolation=1)
        run.poll(run.final_reader(1, 1), [], part=1, at=0, f="final_read", position=0, hw=1, lso=0)
        run.tick(13_000_000_000)
    run.poll(run.final_reader(1, 0), [(0, two)], part=1, f="final_read", hw=1, lso=0)
    return run


def beyond() -> TxnRun:
    run = TxnRun()
    writer, reader = _writer(run), run.reader(isolation=1)
    txn = run.begin(writer)
    run.decided("Ongoing", 0)
    one = run.ok(run.send(writer, 0, txn=txn), 0).val
    two = run.ok(run.send(writer, 1, txn=txn), 0).val
    run.ask_end(txn, "commit")
    run.poll(reader, [(0, one)], hw=1, lso=0)
    run.decided("PrepareCommit", 0, 1, epoch=1)
    txn.t1, txn.completion = run.tick(), {"st": OK, "how": "commit", "pid": 4000, "pe": 0}
    _finals(run, [[(0, one)], [(0, two)]], [[(0, one)], [(0, two)]])
    return run


def circle() -> TxnRun:
    run = TxnRun()
    readers = run.reader(isolation=1)
    assert readers == 0
    txns = []
    for name in ("a", "b"):
        writer = run.process("producer", acks=-1, idempotence=True, isolation=1)
        run.initialised(writer, name)
        txns.append((writer, run.begin(writer, name)))
    values = [run.ok(run.send(writer, part, txn=txn), 0).val for part, (writer, txn) in enumerate(txns)]
    for part, (writer, txn) in enumerate(txns):
        run.poll(writer, [(0, values[1 - part])], part=1 - part).txn = txn
    for _, txn in txns:
        run.end(txn, "commit")
    _finals(run, [[(0, values[0])], [(0, values[1])]], [[(0, values[0])], [(0, values[1])]])
    return run


SAID: dict[str, tuple[Callable[[], TxnRun], tuple[str, ...]]] = {
    "torn-txn": (torn, (
        "B of t-1 is not visible at read_committed. t-1 has an abort marker of it.",
        "Broker 2 writes the abort marker to t-1 at offset 1 (producer id 4000, epoch 1; coordinator epoch 0)",
        "coordinator epoch 0), though its coordinator decided otherwise.",
        "The final read_committed reads of t-1 do not return B (last stable offset 2, high watermark 2).",
        "T1 in t-0: A at offset 0; commit marker at offset 1, written at",
        "Fault 0 (kill) has ended. broker 2 was killed",
    )),
    "lost-txn": (lost, (
        "The final read_committed reads of t-0 do not return A", "do not return B",
        "T1 in t-1: B at offset 0; no trace tells of a marker.",
    )),
    "G1a": (aborted_read, (
        "T1 is aborted by its client: read_committed must not return it.",
        "T1 in t-0: A at offset 0; abort marker at offset 1",
    )),
    "dirty-read": (dirty, ("Nobody has asked to commit T1 yet.",)),
    "zombie-write": (zombie, (
        "Process 1 is given the transactional id a (producer id 4000, epoch 0): earlier ones are fenced.",
        "Process 0 was fenced 1.0 ms before it sent A: process 1 had taken over a.",
        "before it asked to commit T1: process 1 had taken over a.",
    )),
    "hanging-txn": (hanging, (
        "The final reads cannot go on: t-1 still has last stable offset 0, high watermark 1.",
        "T1 in t-1: B at offset 0; no trace tells of a marker.",
    )),
    "lso-violation": (beyond, (
        "Offset 0 does not lie before the last stable offset that the same answer tells.",
    )),
    "G1c": (circle, ("That poll is part of T2.", "That poll is part of T1.", "G1c: T1, T2 of")),
}  # fmt: skip


def _story(run: TxnRun, path: Path, name: str, **more: str) -> RenderedStory:
    told = rendered_stories(read_run(run.write(path, **more)))
    return next(each for each in told if name in (each.problem.name, each.problem.also))


@pytest.mark.parametrize("name", SAID)
def test_the_story_of_an_anomaly_says_what_its_transaction_came_to(name: str, tmp_path: Path) -> None:
    build, said = SAID[name]
    text = re.sub(r"\s+", " ", _story(build(), tmp_path, name).text)
    for words in said:
        assert words in text, (words, text)


@pytest.mark.parametrize("name", SAID)
def test_the_picture_shows_where_it_went_wrong_and_every_lane(name: str, tmp_path: Path) -> None:
    told = _story(SAID[name][0](), tmp_path, name)
    svg = told.draw("one")
    ElementTree.fromstring(svg)
    assert 'stroke="var(--s-bad)"' in svg
    for lane in ("t-0", "t-1", "Readers", "Process "):
        assert f">{lane}" in svg, lane


def test_the_picture_has_markers_struck_out_data_and_the_last_stable_offset(tmp_path: Path) -> None:
    svg = _story(aborted_read(), tmp_path, "G1a").draw("one")
    wrong = _story(dirty(), tmp_path / "dirty", "dirty-read").draw("one")
    down, up = r'L[\d.]+ ([\d.]+)L[\d.]+ \1Z"', 'stroke="var(--link, #0b5cad)" stroke-width="4.5"'
    assert re.search(down, svg) and re.search(down, wrong), "markers are triangles"
    assert up in svg and up in wrong
    struck = 'stroke="#0072b2" stroke-width="2"'
    assert struck in svg and struck not in wrong, "only aborted data is struck out"


def test_the_last_stable_offset_of_a_log_stands_at_the_first_open_transaction(tmp_path: Path) -> None:
    run = TxnRun()
    writer, other = _writer(run), run.producer()
    run.initialised(other, "b")
    one = run.begin(writer)
    run.decided("Ongoing", 0)
    first = run.ok(run.send(writer, 0, txn=one), 5)
    run.ask_end(one, "commit")
    run.decided("PrepareCommit", 0, epoch=1)
    run.marker(0, 6, epoch=1)
    log = PartitionLog(transactions_of(read_run(run.write(tmp_path))), "t-0")
    marked = log.entries[6].since
    assert [log.lso_at(t) for t in (0, first.t1 / 1e9, marked - 1e-9, marked)] == [-1, 5, 5, 7]
    assert [log.state_at(log.entries[5], t) for t in (marked - 1e-9, marked)] == ["open", "committed"]


def test_a_story_without_traces_says_what_is_not_known_and_tells_no_more(tmp_path: Path) -> None:
    text = re.sub(r"\s+", " ", _story(torn(), tmp_path, "torn-txn", foreign="Apache Kafka").text)
    assert (
        "Apache Kafka writes no trace, and its logs are not there: what coordinators decided and when markers" in text
    )
    assert "B at offset 0; where its marker stands is not known." in text
    assert "coordinator," not in text and "PrepareCommit" not in text


def test_a_story_of_brokers_without_traces_is_told_from_their_logs(tmp_path: Path) -> None:
    run = torn()
    run.write_logs(tmp_path)
    told = _story(run, tmp_path, "torn-txn", foreign="Apache Kafka")
    text = re.sub(r"\s+", " ", told.text)
    assert "decisions and markers are told from its logs, by the brokers' clocks, to the millisecond" in text
    assert "The coordinator writes PrepareCommit of T1 for t-0 and t-1 (producer id 4000, epoch 1;" in text
    assert "The leader of t-1 writes the abort marker to t-1 at offset 1 (producer id 4000, epoch 1;" in text
    assert "though its coordinator decided otherwise" in text and "Broker -1" not in text
    by_trace = transactions_of(read_run(run.write(tmp_path / "traced")))
    by_logs = transactions_of(read_run(tmp_path))
    assert [each.state for txn in by_logs.txns for each in txn.states] == [
        each.state for txn in by_trace.txns for each in txn.states
    ]
    for logged, traced in zip(by_logs.txns[0].markers, by_trace.txns[0].markers, strict=True):
        assert (logged.partition, logged.offset, logged.commit) == (traced.partition, traced.offset, traced.commit)
        assert 0 <= logged.t - traced.t <= 0.002, "the end of its millisecond"


@pytest.mark.parametrize("damage", ["cut", "flipped", "no batch"])
def test_damaged_logs_tell_what_stands_before_the_damage(tmp_path: Path, damage: str) -> None:
    run = torn()
    run.write_logs(tmp_path)
    for path in tmp_path.glob("nodes/*/data/*/*.log"):
        whole = path.read_bytes()
        cut, flipped = whole[: len(whole) // 2], whole[:-9] + bytes(byte ^ 255 for byte in whole[-9:])
        path.write_bytes({"cut": cut, "flipped": flipped, "no batch": b"x" * 200}[damage])
    assert "torn-txn" in _story(run, tmp_path, "torn-txn", foreign="Apache Kafka").text


def late_end() -> TxnRun:
    """An EndTxn that a fault held ends the transaction after the one that it was meant for (KAFKA-17754)."""
    run = TxnRun()
    writer = _writer(run)
    before = run.begin(writer)
    run.decided("Ongoing", 0)
    run.ok(run.send(writer, 0, txn=before), 0)
    run.ask_end(before, "abort")
    came = run.tick()
    _ended_again(run, before, "abort", 0, 1)
    txn = run.begin(writer)
    run.decided("Ongoing", 0)
    one = run.ok(run.send(writer, 0, txn=txn), 2)
    let_go = run.tick()
    run.decided("PrepareAbort", 0)
    run.marker(0, 3, commit=False)
    run.decided("CompleteAbort")
    run.decided("Ongoing", 1)
    two = run.ok(run.send(writer, 1, txn=txn), 0)
    run.ask_end(txn, "commit")
    _ended_again(run, txn, "commit", 1, 1)
    run.fault("protocol", 1, run.now, "protocol (api EndTxn, act delay)", "It struck once.")
    struck = {"said": "abort of a, producer 4000, epoch 0", "came_ns": came, "held_ms": (let_go - came) / 1e6}
    run.faults[0]["params"] = {"api": "EndTxn"}
    run.faults[0]["evidence"] = {"struck": [{**struck, "answer": "NONE", "answered_ns": let_go + 5, "link": "C->1"}]}
    for isolation in (0, 1):
        run.final([] if isolation else [(2, one.val)], at=0, end=4, position=4, isolation=isolation)
        run.final([(0, two.val)], part=1, end=2, position=2, isolation=isolation)
    return run


def _ended_again(run: TxnRun, txn: Other, ask: str, part: int, offset: int) -> None:
    run.decided(f"Prepare{ask.title()}", part)
    run.marker(part, offset, commit=ask == "commit")
    run.decided(f"Complete{ask.title()}")
    txn.t1, txn.completion = run.tick(), {"st": OK, "how": ask, "pid": 4000, "pe": 0}


def test_a_late_end_of_one_transaction_that_ends_the_next_is_told_with_the_request_that_was_held(
    tmp_path: Path,
) -> None:
    told = _story(late_end(), tmp_path, "torn-txn")
    text = re.sub(r"\s+", " ", told.text)
    order = (
        "Process 0 asks to abort T0 (EndTxn).",
        "Fault 0 holds the EndTxn of T0 (abort of a, producer 4000, epoch 0), from C to 1.",
        "Process 0 is told that T0 is aborted.",
        "Fault 0 lets the EndTxn of T0 go after",
        "the answer is NONE.",
        "writes PrepareAbort of T1 for t-0 (producer id 4000, epoch 0; coordinator epoch 0), though process 0 has",
        "Process 0 asks to commit T1 (EndTxn).",
        "Process 0 is told that T1 is committed.",
    )
    places = [text.index(words, text.index(" 1. ")) for words in order]
    assert places == sorted(places)
    assert "protocol EndTxn" in told.draw("one")


def test_a_marker_that_ends_the_next_transaction_too_says_whose_records_it_took(tmp_path: Path) -> None:
    run = TxnRun()
    writer, reader = _writer(run), run.reader(isolation=1)
    before = run.begin(writer)
    run.decided("Ongoing", 0)
    run.ok(run.send(writer, 0, txn=before), 0)
    run.ask_end(before, "commit")
    run.decided("PrepareCommit", 0)
    before.t1, before.completion = run.tick(), {"st": OK, "how": "commit", "pid": 4000, "pe": 0}
    txn = run.begin(writer)
    one = run.ok(run.send(writer, 0, txn=txn), 1)
    run.marker(0, 2)
    run.decided("CompleteCommit")
    run.poll(reader, [(1, one.val)])
    run.decided("Ongoing", 0)
    run.ok(run.send(writer, 0, txn=txn), 3)
    run.ask_end(txn, "abort")
    _ended_again(run, txn, "abort", 0, 4)
    text = re.sub(r"\s+", " ", _story(run, tmp_path, "G1a").text)
    assert (
        "at offset 2 (producer id 4000, epoch 0; coordinator epoch 0). It ends A of T1 as well, which has the same"
        in text
    )
    assert text[text.index(" 1. ") :].count("as well") == 1, "the marker at offset 4 is that transaction's own"


def test_a_record_behind_its_marker_is_named(tmp_path: Path) -> None:
    run = hanging()
    text = re.sub(r"\s+", " ", _story(run, tmp_path, "hanging-txn").text)
    assert "nothing ends" not in text
    run.marker(1, 0, epoch=1)
    next(each for each in run.sends if each.part == 1).off = 1
    for poll in run.polls:
        for entry in poll.entries:
            if entry.part == 1:
                entry.pairs, entry.lso, entry.hw = [(1, value) for _, value in entry.pairs], 1, 2
    text = re.sub(r"\s+", " ", _story(run, tmp_path / "behind", "hanging-txn").text)
    assert "B came behind it, and nothing ends it" in text


def test_messages_tell_who_asked_for_a_marker_and_which_request_was_lost(tmp_path: Path) -> None:
    run = torn()
    run.write(tmp_path)
    marked = next(each["t"] for each in run.traces[2] if each["e"] == "txn_marker")
    asked = {"api": 27, "kind": "request", "source": 1, "target": 2, "correlation_id": 1, "size": 9, "note": ""}
    lost = {**asked, "api": 26, "source": "CLIENT", "target": 1, "note": "dropped", "t_sent": marked - 0.003}
    lines = [
        {**asked, "t_sent": marked - 0.002, "t_arrives": marked - 0.001},
        {**lost, "t_arrives": marked},
        {**lost, "api": 1, "t_arrives": marked},
    ]
    (tmp_path / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = re.sub(r"\s+", " ", _story(run, tmp_path, "torn-txn").text)
    assert f"Broker 1 had asked for it at {marked - 0.002:.4f} s (WriteTxnMarkers)." in text
    assert "The EndTxn request from the client (CLIENT) to broker 1 is lost on its way." in text
    assert "Fetch" not in text


def test_one_transaction_with_two_anomalies_has_one_story(tmp_path: Path) -> None:
    run = dirty()
    told = rendered_stories(read_run(run.write(tmp_path)))
    about = [each.problem for each in told if each.problem.ops]
    assert len({each.ops for each in about}) == len(about)


def test_the_page_tells_the_story_with_its_own_caption(tmp_path: Path) -> None:
    page = render(torn().write(tmp_path)).read_text()
    assert "torn-txn: T1 of a</summary>" in page and "struck out once its abort marker is" in page
    assert "could not be told" not in page
