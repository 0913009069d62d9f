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

ASKED = {"the topics": "a", "--isolation": "read_committed"}


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
        assert not folder.claim({**ASKED, "the topics": "typo"}), "nothing of it was planned"
        assert not folder.claim(ASKED)
        (folder.checkpoint / "offsets").mkdir(parents=True)
        (folder.checkpoint / "offsets" / "0").touch()
        assert folder.claim(ASKED)
        with pytest.raises(FolderError, match="loaded with the topics a, and b is asked for"):
            folder.claim({**ASKED, "the topics": "b"})


def test_a_folder_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    assert "not empty, and not the folder of a load: thesis.txt" in refused(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]
    assert "Not a directory" in refused(tmp_path / "thesis.txt" / "lake")


def test_a_folder_that_was_moved_is_refused_and_keeps_its_files(tmp_path: Path) -> None:
    partition = tmp_path / "lake" / "topic=a" / "partition=0"
    partition.mkdir(parents=True)
    (partition / "part-0.parquet").touch()
    log = tmp_path / "lake" / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text("v1\n" + json.dumps({"path": (partition / "part-0.parquet").as_uri(), "action": "add"}))
    assert LoadFolder(tmp_path / "lake").remove_uncommitted() == 0
    (tmp_path / "lake").rename(tmp_path / "moved")
    with pytest.raises(FolderError, match="it was moved or copied"):
        LoadFolder(tmp_path / "moved").remove_uncommitted()
    assert [*(tmp_path / "moved").glob("topic=*/*/*.parquet")]


def test_files_that_were_not_committed_are_removed(tmp_path: Path) -> None:
    partition = tmp_path / "topic=a b" / "partition=0"
    partition.mkdir(parents=True)
    files = [partition / f"part-{n}.parquet" for n in range(3)]
    theirs = partition / "theirs.parquet"
    theirs.touch()
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
    checksums = [file.with_name(f".{file.name}.crc") for file in files[:2]]
    assert sorted(partition.iterdir()) == sorted([theirs, *files[:2], *checksums])
    assert folder.remove_uncommitted() == 0


@pytest.mark.parametrize("topic", ["a", "x.json", "l" * 249])
def test_what_tasks_have_read_is_kept_by_range(topic: str, tmp_path: Path) -> None:
    folder = LoadFolder(tmp_path)
    with folder.locked():
        for _ in range(2):  # a second attempt of a task
            note_range(folder.ranges, RangeReader(OffsetRange(topic, 1, 5, 9)), 3, 70)
    ((wanted, found),) = folder.read_ranges(set())
    assert (wanted.start, wanted.end) == (5, 9)
    assert (found["records"], found["bytes"], found["lost"]) == (3, 70, [])


def test_progress_counts_offsets_that_are_gone_and_ranges_that_earlier_versions_noted(tmp_path: Path) -> None:
    folder = LoadFolder(tmp_path)
    with folder.locked():
        note_range(folder.ranges, RangeReader(OffsetRange("a", 1, 5, 9)), 3, 70)
        (file,) = folder.ranges.glob("*/*.json")
        noted = json.loads(file.read_text())
        del noted["gone"]
        file.write_text(json.dumps(noted))
        note_gone(folder.ranges, GoneOffsets(("a", 1), 7, 9, 2, 1))
    progress = LoadProgress(folder)
    for _ in range(2):  # each file counts once
        found = progress.now()
        assert (found.records, found.lost, found.read) == (3, [("a", 1, 7, 9)], {("a", 1): OffsetsRead(5, 4)})
