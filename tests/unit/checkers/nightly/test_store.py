"""The store of nights: only ever added to, whole or not there."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from squall.checkers.nightly import store
from squall.checkers.nightly.store import CollectedNight

NOW = datetime(2026, 7, 4, 5, tzinfo=UTC)


def collect(place: Path, night: str, *, lost: int = 0, at: datetime = NOW, began: str = "2026-07-04") -> CollectedNight:
    """Add a night with one run to the store, of which only the number of lost records is given."""
    folder = store.fresh(place, f"{night}-{lost}-{at:%H%M%S}", at)
    store.write(folder, "nights", [{"night": night, "began": began}])
    store.write(folder, "runs", [{"night": night, "item": "one", "axes": {"acks": "1"}, "lost": lost}])
    for name in ("findings", "faults", "latencies"):
        store.write(folder, name, [])
    return store.commit(folder, night, began, f"digest{lost}", at)


def lost(place: Path) -> list[int]:
    """Return how many records each night's run lost."""
    return [row["lost"] for row in store.rows(store.collections(place)[0], "runs")]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    collect(tmp_path, "n1", lost=3)
    (row,) = store.rows(store.collections(tmp_path)[0], "runs")
    assert (row["night"], row["axes"], row["lost"], row["p99_ms"]) == ("n1", {"acks": "1"}, 3, None)


def test_of_a_night_the_newest_collection_counts_and_the_older_one_stays(tmp_path: Path) -> None:
    first = collect(tmp_path, "n1", lost=1)
    collect(tmp_path, "n1", lost=2, at=NOW + timedelta(seconds=1))
    assert lost(tmp_path) == [2]
    assert store.rows([first], "runs")[0]["lost"] == 1


def test_a_killed_session_leaves_nothing_that_counts_and_is_cleared_away_a_day_later(tmp_path: Path) -> None:
    collect(tmp_path, "n1", lost=1)
    torn = store.fresh(tmp_path, "n1-killed", NOW)
    (torn / "runs.parquet").write_bytes(b"PAR1 and no more")
    os.utime(torn, (NOW.timestamp(), NOW.timestamp()))
    assert lost(tmp_path) == [1]
    store.fresh(tmp_path, "another", NOW + timedelta(hours=2))
    assert torn.exists()
    store.fresh(tmp_path, "a third", NOW + timedelta(days=2))
    assert not torn.exists()


def test_two_sessions_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    one, other = store.fresh(tmp_path, "a", NOW), store.fresh(tmp_path, "b", NOW)
    for folder, night in ((one, "n1"), (other, "n1")):
        for name in store.TABLES:
            store.write(folder, name, [])
        store.commit(folder, night, "2026", f"digest of {folder.name}", NOW)
    assert len(store.collections(tmp_path)[0]) == 1
    assert len(list((tmp_path / "night=n1").iterdir())) == 2


def test_nights_come_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    collect(tmp_path, "a", began="2026-07-05")
    collect(tmp_path, "b", began="2026-07-04")
    assert [each.night for each in store.collections(tmp_path)[0]] == ["b", "a"]


def test_a_night_of_another_schema_is_left_out_and_told(tmp_path: Path) -> None:
    kept = collect(tmp_path, "n1")
    told = json.loads((kept.path / store.COLLECTION).read_text())
    (kept.path / store.COLLECTION).write_text(json.dumps({**told, "schema": 0}))
    found, problems = store.collections(tmp_path)
    assert not found
    assert "night n1 in schema 0" in problems[0]


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more"])
def test_a_damaged_collection_is_left_out_and_told_and_an_older_one_of_its_night_counts(
    tmp_path: Path, content: bytes | None
) -> None:
    collect(tmp_path, "n1", lost=1)
    newest = collect(tmp_path, "n1", lost=2, at=NOW + timedelta(seconds=1))
    collect(tmp_path, "n2", lost=3)
    newest.file("faults").unlink()
    if content is not None:
        newest.file("faults").write_bytes(content)
    assert lost(tmp_path) == [1, 3]
    (problem,) = store.collections(tmp_path)[1]
    assert problem.startswith(f"{newest.path} cannot be read")
    assert "`squall report --nightly`" in problem


def test_a_table_that_is_damaged_in_its_middle_is_left_out_or_read_as_it_was(tmp_path: Path) -> None:
    collect(tmp_path, "n1", lost=1)
    newest = collect(tmp_path, "n2", lost=2)
    rows = store.rows(store.collections(tmp_path)[0], "runs")
    content = newest.file("runs").read_bytes()
    told = 0
    for at in (*range(0, len(content), 101), content.rindex(b"lost", 0, content.rindex(b"ARROW:schema"))):
        newest.file("runs").write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        found, problems = store.collections(tmp_path)
        told += len(problems)
        assert all(each.startswith(f"{newest.path} cannot be read, and is left out (") for each in problems)
        assert store.rows(found, "runs") == rows[: len(found)] and len(found) == 2 - len(problems), at
    assert told > 20


def test_a_file_in_the_place_of_a_night_is_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "night=zzz").touch()
    assert store.collections(tmp_path) == ([], [f"{tmp_path}/night=zzz is no folder, and is left out: remove it."])


def test_a_store_that_is_not_there_is_an_empty_one(tmp_path: Path) -> None:
    assert store.collections(tmp_path / "none") == ([], [])
