"""The history on disk: what is promised about lines, and when they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from squall.broker.real_env import RealEnv
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import COMMIT, INFO, NOT_ENDED, POLL, SEND
from squall.checkers.history.values import SEQUENCE_BITS
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.recorder import GATHER_BYTES, CorruptRecord, PartitionPoll, ReadOutcome, Recorder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_first_line_is_the_header_with_both_clocks(path: Path) -> None:
    Recorder(RealEnv("harness"), str(path), "run-1")
    (header,) = lines(path)
    assert header["e"] == "h" and header["schema"] == 1 and header["run"] == "run-1"
    assert header["wall_ms"] > 1_600_000_000_000 and header["mono_ns"] > 0


def test_sends_are_recorded_as_the_contract_says(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    part = recorder.partition("t", 3, retention_ms=1000)
    process = recorder.process("producer", "1.0", {"acks": -1}, zone="a")
    first = recorder.invoke_send(process, part, 77, 'k"1', 99, 100)
    second = recorder.invoke_send(process, part, 78, None, 98, 200)
    recorder.send_ok(first, 1234, 5678)
    recorder.send_not_ok(second, OperationStatus.INFO, "TIMED_OUT")
    recorder.send_ok(recorder.invoke_send(process, part, 79, None, 97, 1), 1235, 5679, 2)
    recorder.close()
    header, t, p, i0, i1, c0, c1, _, c2, end = lines(path)
    assert header["ends"] is True
    before = path.read_bytes().splitlines(keepends=True)[:-1]
    sealed = {"lines": 9, header["seal"]: crc32(b"".join(before))}
    assert {**end, "t": 0} == {"e": "x", "t": 0, "kind": "end", **sealed}
    assert t == {"e": "t", "part": 0, "topic": "t", "index": 3, "cleanup": "delete", "retention_ms": 1000}
    process_line = {"e": "p", "p": 0, "role": "producer", "client": "squall", "version": "1.0", "zone": "a"}
    assert p == {**process_line, "settings": {"acks": -1}}
    times = [line.pop("t") for line in (i0, i1, c0, c1)]
    assert times == sorted(times)
    assert i0 == {"e": "i", "op": 0, "p": 0, "f": "send", "part": 0, "v": 77, "k": 'k"1', "d": 99, "b": 100}
    assert i1 == {"e": "i", "op": 1, "p": 0, "f": "send", "part": 0, "v": 78, "k": None, "d": 98, "b": 200}
    assert c0 == {"e": "c", "op": 0, "st": 0, "off": 1234, "ts": 5678}
    assert c1 == {"e": "c", "op": 1, "st": 2, "off": -1, "ts": -1, "err": "TIMED_OUT"}
    assert {**c2, "t": 0} == {"e": "c", "op": 2, "st": 0, "t": 0, "off": 1235, "ts": 5679, "n": 2}


def test_a_read_writes_both_its_lines_with_their_own_times(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    began = recorder.now_ns()
    outcome = ReadOutcome(
        got=[PartitionPoll(0, 12, 20, 19, 3, [(10, 77), (11, -1)], 6)],
        bad=[CorruptRecord(0, 11, "checksum")],
        end={0: 12},
    )
    recorder.read(4, "final_read", began, {0: 10}, outcome)
    recorder.read(4, "poll", began, {0: 12}, ReadOutcome(OperationStatus.FAIL, error="TIMED_OUT"))
    recorder.flush()
    _, i0, c0, i1, c1 = lines(path)
    assert i0 == {"e": "i", "op": 0, "p": 4, "f": "final_read", "t": began, "at": {"0": 10}}
    assert c0.pop("t") >= began
    got = [[0, 12, 20, 19, 3, [[10, 77], [11, -1]], 6]]
    assert c0 == {"e": "c", "op": 0, "st": 0, "got": got, "bad": [[0, 11, "checksum"]], "end": {"0": 12}}
    assert i1["op"] == c1["op"] == 1
    assert c1["st"] == 1 and c1["got"] == [] and c1["err"] == "TIMED_OUT"


def test_what_was_flushed_is_in_the_file_without_any_close(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    recorder.invoke_send(0, 0, 1, "k", 0, 64)
    assert len(lines(path)) == 1
    recorder.flush()
    assert len(lines(path)) == 2


def test_gathered_lines_are_bounded(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    for value in range(2 * GATHER_BYTES // 100):
        recorder.invoke_send(0, 0, value, "k" * 60, 0, 64)
    assert path.stat().st_size > GATHER_BYTES


def test_a_partition_is_declared_once(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    assert [recorder.partition("t", 0), recorder.partition("t", 1), recorder.partition("t", 0)] == [0, 1, 0]
    recorder.flush()
    assert [line["e"] for line in lines(path)] == ["h", "t", "t"]


def test_a_history_is_never_written_over(path: Path) -> None:
    Recorder(RealEnv("harness"), str(path), "run-1")
    with pytest.raises(FileExistsError):
        Recorder(RealEnv("harness"), str(path), "run-2")


def test_lines_that_the_disk_refused_are_written_by_the_next_flush(path: Path) -> None:
    env = RealEnv("harness")
    recorder = Recorder(env, str(path), "run-1")
    recorder.event("note", text="kept")
    full = pytest.MonkeyPatch()

    def refuse(data: bytes) -> int:
        raise OSError(28, "No space left on device")

    full.setattr(recorder, "_file", type("Full", (), {"append": staticmethod(refuse)})())
    with pytest.raises(OSError, match="No space"):
        recorder.flush()
    full.undo()
    recorder.flush()
    assert lines(path)[-1]["text"] == "kept"


def test_a_transaction_is_read_back_as_it_was_recorded(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    part, producer = recorder.partition("t", 0), recorder.process("producer", "1.0", {"acks": -1})
    recorder.initialised(producer, "id-a", recorder.now_ns(), 4000, 7)
    kept = recorder.begin_txn(producer, "id-a", 5000)
    send = recorder.invoke_send(producer, part, producer << SEQUENCE_BITS, None, 1, 100, txn=kept)
    poll = recorder.read(producer, "poll", recorder.now_ns(), {part: 0}, ReadOutcome(), txn=kept)
    recorder.send_ok(send, 3, -1)
    recorder.ask_end(producer, kept, "commit")
    recorder.txn_ended(kept, OperationStatus.OK, "commit", 4000, 7)
    open_ = recorder.begin_txn(producer, "id-a", 5000)
    recorder.close()
    with path.open("rb") as file:
        history = parse(file)
    assert history.problem is None
    (init,) = history.inits.rows()
    assert (init.proc, history.names[init.id], init.producer_id, init.epoch) == (producer, "id-a", 4000, 7)
    ended, left = history.txns.rows()
    assert (ended.op, history.names[ended.id], ended.how, ended.timeout_ms) == (kept, "id-a", COMMIT, 5000)
    assert ended.committed and ended.t0 <= ended.te <= ended.t1
    assert (left.op, left.st, left.how, left.te, left.t1) == (open_, INFO, NOT_ENDED, -1, -1)
    assert left.never_commits and not ended.never_commits
    assert list(history.members.rows()) == [
        (kept, SEND, send, part, producer << SEQUENCE_BITS),
        (kept, POLL, poll, -1, -1),
    ]


def test_a_topic_that_is_made_again_has_partitions_of_its_own(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    old = recorder.partition("t", 0, retention_ms=1000)
    recorder.partition("u", 0)
    process = recorder.process("admin", "1.0", {})
    recorder.remakes(process, "t", "ab" * 16)
    new = recorder.partitions["t", 0]
    assert (old, new) == (0, 2) and recorder.place(old) == recorder.place(new) == ("t", 0)
    recorder.close()
    history = parse(path.read_bytes().splitlines(keepends=True))
    assert [(each.name, each.deleted, each.retention_ms) for each in history.partitions] == [
        ("t-0", True, 1000), ("u-0", False, -1), ("t-0", False, 1000),
    ]  # fmt: skip
    assert [line["id"] for line in lines(path) if line.get("what") == "delete_topic"] == ["ab" * 16]


def test_settings_in_force_count_for_partitions_that_are_there_and_for_those_to_come(path: Path) -> None:
    recorder = Recorder(RealEnv("harness"), str(path), "run-1")
    settings = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5000",
        "retention.bytes": "-1",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
    }
    recorder.partition("t", 0)
    recorder.topic_settings({"t": settings, "u": {}})
    assert recorder.settings == {"t": settings, "u": {}}
    recorder.partition("t", 1, added=True)
    recorder.partition("u", 0)
    recorder.close()
    *both, untold = parse(path.read_bytes().splitlines(keepends=True)).partitions
    for each in both:
        assert (each.cleanup, each.retention_ms, each.min_isr, each.unclean) == ("compact,delete", 5000, 2, 1)
    assert not untold.described
