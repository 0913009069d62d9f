"""The folder of a load: one load at a time, always the same one, and no file that was not committed."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from squall.spark_analysis.load.folder import FolderError, LoadFolder, note_gone, note_range
from squall.spark_analysis.load.job import LoadProgress
from squall.spark_analysis.load.lag import OffsetsRead
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import GoneOffsets, RangeReader

ASKED = {"subscribe": "a", "kafka.isolation.level": "read_committed"}


def refused(path: Path) -> str:
    try:
        with LoadFolder(path).locked():
            return ""
    except FolderError as error:
        return str(error)


def test_a_second_load_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with LoadFolder(tmp_path).locked(), multiprocessing.get_context("spawn").Pool(1) as pool:
        said = pool.apply(refused, (tmp_path,))
        assert "another load writes into this folder (process " in said
    assert refused(tmp_path) == ""


def test_a_folder_belongs_to_one_load(tmp_path: Path) -> None:
    folder = LoadFolder(tmp_path)
    with folder.locked():
        assert not folder.claim(ASKED)
        assert folder.claim(ASKED)
        with pytest.raises(FolderError, match="loaded with subscribe a, and b is asked for"):
            folder.claim({**ASKED, "subscribe": "b"})


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    folder = LoadFolder(tmp_path)
    with folder.locked(), pytest.raises(FolderError, match=r"not empty, .*: thesis\.txt"):
        folder.claim(ASKED)


def test_files_that_were_not_committed_are_removed(tmp_path: Path) -> None:
    partition = tmp_path / "topic=a b" / "partition=0"
    partition.mkdir(parents=True)
    files = [partition / f"part-{n}.parquet" for n in range(3)]
    for file in files:
        file.touch()
        file.with_name(f".{file.name}.crc").touch()
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    entries = [json.dumps({"path": file.as_uri(), "action": "add"}) for file in files]
    (log / "0").write_text("\n".join(["v1", entries[0]]))
    (log / "1.compact").write_text("\n".join(["v1", *entries[:2]]))
    folder = LoadFolder(tmp_path)
    assert folder.remove_uncommitted() == 1
    assert sorted(partition.iterdir()) == sorted([*files[:2], *(f.with_name(f".{f.name}.crc") for f in files[:2])])
    assert folder.remove_uncommitted() == 0


def test_what_tasks_have_read_is_kept_by_range(tmp_path: Path) -> None:
    folder = LoadFolder(tmp_path)
    with folder.locked():
        for _ in range(2):  # a second attempt of a task
            note_range(folder.ranges, RangeReader(OffsetRange("a", 1, 5, 9)), 3, 70)
    ((wanted, found),) = folder.read_ranges(set())
    assert (wanted.start, wanted.end) == (5, 9)
    assert (found["records"], found["bytes"], found["lost"]) == (3, 70, [])


def test_progress_counts_offsets_that_are_gone_and_ranges_that_earlier_versions_noted(tmp_path: Path) -> None:
    folder = LoadFolder(tmp_path)
    with folder.locked():
        note_range(folder.ranges, RangeReader(OffsetRange("a", 1, 5, 9)), 3, 70)
        (file,) = folder.ranges.glob("*.json")
        noted = json.loads(file.read_text())
        del noted["gone"]
        file.write_text(json.dumps(noted))
        note_gone(folder.ranges, GoneOffsets(("a", 1), 7, 9, 2, 1))
    progress = LoadProgress(folder)
    for _ in range(2):  # each file counts once
        found = progress.now()
        assert (found.records, found.lost, found.read) == (3, [("a", 1, 7, 9)], {("a", 1): OffsetsRead(5, 4)})
