"""A history that was changed beside its old verdict and its old Parquet is noticed wherever either is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.checkers import nemesis_log
from squall.checkers.history import conversion, seal
from squall.checkers.nightly import store
from squall.checkers.nightly.night import Night, read_night
from squall.checkers.nightly.runs import facts_of_night
from squall.reports.run_files import read_run
from squall.spark_analysis.nightly import tables
from tests.support.histories.builder import generate
from tests.support.histories.nemesis_lines import fault_line
from tests.support.nightly.files import NightFiles


def night(root: Path) -> tuple[Night, Path]:
    """A night of one run that is valid, and its history."""
    files = NightFiles(root / "n1")
    run = files.add("one", lines=generate(1).lines(), judged={})
    verdict = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps({**verdict, seal.JUDGED: seal.stamp(run / seal.FILE)}))
    return read_night(files.write()), run


def change(run: Path) -> None:
    """Change one offset of one acknowledgement. The file's size stays the same."""
    history = run / seal.FILE
    text = history.read_text()
    before, after = '"off":1,', '"off":7,'
    assert before in text
    history.write_text(text.replace(before, after, 1))


def test_a_night_takes_no_verdict_for_valid_whose_history_is_another_one_now(tmp_path: Path) -> None:
    made, run = night(tmp_path)
    (facts,) = facts_of_night(made)
    assert (facts.verdict, facts.trouble) == ("valid", "")
    change(run)
    (facts,) = facts_of_night(made)
    assert facts.verdict == "unknown"
    assert facts.trouble.startswith("history.jsonl is not the one that was judged: it had ")
    (run / seal.FILE).unlink()
    (facts,) = facts_of_night(made)
    assert (facts.verdict, facts.trouble) == ("unknown", "history.jsonl is gone, which was judged")


def test_a_finding_stays_one_whatever_becomes_of_its_history(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    run = files.add("one", "invalid", lines=generate(1).lines(), judged={seal.JUDGED: {"bytes": 1, "crc32": 2}})
    (facts,) = facts_of_night(read_night(files.write()))
    assert facts.verdict == "invalid"
    assert seal.NOT_JUDGED in facts.trouble
    assert run.exists()


def test_the_page_of_a_run_says_that_its_history_is_another_one_now(tmp_path: Path) -> None:
    _, run = night(tmp_path)
    assert not any(seal.NOT_JUDGED in each for each in read_run(run).problems)
    change(run)
    assert any(each.startswith(seal.NOT_JUDGED) for each in read_run(run).problems)


def test_a_changed_history_is_collected_again(tmp_path: Path) -> None:
    made, run = night(tmp_path)
    before = store.digest_of(made)
    assert store.digest_of(made) == before
    change(run)
    assert store.digest_of(made) != before


@pytest.mark.parametrize("name", [seal.FILE, f"{conversion.FOLDER}/records.parquet"])
def test_tables_of_another_history_are_made_again(name: str, tmp_path: Path) -> None:
    _, run = night(tmp_path)
    first = tables.converted_run(run).converted
    stamps = {path: path.stat().st_mtime_ns for path in (run / conversion.FOLDER).iterdir()}
    assert tables.converted_run(run).converted == first
    assert {path: path.stat().st_mtime_ns for path in (run / conversion.FOLDER).iterdir()} == stamps, "made once"
    if name == seal.FILE:
        change(run)
    else:
        (run / name).write_bytes((run / name).read_bytes()[:-1] + b"?")
    again = tables.converted_run(run).converted
    assert conversion.is_current(run, again)
    assert (again.source != first.source) is (name == seal.FILE)
    assert (run / f"{conversion.FOLDER}/records.parquet").stat().st_mtime_ns != stamps[run / "history/records.parquet"]


@pytest.mark.parametrize("how", ["apart", "layout", "with other faults"])
def test_tables_that_were_made_of_other_faults_are_made_again(how: str, tmp_path: Path) -> None:
    """Check that tables are made again when faults change: which heartbeats prove ownership depends on the faults.
    Early versions do not record what their tables depend on.
    """
    _, run = night(tmp_path)
    first = tables.converted_run(run).converted
    if how == "with other faults":
        with (run / nemesis_log.FILE).open("ab") as lines:
            lines.write(fault_line(99, "partition", 1, 2))
    else:
        path = run / conversion.FOLDER / conversion.CONVERSION
        stored = json.loads(path.read_text())
        del stored[how]
        path.write_text(json.dumps(stored))
    assert not conversion.is_current(run, conversion.read_conversion(run))
    again = tables.converted_run(run).converted
    assert conversion.is_current(run, again)
    assert (again.apart != first.apart) is (how == "with other faults")
