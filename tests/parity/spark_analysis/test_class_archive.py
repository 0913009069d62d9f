"""A JVM uses the archive of classes made for it, and starts without it if the file is damaged or missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from squall.chaos.runs import judgement
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.toolchain.class_archive import FILE, REFUSING, class_archive
from squall.chaos.toolchain.java import java
from squall.spark_analysis.short_history import history
from tests.support.lacks import skip_without

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

DIES_OF_CUT_ARCHIVES = (17,)
"""Java versions that do not notice a truncated archive. Later ones refuse it, and start without it."""


@pytest.fixture(scope="module")
def archive() -> Path:
    if java(print).version in REFUSING:
        skip_without("a Java that takes archives of classes", "JAVA_HOME=... of Java 17 or 25")
    made = class_archive(java(print), print)
    assert made is not None
    return made


def shared(folder: Path, archive: Path) -> int:
    """Return how many of Spark's own classes an analysis loads from the archive."""
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history()))
    classes = folder / "classes.log"
    logged = f"--conf=spark.driver.extraJavaOptions=-Xlog:class+load:file={classes}"
    command = [sys.executable, "-P", "-m", "squall.spark_analysis", str(folder), "--java-home", str(java(print).home)]
    subprocess.run([*command, "--class-archive", str(archive), logged], check=True, capture_output=True)
    found = json.loads((folder / "findings.json").read_text())["findings"]
    assert {each["anomaly"] for each in found} == {"corrupt", "int-poll-skip", "lost-write"}
    loaded = [line for line in classes.read_text().splitlines() if " org.apache.spark." in line]
    assert len(loaded) > 1_000
    return sum("source: shared objects file" in line for line in loaded)


def test_most_classes_come_from_it(archive: Path, tmp_path: Path) -> None:
    assert archive.name == FILE
    assert shared(tmp_path, archive) > 1_000


@pytest.mark.parametrize("damage", ["garbage", "gone"])
def test_spark_starts_without_one_that_is_none(tmp_path: Path, damage: str) -> None:
    damaged = tmp_path / "with a space" / FILE
    damaged.parent.mkdir()
    if damage == "garbage":
        damaged.write_bytes(b"garbage" * 10_000)
    assert shared(tmp_path, damaged) == 0


def test_a_run_is_judged_without_one_that_was_cut(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = tmp_path / "cache" / FILE
    cut.parent.mkdir()
    with archive.open("rb") as whole:
        cut.write_bytes(whole.read(10_000_000))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history()))
    monkeypatch.setattr(judgement, "class_archive_here", lambda there: cut)
    monkeypatch.chdir(tmp_path)  # a JVM that dies writes a report into its working directory
    say = Console(record=True, quiet=True)
    assert judgement.analyse(RunDirectory(run_dir), say) is None
    if java(print).version in DIES_OF_CUT_ARCHIVES:
        assert not cut.exists(), "the JVM died of it"
    found = json.loads((run_dir / "findings.json").read_text())["findings"]
    assert {each["anomaly"] for each in found} == {"corrupt", "int-poll-skip", "lost-write"}
