"""A process of the harness that is killed during a run is reported as such, and never counted as a failure of the
cluster.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs import real
from squall.chaos.runs.progress import Progress
from squall.chaos.runtimes.real.processes import registry
from tests.live.shell.conftest import Squall

pytestmark = pytest.mark.night("whole runs; the gate has one")

RUN = ("run", "--seed", "7", "--time", "9", "--warmup", "1", "--rate", "200")


def kill(what: str, below: Path) -> None:
    """Kill a process of the run in this folder, by its name in the registry."""
    (pid,) = [
        noted.process.pid
        for run in registry.runs()
        if Path(run.folder).is_relative_to(below)
        for noted in run.processes
        if noted.what == what
    ]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("what", "faults", "told"),
    [
        ("toxiproxy", "latency", "Toxiproxy ended with -9, which nobody asked it to: every link was cut"),
        ("frame relay", "protocol", "the frame relay ended with -9, which nobody asked it to"),
    ],
)
def test_a_run_whose_proxies_were_killed_is_unknown(
    what: str, faults: str, told: str, tmp_path: Path, started: list[Squall]
) -> None:
    squall = Squall(tmp_path, (*RUN, "--faults", faults))
    started.append(squall)
    squall.until("] load")
    kill(what, tmp_path)
    assert squall.code() == 2, squall.said()
    assert squall.left_behind() == []
    verdict = json.loads((tmp_path / "runs/latest/verdict.json").read_text())
    assert verdict["verdict"] == "unknown"
    assert any(told in each for each in verdict["reasons"]), verdict["reasons"]
    assert (tmp_path / "runs/latest/history.jsonl").stat().st_size


@pytest.mark.parametrize("phase", ["writes after healing", "final reads"])
def test_without_its_proxies_after_healing_a_run_is_unknown_and_says_that_it_could_not_look(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These phases take milliseconds, so the kill happens at the beginning of one."""

    class Killing(Progress):
        @contextmanager
        def phase(self, name: str, lasts_s: float | None = None) -> Iterator[None]:
            with super().phase(name, lasts_s):
                if name == phase:
                    kill("toxiproxy", tmp_path)
                yield

    monkeypatch.setattr(real, "Progress", Killing)
    limits = {"converge_s": 5, "stuck_s": 4, "final_read_s": 3}
    plan = make_plan({"seed": 7, "time_s": 2, "warmup_s": 1, "limits": limits, "workload": {"rate": 200, "readers": 2}})
    directory = real.run_and_judge(plan, tmp_path)
    assert directory is not None
    verdict = json.loads(directory.verdict.read_text())
    assert verdict["verdict"] == "unknown", verdict["reasons"]
    assert any("Toxiproxy ended with -9, which nobody asked it to" in each for each in verdict["reasons"])
    (looked_for,) = [each for each in verdict["notes"] if each.startswith("looked for: ")]
    assert "stuck-" not in looked_for
    # What was stuck is shown, and is held against nothing for sure.
    assert not [each for each in verdict["anomalies"] if each["permitted"] is False]
