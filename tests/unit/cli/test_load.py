"""Checks what `squall load` does before it starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from squall.chaos.commands import load
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.real.proc import identify


def test_a_load_waits_until_the_jvm_of_a_killed_one_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted, said = tmp_path / "jvm.json", list[str]()
    load.outlast_jvm(noted, said.append)  # a first load
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        running = identify(jvm.pid)
        assert running is not None and jvm.stdin is not None
        noted.write_text(json.dumps(asdict(running)))
        monkeypatch.setattr(load, "JVM_ENDS_S", -1.0)
        with pytest.raises(HarnessError, match=f"process {jvm.pid} still runs"):
            load.outlast_jvm(noted, said.append)
        monkeypatch.setattr(load, "JVM_ENDS_S", 60.0)
        stdin = jvm.stdin
        load.outlast_jvm(noted, lambda line: (said.append(line), stdin.close())[0])
    assert said == [f"waiting for the end of process {jvm.pid}, the JVM of a load that was killed"] * 2
    load.outlast_jvm(noted, said.append)
    assert len(said) == 2
