"""A disk that is full in the middle of a night: one sentence, what was measured stays, and the night can be resumed."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from squall.chaos.commands import night_end
from squall.chaos.errors import PreconditionError
from squall.chaos.nightly import allure_results, full_disk, session
from squall.chaos.nightly.budget import CostModel
from squall.chaos.nightly.directory import NightDirectory
from squall.chaos.nightly.evidence import RunEvidence
from squall.chaos.nightly.player import NightRunner
from squall.chaos.nightly.scheduling import ScheduledNight
from squall.checkers.nightly.results import RunAttempt, by_item
from tests.unit.nightly.test_player import flags, night, played

FULL = OSError(errno.ENOSPC, "No space left on device")
ATTEMPT = RunAttempt("a", 1, "valid", 0, "", "2026-07-04T01:00:00+00:00", 1.0, "")


def verdicts(player: NightRunner) -> dict[int, list[str]]:
    return {seed: [each.verdict for each in attempts] for seed, attempts in played(player).items()}


def test_a_run_that_met_a_full_disk_is_no_result_and_nothing_is_played_behind_it(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["disk full"], 3: ["valid"]})
    player.limits.slots = 1
    assert verdicts(player) == {1: ["valid"], 2: [], 3: []}
    assert player.disk_full.startswith(f"the disk of {tmp_path} is full, ")
    assert [each.item for each in player.directory.attempts()] == [player.items[0].item]
    assert len(list((tmp_path / "runs").iterdir())) == 1, "what it left takes no room"
    again = night(tmp_path, {1: ["invalid"], 2: ["valid"], 3: ["valid"]})
    again.attempts = by_item(again.directory.attempts())
    assert verdicts(again) == {1: ["valid"], 2: ["valid"], 3: ["valid"]}


def test_a_run_that_proves_nothing_on_a_full_disk_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    player = night(tmp_path, {1: ["valid", "valid"], 2: ["unknown", "valid"], 3: ["valid"]})
    player.limits.slots = 1
    assert verdicts(player) == {1: ["valid"], 2: [], 3: []}


def test_a_result_that_does_not_fit_is_written_into_the_room_that_was_kept_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["valid"]})
    player.limits.slots = 1
    full_disk.reserve(tmp_path)
    add = NightDirectory.add

    def on_a_full_disk(directory: NightDirectory, attempt: RunAttempt) -> None:
        if (tmp_path / full_disk.RESERVE).exists():
            raise FULL
        add(directory, attempt)

    monkeypatch.setattr(NightDirectory, "add", on_a_full_disk)
    assert player.result(player.items[0]) is None
    assert player.disk_full
    assert [each.item for each in player.directory.attempts()] == [player.items[0].item]


def test_a_line_that_was_not_written_whole_is_not_there(tmp_path: Path) -> None:
    directory = NightDirectory(tmp_path)
    directory.add(ATTEMPT)
    directory.results.rename(tmp_path / "before")
    directory.results.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as met:
        directory.add(ATTEMPT)
    assert full_disk.is_full(met.value)
    assert not full_disk.is_full(PermissionError(errno.EACCES, "no"))
    directory.results.unlink()
    (tmp_path / "before").rename(directory.results)
    assert directory.attempts() == [ATTEMPT]


@pytest.mark.parametrize("where", ["report_attempt", "set_times", "write_environment"])
def test_a_file_of_allure_that_does_not_fit_ends_the_night_in_a_sentence(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def on_a_full_disk(*_: object) -> None:
        raise FULL

    player = night(tmp_path, {1: ["valid"], 2: ["valid"]})
    items = tuple(player.items)
    opened = ScheduledNight("n1", player.matrix, items, (), {}, CostModel(), 1)
    player.directory.write(player.directory.night, {"schema": 1, "items": [each.as_json() for each in items]})
    monkeypatch.setattr(allure_results, where, on_a_full_disk)
    code = session.play(player.directory, player, lambda run, unexpected: RunEvidence(), "", stop_at_first=False)
    assert code == session.INTERRUPTED
    assert night_end.end(player.directory, opened, player, flags(), interrupted=True) == 2
    told = capfd.readouterr()
    assert "INTERNALERROR" not in told.err + told.out
    assert "Traceback" not in told.err + told.out
    assert told.err.count("\n") == 1
    assert told.err.startswith(f"squall: the night ended early: the disk of {tmp_path} is full, ")
    assert f"nightly --resume {tmp_path}" in told.err
    end = json.loads(player.directory.end.read_text())
    assert (end["interrupted"], end["exit"]) == (True, 2)
    assert player.directory.attempts()
    assert "valid" in player.directory.summary.read_text()


def test_a_finding_before_the_disk_was_full_is_the_exit_code(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["invalid"], 2: ["disk full"]})
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    player.limits.slots = 1
    played(player)
    assert night_end.end(player.directory, opened, player, flags(), interrupted=True) == 1


def test_a_night_needs_some_room_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(folder: Path) -> None:
        raise FULL

    monkeypatch.setattr(full_disk, "reserve", on_a_full_disk)
    with (
        pytest.raises(PreconditionError, match="is full, .* make room, or name another folder"),
        NightDirectory(tmp_path).locked(),
    ):
        pass
