"""`squall report --nightly` end to end: killed and started again, started twice at once, and refused."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from squall.checkers.nightly import store
from tests.support.histories.builder import generate, merged
from tests.support.histories.nemesis_lines import NEMESIS
from tests.support.nightly.files import NightFiles
from tests.support.squall import ended, start

LIMIT_S = 300


def report(*words: str | Path) -> tuple[int, str, str]:
    """Run `squall report WORDS`. Returns its exit code, stdout and stderr."""
    return ended(start("report", *words), LIMIT_S)


def until_it_collects(place: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a folder of the store is being written."""
    deadline = time.monotonic() + LIMIT_S
    while not list(place.glob(".collecting-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing is collected"
        time.sleep(0.02)


def make_night(path: Path) -> Path:
    """Make a night with two runs that have histories, and one without files."""
    files = NightFiles(path)
    files.add("one", lines=merged([generate(1)]), nemesis=NEMESIS, judged={})
    files.add("two", lines=merged([generate(2)]), acks=1, judged={})
    files.add("three", "no verdict", why="the harness was killed")
    return files.write(end={})


@pytest.mark.night("a night of runs: minutes")
def test_a_session_that_is_killed_and_two_at_the_same_time_leave_one_whole_night(tmp_path: Path) -> None:
    night, place = make_night(tmp_path / "n1"), tmp_path / "store"
    killed = start("report", "--nightly", night)
    until_it_collects(place, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=LIMIT_S)
    assert store.collections(place) == ([], [])

    results = [ended(each, LIMIT_S) for each in [start("report", "--nightly", night) for _ in range(2)]]

    assert [code for code, _, _ in results] == [0, 0], results
    (collected,), problems = store.collections(place)
    assert problems == []
    rows = {row["item"]: row for row in store.rows([collected], "runs")}
    assert [rows[item]["measured"] for item in ("one", "two", "three")] == [True, True, False]
    assert rows["one"]["acknowledged"] > 0
    page = (night / "report/index.html").read_text()
    assert "the harness was killed" in page
    assert "Nothing is wrong" in page or "Too little is proven" in page

    before = sorted(place.rglob("*"))
    code, out, errors = report("--nightly", night, "--where", "acks=1", "--nights", "5")
    assert code == 0, errors
    assert sorted(path for path in place.rglob("*") if ".collecting-" not in str(path)) == [
        path for path in before if ".collecting-" not in str(path)
    ], "what is collected already is not collected again"
    assert "acks=1, min ISR 2 of 3" in out
    assert "acks=all" not in out
    assert (night / "report/nights-5-acks-1.html").exists()

    code, _, errors = report("--nightly", night, "--where", "ack=1")
    assert code == 3
    assert "no run of these nights has an axis 'ack'; there are: acks," in errors
    assert "Traceback" not in errors


@pytest.mark.gate
def test_a_night_in_which_nothing_ran_has_a_page_without_spark(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    files.plan_item("one", acks="all")
    night = files.write()
    code, out, errors = report("--nightly", night)
    assert (code, errors) == (0, "")
    assert "Nothing ran" in out
    assert "No run of this night has ended." in (night / "report/index.html").read_text()


@pytest.mark.night("a night of runs: minutes")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nightly", "."), "no night is there: it has no night.json"),
        (("--where", "acks=1"), "add --nightly DIR"),
        (("--nightly", ".", "--where", "acks"), "it is AXIS=VALUE"),
        (("--nightly", ".", "--nights", "3", "--since", "2026-07-01"), "give one of them"),
        (("runs/latest", "--nightly", "."), "name either a run or, with --nightly, a night"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_a_sentence(words: tuple[str, ...], said: str) -> None:
    code, _, errors = report(*words)
    assert code == 3
    assert said in " ".join(errors.split())
    assert "Traceback" not in errors
