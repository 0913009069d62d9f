"""If Java hangs before Spark answers, the wait for it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from squall.chaos.toolchain.java import java
from tests.support.histories.builder import HistoryBuilder

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

ROOT = Path(__file__).resolve().parents[3]


def test_a_java_that_says_nothing_is_given_up_and_ended(tmp_path: Path) -> None:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    (tmp_path / "history.jsonl").write_bytes(b"".join(h.lines()))
    program = tmp_path / "java/bin/java"
    program.parent.mkdir(parents=True)
    # As one that could not write down where it listens, on a disk that was full for a moment.
    program.write_text(
        f"""#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) exec {java(print).home}/bin/java "$@";; esac
echo $$ > {tmp_path}/pid
exec sleep 600
"""
    )
    program.chmod(0o755)
    command = [sys.executable, "-P", "-m", "squall.spark_analysis", str(tmp_path)]
    command += ["--java-home", str(tmp_path / "java"), "--start-limit", "3"]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert said.returncode == 1
    assert "Spark has not started within 3 s" in said.stderr
    assert "Traceback" not in said.stderr
    left = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{left}").exists() or "\nState:\tZ" in Path(f"/proc/{left}/status").read_text()
