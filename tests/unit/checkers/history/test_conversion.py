"""The converter: JSONL into tables, whatever state the file is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import Witness
from squall.checkers.history import conversion
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import (
    EMPTY_POLL,
    FAIL,
    INFO,
    OK,
    POLL,
    SEND,
    History,
    PartitionFinalRead,
    RecordRow,
    ReportedBounds,
)
from tests.support.effort import stride
from tests.support.histories.builder import HistoryBuilder, generate
from tests.support.histories.nemesis_lines import NEMESIS, fault_line
from tests.support.histories.two_owners import two_owners


def records(kept: History) -> list[RecordRow]:
    return list(kept.records.rows())


def told(kept: History) -> list[ReportedBounds]:
    return list(kept.told.rows())


def lines_of(*objects: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() + b"\n" for each in objects]


HEADER = {"e": "h", "schema": 1, "run": "r", "wall_ms": 5, "mono_ns": 7}
PRODUCER = {
    "e": "p",
    "p": 0,
    "role": "producer",
    "client": "squall",
    "version": "1",
    "zone": "",
    "settings": {"acks": -1},
}
READER = {"e": "p", "p": 1, "role": "reader", "settings": {"isolation": 1}}
PARTITION = {"e": "t", "part": 0, "topic": "t", "index": 0, "cleanup": "delete", "retention_ms": -1}
DECLARED = (HEADER, PRODUCER, READER, PARTITION)


def send(op: int = 0, **more: Any) -> dict[str, Any]:
    return {"e": "i", "op": op, "p": 0, "f": "send", "t": 10, "part": 0, "v": op, "k": None, "d": 1, **more}


def poll(op: int = 0, **more: Any) -> dict[str, Any]:
    return {"e": "i", "op": op, "p": 1, "f": "poll", "t": 20, "at": {"0": 0}, **more}


def done(op: int = 0, **more: Any) -> dict[str, Any]:
    return {"e": "c", "op": op, "st": 0, "t": 30, **more}


# ---------------------------------------------------------------------------------------------------------- joining


def test_a_send_is_joined_with_its_completion() -> None:
    kept = parse(lines_of(*DECLARED, send(), done(off=4, ts=9)))
    (record,) = records(kept)
    assert (record.kind, record.st, record.proc, record.part, record.off, record.val) == (SEND, OK, 0, 0, 4, 0)
    assert (record.t0, record.t1, record.final) == (10, 30, 0)
    assert kept.outcomes == {"send": {"ok": 1}}


@pytest.mark.parametrize(("told", "tries"), [({}, -1), ({"n": 3}, 3), ({"n": 3, "st": INFO, "err": "CLOSED"}, -1)])
def test_an_acknowledgement_may_say_how_often_its_record_was_sent(told: dict[str, Any], tries: int) -> None:
    (record,) = records(parse(lines_of(*DECLARED, send(), done(off=4, ts=9, **told))))
    assert record.tries == tries


def test_a_send_without_completion_may_have_been_done() -> None:
    (record,) = records(parse(lines_of(*DECLARED, send())))
    assert (record.st, record.off, record.t1) == (INFO, -1, -1)


def test_an_offset_that_came_with_an_error_says_nothing() -> None:
    kept = parse(lines_of(*DECLARED, send(), done(st=INFO, off=4, err="REQUEST_TIMED_OUT")))
    assert records(kept)[0].off == -1
    assert kept.outcomes == {"send": {"info": 1, "error REQUEST_TIMED_OUT": 1}}


def test_a_poll_becomes_a_row_for_each_record_and_one_for_each_empty_partition() -> None:
    second = {**PARTITION, "part": 1, "index": 1}
    got = [[0, 2, 9, 8, 0, [[0, 5], [1, 6]], 3], [1, 4, 9, 8, 0, [], 3]]
    kept = parse(lines_of(*DECLARED, second, poll(at={"0": 0, "1": 4}), done(got=got)))
    rows = [(each.kind, each.part, each.idx, each.off, each.val, each.iso) for each in records(kept)]
    assert rows == [(POLL, 0, 0, 0, 5, 1), (POLL, 0, 1, 1, 6, 1), (EMPTY_POLL, 1, 2, 4, -1, 1)]
    answers = [
        (each.part, each.position, each.hw, each.lso, each.records, each.last_off, each.epoch) for each in told(kept)
    ]
    assert answers == [(0, 2, 9, 8, 2, 1, 3), (1, 4, 9, 8, 0, -1, 3)]


def test_an_answer_of_a_client_that_knows_no_epochs_has_none() -> None:
    kept = parse(lines_of(*DECLARED, poll(), done(got=[[0, 0, 9, 8, 0, []]])))
    assert told(kept)[0].epoch == -1


def test_each_read_says_what_the_same_reader_got_before() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [(0, 1), (1, 2)])
    h.poll(reader, [(2, 3)])
    h.operation(reader, "seek", at={"0": 0})
    h.poll(reader, [(0, 1)])
    found = [(each.off, each.before, each.inside, each.seg) for each in records(h.history())]
    assert found == [(0, -1, 0, 0), (1, 0, 1, 0), (2, 1, 0, 0), (0, -1, 0, 1)]


def test_records_that_do_not_verify_are_counted() -> None:
    kept = parse(lines_of(*DECLARED, poll(), done(got=[[0, 1, 9, 8, 0, [[0, -1]], 3]], bad=[[0, 0, "checksum"]])))
    assert kept.corrupt == 1


def test_keys_are_kept_for_compacted_partitions_only() -> None:
    compacted = {**PARTITION, "part": 1, "cleanup": "compact"}
    found = lines_of(
        *DECLARED, compacted, send(0, k="a"), send(1, part=1, k="a"), send(2, part=1, k="b"), send(3, part=1)
    )
    assert [each.key for each in records(parse(found))] == [-1, 0, 1, -1]


def test_processes_remember_when_they_were_last_heard_of() -> None:
    event = {"e": "x", "t": 77, "kind": "poll_errors", "p": 1}
    kept = parse(lines_of(*DECLARED, poll(), done(got=[]), event))
    assert [each.last_t for each in kept.processes] == [-1, 77]


# ------------------------------------------------------------------------------------------------------- final reads


def final(kept: History) -> PartitionFinalRead:
    (found,) = kept.finals
    return found


def test_a_final_read_from_the_start_to_the_end_is_complete() -> None:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    kept = h.history()
    assert final(kept).complete
    partition = kept.partitions[0]
    assert (partition.cover_from, partition.cover_to, partition.cover_t0) == (0, 1, final(kept).t0)


@pytest.mark.parametrize(
    "told_of",
    [{"end": 5}, {"at": 1, "position": 3, "end": 3}],
    ids=["it did not reach the end", "it began behind the log start"],
)
def test_a_final_read_that_left_something_out_is_not_complete(told_of: dict[str, int]) -> None:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    end = told_of.pop("end")
    h.final([(told_of.get("at", 0), value)], **told_of).end = {0: end}
    kept = h.history()
    assert not final(kept).complete
    assert kept.partitions[0].cover_t0 == -1


def test_a_final_reader_that_jumped_is_not_whole() -> None:
    h = HistoryBuilder()
    reader = h.final_reader()
    h.poll(reader, [(0, 1)], f="final_read", at=0)
    h.poll(reader, [(5, 2)], f="final_read", at=5).end = {0: 6}
    kept = h.history()
    assert not final(kept).whole
    assert kept.partitions[0].cover_to == -1


def test_a_final_reader_may_read_something_twice() -> None:
    h = HistoryBuilder()
    reader = h.final_reader()
    h.poll(reader, [(0, 1), (1, 2)], f="final_read", at=0)
    h.poll(reader, [(1, 2)], f="final_read", at=1).end = {0: 2}
    assert final(h.history()).complete


def test_the_furthest_final_read_says_how_far_losses_can_be_judged() -> None:
    h = HistoryBuilder()
    h.partial_final([(0, 1)])
    h.partial_final([(0, 1), (1, 2)])
    h.partial_final([])
    partition = h.history().partitions[0]
    assert (partition.cover_from, partition.cover_to) == (0, 2)


# ------------------------------------------------------------------------------------------------------- bad input

BAD_LINES = {
    "no JSON": b"nonsense\n",
    "no object": b"[]\n",
    "no kind": b"{}\n",
    "unknown kind": b'{"e":"z"}\n',
    "kind of another type": b'{"e":[]}\n',
    "no UTF-8": b'{"e":"\xff"}\n',
    "empty": b"\n",
    "zeros": b"\0" * 64 + b"\n",
    "second header": json.dumps(HEADER).encode() + b"\n",
    "process twice": json.dumps(PRODUCER).encode() + b"\n",
    "partition twice": json.dumps(PARTITION).encode() + b"\n",
    "negative partition": json.dumps({**PARTITION, "part": -1}).encode() + b"\n",
    "operation before the last one": json.dumps(send(0)).encode() + b"\n",
    "value again": json.dumps(send(5, v=1)).encode() + b"\n",
    "value of somebody else": json.dumps(send(5, v=1 << 40)).encode() + b"\n",
    "undeclared process": json.dumps(send(5, p=9)).encode() + b"\n",
    "undeclared partition": json.dumps(send(5, part=9)).encode() + b"\n",
    "number as text": json.dumps(send(5, t="10")).encode() + b"\n",
    "value as fraction": json.dumps(send(5, v=1.5)).encode() + b"\n",
    "key that is no text": json.dumps(send(5, k=["a"])).encode() + b"\n",
    "time too large": json.dumps(send(5, t=1 << 63)).encode() + b"\n",
    "number as fraction": json.dumps(done(1, off=1.5)).encode() + b"\n",
    "number too large": json.dumps(done(1, off=1 << 64)).encode() + b"\n",
    "completion of nothing": json.dumps(done(99)).encode() + b"\n",
    "completion of a thing done": json.dumps(done(0)).encode() + b"\n",
    "unknown status": json.dumps(done(1, st=3)).encode() + b"\n",
    "answer of another shape": json.dumps(done(2, got=[[0, 1]])).encode() + b"\n",
    "records of another shape": json.dumps(done(2, got=[[0, 1, 2, 2, 0, [[1]], 0]])).encode() + b"\n",
    "answer of an undeclared partition": json.dumps(done(2, got=[[7, 1, 2, 2, 0, [], 0]])).encode() + b"\n",
    "record that is half there": json.dumps(done(2, got=[[0, 1, 2, 2, 0, [[0, 0], [1, "x"]], 0]])).encode() + b"\n",
}
BEFORE = [*lines_of(*DECLARED, send(0), done(0, off=0), send(1), poll(2))]


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_that_cannot_be_is_named_and_what_stands_before_it_is_kept(name: str) -> None:
    kept = parse([*BEFORE, BAD_LINES[name], *lines_of(done(1, off=1))])
    assert kept.problem is not None
    assert (kept.problem.file, kept.problem.line) == ("history.jsonl", len(BEFORE) + 1)
    assert [(each.st, each.off) for each in records(kept)] == [(OK, 0), (INFO, -1)]
    assert told(kept) == []


def test_a_history_must_begin_with_its_header() -> None:
    kept = parse(lines_of(PRODUCER))
    assert str(kept.problem) == "history.jsonl: line 1: the history does not begin with its header"


def test_a_history_of_another_schema_is_not_guessed_at() -> None:
    kept = parse(lines_of({**HEADER, "schema": 2}))
    assert "schema 2" in str(kept.problem)


def test_a_history_of_jepsen_is_named_as_edn() -> None:
    problem = parse([b"{:type :invoke, :f :send, :value [[:send 0 1]], :process 0}\n"]).problem
    assert str(problem) == "history.jsonl: line 1: this is EDN, as Jepsen writes histories, and no JSON"


def test_an_empty_history_is_a_problem() -> None:
    assert str(parse([]).problem) == "history.jsonl: nothing is in it"


# -------------------------------------------------------------------------------------------------------- torn files


@pytest.mark.gate
def test_a_history_cut_at_any_byte_is_a_history() -> None:
    """At every byte of the last three lines, which have all kinds of ends; elsewhere at each 17th."""
    text = b"".join(generate(3, sends=3).lines())
    tail = len(text) - len(b"".join(text.splitlines(keepends=True)[-3:]))
    for cut in (*range(0, tail, 17), *range(tail, len(text) + 1)):
        kept = parse(text[:cut].splitlines(keepends=True))
        if kept.problem is not None:
            assert str(kept.problem) == "history.jsonl: nothing is in it"
        whole = text[:cut].count(b"\n")
        # A last line that lacks nothing but its line feed is as good as whole.
        assert kept.lines in (whole, whole + 1)
        assert kept.torn_bytes == (0 if kept.lines > whole else len(text[:cut].rpartition(b"\n")[2]))
        assert len(list(kept.records.rows())) == len(kept.records)


def test_no_cut_makes_a_clean_history_dirty() -> None:
    lines = generate(5, sends=40).lines()
    for end in range(0, len(lines), stride(7)):
        assert find_all(parse(lines[:end])) == []


def test_what_is_found_in_a_prefix_is_found_in_the_whole_or_explained_by_it() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    value = h.sent(h.producer(), 0)
    h.poll(reader, [(0, value), (3, 999)])
    h.final([(0, value)])
    lines = h.lines()
    seen: set[Witness] = set()
    for end in range(len(lines)):
        seen |= {witness for witness in find_all(parse(lines[:end])) if witness.anomaly == "phantom"}
    assert {witness.val for witness in seen} == {999}


# ----------------------------------------------------------------------------------------------------------- parquet


def write(run_dir: Path, lines: list[bytes], nemesis: bytes | None = NEMESIS) -> Path:
    (run_dir / "history.jsonl").write_bytes(b"".join(lines))
    if nemesis is not None:
        (run_dir / "nemesis.jsonl").write_bytes(nemesis)
    return run_dir


def test_tables_come_back_from_parquet_as_they_went(tmp_path: Path) -> None:
    lines = generate(1, cleanup="compact").lines()
    conversion.convert(write(tmp_path, lines))
    kept, faults = conversion.load(tmp_path)
    expected = parse(lines)
    assert (kept.records.data, kept.told.data, kept.ops.data) == (
        expected.records.data,
        expected.told.data,
        expected.ops.data,
    )
    assert kept.partitions == expected.partitions
    assert kept.processes == expected.processes
    assert kept.finals == expected.finals
    assert kept.assignments == expected.assignments
    assert (kept.names, kept.outcomes, kept.run) == (expected.names, expected.outcomes, expected.run)
    assert [(fault.id, fault.action, fault.resolved) for fault in faults] == [(0, "kill", (2,)), (1, "partition", (2,))]


def test_who_owned_what_comes_back_without_the_large_tables(tmp_path: Path) -> None:
    lines = two_owners().lines()
    conversion.convert(write(tmp_path, lines))
    kept, _ = conversion.load(tmp_path, large=False)
    assert (kept.holds.data, len(kept.records)) == (parse(lines).holds.data, 0)
    assert conversion.load(tmp_path)[0].holds.data == kept.holds.data


def test_when_a_topic_was_deleted_comes_back(tmp_path: Path) -> None:
    h = HistoryBuilder(2)
    asked = h.operation(h.process("admin"), "admin", what="delete_topic", part=0).t0
    conversion.convert(write(tmp_path, h.lines()))
    kept, _ = conversion.load(tmp_path, large=False)
    assert [(each.deleted, each.deleted_t) for each in kept.partitions] == [(True, asked), (False, -1)]


def test_a_long_history_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = generate(2).lines()
    monkeypatch.setattr("squall.checkers.history.parser.DRAIN_ROWS", 50)
    conversion.convert(write(tmp_path, lines))
    kept, _ = conversion.load(tmp_path)
    assert kept.records.data == parse(lines).records.data


def test_converting_again_replaces_what_was_there(tmp_path: Path) -> None:
    first = conversion.convert(write(tmp_path, generate(1).lines()))
    second = conversion.convert(write(tmp_path, generate(2, sends=30).lines()))
    assert conversion.read_conversion(tmp_path) == second != first


def test_the_conversion_says_what_does_not_parse(tmp_path: Path) -> None:
    converted = conversion.convert(write(tmp_path, [*BEFORE, b"nonsense\n"], fault_line() + b"nonsense\n"))
    assert [(each.file, each.line) for each in converted.problems] == [
        ("history.jsonl", len(BEFORE) + 1),
        ("nemesis.jsonl", 2),
    ]
    assert conversion.read_conversion(tmp_path) == converted


def test_a_run_without_history_converts_to_nothing_and_says_so(tmp_path: Path) -> None:
    converted = conversion.convert(tmp_path)
    assert list(map(str, converted.problems)) == ["history.jsonl: there is none"]
    kept, faults = conversion.load(tmp_path)
    assert (len(kept.records), kept.partitions, faults) == (0, [], [])


def test_a_conversion_of_another_schema_is_not_guessed_at(tmp_path: Path) -> None:
    conversion.convert(tmp_path)
    path = tmp_path / "history" / "conversion.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 0'))
    with pytest.raises(ValueError, match="convert the history again"):
        conversion.read_conversion(tmp_path)


def test_a_failed_poll_keeps_what_it_returned() -> None:
    kept = parse(lines_of(*DECLARED, poll(), done(st=FAIL, got=[[0, 1, 9, 8, 0, [[0, 5]], 3]], err="NO")))
    assert [(each.st, each.off) for each in records(kept)] == [(FAIL, 0)]
