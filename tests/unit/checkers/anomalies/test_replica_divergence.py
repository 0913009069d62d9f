"""replica-divergence: segment files compared, byte for byte where nothing was compacted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from squall.broker.protocol.records import encode_batch
from squall.checkers.anomalies import replica_divergence
from squall.checkers.anomalies.replica_divergence import (
    CONTENT,
    DAMAGED,
    EPOCH,
    MISSING,
    ReplicaComparison,
    RequiredReplicaComparison,
    compare,
    compare_run,
    read_offsets,
)
from squall.checkers.history.tables import ObservedPartition

DELETE = ObservedPartition(3, "t", 0, "delete", -1)
COMPACT = ObservedPartition(3, "t", 0, "compact", -1)


def batch(base: int, *values: str, epoch: int = 1) -> bytes:
    records = [(base + i, 1000 + base + i, b"k", value.encode(), ()) for i, value in enumerate(values)]
    return encode_batch(records, base_offset=base, leader_epoch=epoch)


LOG = [batch(0, "a", "b"), batch(2, "c"), batch(3, "d", "e")]


def replica(root: Path, node: int, log: Sequence[bytes], *, hw: int = 5, start: int = 0, split: int = 2) -> Path:
    """Write a log directory: batches before `split` in the first segment, the others in a second one."""
    folder = root / "nodes" / str(node) / "data"
    (folder / "t-0").mkdir(parents=True)
    (folder / "t-0" / f"{0:020}.log").write_bytes(b"".join(log[:split]))
    (folder / "t-0" / f"{3:020}.log").write_bytes(b"".join(log[split:]))
    (folder / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {hw}\n")
    (folder / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    return folder


def found(comparison: ReplicaComparison) -> list[tuple[int, str, int]]:
    """Return (offset, evidence, node) of each divergence."""
    return [(w.off, w.evidence, w.other) for finding in comparison.findings for w in finding.witnesses]


def against(root: Path, log: Sequence[bytes], **more: int) -> list[tuple[int, str, int]]:
    """Compare a second replica that has this log with an intact one."""
    folders = {1: replica(root, 1, LOG), 2: replica(root, 2, log, **more)}
    return found(compare(folders, [DELETE]))


def test_equal_logs_do_not_differ(tmp_path: Path) -> None:
    assert against(tmp_path, LOG) == []


def test_segments_need_not_end_at_the_same_place(tmp_path: Path) -> None:
    assert against(tmp_path, LOG, split=1) == []


def test_what_stands_above_a_high_watermark_may_differ(tmp_path: Path) -> None:
    assert against(tmp_path, [*LOG[:2], batch(3, "x", "y")], hw=3) == []
    assert against(tmp_path / "b", LOG[:2], hw=3) == []


def test_what_one_replica_has_removed_from_its_beginning_is_not_compared(tmp_path: Path) -> None:
    assert against(tmp_path, LOG[1:], start=2) == []


def test_what_retention_removed_from_one_replica_alone_is_not_compared(tmp_path: Path) -> None:
    folders = {1: replica(tmp_path, 1, LOG), 2: replica(tmp_path, 2, LOG)}
    (folders[2] / "t-0" / f"{0:020}.log").unlink()
    comparison = compare(folders, [dataclasses.replace(DELETE, expirable_to=3)])
    assert found(comparison) == []
    assert comparison.compared["t-0"]["from"] == 3
    assert found(compare(folders, [DELETE])) == [(0, MISSING, 2), (2, MISSING, 2)]


def test_what_one_replica_alone_removed_before_retention_could_is_missing(tmp_path: Path) -> None:
    folders = {1: replica(tmp_path, 1, LOG), 2: replica(tmp_path, 2, LOG)}
    (folders[2] / "t-0" / f"{0:020}.log").unlink()
    assert found(compare(folders, [dataclasses.replace(DELETE, expirable_to=2)])) == [(2, MISSING, 2)]


def test_other_content_differs(tmp_path: Path) -> None:
    assert against(tmp_path, [LOG[0], batch(2, "x"), LOG[2]]) == [(2, CONTENT, 2)]


def test_the_same_records_in_other_batches_differ(tmp_path: Path) -> None:
    log = [batch(0, "a"), batch(1, "b"), *LOG[1:]]
    assert [evidence for _, evidence, _ in against(tmp_path, log, split=3)] == [CONTENT, MISSING]


def test_another_leader_epoch_differs(tmp_path: Path) -> None:
    assert against(tmp_path, [LOG[0], batch(2, "c", epoch=2), LOG[2]]) == [(2, EPOCH, 2)]


def test_a_batch_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert against(tmp_path, [LOG[0], LOG[2]]) == [(2, MISSING, 2)]
    folders = {1: replica(tmp_path / "b", 1, [LOG[0], LOG[2]]), 2: replica(tmp_path / "b", 2, LOG)}
    assert found(compare(folders, [DELETE])) == [(2, MISSING, 1)]


def test_a_wrong_checksum_is_damage_of_the_replica_that_has_it(tmp_path: Path) -> None:
    rotten = bytearray(LOG[1])
    rotten[-1] ^= 1
    assert against(tmp_path, [LOG[0], bytes(rotten), LOG[2]]) == [(2, DAMAGED, 2)]


def test_bytes_that_are_no_batches_are_damage_from_there_on(tmp_path: Path) -> None:
    assert against(tmp_path, [LOG[0], b"\0" * 100, LOG[2]]) == [(2, DAMAGED, 2)]


def test_two_that_differ_from_each_other_differ_from_the_furthest(tmp_path: Path) -> None:
    folders = {
        1: replica(tmp_path, 1, [LOG[0], batch(2, "x"), LOG[2]], hw=4),
        2: replica(tmp_path, 2, LOG, hw=5),
        3: replica(tmp_path, 3, LOG, hw=3),
    }
    comparison = compare(folders, [DELETE])
    assert found(comparison) == [(2, CONTENT, 1)]
    assert comparison.compared == {"t-0": {"nodes": [2, 1, 3], "from": 0, "to": 4}}


def test_a_node_without_the_partition_does_not_count(tmp_path: Path) -> None:
    folders = {1: replica(tmp_path, 1, LOG), 2: tmp_path}
    assert compare(folders, [DELETE]) == ReplicaComparison([], {})


@pytest.mark.parametrize(
    ("log", "differences"),
    [
        ([batch(0, "a", "b"), batch(3, "d", "e")], []),
        ([batch(0, "a", "b"), batch(2, "x"), LOG[2]], [(2, CONTENT, 2)]),
        ([batch(0, "a", "b"), batch(2, "c", epoch=7), LOG[2]], []),
    ],
    ids=["records taken away", "another record", "rewritten batch"],
)
def test_compacted_logs_are_compared_where_both_have_a_record(
    tmp_path: Path, log: list[bytes], differences: list[tuple[int, str, int]]
) -> None:
    folders = {1: replica(tmp_path, 1, LOG), 2: replica(tmp_path, 2, log)}
    assert found(compare(folders, [COMPACT])) == differences


def test_damage_in_a_compacted_log_is_seen(tmp_path: Path) -> None:
    rotten = bytearray(LOG[1])
    rotten[-1] ^= 1
    folders = {1: replica(tmp_path, 1, LOG), 2: replica(tmp_path, 2, [LOG[0], bytes(rotten), LOG[2]])}
    assert found(compare(folders, [COMPACT])) == [(2, DAMAGED, 2)]


READ = dataclasses.replace(DELETE, cover_from=0, cover_to=5, cover_t0=1)
"""The final reads came to offset 5."""
WANTED = RequiredReplicaComparison("r", [READ], 3)


def test_replicas_that_hold_all_that_was_finally_read_lack_nothing(tmp_path: Path) -> None:
    folders = {node: replica(tmp_path, node, LOG) for node in (1, 2, 3)}
    assert compare(folders, [READ]).lacking == []
    assert compare(folders, [dataclasses.replace(COMPACT, cover_from=0, cover_to=5)]).lacking == []


@pytest.mark.parametrize("partition", [READ, dataclasses.replace(COMPACT, cover_to=5)], ids=["delete", "compact"])
@pytest.mark.parametrize("damage", ["removed", "emptied", "cut short"])
def test_logs_that_all_hold_less_than_was_finally_read_were_not_compared(
    tmp_path: Path, damage: str, partition: ObservedPartition
) -> None:
    folders = {node: replica(tmp_path, node, LOG) for node in (1, 2)}
    for segment in tmp_path.glob("nodes/*/data/*/*.log"):
        if damage == "removed":
            segment.unlink()
        elif damage == "emptied":
            segment.write_bytes(b"")
        elif segment.stem.endswith("3"):
            segment.write_bytes(b"")
    comparison = compare(folders, [partition])
    held = 3 if damage == "cut short" else 0
    assert comparison.findings == []
    assert comparison.lacking == [
        f"nodes/{node}/data/t-0: its log holds batches below {held} only, and its final reads came to 5"
        for node in (1, 2)
    ]


def test_a_log_with_a_hole_holds_nothing_behind_it(tmp_path: Path) -> None:
    folders = {node: replica(tmp_path, node, [LOG[0], LOG[2]]) for node in (1, 2)}
    assert compare(folders, [DELETE]).lacking == []
    assert ["below 2 only" in each for each in compare(folders, [READ]).lacking] == [True, True]


@pytest.mark.parametrize("nodes", [(1, 2, 3), (2, 3)])
@pytest.mark.parametrize("text", [None, "", "0\n1\nt zero 3"])
def test_a_checkpoint_that_tells_nothing_is_named(tmp_path: Path, text: str | None, nodes: tuple[int, ...]) -> None:
    folders = {node: replica(tmp_path, node, LOG) for node in (1, 2, 3)}
    for node in nodes:
        path = folders[node] / "replication-offset-checkpoint"
        path.unlink() if text is None else path.write_text(text)
    assert compare(folders, [READ]).lacking == [
        f"nodes/{node}/data/replication-offset-checkpoint tells no high watermark of t-0: that replica was not compared"
        for node in nodes
    ]


def test_a_log_that_agrees_beyond_its_high_watermark_was_compared_as_far_as_it_agrees(tmp_path: Path) -> None:
    folders = {1: replica(tmp_path, 1, LOG), 2: replica(tmp_path, 2, LOG, hw=3), 3: replica(tmp_path, 3, LOG, hw=0)}
    comparison = compare(folders, [READ])
    assert (comparison.lacking, found(comparison)) == ([], [])
    assert comparison.compared["t-0"] == {"nodes": [1, 2, 3], "from": 0, "to": 5}


def test_a_log_that_differs_beyond_its_high_watermark_was_compared_below_that_and_is_no_finding(tmp_path: Path) -> None:
    rotten = bytearray(LOG[2])
    rotten[-1] ^= 1
    for number, last in enumerate((batch(3, "d", "x"), batch(3, "d", "e", epoch=2), bytes(rotten), b"")):
        root = tmp_path / str(number)
        folders = {1: replica(root, 1, LOG), 2: replica(root, 2, [*LOG[:2], last], hw=2)}
        comparison = compare(folders, [READ])
        assert found(comparison) == []
        assert comparison.lacking == [
            "nodes/2/data/replication-offset-checkpoint: t-0 was compared below 3 only, and its final reads came to 5"
        ]


def test_what_was_not_compared_is_trouble_and_was_not_looked_for(tmp_path: Path) -> None:
    folders = [replica(tmp_path, 1, LOG), replica(tmp_path, 2, LOG[:2], hw=3)]
    assert len(folders) == 2
    compare_run(tmp_path, [READ])
    troubles: list[str] = []
    assert replica_divergence.read(tmp_path, WANTED, troubles, []) == (False, [])
    (trouble,) = troubles
    assert trouble.startswith("nodes/2/data/replication-offset-checkpoint: t-0 was compared below 3 only")


def test_checkpoints_that_do_not_parse_claim_nothing(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    assert read_offsets(path) == {}
    for text in ("", "0", "0\n1\nt 0", "0\n1\nt zero 3", "0\n1\nt 0 3 4"):
        path.write_text(text)
        assert read_offsets(path) == {}


def test_a_runs_replicas_are_compared_and_kept(tmp_path: Path) -> None:
    replica(tmp_path, 1, LOG)
    replica(tmp_path, 2, [LOG[0], batch(2, "x"), LOG[2]])
    comparison = compare_run(tmp_path, [DELETE])
    assert comparison is not None
    assert found(comparison) == [(2, CONTENT, 2)]
    assert json.loads((tmp_path / "replicas.json").read_text())["compared"]["t-0"]["to"] == 5
    compared, findings = replica_divergence.read(tmp_path, WANTED, [], [])
    assert (compared, findings) == (True, comparison.findings)


def test_a_run_with_one_nodes_data_is_not_compared(tmp_path: Path) -> None:
    replica(tmp_path, 1, LOG)
    assert compare_run(tmp_path, [DELETE]) is None
    assert not (tmp_path / "replicas.json").exists()


def test_a_comparison_that_cannot_be_read_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "replicas.json").write_text("{}")
    troubles: list[str] = []
    assert replica_divergence.read(tmp_path, WANTED, troubles, []) == (False, [])
    assert troubles[0].startswith("replicas.json: KeyError")


def kept(root: Path, **odd: object) -> tuple[bool, list[str]]:
    """Return for a sound comparison with `odd` in it whether it counts as one, and the troubles."""
    for node in (1, 2, 3):
        replica(root, node, LOG)
    compare_run(root, [READ], "r")
    path = root / "replicas.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **odd}))
    troubles: list[str] = []
    compared, findings = replica_divergence.read(root, WANTED, troubles, [])
    assert findings == []
    return compared, troubles


def test_a_kept_comparison_of_the_run_that_reaches_far_enough_counts(tmp_path: Path) -> None:
    assert kept(tmp_path) == (True, [])
    stored = json.loads((tmp_path / "replicas.json").read_text())
    del stored["run"], stored["lacking"]
    (tmp_path / "replicas.json").write_text(json.dumps(stored))
    assert replica_divergence.read(tmp_path, WANTED, [], []) == (True, []), "as early versions wrote it"


ENTRY = {"nodes": [1, 2, 3], "from": 0, "to": 5}
FOUND = {"anomaly": "replica-divergence", "evidence": "content", "proc": -1, "count": 1}
WITNESS = {"anomaly": "replica-divergence", "evidence": "content"} | dict.fromkeys(
    ("part", "off", "val", "op", "proc", "other"), 9
)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"run": "other"}, "replicas.json: ValueError: it is about the run 'other', and the history about 'r'"),
        ({"schema": 2}, "replicas.json: ValueError: schema 2, and this program reads 1"),
        ({"compared": {}}, "replicas.json: the replicas of t-0 were not compared"),
        ({"compared": {"u-0": ENTRY}}, "replicas.json: ValueError: it compared u-0, which the history does not name"),
        ({"compared": {"t-0": {**ENTRY, "to": 4}}}, "replicas.json: t-0 was compared below 4 only, and its final"),
        ({"compared": {"t-0": {**ENTRY, "nodes": [1]}}}, "replicas.json: the replicas of t-0 were not compared: it"),
        ({"compared": {"t-0": {**ENTRY, "to": "5"}}}, "replicas.json: ValueError: '5' is no whole number"),
        ({"compared": {"t-0": 5}}, "replicas.json: TypeError"),
        ({"compared": None}, "replicas.json: TypeError"),
        (
            {"findings": [{**FOUND, "anomaly": "sned", "witnesses": []}]},
            "replicas.json: ValueError: it tells of 'sned'",
        ),
        ({"findings": [{**FOUND, "witnesses": [WITNESS]}]}, "replicas.json: ValueError: it tells of a partition"),
    ],
)
def test_a_kept_comparison_of_another_run_or_of_too_little_is_none(
    tmp_path: Path, odd: dict[str, object], why: str
) -> None:
    compared, (trouble,) = kept(tmp_path, **odd)
    assert not compared
    assert trouble.startswith(why)


def test_a_comparison_that_says_nothing_but_that_it_found_nothing_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "replicas.json").write_text('{"findings":[]}')
    troubles: list[str] = []
    assert replica_divergence.read(tmp_path, WANTED, troubles, []) == (False, [])
    assert troubles == ["replicas.json: KeyError: 'schema'"]


def test_a_single_replica_is_compared_with_nothing(tmp_path: Path) -> None:
    replica_divergence.write(tmp_path, [], {}, run="r")
    troubles: list[str] = []
    assert replica_divergence.read(tmp_path, RequiredReplicaComparison("r", [READ], 1), troubles, []) == (False, [])
    assert troubles == []
